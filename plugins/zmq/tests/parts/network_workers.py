"""The workers of a run of the protocol in memory. See `network`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from .network_links import Link, Message

if TYPE_CHECKING:
    from .network import World


@attrs.define(eq=False)
class View:
    """A shard as a worker knows it."""

    link: Link
    known: bool = False
    next: int = 0
    durable: int = 0
    release: int = -1
    held: tuple[tuple[int, ...], ...] | None = None


class Worker:
    """Pushes its share of each round, keeps what a shard may have to have again, and goes on once all have released it.

    A shard that came back gets one round, and the next one with the release of that: more would be refused as early.
    """

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.round = -1
        self.kept: set[int] = set()
        #: What of the round at hand is not sent yet, as (shard, message).
        self.left: deque[tuple[int, Message]] = deque()
        self.control = Link(self, world.coordinator)
        self.joined = False
        self.said: list[tuple[str, bytes]] = []
        self.met = 0
        self.views = [View(Link(self, shard)) for shard in world.shards]

    @property
    def done(self) -> bool:
        return self.round == self.world.setup.rounds - 1 and not self.left and self.released

    @property
    def released(self) -> bool:
        return all(view.release >= self.round for view in self.views)

    @property
    def due(self) -> bool:
        """Whether it has to meet the others before it goes on."""
        return self.met * self.world.setup.meet <= self.round + 1

    @property
    def able(self) -> bool:
        """Whether it can do something of its own."""
        if self.left:
            return True
        if self.done or not self.released:
            return False
        if self.due:
            return len(self.said) == 0 or self.said[-1][0] != str(self.met)
        old = self.round + 1 - self.world.setup.keep
        return old not in self.kept or all(view.durable == -1 or view.durable > old for view in self.views)

    def act(self) -> None:
        if self.left:
            shard, message = self.left.popleft()
            view = self.views[shard]
            if view.known and (self.world.setup.eager or view.next == self.round):
                view.link.send(*message)
        elif self.due:
            self.said = [*self.said[-1:], (str(self.met), f"{self.number}-{self.met}".encode())]
            if self.joined:
                self.control.send("meet", *self.said[-1])
        else:
            self.begin()

    def begin(self) -> None:
        self.kept.discard(self.round + 1 - self.world.setup.keep)
        self.round += 1
        self.kept.add(self.round)
        expected = tuple(self.world.counts[self.round])
        for view in self.views:
            if view.held is not None:
                assert set(view.held) <= {expected}, "it computes with the parameters after the round before"
            assert (view.held is None) == (self.round == 0)
        whole = list(self.share(self.round))
        self.left.extend((shard, message) for message in whole for shard in range(len(self.views)))

    def share(self, round: int) -> Iterator[Message]:
        setup, share = self.world.setup, self.number
        empty = (round, share) in setup.empty
        for chunk in range(0 if empty else setup.chunks):
            yield ("push", round, share, setup.workers, chunk, (round, share, chunk))
        yield ("end", round, share, setup.workers, empty)

    def again(self, view: View) -> None:
        """Send again what a shard lacks of its next round."""
        if view.next > self.round:
            return
        assert view.next in self.kept, "what a shard may need has not been dropped"
        later = {message for shard, message in self.left if self.views[shard] is view}
        for message in self.share(view.next):
            if view.next < self.round or message not in later:
                view.link.send(*message)

    def from_server(self, link: Link, message: Message) -> None:
        if link is self.control:
            self.from_coordinator(message)
            return
        view = next(each for each in self.views if each.link is link)
        match message:
            case ("welcome", round):
                view.known, view.next = True, round
                self.again(view)
            case ("nack", "hello", _):
                view.known = False
                link.send("hello", "worker", self.number)
            case ("nack", "early", round):
                view.next = round
                self.again(view)
            case ("release", round, durable, held):
                if round > view.release:
                    view.release, view.held = round, held
                view.durable = durable
                view.next = round + 1
                self.again(view)

    def from_coordinator(self, message: Message) -> None:
        match message:
            case ("welcome",):
                self.joined = True
                for key, word in self.said:
                    self.control.send("meet", key, word)
            case ("nack",):
                self.joined = False
                self.control.send("hello", "worker", self.number)
            case ("met", key, words):
                assert words == {each: f"{each}-{key}".encode() for each in range(self.world.setup.workers)}
                if int(key) == self.met and self.said and self.said[-1][0] == key:
                    self.met += 1

    def beat(self, link: Link) -> None:
        known = self.joined if link is self.control else next(v.known for v in self.views if v.link is link)
        link.send(*(("ping",) if known else ("hello", "worker", self.number)))
