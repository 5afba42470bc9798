"""A run on the console: a live view on a terminal, plain lines elsewhere."""
