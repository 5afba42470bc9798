"""A book of runs as files."""
