"""Content-addressed versions of a run, written beside the training, in its folder or a remote place."""
