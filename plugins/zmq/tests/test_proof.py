"""`verify-resume` of plans with servers: workers and servers are killed, all of it is resumed, and nothing shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .parts.machines import Site, ended


def proved(folder: Path, *options: str, **communicator: Any) -> tuple[int, str]:
    site = Site(folder)
    site.plan("proved", 12, **communicator)
    try:
        # Three starts of all processes, one after the other.
        words = ("verify-resume", "proved.json", "--steps", "12", "--kills", "1", *options)
        return ended(site.start(*words), 600.0)
    finally:
        site.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"compressor": {"use": "topk", "share": 0.2}, "down": {"use": "bf16"}},
        pytest.param({"servers": 2}, marks=pytest.mark.slow),
    ],
    ids=["compressed", "two servers"],
)
def test_a_plan_with_servers_resumes_bit_for_bit(tmp_path: Path, changes: dict[str, Any]) -> None:
    code, told = proved(tmp_path, "--json", **changes)
    assert code == 0, told
    proof = json.loads(told)
    assert (proof["holds"], proof["steps"]) == (True, 12)
    assert [part["killed"] for part in proof["parts"]] == [True, False]
    numbers = {row["what"]: row["number"] for row in proof["rows"]}
    assert {"state: model", "state: optimizer", "losses and norms of steps"} <= numbers.keys()
    assert numbers["state: optimizer"] > 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"mode": "async"},
            "two unbroken runs of the plan differ already: with mode = 'async' it depends on who",
        ),
        ({"listen": "127.0.0.1", "local": 1}, "some workers of the plan join from other machines"),
    ],
)
def test_what_cannot_be_proved_is_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    code, told = proved(tmp_path, **changes)
    assert code == 2, told
    assert f"NK314 {why}" in told


def test_a_script_for_another_launcher_is_refused_with_what_to_do(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.plan("rendered", 12, listen="127.0.0.1", local=1)
    code, told = ended(site.start("render", "rendered.json", "--for", "slurm"))
    assert code == 2
    assert "on each other one the `nlpkernel join` that the run says" in told
