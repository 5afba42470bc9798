"""A save asks the communicator for what it keeps elsewhere, before the state is read."""

from __future__ import annotations

import torch


def test_a_version_holds_what_the_communicator_has_gathered_before_it(bench):
    ran = bench.run(
        train={"steps": 4},
        checkpoint=bench.use("Shelf", every=2),
        communicator=bench.use("Elsewhere"),
    )
    assert ran.error is None
    assert (ran.folder / "gathered").read_text() == "24"
    for name, step in (("step-0002", 2.0), ("step-0004", 4.0)):
        tree = bench.shelf(ran.folder).load(name).tree
        found = {path: leaf.value for path, leaf in tree.items() if path.endswith("/elsewhere")}
        assert found
        assert all(torch.equal(value, torch.tensor(step)) for value in found.values())
