"""Compressors of gradients, and what a communicator does with one. Light: what is heavy is in the modules."""
