"""`python -m seqto.report`."""

from seqto.cli.report import main

if __name__ == "__main__":
    main()
