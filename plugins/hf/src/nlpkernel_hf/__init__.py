"""Models of the library transformers for nlpkernel: the component `hf`."""

from __future__ import annotations

__version__ = "0.1.0"
