"""`python -m seqto.promote`."""

from seqto.cli.promoting import main

if __name__ == "__main__":
    main()
