"""Number formats for nlpkernel. `component` and `scale` are light; the other modules need torch."""
