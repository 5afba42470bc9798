"""Plans: read from TOML, JSON or YAML, checked key by key, filled."""

from __future__ import annotations

from nlpkernel.plan.plan import Composition, Plan

__all__ = ["Composition", "Plan"]
