"""Hooks: what is refused before anything runs, and how each kind of hook is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nlpkernel import component, hookimpl, setting
from nlpkernel.context import Run
from nlpkernel.errors import ComponentFailure, DataError, NlpkernelError, PluginError, fail
from nlpkernel.events import Event, ObserverDetached
from nlpkernel.hookspecs import KIND
from nlpkernel.hookspecs.everywhere import Action, Decision, Facts
from nlpkernel.plan import Plan
from nlpkernel.plan.train import Train
from nlpkernel.plugins.hooks import SPECS, Hooks

if TYPE_CHECKING:
    from conftest import Shop


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("methods", "code", "said"),
    [
        ("@hookimpl\ndef decdie(self): ...", "NK054", "there is no hook 'decdie'; did you mean 'decide'?"),
        (
            "@hookimpl\ndef open_data(self): ...",
            "NK054",
            "the hook 'open_data' is not asked of a component for 'optimizer'",
        ),
        (
            "@hookimpl\ndef decide(self, metrcis): ...",
            "NK055",
            "the hook 'decide' has no argument 'metrcis'; did you mean 'metrics'?",
        ),
        ("@hookimpl\ndef decide(self, *args): ...", "NK055", "the hook 'decide' has no argument 'args'"),
        ("@hookimpl\ndef decide(self, **rest): ...", "NK055", "the hook 'decide' has no argument 'rest'"),
        (
            "@hookimpl(wrapper=True)\ndef decide(self):\n    return (yield)",
            "NK058",
            "the hook 'decide' uses pluggy's 'wrapper', which this kernel does not honour",
        ),
        ("@hookimpl(hookwrapper=True)\ndef decide(self):\n    yield", "NK058", "pluggy's 'hookwrapper'"),
        ("@hookimpl(tryfirst=True)\ndef decide(self): ...", "NK058", "pluggy's 'tryfirst'"),
        ("@hookimpl(trylast=True)\ndef decide(self): ...", "NK058", "pluggy's 'trylast'"),
        ("@hookimpl(specname='decide')\ndef close(self): ...", "NK058", "pluggy's 'specname'"),
        (
            "def decide(self, metrics): ...",
            "NK057",
            "'decide' is the name of a hook and not marked as one; put @hookimpl above the method",
        ),
        ("def create_schedule(self): ...", "NK057", "'create_schedule' is the name of a hook and not marked"),
    ],
)
def test_case_p5_a_hook_that_would_never_be_called_as_meant_is_refused(
    shop: Shop, methods: str, code: str, said: str
) -> None:
    shop.own("lr: float = setting(default=1.0)", methods=methods)
    with pytest.raises(PluginError) as caught:
        shop.load()
    (problem,) = caught.value.problems
    assert problem.code == code
    assert said in str(problem)
    assert problem.owner is not None
    assert problem.owner.startswith(f"Own of {shop.folder}/own.py ")
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == (2, 7)


def test_a_component_without_the_hooks_of_its_point_is_refused(shop: Shop) -> None:
    shop.write("bare.py", "from nlpkernel import component, hookimpl\n@component\nclass Bare: ...\n")
    with pytest.raises(PluginError) as caught:
        Plan.load(shop.plan('[data]\nuse = "./bare.py:Bare"\n'))
    assert [problem.message for problem in caught.value.problems] == [
        "a component for 'data' must implement 'open_data'",
        "a component for 'data' must implement 'open_codec'",
    ]
    assert {problem.code for problem in caught.value.problems} == {"NK057"}


def test_mistakes_in_hooks_are_told_together_with_those_in_settings(shop: Shop) -> None:
    shop.own(
        "lr: float = setting()",
        methods="@hookimpl\ndef decdie(self): ...\n@hookimpl\ndef close(self, rnu): ...",
    )
    codes = [problem.code for problem in shop.refused("lrr = 1")]
    assert sorted(codes) == ["NK054", "NK055", "NK101", "NK102"]


def test_helpers_and_settings_may_be_called_what_they_like(shop: Shop) -> None:
    shop.own(
        "decide: int = setting(default=1)\nlr: float = setting(default=1.0)",
        methods="def open_data(self): ...\n@property\ndef rate(self):\n    return self.lr\n",
    )
    assert shop.made().decide == 1  # type: ignore[attr-defined]


def test_two_owners_of_a_hook_that_one_may_own_are_refused_before_the_run(shop: Shop) -> None:
    hooks = "".join(f"    @hookimpl\n    def {name}(self): ...\n" for name in ("subscribe", "backward"))
    classes = "".join(f"@component\nclass {name}:\n{hooks}" for name in ("One", "Two"))
    shop.write("watch.py", f"from nlpkernel import component, hookimpl\n{classes}")
    one = '[[monitor]]\nuse = "./watch.py:One"\n'
    assert Plan.load(shop.plan(one))
    with pytest.raises(PluginError) as caught:
        Plan.load(shop.plan(one + '[[monitor]]\nuse = "./watch.py:Two"\n'))
    assert caught.value.exit_code == 2
    (problem,) = caught.value.problems
    assert problem.code == "NK059"
    assert "the hook 'backward' can have one owner, and has monitor[0] (One of " in problem.message
    assert " and monitor[1] (Two of " in problem.message


def test_every_hook_says_its_kind() -> None:
    kinds = {getattr(spec, KIND) for spec in SPECS.values()}
    assert kinds == {"pick", "transform", "collect", "observe"}


# -- how hooks are asked --------------------------------------------------------------------------------------------


@component
class Part:
    """A component that answers hooks and remembers that it was asked."""

    name: str = setting(default="")
    fails: bool = setting(default=False)
    asked: Any = setting(default=None)
    inner: Any = setting(default=None)

    def _answer(self, what: str) -> str:
        self.asked.append(f"{self.name} {what}")
        if self.fails:
            raise ValueError(f"no {what} today")
        return self.name

    @hookimpl
    def estimate(self, facts: Facts) -> Facts:
        return Facts(notes=(*facts.notes, self._answer("estimate")))

    @hookimpl
    def weights_for(self, use: str, run: object = None) -> Any:
        return self._answer(f"{use} {run is not None}")

    @hookimpl
    def update_applied(self, run: Run) -> None:
        self._answer("update_applied")

    @hookimpl
    def decide(self) -> Any:
        return Decision(Action.STOP, self._answer("decide"))

    @hookimpl
    def close(self) -> None:
        self._answer("close")

    @hookimpl
    def create_optimizer(self, run: Run, groups: object) -> Any:
        return run.ask(self.inner, "create_schedule", updates=1)

    @hookimpl
    def create_schedule(self, updates: int) -> str:
        return self._answer("create_schedule")


class Crew:
    """Three parts in a run, the second of which fails where it is told to."""

    def __init__(self, folder: Path, *, strict: bool = False, fails: bool = False) -> None:
        self.asked: list[str] = []
        self.hooks = Hooks(strict=strict)
        self.run = Run(name="test", folder=folder, cache=folder, train=Train(), hooks=self.hooks)
        self.events: list[Event] = []
        self.run.bus.on(Event, self.events.append)
        self.parts = [
            Part(name=name, fails=fails and name == "b", asked=self.asked) for name in ("a", "b", "c")
        ]
        for part in self.parts:
            self.hooks.register(part, f"monitor[{part.name}]", f"{part.name} of acme 2.5")


def test_collect_and_transform_ask_in_plan_order_and_pass_every_argument_that_is_taken(
    tmp_path: Path,
) -> None:
    crew = Crew(tmp_path)
    assert crew.hooks.collect("weights_for", run=crew.run, use="evaluate") == ["a", "b", "c"]
    assert crew.hooks.transform("estimate", Facts()).notes == ("a", "b", "c")
    assert crew.asked == [f"{name} evaluate True" for name in "abc"] + [f"{name} estimate" for name in "abc"]
    assert crew.hooks.collect("component_state", run=crew.run) == []


def test_who_watches_is_told_of_every_call_while_it_lasts(tmp_path: Path) -> None:
    crew, told = Crew(tmp_path), []

    @contextmanager
    def watch(owner: str, what: str) -> Iterator[None]:
        told.append(f"{what} of {owner} begins")
        yield
        told.append(f"{what} ends")

    crew.hooks.watch = watch
    crew.hooks.collect("weights_for", run=crew.run, use="evaluate")
    assert told[:2] == ["weights_for of a of acme 2.5 begins", "weights_for ends"]
    assert len(told) == 6
    crew.hooks.decisions(crew.run, None, {"loss": 1.0})
    assert [each for each in told[6:] if "begins" in each] == [
        f"decide of {each.owner} begins" for each in crew.hooks.bound("decide")
    ]


def test_pick_gives_the_owner_or_nobody(tmp_path: Path) -> None:
    crew = Crew(tmp_path)
    assert crew.hooks.pick("backward") is None
    hooks = Hooks()
    hooks.register(crew.parts[0], "monitor", "a of acme 2.5")
    picked = hooks.pick("create_optimizer")
    assert picked is not None
    assert picked.owner == "a of acme 2.5"


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda crew: crew.hooks.collect("weights_for", run=crew.run, use="export"),
            "weights_for failed: ValueError: no exp",
        ),
        (
            lambda crew: crew.hooks.transform("estimate", Facts()),
            "estimate failed: ValueError: no estimate today",
        ),
    ],
)
def test_a_failure_of_collect_and_transform_is_fatal_and_names_whose_it_is(
    tmp_path: Path, ask: Callable[[Crew], object], said: str
) -> None:
    crew = Crew(tmp_path, fails=True)
    with pytest.raises(ComponentFailure) as caught:
        ask(crew)
    (problem,) = caught.value.problems
    assert problem.message.startswith(said)
    assert (problem.code, problem.owner) == ("NK060", "b of acme 2.5")
    assert isinstance(caught.value.__cause__, ValueError)
    assert not any(asked.startswith("c") for asked in crew.asked)


def test_a_transform_that_forgets_to_return_is_named(tmp_path: Path) -> None:
    @component
    class Forgetful:
        @hookimpl
        def estimate(self, facts: Facts) -> None: ...

    hooks = Hooks()
    hooks.register(Forgetful(), "model", "forgetful of acme 2.5")
    with pytest.raises(ComponentFailure, match="it must return facts, and returned nothing") as caught:
        hooks.transform("estimate", Facts())
    assert caught.value.problems[0].owner == "forgetful of acme 2.5"


def test_an_observer_that_fails_three_times_is_detached_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crew = Crew(tmp_path, fails=True)
    for _ in range(5):
        crew.hooks.observe("update_applied", run=crew.run, progress=crew.run.progress, applied=True)
    count = {name: crew.asked.count(f"{name} update_applied") for name in "abc"}
    assert count == {"a": 5, "b": 3, "c": 5}
    said = "update_applied failed: ValueError: no update_applied today"
    assert crew.hooks.detached == [("b of acme 2.5", "update_applied", said)]
    (event,) = crew.events
    assert isinstance(event, ObserverDetached)
    assert (event.source, event.hook, event.error) == ("b of acme 2.5", "update_applied", said)
    warned = [record.getMessage() for record in caplog.records]
    assert warned[0] == f"step 0: NK060 {said} [b of acme 2.5]"
    assert warned[-1] == "b of acme 2.5 is not asked update_applied any more"
    # Another hook of the same component is still asked.
    with pytest.raises(ComponentFailure):
        crew.hooks.collect("weights_for", run=crew.run, use="evaluate")


def test_an_error_of_ours_from_an_observer_ends_the_run_no_more_than_another(tmp_path: Path) -> None:
    @component
    class Watcher:
        @hookimpl
        def update_applied(self, run: Run) -> None:
            raise fail(DataError, "NK308", "no data")

    hooks = Hooks()
    run = Run(name="test", folder=tmp_path, cache=tmp_path, train=Train(), hooks=hooks)
    hooks.register(Watcher(), "monitor", "watcher of acme 2.5")
    for _ in range(4):
        hooks.observe("update_applied", run=run, progress=run.progress, applied=True)
    assert hooks.detached == [("watcher of acme 2.5", "update_applied", "no data")]


def test_in_a_strict_run_an_observer_may_not_fail(tmp_path: Path) -> None:
    crew = Crew(tmp_path, strict=True, fails=True)
    with pytest.raises(ComponentFailure, match=r"\[b of acme 2\.5\]"):
        crew.hooks.observe("update_applied", run=crew.run, progress=crew.run.progress, applied=True)


def test_decisions_come_with_their_owners_and_a_wrong_answer_is_named(tmp_path: Path) -> None:
    crew = Crew(tmp_path)
    answers = crew.hooks.decisions(crew.run, crew.run.progress, {})
    assert [(owner, answer.reason) for owner, answer in answers] == [
        (f"{name} of acme 2.5", name) for name in "abc"
    ]

    @component
    class Wrong:
        @hookimpl
        def decide(self) -> Any:
            return True

    hooks = Hooks()
    hooks.register(Wrong(), "train.policy[0]", "wrong of acme 2.5")
    with pytest.raises(
        ComponentFailure, match=r"decide failed: AttributeError: .*action.*\[wrong of acme 2\.5\]"
    ):
        hooks.decisions(crew.run, crew.run.progress, {})


def test_closing_goes_backwards_and_on_after_a_failure(tmp_path: Path) -> None:
    crew = Crew(tmp_path, fails=True)
    errors = crew.hooks.close(run=crew.run)
    assert crew.asked == ["c close", "b close", "a close"]
    assert [str(error) for error in errors] == [
        "NK060 close failed: ValueError: no close today [b of acme 2.5]"
    ]


def test_a_failure_of_a_nested_component_is_the_nested_ones(tmp_path: Path) -> None:
    crew = Crew(tmp_path, fails=True)
    crew.parts[0].inner = crew.parts[1]
    with pytest.raises(ComponentFailure) as caught:
        crew.run.ask(crew.parts[0], "create_optimizer", groups=())
    (problem,) = caught.value.problems
    assert problem.message == "create_schedule failed: ValueError: no create_schedule today"
    assert problem.owner == "b of acme 2.5"


def test_a_nested_component_that_is_called_directly_is_still_the_one_to_blame(tmp_path: Path) -> None:
    @component
    class Direct:
        inner: Any = setting(default=None)

        @hookimpl
        def create_optimizer(self) -> Any:
            return self.inner.create_schedule(updates=1)

    crew = Crew(tmp_path, fails=True)
    outer = Direct(inner=crew.parts[1])
    crew.hooks.register(outer, "optimizer", "outer of acme 2.5")
    with pytest.raises(ComponentFailure) as caught:
        crew.run.ask(outer, "create_optimizer", groups=())
    assert caught.value.problems[0].owner == "b of acme 2.5"


def test_who_asks_without_an_argument_that_is_taken_is_to_blame_himself(tmp_path: Path) -> None:
    @component
    class Careless:
        inner: Any = setting(default=None)

        @hookimpl
        def create_optimizer(self, run: Run) -> Any:
            return run.ask(self.inner, "create_schedule")

    crew = Crew(tmp_path)
    outer = Careless(inner=crew.parts[1])
    crew.hooks.register(outer, "optimizer", "careless of acme 2.5")
    with pytest.raises(ComponentFailure) as caught:
        crew.run.ask(outer, "create_optimizer", groups=())
    (problem,) = caught.value.problems
    assert problem.message.endswith("TypeError: create_schedule of b of acme 2.5 was asked without updates")
    assert problem.owner == "careless of acme 2.5"


def test_an_error_of_ours_keeps_its_class_and_gets_its_owner(tmp_path: Path) -> None:
    @component
    class Source:
        @hookimpl
        def open_data(self) -> Any:
            raise fail(DataError, "TXT001", "no such file")

    run = Run(name="test", folder=tmp_path, cache=tmp_path, train=Train())
    with pytest.raises(DataError) as caught:
        run.ask(Source(), "open_data")
    assert str(caught.value) == "TXT001 no such file [Source]"
    assert caught.value.exit_code == 1
    assert issubclass(DataError, NlpkernelError)


def test_a_run_without_hooks_asks_like_one_with_them(tmp_path: Path) -> None:
    asked: list[str] = []
    run = Run(name="test", folder=tmp_path, cache=tmp_path, train=Train())
    outer = Part(asked=asked, inner=Part(name="inner", asked=asked))
    assert run.ask(outer, "create_optimizer", groups=()) == "inner"
