"""Training tasks for nlpkernel: components `classification` and `mlm`."""

from __future__ import annotations

__version__ = "0.1.0"
