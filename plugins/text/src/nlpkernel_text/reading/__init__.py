"""From files to records: which files there are, how they are packed and encoded, and the readers of their formats."""
