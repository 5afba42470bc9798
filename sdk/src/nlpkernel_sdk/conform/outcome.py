"""What came of the checks: for people, for machines, for a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import attrs

Status = Literal["passed", "failed", "skipped", "known"]


@attrs.frozen(kw_only=True)
class Outcome:
    """One check of one component, or of the distribution. case: "check[component]". said: what was found wrong, why it
    was skipped, or what was measured. reason: why the check matters."""

    case: str
    check: str
    component: str
    level: str
    status: Status
    said: str = ""
    reason: str = ""
    seconds: float = 0.0


@attrs.frozen(kw_only=True)
class Verdict:
    """All that was found of a distribution. wrong: what is wrong with the whole: too few checks, a known failure that
    is none."""

    distribution: str
    release: str
    outcomes: Sequence[Outcome]
    wrong: Sequence[str] = ()

    @property
    def counts(self) -> Counter[str]:
        """How many of each status."""
        return Counter(each.status for each in self.outcomes)

    @property
    def ran(self) -> int:
        """Checks that said something."""
        return len(self.outcomes) - self.counts["skipped"]

    @property
    def conforms(self) -> bool:
        """Whether nothing failed, and nothing is wrong with the whole."""
        return not self.wrong and not self.counts["failed"]

    def line(self) -> str:
        """One line."""
        counts = self.counts
        parts = [
            f"{counts[status]} {status}"
            for status in ("passed", "failed", "known", "skipped")
            if counts[status]
        ]
        return f"{self.distribution} {self.release}: {self.ran} checks were run: {', '.join(parts)}"

    def row(self) -> str:
        """A row of a Markdown table: distribution, release, then checks that passed and were run, by level."""
        cells = []
        for level in ("static", "behaviour", "distributed", "cost"):
            own = [each for each in self.outcomes if each.level == level and each.status != "skipped"]
            good = sum(each.status == "passed" for each in own)
            cells.append(f"{good}/{len(own)}" if own else "-")
        return f"| {self.distribution} | {self.release} | {' | '.join(cells)} |"

    def write_json(self, path: Path) -> None:
        """For machines."""
        table = {
            "distribution": self.distribution,
            "release": self.release,
            "conforms": self.conforms,
            "ran": self.ran,
            "wrong": list(self.wrong),
            "outcomes": [attrs.asdict(each) for each in self.outcomes],
        }
        path.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")

    def write_junit(self, path: Path) -> None:
        """As JUnit has it, for continuous integration."""
        counts = self.counts
        suite = ElementTree.Element(
            "testsuite",
            name=self.distribution,
            tests=str(len(self.outcomes)),
            failures=str(counts["failed"] + len(self.wrong)),
            skipped=str(counts["skipped"] + counts["known"]),
        )
        for each in self.outcomes:
            case = ElementTree.SubElement(
                suite, "testcase", classname=each.check, name=each.case, time=f"{each.seconds:.3f}"
            )
            if each.status == "failed":
                ElementTree.SubElement(case, "failure", message=each.said).text = each.reason
            elif each.status != "passed":
                ElementTree.SubElement(case, "skipped", message=f"{each.status}: {each.said}")
        for text in self.wrong:
            case = ElementTree.SubElement(suite, "testcase", classname="conform", name="the whole")
            ElementTree.SubElement(case, "failure", message=text)
        ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
