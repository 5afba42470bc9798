"""What a save costs: how long training stands still, how long the write takes, and how much memory.

    python tests/benchmarks/checkpoint.py [--sizes 200MB 2GB] [--turns 7] [--json]

All arms save the same state in turns: weights and two moments of a transformer, every value changed before each save.
`stand` is the time for which the caller waits, `total` the time until the save is complete, `write` what of it comes
after the caller waited (all of it, where he waits for all). `stand/copy` is against `copy_` of the state into buffers
that are warm, within the same turn; `plain/write` is against plain sequential writes of the same bytes into one file,
with one fsync. The store hashes every tensor and waits for the disk (fsync); the
others do neither: torch.save, DCP and safetensors return when their data is in the page cache. Files are removed, and
the disk waited for, between arms and outside the times. First saves are given apart: they take the memory that later
ones use again.

`peak` is by how much the peak of resident memory grew over three saves, in sizes of the state, in a process of its own.

Budget (issue 3): stand/copy at most 1.3 from the second save on, plain/write at least 0.8, peak at most 1 (and the few
MB that modules and threads take).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor

from nlpkernel.cli.output import table
from nlpkernel.context import Run
from nlpkernel.plan.train import Train
from nlpkernel.state import Leaf, Snapshot

State = dict[str, Tensor]
#: Seconds for which the caller waited, and until the save was complete.
Times = tuple[float, float]
#: Saves a state under a number, and says how long that took.
Arm = Callable[[State, int], Times]

LAYERS = 12
UNITS = {"MB": 10**6, "GB": 10**9}


def make_state(size: int) -> State:
    """About `size` bytes: weights, and the two moments of each, of a decoder of `LAYERS` layers."""
    width = int((size / 12 / (LAYERS * 12 + 32)) ** 0.5) // 8 * 8
    shapes = {"embedding.weight": (32 * width, width)}
    for layer in range(LAYERS):
        for name, shape in (
            ("attention.qkv.weight", (3 * width, width)),
            ("attention.out.weight", (width, width)),
            ("mlp.up.weight", (4 * width, width)),
            ("mlp.down.weight", (width, 4 * width)),
            ("norm1.weight", (width,)),
            ("norm2.weight", (width,)),
        ):
            shapes[f"blocks.{layer}.{name}"] = shape
    state: State = {}
    for name, shape in shapes.items():
        state[f"model/{name}"] = torch.randn(shape)
        state[f"optimizer/{name}/exp_avg"] = torch.randn(shape)
        state[f"optimizer/{name}/exp_avg_sq"] = torch.rand(shape)
        state[f"optimizer/{name}/step"] = torch.tensor(0.0)
    return state


def bytes_of(state: State) -> int:
    """Bytes of all tensors."""
    return sum(tensor.nbytes for tensor in state.values())


def change(state: State) -> None:
    """Another step."""
    for tensor in state.values():
        tensor.add_(0.001)


# -- arms ------------------------------------------------------------------------------------------------------------


def copy_into(state: State) -> Arm:
    """`copy_` into warm buffers; nothing is written."""
    buffers = {name: torch.zeros_like(tensor) for name, tensor in state.items()}

    def save(state: State, number: int) -> Times:
        start = time.perf_counter()
        for name, tensor in state.items():
            buffers[name].copy_(tensor)
        took = time.perf_counter() - start
        return took, took

    return save


def plain_into(folder: Path) -> Arm:
    """The same bytes into one file, one after the other."""

    def save(state: State, number: int) -> Times:
        path = folder / "plain"
        start = time.perf_counter()
        with open(path, "xb", buffering=0) as file:
            for tensor in state.values():
                view = memoryview(tensor.numpy()).cast("B") if tensor.ndim else tensor.numpy().tobytes()
                file.writelines(view[at : at + (8 << 20)] for at in range(0, len(view), 8 << 20))
            os.fsync(file.fileno())
        took = time.perf_counter() - start
        path.unlink()
        return took, took

    return save


def store_into(folder: Path, *, asynchronous: bool = True) -> Arm:
    """The plugin `store` with its defaults: hashes, and fsync."""
    from nlpkernel_store.component import Store

    run = Run(name="benchmark", folder=folder, cache=folder, train=Train())
    store = run.ask(Store(asynchronous=asynchronous), "open_store", folder=folder, write=True)

    def save(state: State, number: int) -> Times:
        tree = {name: Leaf(tensor) for name, tensor in state.items()}
        start = time.perf_counter()
        store.save(Snapshot(step=number, tree=tree, artifacts={}, facts={}))
        stood = time.perf_counter() - start
        store.settle(wait=True)
        took = time.perf_counter() - start
        for entry in store.catalog.entries():
            store.catalog.remove(entry)
        store.catalog.sweep()
        return stood, took

    return save


def torch_into(folder: Path) -> Arm:
    """`torch.save`."""

    def save(state: State, number: int) -> Times:
        start = time.perf_counter()
        torch.save(state, folder / "torch.pt")
        took = time.perf_counter() - start
        (folder / "torch.pt").unlink()
        return took, took

    return save


def safetensors_into(folder: Path) -> Arm:
    """`save_file` of safetensors, which Hugging Face's libraries save with."""
    from safetensors.torch import save_file

    def save(state: State, number: int) -> Times:
        start = time.perf_counter()
        save_file(state, folder / "model.safetensors")
        took = time.perf_counter() - start
        (folder / "model.safetensors").unlink()
        return took, took

    return save


