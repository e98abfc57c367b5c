"""`python -m seqto`."""

from seqto.cli import main

if __name__ == "__main__":
    main()
