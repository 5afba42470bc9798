"""Decoder-only language models for nlpkernel: components `gpt` and `llama`, and the command `generate`."""

from __future__ import annotations

__version__ = "0.1.0"
