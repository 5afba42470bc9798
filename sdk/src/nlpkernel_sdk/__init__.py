"""What plugin authors test with."""

from __future__ import annotations

from nlpkernel_sdk.plans import record, tiny_plan, tiny_values

__all__ = ["record", "tiny_plan", "tiny_values"]
