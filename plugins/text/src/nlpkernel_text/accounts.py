"""What was left out, dropped or changed on the way to the tokens, told to the run that uses them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nlpkernel_text.cleaning.work import Tally, counts_of

if TYPE_CHECKING:
    from nlpkernel.context import Run

#: Whose what is counted and said is.
OWNER = "data text"


def account(run: Run, facts: Mapping[str, Any]) -> None:
    """Count what was left out, also where it was left out by the process that made the cache."""
    for what, number in sorted(facts["counts"].items()):
        run.count(OWNER, what, number)
    if facts["first"]:
        told = ", ".join(f"{number} {what}" for what, number in sorted(facts["counts"].items()))
        message = f"records were left out ({told}); the first: {facts['first']}"
        run.notice(OWNER, message, level="warning")


def account_stages(run: Run, facts: Mapping[str, Any]) -> None:
    """Count what the stages dropped, changed and counted, and say what they have to say."""
    for (source, what), number in sorted(counts_of(map(Tally.of, facts["stages"])).items()):
        run.count(source, what, number)
    for line in facts["said"]:
        run.notice(OWNER, f"stage {line}")
