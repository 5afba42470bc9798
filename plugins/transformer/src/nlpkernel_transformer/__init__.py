"""Transformers for nlpkernel: `gpt`, `llama`, `encoder`, `encoder-decoder`, and the command `generate`."""

from __future__ import annotations

__version__ = "0.1.0"
