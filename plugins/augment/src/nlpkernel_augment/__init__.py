"""Text augmentation for nlpkernel. `component` is light; the other modules do the work."""
