"""The pytest plugin: says at the end how many checks of the conformance kit were run, so that nobody takes a run that
skipped everything for a green one. Light: it is imported by every pytest where the SDK is installed."""

from __future__ import annotations

from collections import Counter
from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A line for each distribution that was looked at."""
    counts: dict[str, Counter[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") != "call":
                continue
            for name, value in getattr(report, "user_properties", ()):
                if name == "nlpkernel_conform":
                    distribution, _, status = value.partition(" ")
                    counts.setdefault(distribution, Counter())[status] += 1
    for distribution, own in sorted(counts.items()):
        ran = sum(own.values()) - own["skipped"]
        words = ", ".join(f"{number} {status}" for status, number in sorted(own.items()))
        terminalreporter.write_line(f"{distribution}: {ran} conformance checks were run ({words})")
