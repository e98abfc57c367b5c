"""`python -m seqto.promote`."""

from seqto.cli.promote import main

if __name__ == "__main__":
    main()
