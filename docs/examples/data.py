"""The data of the examples, made from the standard library of the Python that runs `python docs/examples/data.py`.

Nothing is downloaded, and the same Python makes the same files: `data/NAME.train.jsonl` and `data/NAME.held.jsonl`
beside this file, or in the folder that is named as the argument.
"""

from __future__ import annotations

import ast
import io
import json
import random
import sys
import sysconfig
import tokenize
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

Record = dict[str, Any]

#: Packages that every Python has, with many documentation strings.
PACKAGES = ("asyncio", "email", "http", "importlib", "logging", "multiprocessing", "unittest", "xml")
#: Folders that not every Python has, and tests, which are not prose.
_LEFT_OUT = {
    "test",
    "tests",
    "idle_test",
    "site-packages",
    "dist-packages",
    "lib2to3",
    "distutils",
    "ensurepip",
}
_SIMPLE = (ast.Import, ast.ImportFrom, ast.Raise, ast.Assign, ast.Expr, ast.Return)
#: One of so many records is held out.
_HELD = 8


class Module(NamedTuple):
    """A module of the standard library. package: the first part of its name."""

    package: str
    tree: ast.Module
    source: str


class Function(NamedTuple):
    """A function or class with its documentation. package: the first part of its module's name. arguments: names."""

    package: str
    name: str
    arguments: tuple[str, ...]
    documentation: str


