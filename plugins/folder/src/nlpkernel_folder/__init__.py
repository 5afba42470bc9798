"""Versions of a run in a local folder: safetensors and msgpack, committed by rename."""
