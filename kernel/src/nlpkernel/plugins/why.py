"""Where a plan names components, and what each name means: the answer to "why is this plugin imported?"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from nlpkernel.errors import NlpkernelError, Place, Problem
from nlpkernel.hookspecs import POINTS, SLOTS
from nlpkernel.plan.load import load_file
from nlpkernel.plan.nodes import Node
from nlpkernel.plan.plan import Plan
from nlpkernel.plan.structure import Placed
from nlpkernel.plugins.catalog import Catalog
from nlpkernel.plugins.scan import SERVICES, Offer


@attrs.frozen
class Use:
    """One `use` of a plan. `address` is where it stands in the plan ("data.tokenizer"), `origin` where it
    came from ("plan.toml:3:7", "default"). `point` is None where metadata alone cannot tell. `offers` are
    those that it may mean; a local component (`local`) has none."""

    address: str
    use: str
    point: str | None
    place: Place
    origin: str
    offers: tuple[Offer, ...]
    local: bool

    @property
    def name(self) -> str:
        """The component's name, without the distribution."""
        return self.use if self.local else self.use.rpartition(":")[2]

    @property
    def default(self) -> bool:
        """Whether nobody wrote it: a section or nested component that was left out."""
        return not self.origin or self.origin.partition(" ")[0] in ("default", "preset")


@attrs.frozen
class Uses:
    """Every `use` of a plan. `problems` say why defaults are missing: only a plan that is right is filled."""

    uses: tuple[Use, ...]
    problems: tuple[Problem, ...]


def uses_of(path: Path, offers: Sequence[Offer]) -> Uses:
    """Every component that a plan names, and where the plan is right those that it gets by default.

    A right plan is structured as `check` does it, which imports the light modules of what it names. Of any
    other the written names are looked up in the metadata alone. Raise PlanError where the file cannot be read
    at all."""
    components = [offer for offer in offers if offer.point not in SERVICES]
    try:
        plan = Plan.load(path, catalog=Catalog(components))
    except NlpkernelError as error:
        root, problems = load_file(path)
        if not root.is_table or not root.value:
            raise
        written = tuple(_written(root, components))
        return Uses(written, tuple(dict.fromkeys([*problems, *error.problems])))
    nodes = dict(plan.filled.walk())
    return Uses(tuple(_placed(placed, nodes, components) for placed in plan.compose().placed), ())


def _placed(placed: Placed, nodes: Mapping[str, Node], offers: Sequence[Offer]) -> Use:
    # A component that the kernel adds for a setting of its own (`train.on_nan`) has no `use`.
    node = nodes.get(f"{placed.address}.use") or nodes[placed.address]
    # The filled plan holds the whole path of a local file, and not what the user wrote.
    written = f"{placed.address}.use" in nodes and not placed.found.local
    use = node.value if written else placed.found.use
    return _use(placed.address, use, node, placed.found.point, offers)


def _written(root: Node, offers: Sequence[Offer]) -> list[Use]:
    """What the plan's own text names, by the rules of its layout."""
    points = {*POINTS, *(offer.point for offer in offers)}
    found = []
    for path, node in root.walk():
        if not isinstance(node.value, str):
            continue
        address, _, key = path.rpartition(".")
        if key == "use" and address:
            found.append(_use(address, node.value, node, _point(address, node.value, points, offers), offers))
        elif _is_short(path, points):
            found.append(_use(path, node.value, node, _point(path, node.value, points, offers), offers))
    return found


def _is_short(path: str, points: set[str]) -> bool:
    """Whether text at this place is a component's bare name: `optimizer = "adamw"`, `schedule = "cosine"`."""
    section, dot, _ = path.partition(".")
    if not dot:
        return _key(section) in SLOTS
    return _key(section) in (*SLOTS, "train") and _key(path) in points


def _point(address: str, use: str, points: set[str], offers: Sequence[Offer]) -> str | None:
    """The point of an address: most settings are called like the point that they open."""
    key = _key(address)
    if key in points:
        return key
    name = use.rpartition(":")[2]
    fitting = {offer.point for offer in offers if offer.name == name and offer.point not in SLOTS}
    return fitting.pop() if len(fitting) == 1 else None


def _key(address: str) -> str:
    return address.rpartition(".")[2].partition("[")[0]


def _use(address: str, use: str, node: Node, point: str | None, offers: Sequence[Offer]) -> Use:
    distribution, _, name = use.rpartition(":")
    local = ".py:" in use
    fitting = [
        offer
        for offer in offers
        if not local
        and offer.name == name
        and offer.point == (point or offer.point)
        and offer.distribution == (distribution or offer.distribution)
    ]
    return Use(address, use, point, node.place, node.origin, tuple(fitting), local)
