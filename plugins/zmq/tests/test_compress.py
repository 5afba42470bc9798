"""Pieces that travel in fewer bytes, between a worker and a shard without sockets: what is encoded arrives, nothing
that is owed is lost, and what a compressor has not made is refused."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.errors import PlanError
from nlpkernel.hookspecs.compressor import Span
from nlpkernel_torchdist.compress.cast import Cast
from nlpkernel_torchdist.compress.int8 import Int8
from nlpkernel_torchdist.compress.powersgd import PowerSgd
from nlpkernel_torchdist.compress.topk import TopK
from nlpkernel_zmq.component import ZmqPs
from nlpkernel_zmq.compress.down import Copy
from nlpkernel_zmq.compress.pieces import Coders, pieces
from nlpkernel_zmq.compress.up import Up
from nlpkernel_zmq.layout import Parameter, divide
from nlpkernel_zmq.machines.sequencer import Decision, Told
from nlpkernel_zmq.regions import views_in
from nlpkernel_zmq.server.free import FreeShard
from nlpkernel_zmq.server.model import Schema
from nlpkernel_zmq.server.shard import Shard
from nlpkernel_zmq.server.snapshots import Snapshots
from nlpkernel_zmq.wire import messages as m
from nlpkernel_zmq.wire.frames import BadFrame
from nlpkernel_zmq.wire.tensors import buffer_of

PARAMETERS = (
    Parameter("matrix", (12, 10), "float32", 4),
    Parameter("vector", (9,), "float32", 4),
    Parameter("number", (), "float32", 4),
    Parameter("long", (300,), "float32", 4),
)
CHUNK = 512
MAKE = {
    "fp16": lambda: Cast("fp16", torch.float16),
    "bf16": lambda: Cast("bf16", torch.bfloat16),
    "int8": lambda: Int8(32),
    "topk": lambda: TopK(0.1),
}
#: Of the size of what is added up, what rounding may lose for good.
LOST = {"fp16": 1e-3, "bf16": 1e-2, "int8": 1e-5, "topk": 1e-5}


def sgd(groups: Any) -> torch.optim.Optimizer:
    made = torch.optim.SGD([tensor for group in groups for tensor in group.tensors], lr=1.0)
    for group in made.param_groups:
        group["peak"] = 1.0
    return made


class Pair:
    """A shard that has everything, and two workers with a compressor each."""

    def __init__(self, make: Any, *, scale: float = 1.0, kind: type[Shard] = Shard) -> None:
        self.scale, self.told = scale, list[Told]()
        (self.space,) = divide(PARAMETERS, 1, whole=False)
        self.shard = kind(
            0,
            None,
            sgd,
            workers=2,
            send=lambda who, message, payload: None,
            ready=lambda round, told, number: self.told.append(told),
            notice=lambda text: None,
            share_memory=False,
            compressor=make(),
        )
        for worker in range(2):
            hello = m.Hello(run="r", role="worker", number=worker, incarnation=worker, release="", host="")
            self.shard.hello(str(worker).encode(), hello)
        names = tuple(each.name for each in PARAMETERS)
        schema = Schema(PARAMETERS, ((names, False, frozenset()),), 1, False, None, CHUNK)
        plain = msgpack.packb(schema.plain())
        self.say(m.Put(what="schema", start=0, stop=len(plain), total=len(plain)), plain)
        self.say(m.Begin(what="schema"))
        size = self.space.bytes
        self.say(m.Put(what="parameters", start=0, stop=size, total=size), bytes(size))
        self.say(m.Begin(what="state"))
        self.compressors = [make() for _ in range(2)]
        self.ups = [Up(each, PARAMETERS, [self.space], CHUNK) for each in self.compressors]
        self.total = [torch.zeros(each.elements) for each in PARAMETERS]

    def say(self, message: m.Message, payload: Any = None, worker: int = 0) -> None:
        who = str(worker).encode()
        self.shard.handle(who, message, None if payload is None else memoryview(payload))

    def encoded(self, worker: int, gradients: list[torch.Tensor]) -> dict[int, torch.Tensor]:
        region = torch.zeros(self.space.bytes, dtype=torch.uint8)
        views = views_in(region, self.space, [torch.float32] * len(PARAMETERS))
        for view, gradient in zip(views, gradients, strict=True):
            view.copy_(gradient * self.scale)
        self.ups[worker].scale = self.scale
        return {
            chunk: self.ups[worker].encode(0, chunk, region[chunk * CHUNK : (chunk + 1) * CHUNK])
            for chunk in range(self.space.chunks(CHUNK))
        }

    def push(self, round: int, worker: int, wire: dict[int, torch.Tensor]) -> None:
        for chunk, each in wire.items():
            start = chunk * CHUNK
            stop = min(start + CHUNK, self.space.bytes)
            codec = self.ups[worker].name
            push = m.Push(round=round, share=worker, of=2, start=start, stop=stop, codec=codec)
            self.say(push, buffer_of(each), worker)
        self.say(m.End(round=round, share=worker, of=2, step=round, scale=self.scale), None, worker)

    def round(self, number: int, *, finite: bool = True) -> None:
        for worker in range(2):
            draws = torch.Generator().manual_seed(2 * number + worker)
            gradients = [torch.randn(each.elements, generator=draws) for each in PARAMETERS]
            self.push(number, worker, self.encoded(worker, gradients))
            if finite:
                for total, gradient in zip(self.total, gradients, strict=True):
                    total += gradient
        self.shard.commit(Decision(number, 1.0, finite, number), 0, (0, 1))
        for up in self.ups:
            up.settle(not finite)

    def owed(self, name: str) -> torch.Tensor:
        found = [each.owed()[name].reshape(-1) for each in self.compressors if name in each.owed()]
        return sum(found, torch.zeros(1))

    def lost(self) -> float:
        """The greatest difference of what was to be added up, and what was and is owed."""
        return max(
            float((total + parameter.detach().view(-1) - self.owed(each.name)).abs().max())
            for each, parameter, total in zip(
                PARAMETERS, self.shard.model.parameters, self.total, strict=True
            )
        )


@pytest.mark.parametrize("scale", [1.0, 1024.0])
@pytest.mark.parametrize("name", MAKE)
def test_what_was_pushed_and_what_is_owed_add_up_to_all_gradients(name, scale):
    pair = Pair(MAKE[name], scale=scale)
    for number in range(6):
        pair.round(number)
    assert 0 < pair.lost() < 60 * LOST[name]
    assert any(each.any() for each in map(pair.owed, ("matrix", "long"))) == (name in ("int8", "topk"))


@pytest.mark.parametrize("name", ["int8", "topk"])
def test_a_window_that_is_left_out_leaves_no_trace_in_what_is_owed(name):
    pair = Pair(MAKE[name])
    pair.round(0)
    before = {each.name: pair.owed(each.name).clone() for each in PARAMETERS}
    pair.round(1, finite=False)
    assert all(torch.equal(pair.owed(key), each) for key, each in before.items())
    pair.round(2)
    assert pair.lost() < 60 * LOST[name]


def test_a_share_that_comes_again_counts_once_and_the_order_of_workers_changes_nothing():
    pairs = [Pair(MAKE["topk"]) for _ in range(2)]
    for order, pair in zip([(0, 1), (1, 1, 0, 0, 1)], pairs, strict=True):
        draws = torch.Generator().manual_seed(0)
        gradients = [torch.randn(each.elements, generator=draws) for each in PARAMETERS]
        wires = [pair.encoded(worker, gradients) for worker in range(2)]
        for worker in order:
            pair.push(0, worker, wires[worker])
        pair.shard.commit(Decision(0, 1.0, True, 0), 0, (0, 1))
    first, second = (pair.shard.model.memory.tensor for pair in pairs)
    assert torch.equal(first, second)
    assert pairs[0].told == pairs[1].told
    assert first.any()


def test_a_gradient_that_is_no_number_is_seen():
    pair = Pair(MAKE["topk"])
    gradients = [torch.zeros(each.elements) for each in PARAMETERS]
    pair.push(0, 0, pair.encoded(0, gradients))
    gradients[3][7] = float("nan")
    pair.push(0, 1, pair.encoded(1, gradients))
    assert [told.finite for told in pair.told] == [False]


def test_a_parameter_without_gradient_has_one_where_something_was_owed():
    pair = Pair(MAKE["topk"])
    gradients = [torch.ones(each.elements) for each in PARAMETERS]
    pair.encoded(0, gradients)
    pair.ups[0].settle(False)
    wire = pair.encoded(0, [torch.zeros(each.elements) for each in PARAMETERS])
    pieces_ = {(0, chunk): each for chunk, each in wire.items()}
    absent = pair.ups[0].without_gradient((0, 3), pieces_)
    values = {name: torch.zeros(0) for name in ("matrix", "long")}
    coders = Coders(MAKE["topk"](), PARAMETERS, pair.space, CHUNK)
    for (_, chunk), each in pieces_.items():
        for span, part in coders.pieces[chunk].parts(coders.values(chunk, each)):
            if span.name in values:
                values[span.name] = torch.cat([values[span.name], part])
    assert absent == tuple(n for n, name in ((0, "matrix"), (3, "long")) if not values[name].any())
    assert absent != (0, 3)
    clean = Pair(MAKE["topk"])
    wire = clean.encoded(0, [torch.zeros(each.elements) for each in PARAMETERS])
    assert clean.ups[0].without_gradient((0, 3), {(0, c): each for c, each in wire.items()}) == (0, 3)


def topk_of(places: list[int]) -> bytes:
    return bytes(buffer_of(torch.tensor(places, dtype=torch.int32))) + bytes(4 * len(places))


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        ("topk", None),
        ("topk", b""),
        ("topk", bytes(8)),
        ("topk", topk_of([1 << 30] * 12)),
        ("topk", topk_of([-1] * 12)),
        ("bf16", bytes(96)),
        ("pickle", bytes(96)),
    ],
)
def test_item_15_what_the_compressor_has_not_made_is_refused_before_it_counts(codec, payload):
    pair = Pair(MAKE["topk"])
    push = m.Push(round=0, share=0, of=2, start=0, stop=CHUNK, codec=codec)
    with pytest.raises(BadFrame):
        pair.say(push, payload)
    for worker in range(2):
        gradients = [torch.ones(each.elements) for each in PARAMETERS]
        pair.push(0, worker, pair.encoded(worker, gradients))
    assert len(pair.told) == 1


@pytest.mark.parametrize("name", MAKE)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_item_15_any_bytes_are_decoded_or_refused(name, data):
    (space,) = divide(PARAMETERS, 1, whole=False)
    coders = Coders(MAKE[name](), PARAMETERS, space, CHUNK)
    chunk = data.draw(st.integers(0, space.chunks(CHUNK) - 1))
    size = len(buffer_of(coders.encode_values(chunk, torch.zeros(coders.pieces[chunk].elements))))
    payload = data.draw(st.one_of(st.binary(min_size=size, max_size=size), st.binary(max_size=2 * size)))
    try:
        values = coders.decode(chunk, payload)
    except BadFrame:
        return
    assert values.numel() == coders.pieces[chunk].elements


@pytest.mark.parametrize("chunk", [64, 128, 512, 4096])
@pytest.mark.parametrize("shards", [1, 2, 3])
def test_pieces_cover_each_element_once(chunk, shards):
    for whole in (False, True):
        covered: dict[str, list[int]] = {}
        for space in divide(PARAMETERS, shards, whole=whole):
            for piece in pieces(PARAMETERS, space, chunk):
                data = torch.zeros(chunk, dtype=torch.uint8)
                values = torch.arange(piece.elements, dtype=torch.float32)
                piece.write(values, data)
                again = torch.empty(piece.elements)
                piece.read(data, again)
                assert torch.equal(again, values)
                for span in piece.spans:
                    covered.setdefault(span.name, []).extend(range(span.start, span.stop))
        assert {key: sorted(each) for key, each in covered.items()} == {
            each.name: list(range(each.elements)) for each in PARAMETERS
        }


def test_a_compressor_of_whole_matrices_is_refused_where_pieces_cut_them():
    (space,) = divide(PARAMETERS, 1, whole=False)
    with pytest.raises(PlanError, match="powersgd needs whole parameters") as caught:
        Coders(PowerSgd(1, 0), PARAMETERS, space, CHUNK)
    assert caught.value.problems[0].code == "ZPS016"
    made = Coders(PowerSgd(1, 0), PARAMETERS, space, 4096)
    assert [span for piece in made.pieces for span in piece.spans] == [
        Span.whole(each.name, each.shape) for each in PARAMETERS
    ]


def test_shared_memory_is_refused_with_a_compressor():
    assert list(ZmqPs(payload="memory", compressor=object()).check_settings())
    assert not list(ZmqPs(compressor=object()).check_settings())


class Followers:
    """A shard that sends what changes, and what two workers make of it."""

    def __init__(self, make: Any, snapshots: Snapshots | None = None) -> None:
        self.make, self.snapshots = make, snapshots
        (self.space,) = divide(PARAMETERS, 1, whole=False)
        self.copies = [self.fresh() for _ in range(2)]
        self.rounds = [[-1] * self.space.chunks(CHUNK) for _ in range(2)]
        self.start()
        names = tuple(each.name for each in PARAMETERS)
        plain = msgpack.packb(
            Schema(PARAMETERS, ((names, False, frozenset()),), 1, False, None, CHUNK).plain()
        )
        self.say(m.Put(what="schema", start=0, stop=len(plain), total=len(plain)), plain)
        self.say(m.Begin(what="schema"))
        size = self.space.bytes
        self.say(m.Put(what="parameters", start=0, stop=size, total=size), bytes(size))
        self.say(m.Begin(what="state"))

    def fresh(self) -> Copy:
        return Copy(self.make(), PARAMETERS, self.space, CHUNK)

    def start(self) -> None:
        """Start the shard, or start it again, and have both workers say hello."""
        self.sent = 0
        self.shard = Shard(
            0,
            self.snapshots,
            sgd,
            workers=2,
            send=self.took,
            ready=lambda round, told, number: None,
            notice=lambda text: None,
            share_memory=False,
            down=self.make(),
        )
        self.shard.recover()
        for worker in range(2):
            self.hello(worker)

    def hello(self, worker: int) -> None:
        who = str(worker).encode()
        said = m.Hello(run="r", role="worker", number=worker, incarnation=worker, release="", host="")
        self.shard.hello(who, said)
        self.shard.welcome(who)

    def say(self, message: m.Message, payload: Any = None, worker: int = 0) -> None:
        who = str(worker).encode()
        self.shard.handle(who, message, None if payload is None else memoryview(payload))

    def took(self, who: bytes, message: m.Message, payload: Any) -> None:
        """What `Exchange` does with it."""
        if not isinstance(message, m.Params):
            return
        worker, chunk = int(who), message.start // CHUNK
        copy = self.copies[worker]
        if message.codec:
            assert message.base == self.rounds[worker][chunk]
            copy.add(chunk, bytes(payload))
            self.sent += len(payload)
        else:
            copy.piece(copy.values, chunk).copy_(torch.frombuffer(bytearray(payload), dtype=torch.uint8))
        self.rounds[worker][chunk] = message.round

    def round(self, number: int, size: float = 1.0) -> None:
        region = torch.zeros(self.space.bytes, dtype=torch.uint8)
        draws = torch.Generator().manual_seed(number)
        for view in views_in(region, self.space, [torch.float32] * len(PARAMETERS)):
            view.copy_(torch.randn(view.numel(), generator=draws) * size)
        for worker in range(2):
            for start in range(0, self.space.bytes, CHUNK):
                stop = min(start + CHUNK, self.space.bytes)
                push = m.Push(round=number, share=worker, of=2, start=start, stop=stop)
                self.say(push, buffer_of(region[start:stop]), worker)
            self.say(m.End(round=number, share=worker, of=2, step=number), None, worker)
        self.shard.commit(Decision(number, 1.0, True, number), 0, (0, 1))

    @property
    def values(self) -> list[torch.Tensor]:
        """Of both workers, and what the shard thinks that they have."""
        own = self.shard._copy
        assert own is not None
        return [*(copy.values for copy in self.copies), own.values]

    def behind(self) -> float:
        """By how much the parameters of workers differ from those of the shard, at most."""
        kinds = [torch.float32] * len(PARAMETERS)
        theirs = views_in(self.values[0], self.space, kinds)
        ours = views_in(self.shard.model.memory.tensor, self.space, kinds)
        return max(float((a - b).abs().max()) for a, b in zip(theirs, ours, strict=True))


@pytest.mark.parametrize("name", MAKE)
def test_all_workers_have_what_the_shard_thinks_and_what_is_left_out_comes_later(name):
    pair = Followers(MAKE[name])
    for number in range(4):
        pair.round(number)
        assert all(torch.equal(pair.values[0], each) for each in pair.values)
    assert (
        pair.sent < 2 * 4 * pair.space.bytes * {"fp16": 0.51, "bf16": 0.51, "int8": 0.4, "topk": 0.25}[name]
    )
    before = pair.behind()
    assert before > 0
    for number in range(4, 16):
        pair.round(number, size=0.0)
    assert pair.behind() < 1e-6 < before


def test_a_worker_that_says_hello_again_gets_all_of_it():
    pair = Followers(MAKE["topk"])
    pair.round(0)
    pair.copies[1] = pair.fresh()
    pair.hello(1)
    pair.round(1)
    assert all(torch.equal(pair.values[0], each) for each in pair.values)


def test_a_shard_that_was_started_again_sends_the_same_again(tmp_path):
    pair = Followers(MAKE["topk"], Snapshots(tmp_path, "launch"))
    for number in range(3):
        pair.round(number)
    before, sent = pair.values[0].clone(), pair.sent
    pair.shard.durable = 10  # No snapshot of these.
    pair.round(3)
    after = pair.values[0].clone()
    pair.start()
    assert pair.shard.next == 3
    assert torch.equal(pair.values[0], before)
    pair.round(3)
    assert all(torch.equal(after, each) for each in pair.values)
    assert 3 * pair.sent == sent


def test_a_change_beyond_the_numbers_of_the_compressor_comes_as_it_is():
    pair = Followers(MAKE["fp16"])
    pair.round(0, size=1e6)
    pair.round(1)
    assert all(torch.equal(pair.values[0], each) for each in pair.values)
    assert pair.behind() < 1


def test_matrices_as_factors_are_refused_on_the_way_down():
    (space,) = divide(PARAMETERS, 1, whole=False)
    with pytest.raises(PlanError, match="powersgd is not for parameters"):
        Copy(PowerSgd(1, 0), PARAMETERS, space, 4096)


def test_differences_are_refused_where_workers_do_not_wait_for_each_other():
    assert not list(ZmqPs(down=object()).check_settings())
    assert [name for name, _ in ZmqPs(down=object(), mode="async").check_settings()] == ["down"]


def test_a_window_of_one_worker_alone_comes_encoded_as_well():
    (space,) = divide(PARAMETERS, 1, whole=False)
    pair = Pair(MAKE["topk"], kind=FreeShard)
    gradients = [torch.ones(each.elements) for each in PARAMETERS]
    for chunk, wire in pair.encoded(1, gradients).items():
        start, stop = chunk * CHUNK, min(chunk * CHUNK + CHUNK, space.bytes)
        push = m.Push(round=5, share=0, of=1, start=start, stop=stop, codec="topk")
        pair.say(push, buffer_of(wire), 1)
    pair.say(m.End(round=5, share=0, of=1, step=5), None, 1)
    pair.shard.commit(Decision(5, 1.0, True, 0), 0, ())
    pair.ups[1].settle(False)
    for each, parameter in zip(PARAMETERS, pair.shard.model.parameters, strict=True):
        assert torch.equal(pair.owed(each.name) - parameter.detach().view(-1), torch.ones(each.elements))
    with pytest.raises(BadFrame):
        pair.say(m.Push(round=6, share=0, of=1, start=0, stop=CHUNK, codec="bf16"), bytes(96), 1)
