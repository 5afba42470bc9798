"""A recurrent network for nlpkernel: the component `recurrent`."""

from __future__ import annotations

__version__ = "0.1.0"