def dcp_into(folder: Path) -> Arm:
    """`torch.distributed.checkpoint.save`."""

    def save(state: State, number: int) -> Times:
        start = time.perf_counter()
        dcp.save(state, checkpoint_id=folder / "dcp")
        took = time.perf_counter() - start
        shutil.rmtree(folder / "dcp")
        return took, took

    return save


def dcp_async_into(folder: Path) -> Arm:
    """`async_save`, with the buffers that it keeps for the next save."""
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

    # Without an accelerator there is no pinned memory, and nothing to overlap the copy with.
    options = StagingOptions(
        use_pinned_memory=False,
        use_shared_memory=False,
        use_async_staging=False,
        use_non_blocking_copy=False,
    )
    stager = DefaultStager(options)

    def save(state: State, number: int) -> Times:
        start = time.perf_counter()
        future: Any = dcp.async_save(state, checkpoint_id=folder / "async", async_stager=stager)
        stood = time.perf_counter() - start
        future.result()
        took = time.perf_counter() - start
        shutil.rmtree(folder / "async")
        return stood, took

    return save


def arms(state: State, folder: Path) -> dict[str, Callable[[], Arm]]:
    """All arms by name, each made when it is asked for."""

    def below(name: str) -> Path:
        path = folder / name
        path.mkdir()
        return path

    return {
        "copy_": lambda: copy_into(state),
        "plain writes, fsync": lambda: plain_into(below("plain")),
        "store": lambda: store_into(below("store")),
        "store, asynchronous = false": lambda: store_into(below("waiting"), asynchronous=False),
        "torch.save": lambda: torch_into(below("torch")),
        "safetensors save_file": lambda: safetensors_into(below("safetensors")),
        "DCP save": lambda: dcp_into(below("dcp")),
        "DCP async_save": lambda: dcp_async_into(below("async")),
    }


# -- measuring -------------------------------------------------------------------------------------------------------


def measure(size: int, turns: int, folder: Path) -> list[dict[str, Any]]:
    """The rows of one size."""
    state = make_state(size)
    made = {name: make() for name, make in arms(state, folder).items()}
    found: dict[str, list[Times]] = {name: [] for name in made}
    for number in range(1, turns + 2):
        for name, save in made.items():
            change(state)
            os.sync()
            found[name].append(save(state, number))
    rows = []
    for name, (first, *later) in found.items():
        stand = [stood for stood, _ in later]
        copies = [took for _, took in found["copy_"][1:]]
        plains = [took for _, took in found["plain writes, fsync"][1:]]
        row: dict[str, Any] = {
            "size": bytes_of(state),
            "arm": name,
            "stand_ms": round(1000 * statistics.median(stand), 1),
            "first_ms": round(1000 * first[0], 1),
            "stand/copy": _ratio(stand, copies),
            "total_ms": round(1000 * statistics.median([took for _, took in later]), 1),
        }
        if name != "copy_":
            write = [took - stood if took > 1.01 * stood else took for stood, took in later]
            row["write_ms"] = round(1000 * statistics.median(write), 1)
            row["plain/write"] = _ratio(plains, write)
            row["peak"] = peak(name, size) if name != "plain writes, fsync" else None
        rows.append(row)
    return rows


def _ratio(above: list[float], below: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(above, below, strict=True)), 2)


def peak(name: str, size: int) -> float:
    """By how much the peak of resident memory grows over three saves, in sizes of the state."""
    command = [sys.executable, __file__, "--peak-of", name, "--sizes", f"{size // UNITS['MB']}MB"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return round(float(done.stdout), 2)


def peak_here(name: str, size: int, folder: Path) -> float:
    """The same, in this process."""
    state = make_state(size)
    make = arms(state, folder)[name]
    make_state(size // 50)
    save = make()
    # What an arm imports and starts is no copy of the state.
    save({key: tensor.reshape(-1)[:10].clone() for key, tensor in state.items()}, 1)
    before = _high_water()
    for number in range(2, 5):
        change(state)
        save(state, number)
    return (_high_water() - before) / bytes_of(state)


def _high_water() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        (line,) = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


@contextlib.contextmanager
def group(folder: Path) -> Iterator[None]:
    """A group of one process, without which DCP does not save asynchronously."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def in_bytes(text: str) -> int:
    """`200MB`, `2GB`."""
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * factor)
    raise argparse.ArgumentTypeError(f"{text!r} is no size: 200MB, 2GB")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", type=in_bytes, default=[200 * 10**6, 2 * 10**9])
    parser.add_argument("--turns", type=int, default=7, help="saves of each arm after the first")
    parser.add_argument("--folder", type=Path, help="where to write; left out: the system's folder for such")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    parser.add_argument("--peak-of", metavar="ARM", help="the peak of one arm only, in this process")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", module="torch.distributed")
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for size in args.sizes:
        with tempfile.TemporaryDirectory(dir=args.folder) as name, group(Path(name)):
            if args.peak_of:
                print(peak_here(args.peak_of, size, Path(name)))
                return
            rows += measure(size, args.turns, Path(name))
    if args.json:
        for row in rows:
            print(json.dumps(row))
        return
    print(f"{Path(sys.executable).name} {shlex.join(sys.argv)}")
    print(
        f"medians of {args.turns} saves, torch {torch.__version__}, one thread of torch, {os.cpu_count()} CPUs"
    )
    keys = ("size", "arm", "stand_ms", "first_ms", "stand/copy", "write_ms", "plain/write", "peak")
    table(
        [keys, *(tuple("" if row.get(key) is None else row[key] for key in keys) for row in rows)], head=True
    )


if __name__ == "__main__":
    main()
