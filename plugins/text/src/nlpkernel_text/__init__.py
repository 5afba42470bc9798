"""nlpkernel_text: text as training data, its tokenizers, and the task of predicting the next token."""

from __future__ import annotations

__version__ = "0.1.0"
