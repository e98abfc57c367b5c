"""`python -m seqto.compare`."""

from seqto.cli.comparing import main

if __name__ == "__main__":
    main()
