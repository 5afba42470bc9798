"""Every event of a run as a line of JSON, and such files read."""

from __future__ import annotations

from nlpkernel_jsonl.reading import read_events

__all__ = ["read_events"]
