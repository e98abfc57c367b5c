"""The Python API: the same studies as on the command line."""
