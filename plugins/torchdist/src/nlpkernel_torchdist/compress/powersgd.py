"""Matrices as products of two factors of low rank."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from nlpkernel.hookspecs.compressor import Span
from nlpkernel_torchdist.compress.base import Compressing, Stretch
from nlpkernel_torchdist.compress.memory import Owed, Twice


class PowerSgd(Compressing):
    """One step of a power iteration for each matrix M and window (Vogels, Karimireddy and Jaggi, 2019, "PowerSGD",
    algorithm 1): P = M Q, added up and orthogonalised, then Q = M' P, added up; the sum of all M is about P Q'.

    Every worker owes M less its own projection M P P', and not, as in the paper, less its part of the common product.
    Both add up to the same over all workers; but what workers differ by would pile up in the paper's. A matrix is sent
    whole where the factors are not less than half of it. Without `rounds` each worker has factors of its own.
    """

    name = "powersgd"
    summable = True
    need: Literal["elementwise", "whole_tensor"] = "whole_tensor"

    def __init__(self, rank: int, seed: int) -> None:
        super().__init__()
        self._rank, self._seed = rank, seed
        self._loaded: dict[str, Tensor] = {}

    def factors(self) -> Mapping[str, Tensor]:
        """Q of each matrix."""
        found = dict(self._loaded)
        for stretch in self._stretches:
            assert isinstance(stretch, _Factored)
            found |= {each.name: each.q.now for each in stretch.matrices if each.begun}
        return found

    def load(self, owed: Mapping[str, Tensor], factors: Mapping[str, Tensor]) -> None:
        """Take up Q as well."""
        super().load(owed, factors)
        self._loaded = dict(factors)
        for stretch in self._stretches:
            assert isinstance(stretch, _Factored)
            for each in stretch.matrices:
                each.begin_with(self._loaded.pop(each.name, None))

    def _leave(self, spans: Sequence[Span]) -> None:
        self._loaded = dict(self.factors())
        super()._leave(spans)

    def _make(self, spans: Sequence[Span], device: torch.device) -> Stretch:
        for span in spans:
            if span != Span.whole(span.name, span.shape):
                raise ValueError(f"powersgd needs whole tensors, and {span.name} was given in pieces")
        made = _Factored(spans, device, self._rank, self._seed)
        for each in made.matrices:
            each.begin_with(self._loaded.pop(each.name, None))
        return made


class _Matrix:
    """One parameter: where it lies in its stretch, its size as a matrix, and Q."""

    def __init__(self, span: Span, first: int, rank: int, seed: int, device: torch.device) -> None:
        self.name, self.first, self.last = span.name, first, first + span.elements
        self.rows, self.columns = span.shape[0], span.elements // span.shape[0]
        self.rank = rank
        self._seed, self._device = seed, device
        self.begin_with(None)

    def begin_with(self, q: Tensor | None) -> None:
        """Go on from a Q, or begin anew where there is none of this shape."""
        self.begun = q is not None and tuple(q.shape) == (self.columns, self.rank)
        value = self._drawn() if q is None or not self.begun else q.to(self._device, torch.float32, copy=True)
        self.q = Twice(value)

    def of(self, flat: Tensor) -> Tensor:
        """Its elements of a stretch."""
        return flat[self.first : self.last].view(self.rows, self.columns)

    def _drawn(self) -> Tensor:
        """The same on all workers: a function of the seed and the name."""
        digest = hashlib.blake2b(f"{self._seed}/{self.name}".encode(), digest_size=8).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
        return torch.randn(self.columns, self.rank, generator=generator).to(self._device)


class _Factored(Stretch):
    """The wire: P of all matrices, what travels whole, Q of all matrices."""

    def __init__(self, spans: Sequence[Span], device: torch.device, rank: int, seed: int) -> None:
        super().__init__(Owed(spans, device))
        self.matrices: list[_Matrix] = []
        self._plain: list[slice] = []
        first = 0
        for span in spans:
            rows = span.shape[0] if span.shape else 1
            columns = span.elements // rows if rows else 0
            low = min(rank, rows, columns)
            if len(span.shape) > 1 and 2 * low * (rows + columns) < rows * columns:
                self.matrices.append(_Matrix(span, first, low, seed, device))
            else:
                self._plain.append(slice(first, first + span.elements))
            first += span.elements
        self._sizes = (
            [each.rows * each.rank for each in self.matrices],
            [part.stop - part.start for part in self._plain],
            [each.columns * each.rank for each in self.matrices],
        )
        left, whole, right = map(sum, self._sizes)
        self._cut = left + whole
        self.sums = tuple(4 * count for count in (left + whole, right) if count)
        self.bytes = 4 * (left + whole + right)
        self._sent: Tensor | None = None

    def settle(self, bad: Tensor | bool) -> None:
        """Also of Q."""
        super().settle(bad)
        for each in self.matrices:
            each.q.settle(bad)

    def rounds(self, flat: Tensor, scale: Tensor | None = None) -> Iterator[Tensor]:
        """Two: P and what travels whole, then Q."""
        if self._sent is None:
            self._sent = torch.empty(self.bytes // 4, dtype=torch.float32, device=self.owed.device)
        sent = self._sent
        total = self.owed.total(flat.view(-1), scale)
        self._multiply(total, sent)
        yield sent[: self._cut]
        self._project(total, sent)
        if self.matrices:
            self._owe_less(total, sent)
            yield sent[self._cut :]
        self._keep(sent)
        flat.zero_()
        self._add(sent, flat)
        self.owed.left(scale)

    def _encode(self, flat: Tensor, scale: Tensor | None, wire: Tensor) -> None:
        sent = wire.view(torch.float32)
        total = self.owed.total(flat, scale)
        self._multiply(total, sent)
        self._project(total, sent)
        self._owe_less(total, sent)
        self._keep(sent)
        self.owed.left(scale)

    def _decode(self, wire: Tensor, into: Tensor) -> None:
        self._add(wire.view(torch.float32), into)

    def _parts(self, sent: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """P, what travels whole, Q."""
        left, whole, right = self._sizes
        parts = list(torch.split(sent, [*left, *whole, *right]))
        ps = [part.view(each.rows, -1) for part, each in zip(parts, self.matrices, strict=False)]
        first = len(parts) - len(right)
        qs = [part.view(each.columns, -1) for part, each in zip(parts[first:], self.matrices, strict=True)]
        return ps, parts[len(left) : first], qs

    def _multiply(self, total: Tensor, sent: Tensor) -> None:
        """P = M Q. What travels whole is not owed any more."""
        ps, whole, _ = self._parts(sent)
        for each, p in zip(self.matrices, ps, strict=True):
            torch.mm(each.of(total), each.q.now, out=p)
        for part, value in zip(self._plain, whole, strict=True):
            value.copy_(total[part])
            total[part] = 0

    def _project(self, total: Tensor, sent: Tensor) -> None:
        """Orthogonal columns of the same space for P; Q = M' P."""
        ps, _, qs = self._parts(sent)
        for each, p, q in zip(self.matrices, ps, qs, strict=True):
            p.copy_(torch.linalg.qr(p).Q)
            torch.mm(each.of(total).T, p, out=q)

    def _owe_less(self, total: Tensor, sent: Tensor) -> None:
        """M less its own projection P Q', before Q is added up."""
        ps, _, qs = self._parts(sent)
        for each, p, q in zip(self.matrices, ps, qs, strict=True):
            each.of(total).addmm_(p, q.T, alpha=-1)

    def _keep(self, sent: Tensor) -> None:
        """The next window begins with this Q."""
        for each, q in zip(self.matrices, self._parts(sent)[2], strict=True):
            each.q.change().copy_(q)
            each.begun = True

    def _add(self, sent: Tensor, into: Tensor) -> None:
        ps, whole, qs = self._parts(sent)
        for each, p, q in zip(self.matrices, ps, qs, strict=True):
            if into.dtype == torch.float32:
                each.of(into).addmm_(p, q.T)
            else:
                each.of(into).add_(p @ q.T)
        for part, value in zip(self._plain, whole, strict=True):
            into[part] += value
