"""The console in a whole run of tiny components."""

from __future__ import annotations

import nlpkernel
from nlpkernel.events import Logged
from nlpkernel_sdk.plans import tiny_plan


def lines(capsys):
    """What was written from the start of the run on; what was picked before is told before it."""
    written = capsys.readouterr().out.splitlines()
    return written[next(number for number, line in enumerate(written) if line.startswith("tiny")) :]


def test_case_r9_a_resumed_run_goes_on_counting(tmp_path, capsys):
    plan = tiny_plan(
        train={"steps": 40, "batch": 8, "log": {"every": 5}},
        data={"rows": 80},
        checkpoint={"use": "store", "fsync": False},
        monitor=[{"use": "console"}],
    )
    for event in nlpkernel.train(plan, runs_folder=tmp_path):
        if isinstance(event, Logged) and event.progress.step == 25:
            break
    first = lines(capsys)
    assert first[0].startswith("tiny starts at step  0/40  epoch 0.00/4.00")
    assert first[-1].startswith("stopped at step 25/40  epoch 2.50/4.00")
    nlpkernel.run(plan, runs_folder=tmp_path, resume="newest")
    second = lines(capsys)
    assert second[0].startswith("tiny resumes at step 25/40  epoch 2.50/4.00")
    assert [line.split("  ")[0] for line in second if line.startswith("step")] == [
        "step 30/40",
        "step 35/40",
        "step 40/40",
    ]
    assert second[-1].startswith("finished at step 40/40  epoch 4.00/4.00")
