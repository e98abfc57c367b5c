"""The door in Python: the same studies as the command line's, called."""
