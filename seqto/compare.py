"""`python -m seqto.compare`."""

from seqto.cli.compare import main

if __name__ == "__main__":
    main()