def modules() -> Iterator[Module]:
    """Those of the standard library, in the order of their names."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if _LEFT_OUT & set(parts):
            continue
        source = path.read_text(encoding="utf-8", errors="replace")
        try:
            yield Module(parts[0].removesuffix(".py"), ast.parse(source), source)
        except SyntaxError:  # A template is no module.
            continue


def functions(every: Iterable[Module]) -> list[Function]:
    """What is documented, each text once: of two that are alike the first."""
    found: dict[str, Function] = {}
    for package, tree, _ in every:
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            text = ast.get_docstring(node) or ""
            if len(text.split()) < 4:
                continue
            named = [] if isinstance(node, ast.ClassDef) else [each.arg for each in node.args.args]
            arguments = tuple(each for each in named if each not in ("self", "cls"))
            found.setdefault(" ".join(text.lower().split()), Function(package, node.name, arguments, text))
    return list(found.values())


def held(text: str) -> bool:
    """Whether a record is held out: by its text alone, so that what is learnt on one file is not tried on another."""
    return zlib.crc32(text.encode()) % _HELD == 0


def documentation(known: Sequence[Function]) -> Iterator[Record]:
    """Documentation strings of eight packages, and which of them each is from."""
    for each in known:
        if each.package in PACKAGES:
            yield {"text": each.documentation, "package": each.package}


def searches(known: Sequence[Function]) -> Iterator[Record]:
    """The first paragraph of a documentation string, and the head of the function that it is of."""
    for each in known:
        summary = " ".join(each.documentation.split("\n\n")[0].split())
        name = each.name.strip("_")
        if each.arguments and len(name) > 2 and len(summary.split()) > 3:
            yield {"text": summary, "code": f"{name}({', '.join(each.arguments)})"}


def sources(every: Iterable[Module]) -> Iterator[Record]:
    """The modules of the eight packages, as they are written."""
    for each in every:
        if each.package in PACKAGES:
            yield {"text": each.source}


def statements(every: Iterable[Module]) -> Iterator[Record]:
    """Short statements of Python as words, and what stands there: names of modules that are imported, what is called,
    what is raised, and names of arguments. B- begins a stretch, I- is inside it, O is anything else."""
    seen: set[str] = set()
    for _, tree, source in every:
        lines = source.splitlines()
        for node in ast.walk(tree):
            if not isinstance(node, _SIMPLE) or node.lineno != node.end_lineno:
                continue
            line = lines[node.lineno - 1]
            if not line.isascii() or node.end_col_offset != len(line):
                continue
            text = line[node.col_offset :]
            words = [each.string for each in tokenize.generate_tokens(io.StringIO(text).readline)]
            words = [word for word in words if word.strip()]
            if not 2 <= len(words) <= 24 or any(len(word.split()) > 1 for word in words) or text in seen:
                continue
            seen.add(text)
            yield {"words": words, "tags": _tags(text, words)}


def labelled(known: Iterable[Record], share: int) -> Iterator[Record]:
    """All statements that import or raise, which are rare, and one of eight others; of all these one of `share`, and
    what is held out."""
    for each in known:
        key = " ".join(each["words"])
        number = zlib.crc32(key.encode()) // _HELD
        if (each["words"][0] in ("import", "from", "raise") or number % 8 == 0) and (
            held(key) or number // 8 % share == 0
        ):
            yield each


def unlabelled(known: Iterable[Record]) -> Iterator[Record]:
    """All statements, without their tags."""
    for each in known:
        yield {"text": " ".join(each["words"])}


def _tags(text: str, words: Sequence[str]) -> list[str]:
    starts, at = [], 0
    for word in words:
        at = text.index(word, at)
        starts.append(at)
        at += len(word)
    tags = ["O"] * len(words)

    def mark(begin: int, end: int, kind: str) -> None:
        inside = [number for number, start in enumerate(starts) if begin <= start < end]
        for place, number in enumerate(inside):
            tags[number] = f"{'I' if place else 'B'}-{kind}"

    (statement,) = ast.parse(text).body
    raised = getattr(statement, "exc", None)
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and _is_dotted(node.func):
            kind = "ERROR" if node is raised and isinstance(node.func, ast.Name) else "CALL"
            mark(node.func.col_offset, node.func.end_col_offset or 0, kind)
        elif isinstance(node, ast.keyword) and node.arg:
            mark(node.col_offset, node.col_offset + len(node.arg), "ARGUMENT")
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            mark(alias.col_offset, alias.col_offset + len(alias.name), "MODULE")
    elif isinstance(statement, ast.ImportFrom) and statement.module:
        begin = text.index(statement.module, len("from "))
        mark(begin, begin + len(statement.module), "MODULE")
    return tags


def _is_dotted(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def listed(words: str) -> tuple[str, ...]:
    """Words with spaces between them."""
    return tuple(words.split())


ENGLISH = listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
ENGLISH_TENS = listed("twenty thirty forty fifty sixty seventy eighty ninety")
ENGLISH_FIRST = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth", "twenty": "twentieth", "thirty": "thirtieth",
}  # fmt: skip
ENGLISH_DAYS = listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
ENGLISH_MONTHS = listed(
    "January February March April May June July August September October November December"
)
GERMAN = listed(
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
    "achtzehn neunzehn"
)
GERMAN_TENS = listed("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
GERMAN_FIRST = {1: "erste", 3: "dritte", 7: "siebte", 8: "achte"}
GERMAN_DAYS = listed("Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag")
GERMAN_MONTHS = listed("Januar Februar März April Mai Juni Juli August September Oktober November Dezember")


def english(number: int) -> str:
    """A number below 100 in words."""
    if number < 20:
        return ENGLISH[number]
    tens, ones = divmod(number, 10)
    return ENGLISH_TENS[tens - 2] + (f"-{ENGLISH[ones]}" if ones else "")


def german(number: int) -> str:
    """The same in German, which says the ones first."""
    if number < 20:
        return GERMAN[number]
    tens, ones = divmod(number, 10)
    before = {0: "", 1: "einund"}.get(ones, f"{GERMAN[ones]}und")
    return before + GERMAN_TENS[tens - 2]


def dates(count: int, seed: int) -> Iterator[Record]:
    """Days from 1911 to 1999 with a time, in English and German, all in words: half past three is "halb vier"."""
    draws = random.Random(seed)
    first = date(1911, 1, 1)
    for _ in range(count):
        day = first + timedelta(days=draws.randrange(365 * 89))
        hour, quarter = draws.randrange(1, 12), draws.randrange(4)
        yield {"en": _english_date(day, hour, quarter), "de": _german_date(day, hour, quarter)}


def _english_date(day: date, hour: int, quarter: int) -> str:
    *before, last = english(day.day).replace("-", " ").split()
    nth = "-".join([*before, ENGLISH_FIRST.get(last, f"{last}th")])
    time = (
        f"{ENGLISH[hour]} o'clock",
        f"a quarter past {ENGLISH[hour]}",
        f"half past {ENGLISH[hour]}",
        f"a quarter to {ENGLISH[hour + 1]}",
    )[quarter]
    month = ENGLISH_MONTHS[day.month - 1]
    return f"At {time} on {ENGLISH_DAYS[day.weekday()]}, the {nth} of {month}, nineteen {english(day.year % 100)}."


def _german_date(day: date, hour: int, quarter: int) -> str:
    nth = GERMAN_FIRST.get(day.day, german(day.day) + ("te" if day.day < 20 else "ste"))
    whole, following = ("ein" if hour == 1 else GERMAN[hour]), GERMAN[hour + 1]
    time = (
        f"{whole} Uhr",
        f"Viertel nach {GERMAN[hour]}",
        f"halb {following}",
        f"Viertel vor {following}",
    )[quarter]
    month = GERMAN_MONTHS[day.month - 1]
    return f"Am {GERMAN_DAYS[day.weekday()]}, dem {nth}n {month} neunzehnhundert{german(day.year % 100)}, um {time}."


def instructions(known: Sequence[Function], count: int, seed: int) -> Iterator[Record]:
    """What to write in Python, in English, and that in Python; with names of the standard library."""
    draws = random.Random(seed)
    names = sorted({each.name for each in known if each.name.isidentifier() and 3 < len(each.name) < 12})
    values = sorted({argument for each in known for argument in each.arguments if 2 < len(argument) < 9})
    packages = sorted({each.package for each in known if not each.package.startswith("_")})
    errors = ("ValueError", "TypeError", "KeyError", "OSError", "RuntimeError")
    for _ in range(count):
        name, package, error = draws.choice(names), draws.choice(packages), draws.choice(errors)
        one, two = draws.sample(values, 2)
        instruction, answer = draws.choice(
            [
                (f"Import {name} from {package}.", f"from {package} import {name}"),
                (f"Define a function {name} of {one} and {two}.", f"def {name}({one}, {two}):"),
                (f"Return the length of {one}.", f"return len({one})"),
                (
                    f"Raise a {error} where {one} is missing.",
                    f"if {one} is None:\n    raise {error}({one!r})",
                ),
                (f"Call {name} for each {one} of {two}.", f"for {one} in {two}:\n    {name}({one})"),
                (f"Let {one} be the sum of {two}.", f"{one} = sum({two})"),
            ]
        )
        yield {"instruction": instruction, "answer": answer}


def write(folder: Path, name: str, records: Iterable[Record]) -> None:
    """Two files: what is trained on, and what is held out, by each record's first value, each of which comes once."""
    parts: dict[bool, list[str]] = {False: [], True: []}
    seen: set[str] = set()
    for record in records:
        first = next(iter(record.values()))
        key = first if isinstance(first, str) else " ".join(first)
        if key not in seen:
            seen.add(key)
            parts[held(key)].append(json.dumps(record, ensure_ascii=False) + "\n")
    for out, lines in parts.items():
        path = folder / f"{name}.{'held' if out else 'train'}.jsonl"
        path.write_text("".join(lines), encoding="utf-8")


def main(folder: Path) -> None:
    """Write all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    every = list(modules())
    known = functions(every)
    write(folder, "classification", documentation(known))
    write(folder, "embedding", searches(known))
    lines = list(statements(every))
    write(folder, "tagging", labelled(lines, 1))
    write(folder, "few", labelled(lines, 16))
    write(folder, "statements", unlabelled(lines))
    write(folder, "translation", dates(6000, seed=1))
    write(folder, "code", sources(every))
    write(folder, "instruction", instructions(known, 6000, seed=2))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data")
