"""`versions import`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from nlpkernel import runs
from nlpkernel.cli.output import count, say
from nlpkernel.errors import UsageError, fail
from nlpkernel_store.catalog import Catalog
from nlpkernel_store.codes import OWNER
from nlpkernel_store.commands.common import open_versions, run_argument, size
from nlpkernel_store.references import resolve

if TYPE_CHECKING:
    from torch import Tensor

    from nlpkernel.state import Snapshot


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options."""
    run_argument(parser)
    parser.add_argument(
        "path", metavar="PATH", help="a safetensors file with the model's names, or a folder of such files"
    )
    parser.add_argument(
        "--base",
        metavar="VERSION",
        help="where everything but the weights comes from; left out: the version that training goes on from",
    )
    parser.add_argument("--tag", metavar="NAME", help="give the new version this tag")


def execute(args: argparse.Namespace) -> int:
    """Make a version with other weights. Training goes on from where it did; a roll-back takes the new one up."""
    folder, catalog = open_versions(args.run, write=True)
    with runs.claim(folder):
        weights = _weights(Path(args.path))
        info, changed = _commit(catalog, weights, args.base, args.path)
        if args.tag:
            catalog.set_tag(args.tag, resolve(catalog, info.name))
    say(
        f"{info.name}: {count(changed, 'tensor')} of {len(weights)} differ from the base, {size(info.bytes)} in all"
    )
    say(f"nlpkernel rollback {folder} {info.name} goes on from it")
    return 0


def _weights(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    found: dict[str, Tensor] = {}
    for each in files:
        try:
            with safe_open(each, framework="pt") as file:
                found |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        except (OSError, SafetensorError) as error:
            raise _refused(f"{str(each)!r} cannot be read: {error}") from error
    if not found:
        raise _refused(f"there is no safetensors file with a tensor in {str(path)!r}")
    return found


def _commit(
    catalog: Catalog, weights: Mapping[str, Tensor], base: str | None, source: str
) -> tuple[Any, int]:
    from nlpkernel_store.options import Options, Worker
    from nlpkernel_store.store import VersionStore

    head = catalog.head()
    notices: list[str] = []
    worker = Worker(launch=f"import{catalog.next_serial()}")
    store = VersionStore(
        catalog, Options(asynchronous=False), worker, write=True, notice=notices.append, aside=True
    )
    entry = resolve(catalog, base)
    snapshot = store.load(entry.name)
    world = catalog.manifest(entry).world
    if world > 1:
        left = "worker 1" if world == 2 else f"workers 1 to {world - 1}"
        notices.append(f"what belongs to {left} alone is left behind: one worker makes the new version")
    made, changed = _laid_over(snapshot, weights, f"{source} over {entry.name}")
    if len(made.tree) < len(snapshot.tree):
        notices.append(
            f"{entry.name} has averages of its weights, which stay what they were: a run that goes on averages the new "
            "weights with them; in a plan without the component that averages, --allow leaves its state out"
        )
    if head is not None:
        # Written before the commit, with its number, so that it is none that training goes on from.
        catalog.set_head(head, serial=catalog.next_serial())
    store.save(made)
    (saved,) = store.settle(wait=True)
    store.close()
    for notice in notices:
        say(notice)
    return saved.version, changed


def _laid_over(snapshot: Snapshot, weights: Mapping[str, Tensor], origin: str) -> tuple[Snapshot, int]:
    """The snapshot with other weights, and how many of them are other. Raise UsageError (STO010) where they do not
    fit."""
    import torch

    from nlpkernel.state import EXPORT, MODEL, Addends, Leaf, Summed
    from nlpkernel_store.weights import whole

    # One worker makes the new version, of whatever number of workers the base is.
    tree = {
        path: Leaf(whole(leaf.value), Summed(0) if isinstance(leaf.value, Addends) else leaf.kind)
        for path, leaf in snapshot.tree.items()
        # An average of the weights before is none of these.
        if not path.startswith(EXPORT)
    }
    own = {
        path.removeprefix(MODEL): leaf
        for path, leaf in tree.items()
        if path.startswith(MODEL) and isinstance(leaf.value, torch.Tensor)
    }
    if missing := sorted(own.keys() - weights.keys()):
        raise _refused(f"{count(len(missing), 'tensor')} of the model missing: {', '.join(missing[:5])}")
    if strange := sorted(weights.keys() - own.keys()):
        raise _refused(f"the model has no {', '.join(strange[:5])}")
    changed = 0
    for name, new in weights.items():
        leaf = own[name]
        if (new.shape, new.dtype) != (leaf.value.shape, leaf.value.dtype):
            raise _refused(
                f"{name} is {new.dtype} {list(new.shape)}, and {leaf.value.dtype} {list(leaf.value.shape)} in the model"
            )
        if torch.equal(new, leaf.value):
            continue
        changed += 1
        tree[f"{MODEL}{name}"] = Leaf(new, leaf.kind)
    # What was measured was measured of other weights.
    other = changed or len(tree) < len(snapshot.tree)
    facts = {**snapshot.facts, "metrics": {}, "imported": origin} if other else dict(snapshot.facts)
    return attrs.evolve(snapshot, tree=tree, facts=facts), changed


def _refused(message: str) -> UsageError:
    return fail(UsageError, "STO010", message, owner=OWNER)  # type: ignore[return-value]
