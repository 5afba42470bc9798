"""The command line: exit codes, messages as users read them, JSON for machines, and manners towards shells."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nlpkernel
from nlpkernel.cli import COMMANDS, main
from nlpkernel.codes import CODES

if TYPE_CHECKING:
    from conftest import Shop

KERNEL = Path(nlpkernel.__file__).parent
_numbers = itertools.count()

#: Runs a command, then tells on standard error which heavy modules it imported.
TELLING = """
import sys
from nlpkernel.cli import main
code = main(sys.argv[1:])
print("heavy:", *sorted({"torch", "numpy"} & set(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def here(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The folder that commands run in, with a plan that has no mistakes."""
    monkeypatch.chdir(shop.folder)
    shop.plan("")
    return shop


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lay: Callable[..., None]) -> Callable[..., str]:
    """Installs an entry point for a service; gives the name of its module."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def install(point: str, name: str, source: str, attribute: str = "", distribution: str = "acme") -> str:
        module = f"service_{next(_numbers)}"
        target = f"{module}:{attribute}" if attribute else module
        lay(site, distribution, {f"nlpkernel.{point}.v1": {name: target}}, {module: source}, "2.5")
        return module

    return install


# -- P2 -------------------------------------------------------------------------------------------------------------

MISTAKES = """\
[tarin]
steps = 3
[train]
steps = 3
[[train.policy]]
use = "budget"
tokns = "3M"
[data]
use = "./parts.py:Data"
rows = 3
[data]
use = "./parts.py:Data"
[model]
use = "./parts.py:Model"
[optimizer]
use = "./parts.py:Optimizer"
lrr = 3
[communicator]
use = "singel"
"""


def test_case_p2_every_misspelling_is_in_one_report_and_torch_is_not_imported(here: Shop) -> None:
    here.write("mistakes.toml", MISTAKES)
    for command in ("check", "run"):
        done = subprocess.run(
            [sys.executable, "-c", TELLING, command, "mistakes.toml"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2
        lines = [re.sub(r" \[[^]]*\]$", "", line) for line in done.stderr.splitlines()]
        assert lines == [
            "error: mistakes.toml:1:2: NK101 a plan has no section 'tarin'; did you mean 'train'?",
            "error: mistakes.toml:7:1: NK101 train.policy[0]: there is no setting 'tokns'; did you mean 'tokens'?",
            "error: mistakes.toml:10:1: NK101 data: there is no setting 'rows'",
            *[line for line in lines if "mistakes.toml:11:" in line],
            "error: mistakes.toml:17:1: NK101 optimizer: there is no setting 'lrr'; did you mean 'lr'?",
            "error: mistakes.toml:19:7: NK106 no installed distribution offers 'singel' for 'communicator'; "
            "did you mean 'single'?",
            "6 problems; `nlpkernel explain CODE` tells more of each",
            "heavy:",
        ]
        (twice,) = (line for line in lines if "mistakes.toml:11:" in line)
        assert "NK002" in twice
        assert "8:" in twice
    assert not (here.folder / "runs").exists()


# -- exit codes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("", 0),
        ("--help", 0),
        ("help", 0),
        ("--version", 0),
        ("bogus", 2),
        ("--bogus", 2),
        ("check", 2),
        ("check --bogus plan.toml", 2),
        ("check plan.toml", 0),
        ("check plan.toml --set train.steps=0", 2),
        ("check gone.toml", 2),
        ("run gone.toml", 2),
        ("run plan.toml --set train.steps=0", 2),
        ("runs", 0),
        ("runs --runs gone", 0),
        ("report runs/gone", 2),
        ("resume runs/gone", 2),
        ("plan", 2),
        ("plan diff plan.toml plan.toml", 0),
        ("plan diff plan.toml other.toml", 1),
        ("plan diff plan.toml gone.toml", 2),
        ("plugins", 0),
        ("explain", 0),
        ("explain nk101", 0),
        ("explain NK999", 2),
        ("completion bash", 0),
        ("completion zsh", 0),
        ("completion fish", 2),
    ],
)
def test_exit_codes(here: Shop, capsys: pytest.CaptureFixture[str], arguments: str, code: int) -> None:
    here.plan("[train]\nsteps = 2\n", "other.toml")
    assert main(arguments.split()) == code
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert said.err if code == 2 else not said.err
    assert (said.out == "") == (code == 2)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help_of_its_own(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: nlpkernel {command}")
    assert "--quiet" in text
    assert main(["--help"]) == 0
    assert f"  {command:<12}{COMMANDS[command][1]}" in capsys.readouterr().out


def test_a_misspelt_command_suggests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chekc"]) == 2
    assert capsys.readouterr().err == "nlpkernel: there is no command 'chekc'; did you mean 'check'?\n"


# -- check ----------------------------------------------------------------------------------------------------------


def test_check_shows_the_filled_plan_with_origins(here: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "plan.toml", "--set", "train.batch=8"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^steps = 1 +# plan\.toml:3:9$", text, re.MULTILINE)
    assert re.search(r"^batch = 8 +# --set$", text, re.MULTILINE)
    assert re.search(r"^seed = 0 +# default$", text, re.MULTILINE)
    assert re.search(r'^use = "plain" +# default$', text, re.MULTILINE)
    assert text.endswith("plan.toml: no mistakes\n")
    assert main(["check", "plan.toml", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_check_in_json_holds_plan_origins_and_estimate(
    here: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "plan.toml", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["plan"]["train"]["steps"] == 1
    assert said["origins"]["train.steps"] == "plan.toml:3:9"
    assert said["estimate"]["micro"] == 32
    assert said["data"] is None


def test_mistakes_in_json_are_values_and_lines_too(here: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "plan.toml", "--json", "--set", "train.stepps=3"]) == 2
    said = capsys.readouterr()
    (problem,) = json.loads(said.out)["problems"]
    assert problem["code"] == "NK101"
    assert problem["place"] == {"file": "--set train.stepps", "line": 0, "column": 0}
    assert problem["hint"] == "did you mean 'steps'?"
    assert said.err.startswith(
        "error: --set train.stepps: NK101 train: there is no setting 'stepps'; did you mean"
    )


def test_a_secret_is_shown_by_no_command(
    here: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "hunter2")
    here.own("token: str = setting(secret=True)\nrate: float = setting(default=1.0)")
    here.plan('[optimizer]\nuse = "./own.py:Own"\ntoken = "${TOKEN}"\n', "secret.toml")
    here.plan('[optimizer]\nuse = "./own.py:Own"\ntoken = "a${TOKEN}"\n', "other.toml")
    here.plan('[optimizer]\nuse = "./own.py:Own"\ntoken = "${TOKEN}"\nrate = "${TOKEN}"\n', "wrong.toml")
    said = ""
    for arguments in (
        ["check", "secret.toml"],
        ["check", "secret.toml", "--json"],
        ["check", "wrong.toml", "--json"],
        ["plan", "diff", "secret.toml", "other.toml"],
        ["plan", "diff", "secret.toml", "other.toml", "--json"],
    ):
        main(arguments)
        out, err = capsys.readouterr()
        assert "${TOKEN}" in out
        said += out + err
    assert "hunter2" not in said


def test_an_estimate_that_fails_is_named(here: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    here.own(
        "a: int = setting(default=1)",
        methods="@hookimpl\ndef estimate(self, facts):\n    return facts.nothing\n",
    )
    here.plan('[optimizer]\nuse = "./own.py:Own"\n', "bad.toml")
    assert main(["check", "bad.toml"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(
        "error: NK060 estimate failed: AttributeError: 'Facts' object has no attribute 'nothing'"
    )
    assert f"[Own of {here.folder}/own.py " in error
    assert main(["check", "bad.toml", "--verbose"]) == 1
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert "return facts.nothing" in error


def test_what_a_plan_needs_is_added_up(here: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    methods = (
        "@hookimpl\ndef estimate(self, facts):\n    import attrs\n"
        "    return attrs.evolve(facts, parameters=1000, parameter_bytes=4000, optimizer_bytes=8000, notes=('slow',))\n"
    )
    here.own("a: int = setting(default=1)", methods=methods)
    here.plan('[optimizer]\nuse = "./own.py:Own"\n', "sized.toml")
    assert main(["check", "sized.toml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4:] == [
        "parameters   1,000",
        "memory       at least 12 kB (weights 4 kB, optimizer 8 kB)",
        "note         slow",
        "sized.toml: no mistakes",
    ]


# -- plan diff ------------------------------------------------------------------------------------------------------


def test_plan_diff_tells_what_differs_once_both_are_filled(
    here: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    here.plan('name = "plan"\n[train]\nsteps = 1\nbatch = 32\nclip = 1.0\n', "other.toml")
    assert main(["plan", "diff", "plan.toml", "other.toml"]) == 1
    assert capsys.readouterr().out == "train.clip: (none) -> 1.0\n"
    assert main(["plan", "diff", "plan.toml", "other.toml", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == [{"setting": "train.clip", "a": None, "b": 1.0}]
    assert main(["plan", "diff", "plan.toml", "plan.toml"]) == 0
    assert capsys.readouterr().out == "no difference\n"


# -- explain --------------------------------------------------------------------------------------------------------


def used_codes() -> set[str]:
    """Codes that the kernel raises: written where they are raised, or through a name of `plan.codes`."""
    from nlpkernel.plan import codes as reading

    names = {value: name for name, value in vars(reading).items() if re.fullmatch(r"NK\d{3}", str(value))}
    tables = {KERNEL / "codes.py", KERNEL / "plan/codes.py", KERNEL / "plugins/codes.py"}
    text = "\n".join(path.read_text("utf-8") for path in KERNEL.rglob("*.py") if path not in tables)
    by_name = {
        code for code, name in names.items() if re.search(rf"\b{name}\b(?!\s*=)", text.replace("import ", ""))
    }
    return set(re.findall(r'"(NK\d{3})"', text)) | by_name


def test_every_code_that_is_raised_is_explained_and_no_other() -> None:
    assert used_codes() == set(CODES)


@pytest.mark.parametrize("code", sorted(CODES))
def test_an_explanation_says_something(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", code.lower()]) == 0
    head, empty, *text = capsys.readouterr().out.splitlines()
    assert head.startswith(f"{code}: ")
    assert empty == ""
    assert all(text)
    assert len(" ".join(text)) > 40
    assert max(map(len, text)) <= 120


def test_a_misspelt_code_suggests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "NK1001"]) == 2
    assert "NK307 there is no error code 'NK1001'; did you mean 'NK001'?" in capsys.readouterr().err
    assert main(["explain", "what"]) == 2
    assert "`nlpkernel explain` without a code lists them all" in capsys.readouterr().err


def test_case_p6_codes_of_plugins_are_explained_and_broken_ones_named(
    service: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    service(
        "codes",
        "TST",
        'CODES = {"TST001": ("a test", "It is a test, and nothing else is the matter.")}',
        "CODES",
    )
    broken = service("codes", "BRK", "raise RuntimeError('no codes today')", "CODES", "broken")
    assert main(["explain", "tst001"]) == 0
    assert capsys.readouterr().out.startswith("TST001: a test\n\nIt is a test")
    assert main(["explain", "NK101"]) == 0
    assert broken not in sys.modules
    assert capsys.readouterr().err == ""
    assert main(["explain"]) == 0
    said = capsys.readouterr()
    assert "TST001  a test" in said.out.splitlines()
    assert "NK040 the codes entry point" in said.err
    assert "RuntimeError: no codes today" in said.err
    assert "[BRK of broken 2.5]" in said.err


# -- commands and starter plans of plugins --------------------------------------------------------------------------

COMMAND = """
HELP = "Wave."

def arguments(parser):
    parser.add_argument("--twice", action="store_true")

def execute(args):
    print("wave" * (1 + args.twice))
    return 3
"""


def test_a_command_of_a_plugin_is_one_like_any_other(
    service: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    service("command", "wave", COMMAND)
    assert main(["wave", "--twice"]) == 3
    assert capsys.readouterr().out == "wavewave\n"
    assert main(["--help"]) == 0
    assert "wave        (from acme)" in capsys.readouterr().out
    assert main(["wvae"]) == 2
    assert "did you mean 'wave'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise RuntimeError('broken')", "cannot be loaded: RuntimeError: broken ("),
        ("raise SystemExit(0)", "cannot be loaded: SystemExit: 0 ("),
        ("HELP = ''", "is no command: it has no arguments and no execute"),
    ],
)
def test_case_p6_a_broken_command_breaks_itself_only(
    service: Callable[..., str], capsys: pytest.CaptureFixture[str], source: str, said: str
) -> None:
    service("command", "wave", source)
    assert main(["--help"]) == 0
    assert "wave" in capsys.readouterr().out
    assert main(["wave"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("nlpkernel: NK040 the command entry point 'service_")
    assert said in error
    assert "[wave of acme 2.5]" in error


def test_a_command_that_two_distributions_offer_is_nobodys(
    service: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    service("command", "wave", COMMAND)
    service("command", "wave", COMMAND, "", "other")
    assert main(["wave"]) == 2
    said = "nlpkernel: the command 'wave' is offered by acme 2.5 and other 2.5; uninstall one of them\n"
    assert capsys.readouterr().err == said


def test_init_writes_a_starter_plan_and_writes_over_nothing(
    here: Shop, service: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    service("starter", "aaa-first", "PLAN = '# größer\\n[train]\\nsteps = 1\\n'", "PLAN")
    assert main(["init", "new.toml"]) == 0
    assert (here.folder / "new.toml").read_text("utf-8") == "# größer\n[train]\nsteps = 1\n"
    assert "nlpkernel check new.toml" in capsys.readouterr().out
    for arguments, said in (
        (["init", "new.toml"], "NK309 'new.toml' exists; --overwrite replaces it"),
        (["init", "gone/new.toml"], "NK309 'gone/new.toml' cannot be written: No such file or directory"),
        (
            ["init", "x.toml", "--kind", "aaa-frist"],
            "NK308 there is no starter plan 'aaa-frist'; did you mean 'aaa-first'?",
        ),
    ):
        assert main(arguments) == 2
        assert capsys.readouterr().err == f"error: {said}\n"
    assert main(["init", "new.toml", "--kind", "aaa-first", "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("source", "said"),
    [("PLAN = 3", "is no text of a plan but of type int"), ("1 / 0", "cannot be loaded: ZeroDivisionError")],
)
def test_a_starter_plan_that_is_none_is_named(
    here: Shop, service: Callable[..., str], capsys: pytest.CaptureFixture[str], source: str, said: str
) -> None:
    service("starter", "bad", source, "PLAN")
    assert main(["init", "new.toml", "--kind", "bad"]) == 2
    error = capsys.readouterr().err
    assert "NK040 the starter entry point 'service_" in error
    assert said in error
    assert not (here.folder / "new.toml").exists()


# -- manners --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["explain"], ["run", "--help"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_error(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    # Where Python buffers nothing, argparse itself swallows the error.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with os.fdopen(writer, "wb") as closed:
        command = [sys.executable, "-m", "nlpkernel", *arguments]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_closed_standard_output_is_no_error() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m nlpkernel --version >&-"], stderr=subprocess.PIPE, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_ctrl_c_ends_without_a_traceback(here: Shop) -> None:
    here.write("slow.py", "import pathlib, time\npathlib.Path('started').touch()\ntime.sleep(60)\n")
    here.plan('[data]\nuse = "./slow.py:Slow"\n', "slow.toml")
    child = subprocess.Popen(
        [sys.executable, "-m", "nlpkernel", "check", "slow.toml"], stderr=subprocess.PIPE, cwd=here.folder
    )
    until = time.monotonic() + 60
    while not (here.folder / "started").exists():
        assert child.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=60)
    assert (child.returncode, error) == (130, b"")


def test_letters_beyond_ascii_are_fine_in_any_locale(here: Shop) -> None:
    folder = here.folder / "größe"
    folder.mkdir()
    (folder / "parts.py").write_bytes((here.folder / "parts.py").read_bytes())
    text = "\ufeff" + (here.folder / "plan.toml").read_text("utf-8")
    here.write("größe/plän.toml", text)
    here.write("größe/falsch.toml", text + '\n"schlüssel" = 1\n')
    good = here.child("check", "größe/plän.toml", LC_ALL="C")
    assert 'name = "plän"' in good.stdout
    assert good.stdout.endswith("größe/plän.toml: no mistakes\n")
    ascii_only = here.child("check", "größe/plän.toml", PYTHONIOENCODING="ascii")
    assert 'name = "pl\\xe4n"' in ascii_only.stdout
    bad = here.child(
        "check", "größe/falsch.toml", check=2, LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0"
    )
    assert "NK101 optimizer: there is no setting 'schl\\xfcssel'" in bad.stderr
    assert "Traceback" not in bad.stderr
