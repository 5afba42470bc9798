"""Which rows a step sees, as a pure function of (seed, step).

An epoch's order is a keyed permutation that is computed where it is needed, not a list: a set of 10^9 rows
costs as much memory as one of ten, and any step can be looked up without its predecessors. Resume needs no
replay, and the number of workers changes nothing. The module is light; numpy is imported by the functions
that use it.

Sources: the permutation is an unbalanced Feistel network with cycle walking (J. Black and P. Rogaway,
"Ciphers with Arbitrary Finite Domains", CT-RSA 2002; the alternating form of NIST SP 800-38G). The keys, the
draws of `offsets` and the round function are those of SplitMix64 (G. Steele, D. Lea and C. Flood, "Fast
Splittable Pseudorandom Number Generators", OOPSLA 2014; the round function leaves one of its shifts out).
None of this is secret: it is for statistics, not for cryptography.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from nlpkernel.errors import DataError, fail

if TYPE_CHECKING:
    import numpy as np

    Ids = np.ndarray[Any, np.dtype[np.int64]]

    #: The rows at some places of an epoch's order: (epoch, places from 0, which are consecutive) to rows.
    Order = Callable[[int, Ids], Ids]

#: What becomes of the rows at an epoch's end that fill no batch: a window of their own, carried into the next
#: epoch's first window, or dropped.
Partial = Literal["step", "carry", "drop"]

#: Largest set that can be permuted.
LARGEST = 1 << 62

_WORD = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
#: Rows whose order is computed at once: numpy's cost of a call is then spread over many windows.
_BLOCK = 4096
#: The same for draws, of which each window needs a key of its own.
_DRAWN = 1024


def key(*parts: int) -> int:
    """A 64-bit key from whole numbers (seed, epoch, purpose, ...): another key for each sequence of parts."""
    value = len(parts)
    for part in parts:
        value = _scramble((value ^ (part & _WORD)) + _GAMMA)
    return value


def mix(values: Any) -> Any:
    """Numbers that look random and are a function of `values`, an array of uint64, which stays as it is."""
    import numpy as np

    return _mix(values + np.uint64(_GAMMA))


def permute(index: Any, size: int, key: Any) -> Ids:
    """Where a keyed permutation of `range(size)` takes each of `index`; int64, of the shape of `index`.

    `index` is anything that numpy takes as whole numbers from 0 to `size` - 1. `key` is a 64-bit number, or
    an array of them that fits `index`: a permutation of its own for each element. `size` is at most 2^62.
    Memory is that of `index`. Raises ValueError for a number outside the range.
    """
    import numpy as np

    if not 0 < size <= LARGEST:
        raise ValueError(f"a permutation needs a size from 1 to 2^62, not {size}")
    given = np.asarray(index)
    if given.size and (int(given.min()) < 0 or int(given.max()) >= size):
        raise ValueError(f"an index is outside range({size})")
    values = given.astype(np.uint64).reshape(-1)
    if np.ndim(key):
        keys = np.broadcast_to(np.asarray(key, dtype=np.uint64), given.shape).reshape(-1)
    else:
        keys = np.full(1, int(key) & _WORD, dtype=np.uint64)
    bits = max(2, (size - 1).bit_length())
    values = _feistel(values, keys, bits)
    # The network permutes the next power of two; walking on from what falls outside stays a permutation of
    # the rest.
    outside = np.flatnonzero(values >= np.uint64(size))
    while outside.size:
        moved = _feistel(values[outside], keys if keys.size == 1 else keys[outside], bits)
        values[outside] = moved
        outside = outside[moved >= np.uint64(size)]
    moved_to: Ids = values.astype(np.int64).reshape(given.shape)
    return moved_to


def offsets(seed: int, step: int, index: int, count: int, high: int) -> Ids:
    """`count` numbers drawn from `range(high)` for rows `index`, `index` + 1, ... of window `step`; int64.

    Each draw depends on (seed, step, its row) alone, so that cutting a window into other micro-batches
    changes nothing. The bias of a value is at most `high` / 2^64 of its probability.
    """
    return _draw(seed, range(step, step + 1), index, count, high)[0]  # type: ignore[no-any-return]


class Draws:
    """What `offsets` draws for the `batch` rows of a window, computed for many windows at once."""

    def __init__(self, seed: int, batch: int, high: int) -> None:
        self.seed, self.batch, self.high = seed, batch, high
        self._steps = max(1, _DRAWN // batch)
        self._first = 0
        self._block: Any = ()

    def window(self, step: int) -> Ids:
        """The numbers of window `step`; int64 [batch], read-only."""
        at = step - self._first
        if not 0 <= at < len(self._block):
            self._block = _draw(self.seed, range(step, step + self._steps), 0, self.batch, self.high)
            # What is handed out are views of this block.
            self._block.setflags(write=False)
            self._first, at = step, 0
        return self._block[at]  # type: ignore[no-any-return]


class Part(NamedTuple):
    """One micro-batch: its rows (int64, read-only), and the epoch of its first row, counted from 0."""

    rows: Ids
    epoch: int


class Windows:
    """The windows of a run over `samples` rows: `batch` rows a window, `micro` rows a micro-batch.

    Each epoch is another permutation of the rows, or their own order without `shuffle`, or what `order` says.
    Under `partial` = "step" the rows at an epoch's end that fill no batch are a smaller window, under "carry"
    they begin a window that the next epoch completes, under "drop" they are left out (`dropped` of them each
    epoch). Raises DataError where no step could ever happen.
    """

    def __init__(
        self,
        samples: int,
        batch: int,
        micro: int | None = None,
        partial: Partial = "step",
        seed: int = 0,
        shuffle: bool = True,
        order: Order | None = None,
    ) -> None:
        if samples < 1:
            raise fail(DataError, "NK407", "there are no samples to train on, so no step can ever happen")
        if partial == "drop" and samples < batch:
            raise fail(
                DataError,
                "NK407",
                f"no step can ever happen: there are {samples} samples, a batch holds {batch}, and "
                'partial = "drop" drops a batch that is not full',
                hint='make the batch smaller, or write partial = "step" or "carry"',
            )
        if batch < 1 or (micro is not None and not 1 <= micro <= batch):
            raise ValueError(f"a batch of {batch} cannot be cut into micro-batches of {micro}")
        self.samples = samples
        self.batch = batch
        self.micro = micro or batch
        self.partial = partial
        self.seed = seed
        self.shuffle = shuffle
        self.order = order
        #: Rows of each epoch that no window holds.
        self.dropped = samples % batch if partial == "drop" else 0
        #: Windows of an epoch. Under "carry" an epoch need not end with a window, and this is a fraction.
        self.per_epoch: float = samples / batch
        if partial != "carry":
            self.per_epoch = samples // batch if partial == "drop" else -(-samples // batch)
        self._start = 0
        self._block: Any = ()

    def window(self, step: int) -> list[Part]:
        """The micro-batches of window `step` (from 0), in order."""
        first, count = self._span(step)
        rows = self._rows(first, first + count)
        micro, samples = self.micro, self.samples
        if count <= micro:
            return [Part(rows, first // samples)]
        return [Part(rows[at : at + micro], (first + at) // samples) for at in range(0, count, micro)]

    def steps(self, epochs: float) -> int:
        """The fewest windows that hold `epochs` passes over the rows."""
        # The margin keeps products like 0.1 * 30 from costing a window more.
        return max(1, -int(-(epochs * self.per_epoch - 1e-9) // 1))

    def epoch(self, step: int) -> float:
        """Passes over the rows that lie before window `step`."""
        if self.partial == "step":
            return self.seen(step) / self.samples
        return step / self.per_epoch

    def seen(self, step: int) -> int:
        """Rows in all windows before window `step`."""
        if self.partial == "step":
            epoch, within = divmod(step, int(self.per_epoch))
            return epoch * self.samples + within * self.batch
        return step * self.batch

    def _span(self, step: int) -> tuple[int, int]:
        """Where the window starts in the sequence of all epochs, and how many rows it holds."""
        if step < 0:
            raise ValueError(f"there is no window {step}")
        if self.partial == "carry":
            return step * self.batch, self.batch
        epoch, within = divmod(step, int(self.per_epoch))
        at = within * self.batch
        return epoch * self.samples + at, min(self.batch, self.samples - at)

    def _rows(self, first: int, last: int) -> Any:
        """Rows at the positions from `first` to `last` of the sequence of all epochs."""
        start = first - self._start
        end = last - self._start
        if start < 0 or end > len(self._block):
            self._fill(first, max(last, first + _BLOCK))
            start, end = 0, last - first
        return self._block[start:end]

    def _fill(self, first: int, last: int) -> None:
        import numpy as np

        at = np.arange(first, last, dtype=np.int64)
        if self.order is not None:
            touched = range(first // self.samples, (last - 1) // self.samples + 1)
            parts = np.split(at, [epoch * self.samples - first for epoch in touched[1:]])
            ordered = [
                self.order(epoch, part - epoch * self.samples)
                for epoch, part in zip(touched, parts, strict=True)
            ]
            self._keep(first, np.concatenate(ordered))
            return
        epoch, within = first // self.samples, first % self.samples
        if within + (last - first) <= self.samples:
            rows = at - epoch * self.samples
            keys: Any = key(self.seed, epoch)
        else:
            epochs, rows = np.divmod(at, self.samples)
            # Keys of the few epochs that the block touches, spread over their rows.
            present = range(epoch, int(epochs[-1]) + 1)
            keys = np.array([key(self.seed, each) for each in present], dtype=np.uint64)[epochs - epoch]
        self._keep(first, permute(rows, self.samples, keys) if self.shuffle else rows)

    def _keep(self, first: int, block: Any) -> None:
        # What is handed out are views of this block.
        block.setflags(write=False)
        self._start, self._block = first, block


def _scramble(value: int) -> int:
    """SplitMix64's output function."""
    value &= _WORD
    value = ((value ^ (value >> 30)) * _FIRST) & _WORD
    value = ((value ^ (value >> 27)) * _SECOND) & _WORD
    return value ^ (value >> 31)


