"""Behaviour: the contracts of checkpoint, compressor, communicator and reader, asked directly."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from nlpkernel.errors import NlpkernelError
from nlpkernel.hookspecs.compressor import Span
from nlpkernel.state import Leaf, Snapshot
from nlpkernel_sdk.conform.checks import NotApplicable, check, refuse
from nlpkernel_sdk.conform.running import base, fresh, run, steady, unequal
from nlpkernel_sdk.conform.subject import Part
from nlpkernel_sdk.conform.training import context, made
from nlpkernel_sdk.files import Opened, Tally


def _snapshot(step: int) -> Snapshot:
    tree = {
        "model/a": Leaf(torch.full((3, 2), float(step))),
        "model/b": Leaf(torch.tensor([1, 2], dtype=torch.int64)),
        "model/c": Leaf(torch.tensor([0.1, math.nan, math.inf], dtype=torch.bfloat16)),
        "model/d": Leaf(torch.zeros(0, 4)),
        "run/e": Leaf([1, 2.5, None, True, "ä☂", b"\x00\xff", {"k": [1]}, 2**63]),
    }
    facts = {
        "progress": {"step": step},
        "metrics": {"loss": 1.0},
        "main": ["loss", "min"],
        "plan": "",
        "lock": {},
    }
    return Snapshot(step=step, tree=tree, artifacts={"x.bin": b"\x00\x01"}, facts=facts)


@check("behaviour.store-exact", "what is loaded is what was saved, bit for bit", points=["checkpoint"])
def _exact(part: Part) -> None:
    base(part)
    folder = fresh()
    store = context(part).ask(made(part), "open_store", folder=folder, write=True)
    store.save(_snapshot(3))
    store.settle(wait=True)
    loaded = store.load()
    store.close()
    wrong = unequal(_snapshot(3).tree, loaded.tree)
    if dict(loaded.artifacts) != {"x.bin": b"\x00\x01"}:
        wrong.append("the artifacts are others")
    if loaded.step != 3 or loaded.name is None:
        wrong.append(f"the version has the step {loaded.step} and the name {loaded.name!r}")
    refuse(wrong)


@check(
    "behaviour.store-copies",
    "the next step changes the tensors that were given to save",
    points=["checkpoint"],
)
def _copies(part: Part) -> None:
    base(part)
    store = context(part).ask(made(part), "open_store", folder=fresh(), write=True)
    snapshot = _snapshot(3)
    store.save(snapshot)
    snapshot.tree["model/a"].value.fill_(-1.0)
    store.settle(wait=True)
    value = store.load().tree["model/a"].value
    store.close()
    if not torch.equal(value, torch.full((3, 2), 3.0)):
        refuse(["a tensor that changes after save returned is changed in the version"])


@check(
    "behaviour.store-missing",
    "a version that is not there is an error, and never another one",
    points=["checkpoint"],
)
def _missing(part: Part) -> None:
    base(part)
    folder = fresh()
    store = context(part).ask(made(part), "open_store", folder=folder, write=True)
    wrong = [] if not list(store.list()) else ["a new folder has versions"]
    for reference in (None, "no-such-version"):
        if reference is not None:
            store.save(_snapshot(3))
            store.settle(wait=True)
        try:
            store.load(reference)
        except NlpkernelError:
            continue
        except Exception as error:  # noqa: BLE001 - any other error is what is looked for
            wrong.append(f"loading {reference!r} raises {type(error).__name__}: raise CheckpointError")
            continue
        wrong.append(f"loading {reference!r} gives something")
    store.close()
    refuse(wrong)


@check("behaviour.store-damage", "a damaged version never loads in silence", points=["checkpoint"])
def _damage(part: Part) -> None:
    base(part)
    folder = fresh()
    run = context(part)
    store = run.ask(made(part), "open_store", folder=folder, write=True)
    store.save(_snapshot(3))
    store.settle(wait=True)
    store.close()
    files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 16]
    if not files:
        raise NotApplicable("it keeps no files in the folder of the run")
    largest = max(files, key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    largest.write_bytes(content)
    again = run.ask(made(part), "open_store", folder=folder, write=False)
    try:
        again.load()
    except NlpkernelError:
        return
    except Exception as error:  # noqa: BLE001 - any other error is what is looked for
        refuse([f"a damaged version raises {type(error).__name__}: raise CheckpointError"])
    finally:
        again.close()
    refuse([f"a byte of {largest.name} was changed, and the version loads"])


@check(
    "behaviour.compressor-wire",
    "bytes are as many as were said, and stretches lie aligned",
    points=["compressor"],
)
def _wire(part: Part) -> None:
    base(part)
    compressor = context(part).ask(made(part), "create_compressor")
    encoder = compressor.encoder([Span.whole("a", (6, 4)), Span.whole("b", (5,))], torch.device("cpu"))
    wrong = [] if encoder.bytes % 4 == 0 else [f"its wire has {encoder.bytes} bytes, no multiple of 4"]
    if compressor.summable:
        refuse(wrong)
        raise NotApplicable("what it encodes is added up on its way")
    flat = torch.linspace(-1, 1, 29)
    wire = encoder.encode(flat.clone())
    if wire.dtype != torch.uint8 or wire.numel() != encoder.bytes:
        wrong.append(f"encode gives {wire.numel()} of {wire.dtype}, and bytes is {encoder.bytes}")
    refuse(wrong)
    one, two = torch.zeros(29), torch.ones(29)
    encoder.decode(wire, one)
    encoder.decode(wire, two)
    if not torch.allclose(two, one + 1, atol=1e-5):
        wrong.append("decode does not add to what is there")
    refuse(wrong)


@check(
    "behaviour.compressor-owed",
    "what is not sent now is sent later: sent and owed make the whole",
    points=["compressor"],
)
def _owed(part: Part) -> None:
    base(part)
    compressor = context(part).ask(made(part), "create_compressor")
    encoder = compressor.encoder([Span.whole("a", (8, 8))], torch.device("cpu"))
    flat = torch.randn(64, generator=torch.Generator().manual_seed(1))
    whole, sent = flat.clone(), torch.zeros(64)
    if compressor.summable:
        sent = flat.clone()
        for _ in encoder.rounds(sent):
            pass
    else:
        encoder.decode(encoder.encode(flat.clone()), sent)
    compressor.settle(False)
    owed = sum((value.reshape(-1) for value in compressor.owed().values()), torch.zeros(64))
    if not torch.allclose(sent + owed, whole, rtol=2e-2, atol=2e-2):
        refuse(
            [f"sent and owed differ from the whole by up to {float((sent + owed - whole).abs().max()):.2g}"]
        )


@check("behaviour.communicator-same", "another communicator gives the same losses", points=["communicator"])
def _same(part: Part) -> None:
    steady(part)
    values = part.values()
    values.pop("communicator")
    alone = run(part, values)
    if alone.error is not None:
        raise NotApplicable("the plan without it fails")
    one, other = ([loss for losses in told.losses for loss in losses] for told in (alone, base(part)))
    pairs = zip(one, other, strict=True)
    worst = max((abs(a - b) for a, b in pairs if a is not None and b is not None), default=0.0)
    if worst > 2e-6:
        refuse([f"losses differ from those of one process by {worst:.2g}"])


@check("behaviour.reader-again", "a file is read several times, by several workers", points=["reader"])
def _again(part: Part) -> None:
    path = Path(part.subject.config.base / str(part.config.get("sample", ""))).absolute()
    if not part.config.get("sample"):
        raise NotApplicable("it needs a file: give `sample`")
    reader = context(part).ask(made(part), "create_reader")
    columns = list(part.values()["data"].get("columns", ("text",)))

    def read() -> list[Any]:
        parts = list(reader.read(Opened(path), columns, Tally()))
        wrong = [
            f"{name} has another length"
            for each in parts
            for name in columns
            if len(each.columns[name]) != len(each.places)
        ]
        refuse(wrong)
        return [(list(each.columns[columns[0]]), list(each.places)) for each in parts]

    first = read()
    # One that is read half and left must not disturb the next.
    next(iter(reader.read(Opened(path), columns, Tally())), None)
    if read() != first:
        refuse(["a second reading gives other records"])
    places = [place for _, own in first for place in own]
    if places != sorted(places) or any(place < 1 for place in places):
        refuse(["the places of its records do not grow from 1 on"])
