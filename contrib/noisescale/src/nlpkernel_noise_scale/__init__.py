"""The gradient noise scale of a run."""
