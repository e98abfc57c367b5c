"""`python -m seqto.report`."""

from seqto.cli.reporting import main

if __name__ == "__main__":
    main()
