"""Plugins that are broken on purpose: each is a new plugin of the scaffold in which one thing was changed.

A fault is (the check that has to find it, the point, changes). A change is (file, text, what stands there instead); the
file is named from the project, `~` is its package, and without text the rest is added at its end.
"""

from __future__ import annotations

from typing import NamedTuple

C, P = "~/component.py", "pyproject.toml"


class Fault(NamedTuple):
    """One broken plugin."""

    check: str
    point: str
    changes: tuple[tuple[str, str, str], ...]


def _f(check: str, point: str, *changes: tuple[str, str, str]) -> Fault:
    return Fault(check, point, changes)


def _hook(text: str) -> str:
    """A method at the end of the component's class, which is the last of its module."""
    return "\n    @hookimpl\n" + "\n".join(f"    {line}" for line in text.splitlines()) + "\n"


_IMPORTS = "from nlpkernel import component, hookimpl, setting\n"
_LONELY = '\n\n@component\nclass Lonely:\n    """A thing that nobody asks for."""\n'
_SUBSCRIBE = "        from @.table import Table\n\n"
_FOR_TYPES = "if TYPE_CHECKING:\n"
_CURVE = "~/curve.py"


def _at_start(text: str) -> tuple[str, str, str]:
    """A change of the monitor: done when it subscribes."""
    return (C, _SUBSCRIBE, f"        {text}\n{_SUBSCRIBE}")


