"""Pieces of gradients and parameters in fewer bytes."""
