"""Transformers for nlpkernel: components `gpt`, `llama` and `encoder`, and the command `generate`."""

from __future__ import annotations

__version__ = "0.1.0"
