"""The command `nlpkernel ray`: the workers of a plan on a Ray cluster. Light: ray is imported on use."""
