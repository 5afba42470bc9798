"""Stages that clean text for nlpkernel. `components` is light; the other modules do the work."""
