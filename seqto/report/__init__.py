"""Reports: plain info first, then plots, tables and files."""