STATIC = [
    _f("static.name", "schedule", (P, 'name = "nlpkernel-plugin-', 'name = "plugin-')),
    _f("static.kernel-bound", "schedule", (P, '"nlpkernel>=0.1"', '"nlpkernel"')),
    _f("static.python-bound", "schedule", (P, 'requires-python = ">=3.11"\n', "")),
    _f("static.license", "schedule", (P, 'license = "Apache-2.0"\n', "")),
    _f("static.summary", "schedule", (P, "description = ", "keywords = [] #")),
    _f("static.readme", "schedule", (P, 'readme = "README.md"', 'readme = "NOTHING.md"')),
    _f("static.typed", "schedule", ("~/py.typed", "delete", "")),
    _f("static.group", "schedule", (P, "schedule.v1", "schedule.v9")),
    _f(
        "static.point",
        "schedule",
        (
            P,
            "[tool.hatch",
            '[project.entry-points."nlpkernel.nowhere.v1"]\nlonely = "@.component:Lonely"\n\n[tool.hatch',
        ),
        (C, "", _LONELY),
    ),
    _f("static.entry-names", "schedule", (P, "\n@name = ", "\nMy_Name = ")),
    _f("static.unique", "schedule", (P, "\n@name = ", "\nconstant = ")),
    _f(
        "static.requirements",
        "schedule",
        (P, "dependencies = [", 'dependencies = ["no-such-thing-of-a-test>=1", '),
    ),
    _f("static.codes-explained", "reader", ("~/blocks.py", '002"', '009"')),
    _f(
        "static.codes-own",
        "reader",
        (P, '\n@CODE = "', '\nNK = "'),
        ("~/codes.py", "@CODE", "NK"),
        ("~/blocks.py", "@CODE", "NK"),
    ),
    _f(
        "static.services",
        "schedule",
        (P, "[tool.hatch", '[project.entry-points."nlpkernel.command.v1"]\nx = "@.component"\n\n[tool.hatch'),
    ),
    _f("static.no-prints", "schedule", (_CURVE, "", "\n\ndef show():\n    print(1)\n")),
    _f("static.no-pickle", "schedule", (_CURVE, "", "\n\ndef read(path):\n    import pickle\n")),
    _f("static.no-eval", "schedule", (_CURVE, "", "\n\ndef curve(text):\n    return eval(text)\n")),
    _f(
        "static.swallowed",
        "schedule",
        (_CURVE, "", "\n\ndef tried(f):\n    try:\n        f()\n    except Exception:\n        pass\n"),
    ),
    _f(
        "static.own-imports",
        "schedule",
        (_CURVE, "", "\n\ndef other():\n    import nlpkernel_optim.curves\n"),
    ),
    _f(
        "static.no-patches",
        "schedule",
        (_CURVE, "", "\n\ndef patch():\n    import math\n    math.cos = None\n"),
    ),
    _f("static.no-star", "schedule", (_CURVE, "", "\nfrom math import *\n")),
    _f("static.loopback", "schedule", (_CURVE, "", '\n\ndef serve(own):\n    own.bind(("0.0.0.0", 1))\n')),
    _f("static.light-import", "schedule", (C, _IMPORTS, "import numpy\n" + _IMPORTS)),
    _f(
        "static.quiet-import", "schedule", (C, _IMPORTS, 'import sys\nsys.stdout.write("hello")\n' + _IMPORTS)
    ),
    _f(
        "static.inert-import",
        "schedule",
        (C, _IMPORTS, 'import os\nos.environ["SEEDED_X"] = "1"\n' + _IMPORTS),
    ),
    _f("static.import-alone", "schedule", (C, _IMPORTS, "import no_such_module_of_a_test\n" + _IMPORTS)),
    _f(
        "static.check-light",
        "schedule",
        (C, "", "\n    def check_settings(self):\n        import numpy\n        return ()\n"),
    ),
    _f(
        "static.checks",
        "schedule",
        (C, "", '\n    def check_settings(self):\n        yield "low", "it is low"\n'),
    ),
    _f(
        "static.check-settings",
        "schedule",
        (
            C,
            "",
            '\n    def check_settings(self):\n        if self.period == 2:\n            yield "perod", "too short"\n',
        ),
    ),
    _f("static.loads", "schedule", (C, "@component\n", "")),
    _f("static.settings-help", "schedule", (C, ', help="updates of one rise and fall"', "")),
    _f(
        "static.settings-typed",
        "schedule",
        (C, "import TYPE_CHECKING", "import TYPE_CHECKING, Any"),
        (C, "    period: int", "    any: Any = setting(default=1, help='x')\n    period: int"),
    ),
    _f(
        "static.secrets",
        "schedule",
        (C, "    period: int", "    api_key: str = setting(default='', help='x')\n    period: int"),
    ),
    _f("static.defaults", "schedule", (C, "default=0.1, ge=0, le=1", "default=2.0, ge=0, le=1")),
    _f(
        "static.presets",
        "schedule",
        (C, "@component\n", '@component(presets={"good": {"period": 4}, "bad": {"period": -1}})\n'),
        (
            C,
            "    period: int",
            "    preset: str | None = setting(default=None, help='one of them')\n    period: int",
        ),
    ),
    _f("static.hooks-known", "schedule", (C, "", _hook('def no_such_hook(self):\n    """None."""'))),
    _f("static.hooks-arguments", "schedule", (C, "self, updates: int", "self, updatez: int")),
    _f(
        "static.hooks-must",
        "schedule",
        (C, "    @hookimpl\n    def create_schedule", "    def make_schedule"),
    ),
    _f("static.hooks-plain", "schedule", (C, "    @hookimpl\n", "    @hookimpl(tryfirst=True)\n")),
    _f("static.documented", "schedule", (C, '    """A triangle: ', '    _words = """A triangle: ')),
    _f("static.no-shared-state", "schedule", (C, "    period: int", "    cache = {}\n    period: int")),
    _f("static.need", "optimizer", (C, 'need = "elementwise"', 'need = "sometimes"')),
    _f("static.free-hooks", "monitor", (C, "", _hook('def gradients_ready(self):\n    """Nothing."""'))),
]

#: What an observer does in a run of several workers.
_STEP = "from nlpkernel.events import StepCompleted"
DISTRIBUTED = [
    _f(
        "distributed.same",
        "monitor",
        _at_start(_STEP),
        _at_start(
            "bus.on(StepCompleted, "
            "lambda event: run.world > 1 and [p.data.mul_(0.9) for p in run.model.module.parameters()])"
        ),
    ),
    _f(
        "distributed.observer",
        "monitor",
        _at_start(_STEP),
        _at_start("import torch.distributed"),
        _at_start("bus.on(StepCompleted, lambda event: torch.distributed.barrier())"),
    ),
]