def _draw(seed: int, steps: range, index: int, count: int, high: int) -> Any:
    """`offsets` for several steps; int64 [steps, count]."""
    import numpy as np

    if high < 1:
        raise ValueError(f"nothing can be drawn from range({high})")
    keys = np.array([key(seed, step) for step in steps], dtype=np.uint64)
    values = np.arange(index + 1, index + count + 1, dtype=np.uint64)
    values *= np.uint64(_GAMMA)
    return (_mix(keys[:, None] + values) % np.uint64(high)).astype(np.int64)


def _mix(values: Any) -> Any:
    """The same for an array of uint64, in place; products wrap around."""
    import numpy as np

    values ^= values >> np.uint64(30)
    values *= np.uint64(_FIRST)
    values ^= values >> np.uint64(27)
    values *= np.uint64(_SECOND)
    values ^= values >> np.uint64(31)
    return values


def _feistel(values: Any, keys: Any, bits: int) -> Any:
    """One pass of the network over `bits` bits: each half in turn is changed by a function of the other."""
    import numpy as np

    low = bits // 2
    high = bits - low
    right = values & np.uint64((1 << low) - 1)
    left = values >> np.uint64(low)
    hashed, shifted = np.empty_like(values), np.empty_like(values)
    # A round of a small network mixes little: with these numbers all orders of 2 to 8 rows come out equally
    # often.
    rounds = 24 if bits < 4 else 12 if bits < 8 else 8
    for number in range(1, rounds + 1):
        round_key = _mix(keys + np.uint64(number * _GAMMA & _WORD))
        source, target, width = (right, left, high) if number % 2 else (left, right, low)
        np.add(source, round_key, out=hashed)
        np.multiply(hashed, np.uint64(_FIRST), out=hashed)
        np.right_shift(hashed, np.uint64(32), out=shifted)
        np.bitwise_xor(hashed, shifted, out=hashed)
        np.multiply(hashed, np.uint64(_SECOND), out=hashed)
        np.right_shift(hashed, np.uint64(64 - width), out=hashed)
        np.bitwise_xor(target, hashed, out=target)
    return (left << np.uint64(low)) | right
