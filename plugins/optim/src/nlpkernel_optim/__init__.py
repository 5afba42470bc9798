"""Optimizers and schedules for nlpkernel. `component` and `schedules` are light; the other modules need torch."""