BEHAVIOUR = [
    _f(
        "behaviour.runs",
        "schedule",
        (_CURVE, "self.period, self.low = period, low", "raise RuntimeError(period)"),
    ),
    _f(
        "behaviour.observes",
        "monitor",
        ("~/table.py", "        values = [", "        raise ValueError(1)\n        values = ["),
    ),
    _f(
        "behaviour.same-seed",
        "schedule",
        (_CURVE, "class Triangle", "MADE = []\n\n\nclass Triangle"),
        (
            _CURVE,
            "self.period, self.low = period, low",
            "MADE.append(1)\n        self.period, self.low = period + len(MADE), low",
        ),
    ),
    _f(
        "behaviour.resume",
        "optimizer",
        ("~/rule.py", ".sign(), alpha", ", alpha"),
        (
            "~/rule.py",
            "state = self.state[parameter]",
            'state = self.__dict__.setdefault("own", {}).setdefault(parameter, {})',
        ),
    ),
    _f(
        "behaviour.state-round-trip",
        "policy",
        (C, '"reached": self._reached}', '"reached": self._reached, "x": (1, 2)}'),
    ),
    _f(
        "behaviour.accumulation",
        "task",
        ("~/smoothed.py", "self._smoothing))]", 'self._smoothing) / len(batch["target"]))]'),
    ),
    _f(
        "behaviour.neutral",
        "monitor",
        _at_start("from nlpkernel.events import StepCompleted"),
        _at_start(
            "bus.on(StepCompleted, lambda event: [p.data.mul_(0.9) for p in run.model.module.parameters()])"
        ),
    ),
    _f(
        "behaviour.failing-run",
        "monitor",
        ("~/table.py", "class Table", "OPEN = []\n\n\nclass Table"),
        (
            "~/table.py",
            "        self._file.close()",
            "        if self._lines:\n            self._file.close()\n        OPEN.append(self._file)",
        ),
        (
            "~/table.py",
            "        self._metrics = metrics",
            "        self._metrics = metrics\n        self._lines = 0",
        ),
        ("~/table.py", "        values = [", "        self._lines += 1\n        values = ["),
    ),
    _f("behaviour.unicode", "monitor", _at_start('str(run.folder).encode("ascii")')),
    _f("behaviour.environment", "monitor", _at_start('__import__("os").environ["SEEDED_Y"] = "1"')),
    _f("behaviour.torch", "monitor", _at_start('__import__("numpy").seterr(all="ignore")')),
    _f("behaviour.interpreter", "monitor", _at_start('__import__("sys").setrecursionlimit(4321)')),
    _f(
        "behaviour.logging",
        "monitor",
        _at_start("__import__('logging').root.addHandler(__import__('logging').NullHandler())"),
    ),
    _f(
        "behaviour.threads",
        "monitor",
        _at_start(
            "__import__('threading').Thread(target=__import__('time').sleep, args=(2,), daemon=True).start()"
        ),
    ),
    _f("behaviour.children", "monitor", _at_start('__import__("subprocess").Popen(["sleep", "3"])')),
    _f(
        "behaviour.files",
        "monitor",
        (C, "@component", "OPEN = []\n\n\n@component"),
        _at_start('OPEN.append((run.folder / "left").open("w"))'),
    ),
    _f(
        "behaviour.generators",
        "optimizer",
        (
            C,
            "        from @.rule",
            "        import torch\n\n        torch.manual_seed(1)\n        from @.rule",
        ),
    ),
    _f("behaviour.writes", "monitor", _at_start('(run.folder.parent.parent / "stray").write_text("x")')),
    _f(
        "behaviour.rehearsal",
        "monitor",
        _at_start('run.rehearsal and (run.folder.parent.parent / "rehearsed").write_text("x")'),
    ),
    _f("behaviour.optimizer-groups", "optimizer", (C, "list(group.names)", "list(group.names)[::-1]")),
    _f(
        "behaviour.optimizer-empty-group",
        "optimizer",
        (C, "for group in groups", "for group in groups if group.tensors"),
    ),
    _f(
        "behaviour.optimizer-need",
        "optimizer",
        ("~/rule.py", ".sign(), alpha", ' / state["average"].norm(), alpha'),
    ),
    _f(
        "behaviour.optimizer-found-inf",
        "optimizer",
        ("~/rule.py", "    def __init__", "    _step_supports_amp_scaling = True\n\n    def __init__"),
    ),
    _f(
        "behaviour.optimizer-lazy",
        "optimizer",
        (
            "~/rule.py",
            "is None:\n                    continue",
            "is None:\n                    parameter.mul_(0.9)\n                    continue",
        ),
    ),
    _f(
        "behaviour.schedule",
        "schedule",
        (_CURVE, "        place =", "        if update == 24:\n            return -1.0\n        place ="),
    ),
    _f(
        "behaviour.model-anatomy",
        "model",
        ("~/network.py", "        parameters={", '        parameters={"nothing": ParameterFacts()} | {'),
    ),
    _f(
        "behaviour.model-initialise",
        "model",
        ("~/network.py", "    def initialise(", "    seen = []\n\n    def initialise("),
        ("~/network.py", "        if name.endswith", "        seen.append(name)\n        if name.endswith"),
        ("~/network.py", "0.02, gen", "0.02 * len(seen), gen"),
    ),
    _f("behaviour.estimate", "optimizer", (C, "optimizer_bytes=4", "optimizer_bytes=80")),
    _f(
        "behaviour.precision",
        "precision",
        ("~/casting.py", "", "\n    def scale(self, loss):\n        return loss * 2\n"),
    ),
    _f(
        "behaviour.data-windows",
        "data",
        (
            "~/rows.py",
            "        return self._batch(self._windows.window(step)[index].rows)",
            "        "
            "self._late = max(step, getattr(self, '_late', 0))\n        rows = self._windows.window(step)[index].rows\n"
            "        return self._batch(rows if step == self._late else rows[::-1])",
        ),
    ),
    _f(
        "behaviour.data-counts",
        "data",
        (
            "~/rows.py",
            "self._windows.window(step)[index].rows]",
            "self._windows.window(step)[index].rows[1:]]",
        ),
    ),
    _f(
        "behaviour.data-codec",
        "data",
        ("~/rows.py", 'cls(DataInfo(task="lm", vocabulary=256', 'cls(DataInfo(task="lm", vocabulary=255'),
    ),
    _f(
        "behaviour.tokenizer-ids",
        "tokenizer",
        ("~/vocabulary.py", "np.array(self.encode(text), ", "np.array([0, *self.encode(text)], "),
    ),
    _f(
        "behaviour.tokenizer-saved",
        "tokenizer",
        ("~/vocabulary.py", "self._words[2:]).encode", "self._words[3:]).encode"),
    ),
    _f(
        "behaviour.stage-outcome",
        "stage",
        ("~/squeezing.py", "        changed = ", "        dropped[99] = 'far'\n        changed = "),
    ),
    _f(
        "behaviour.stage-parallel",
        "stage",
        ("~/squeezing.py", "        reason = ", "        texts[-1] += '.'\n        reason = "),
    ),
    _f(
        "behaviour.augmentation-pure",
        "augmentation",
        ("~/capitals.py", "[self._one(text, int(key)) for", "[self._one(text, int(key) + len(texts)) for"),
    ),
    _f(
        "behaviour.sampler-windows",
        "sampler",
        (
            "~/striding.py",
            "    def _order",
            "    def seen(self, step):\n        return super().seen(step) + 1\n\n    def _order",
        ),
    ),
    _f(
        "behaviour.task-counts",
        "task",
        ("~/smoothed.py", '"loss": summed.double()', '"loss": summed.double() / len(batch["target"])'),
    ),
    _f(
        "behaviour.reader-again",
        "reader",
        (
            "~/blocks.py",
            "        places: list[int] = []",
            "        places: list[int] = []\n        self._turn = getattr(self, '_turn', 0) + 1",
        ),
        (
            "~/blocks.py",
            "                places.append(place)",
            "                places.append(place + self._turn)",
        ),
    ),
    _f(
        "behaviour.store-exact", "checkpoint", ("~/packing.py", 'artifacts=read["artifacts"]', "artifacts={}")
    ),
    _f(
        "behaviour.store-missing",
        "checkpoint",
        ("~/files.py", "name = reference or max", "name = reference if reference in paths else max"),
    ),
    _f(
        "behaviour.store-damage",
        "checkpoint",
        ("~/files.py", "        if digest != ", "        if 0 and digest != "),
    ),
    _f(
        "behaviour.compressor-wire",
        "compressor",
        ("~/rounding.py", "        into +=", "        into.zero_()\n        into +="),
    ),
    _f("behaviour.compressor-owed", "compressor", ("~/rounding.py", "= flat\n", "= flat * 0.5\n")),
    _f(
        "behaviour.communicator-same",
        "communicator",
        (
            "~/group.py",
            "        return sums",
            "        return {name: value * 1.01 for name, value in sums.items()}",
        ),
    ),
]
