"""The one owner of processes: starts those of a run, watches them, starts them again, and leaves none behind.

`launch` runs a plan under a `Supervisor`; `post` is the other side, in each of the run's own processes. Nothing here
imports torch.
"""
