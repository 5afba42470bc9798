"""The scanner of entry points, held against importlib.metadata."""

from __future__ import annotations

import importlib.metadata
import os
import random
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nlpkernel.plugins.scan import Offer, distributions, headers, normalise, scan, scan_all

# -- by example ------------------------------------------------------------------------------------


def lay(folder: Path, name: str, entry_points: str | bytes, *, metadata: str | None = None) -> Path:
    location = folder / name
    location.mkdir(parents=True)
    stem, _, release = name.rpartition(".")[0].partition("-")
    text = f"Name: {stem}\nVersion: {release}\n\nWords.\n" if metadata is None else metadata
    (location / "METADATA").write_text(text, encoding="utf-8")
    content = entry_points.encode() if isinstance(entry_points, str) else entry_points
    (location / "entry_points.txt").write_bytes(content)
    return location


def reasons(folder: Path) -> list[str]:
    return [broken.reason for broken in scan_all([str(folder)]).broken]


def test_an_entry_point_becomes_an_offer(tmp_path: Path) -> None:
    location = lay(
        tmp_path,
        "nlpkernel_plugin_text-0.3.dist-info",
        "[console_scripts]\nx = y:z\n[nlpkernel.data.v1]\ntext = nlpkernel_text.component:Text\n",
    )
    offer = Offer(
        "data", 1, "text", "nlpkernel_text.component:Text", "nlpkernel-plugin-text", "0.3", str(location)
    )
    assert scan_all([str(tmp_path)]) == ([offer], [])


def test_offers_are_sorted_by_point_name_and_distribution(tmp_path: Path) -> None:
    names = ["c", "a", "b"]
    text = "[nlpkernel.{}.v1]\nz = m:Z\ny = m:Y\n[nlpkernel.codes.v1]\n{} = m:C\n"
    for name, point in zip(names, ("model", "data", "model"), strict=True):
        lay(tmp_path, f"{name}-1.dist-info", text.format(point, name.upper()))
    found = [(offer.point, offer.name, offer.distribution) for offer in scan([str(tmp_path)])]
    assert found == [
        ("codes", "A", "a"),
        ("codes", "B", "b"),
        ("codes", "C", "c"),
        ("data", "y", "a"),
        ("data", "z", "a"),
        ("model", "y", "b"),
        ("model", "y", "c"),
        ("model", "z", "b"),
        ("model", "z", "c"),
    ]


def test_the_first_on_the_path_hides_a_second_release(tmp_path: Path) -> None:
    lay(tmp_path / "one", "A.B_c-1.0.dist-info", "[nlpkernel.data.v1]\nx = one:X\n")
    lay(tmp_path / "two", "a_b_c-2.0.dist-info", "[nlpkernel.data.v1]\nx = two:X\n")
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert [(offer.target, offer.distribution) for offer in scan(paths)] == [("one:X", "a-b-c")]
    assert [offer.target for offer in scan(paths[::-1])] == ["two:X"]


def test_a_distribution_without_entry_points_hides_too(tmp_path: Path) -> None:
    (tmp_path / "one" / "p-2.0.dist-info").mkdir(parents=True)
    lay(tmp_path / "two", "p-1.0.dist-info", "[nlpkernel.data.v1]\nx = two:X\n")
    assert scan([str(tmp_path / "one"), str(tmp_path / "two")]) == []


def test_an_egg_info_folder_is_read_with_its_pkg_info(tmp_path: Path) -> None:
    location = tmp_path / "my_plugin.egg-info"
    location.mkdir()
    (location / "PKG-INFO").write_text("Name: my-plugin\nVersion: 3.1\n", encoding="utf-8")
    (location / "entry_points.txt").write_text("[nlpkernel.data.v1]\nx = m:X\n", encoding="utf-8")
    assert [(o.distribution, o.release) for o in scan([str(tmp_path)])] == [("my-plugin", "3.1")]


def test_what_is_no_folder_of_metadata_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "old-1.0.egg-info").write_text("Name: old\n", encoding="utf-8")
    (tmp_path / "plain.dist-info.txt").write_text("", encoding="utf-8")
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("p-1.0.dist-info/entry_points.txt", "[nlpkernel.data.v1]\nx = m:X\n")
    assert scan_all([str(tmp_path), str(archive), str(tmp_path / "missing")]) == ([], [])


def test_extras_and_spaces_of_a_target_are_left_out(tmp_path: Path) -> None:
    lay(tmp_path, "p-1.dist-info", "[nlpkernel.data.v1]\n x  =  a.b : C.D  [one, two] \r\n")
    assert [(offer.name, offer.target) for offer in scan([str(tmp_path)])] == [("x", "a.b:C.D")]


def test_a_command_may_be_a_module_and_nothing_else_may(tmp_path: Path) -> None:
    lay(
        tmp_path,
        "p-1.dist-info",
        "[nlpkernel.command.v1]\ngenerate = p.generate\n[nlpkernel.data.v1]\nx = p.component\n"
        "[nlpkernel.codes.v1]\nP = p.codes\n",
    )
    found = scan_all([str(tmp_path)])
    assert [(offer.point, offer.target) for offer in found.offers] == [("command", "p.generate")]
    assert [broken.reason for broken in found.broken] == [
        "has the target 'p.component', which is no 'module:Class'",
        "has the target 'p.codes', which is no 'module:Class'",
    ]


@pytest.mark.parametrize(
    "group",
    [
        "nlpkernel.data",
        "nlpkernel.data.v",
        "nlpkernel.data.v0",
        "nlpkernel.data.v01",
        "nlpkernel.data.v1.2",
        "nlpkernel.data.vx",
        "nlpkernel.data.v²",
        "nlpkernel..v1",
        "nlpkernel.v1",
        "nlpkernel.a..b.v1",
        "nlpkernel.my point.v1",
        " nlpkernel.data.v1 ",
    ],
)
def test_a_group_that_does_not_parse_is_kept_as_broken(tmp_path: Path, group: str) -> None:
    location = lay(tmp_path, "p-1.dist-info", f"# nlpkernel.\n[{group}]\nx = m:X\n")
    found = scan_all([str(tmp_path)])
    assert found.offers == []
    (broken,) = found.broken
    assert broken.location == f"{location / 'entry_points.txt'}:3"
    assert broken.distribution == "p"
    assert repr(group) in broken.reason


def test_a_broken_line_does_not_hide_the_others(tmp_path: Path) -> None:
    lay(
        tmp_path,
        "p-1.dist-info",
        "stray = m:X\n[nlpkernel.data.v1]\nno target\n= m:X\nempty =\ngood = m:X\nbad = 1m:X\nworse = m:\n",
    )
    found = scan_all([str(tmp_path)])
    assert [offer.name for offer in found.offers] == ["good"]
    assert [int(broken.location.rpartition(":")[2]) for broken in found.broken] == [1, 3, 4, 5, 7, 8]


def test_a_broken_line_of_others_is_not_our_business(tmp_path: Path) -> None:
    lay(tmp_path, "p-1.dist-info", "[other]\nno target\n[nlpkernel.data.v1]\ngood = m:X\n")
    found = scan_all([str(tmp_path)])
    assert [offer.name for offer in found.offers] == ["good"]
    assert found.broken == []


def test_entry_points_that_are_not_utf_8_are_broken(tmp_path: Path) -> None:
    lay(tmp_path, "p-1.dist-info", b"[nlpkernel.data.v1]\nx = m:X\n\xff\n")
    lay(tmp_path, "other-1.dist-info", b"[other]\n\xff = m:X\n")
    assert scan_all([str(tmp_path)]).offers == []
    assert reasons(tmp_path) == ["is not UTF-8: byte 28 is 0xff"]


def test_a_byte_order_mark_is_not_read_over_in_silence(tmp_path: Path) -> None:
    # importlib.metadata does not see the group either, so the plugin would be there for nobody.
    lay(tmp_path, "p-1.dist-info", "\ufeff[nlpkernel.data.v1]\nx = m:X\n")
    assert scan([str(tmp_path)]) == []
    assert reasons(tmp_path) == ["stands before any group"] * 2


def test_entry_points_that_cannot_be_read_are_broken(tmp_path: Path) -> None:
    (tmp_path / "p-1.dist-info" / "entry_points.txt").mkdir(parents=True)
    (broken,) = scan_all([str(tmp_path)]).broken
    assert "cannot be read" in broken.reason
    assert broken.location.endswith("entry_points.txt")


@pytest.mark.parametrize("metadata", ["", "Name:\nVersion:\n", "\nName: q\nVersion: 2\n", "Summary: x\n"])
def test_metadata_without_name_and_version_are_broken_and_the_folder_names_them(
    tmp_path: Path, metadata: str
) -> None:
    lay(tmp_path, "p_q-1.5.dist-info", "[nlpkernel.data.v1]\nx = m:X\n", metadata=metadata)
    assert [(o.name, o.distribution, o.release) for o in scan([str(tmp_path)])] == [("x", "p-q", "1.5")]
    assert reasons(tmp_path) == ["has METADATA without name and version"]


def test_a_missing_metadata_file_is_broken(tmp_path: Path) -> None:
    (lay(tmp_path, "p-1.5.dist-info", "[nlpkernel.data.v1]\nx = m:X\n") / "METADATA").unlink()
    assert [(offer.distribution, offer.release) for offer in scan([str(tmp_path)])] == [("p", "1.5")]
    (reason,) = reasons(tmp_path)
    assert reason.startswith("has no METADATA that can be read")


def test_empty_metadata_of_a_plugin_are_broken_and_those_of_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "nlpkernel_plugin_x-1.dist-info").mkdir()
    (tmp_path / "other-1.dist-info").mkdir()
    (broken,) = scan_all([str(tmp_path)]).broken
    assert broken.distribution == "nlpkernel-plugin-x"


def test_what_pip_left_of_an_interrupted_uninstall_offers_nothing(tmp_path: Path) -> None:
    lay(tmp_path, "~lugin-1.0.dist-info", "[nlpkernel.data.v1]\nx = m:X\n")
    assert scan([str(tmp_path)]) == []
    (reason,) = reasons(tmp_path)
    assert "interrupted uninstall" in reason


def test_two_metadata_folders_of_one_distribution_in_one_place_are_broken(tmp_path: Path) -> None:
    lay(tmp_path, "p-1.0.dist-info", "[nlpkernel.data.v1]\nx = m:X\n")
    lay(tmp_path, "P-2.0.dist-info", "[nlpkernel.data.v1]\nx = m:X\n")
    found = scan_all([str(tmp_path)])
    assert len(found.offers) == 1
    assert [broken.reason for broken in found.broken] == [
        "is a second metadata folder of the same distribution in one place; reinstall it"
    ]


def test_a_path_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    lay(tmp_path, "p-1.0.dist-info", "[nlpkernel.data.v1]\nx = m:X\n")
    found = scan_all([str(tmp_path), str(tmp_path), f"{tmp_path}{os.sep}"])
    assert (len(found.offers), found.broken) == (1, [])


def test_an_entry_of_the_path_that_is_no_text_is_passed_over(tmp_path: Path) -> None:
    lay(tmp_path, "p-1.0.dist-info", "[nlpkernel.data.v1]\nx = m:X\n")
    assert scan([tmp_path, None, b"."]) == []  # type: ignore[list-item]


def test_the_working_folder_is_read_and_may_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(tmp_path / "here", "p-1.0.dist-info", "[nlpkernel.data.v1]\nx = m:X\n")
    monkeypatch.chdir(tmp_path / "here")
    (offer,) = scan([""])
    assert os.path.isabs(offer.location)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert scan([""]) == []
    monkeypatch.chdir(tmp_path)


def test_headers_end_at_the_first_empty_line_and_unfold_nothing(tmp_path: Path) -> None:
    text = "Name: p\nrequires-dist: a\nRequires-Dist: b\nLicense: x\n  Requires-Dist: c\n\nRequires-Dist: d\n"
    location = lay(tmp_path, "p-1.dist-info", "", metadata=text)
    assert headers(str(location), ("name", "requires-dist", "version")) == {
        "name": ["p"],
        "requires-dist": ["a", "b"],
        "version": [],
    }


# -- against importlib.metadata --------------------------------------------------------------------

spaces = st.sampled_from(["", " ", "  ", "\t"])
words = st.builds("{}{}".format, st.sampled_from("abZ_äßλ"), st.text("ab1_ßλ", max_size=5))
dotted = st.lists(words, min_size=1, max_size=3).map(".".join)
entry_names = st.builds("{}{}x".format, st.sampled_from("a1_ä"), st.text("ab1_ß.- ", max_size=5))
groups = st.one_of(
    st.builds("nlpkernel.{}.v{}".format, dotted, st.integers(1, 12)),
    st.just("nlpkernel.a.v2.v1"),
    st.sampled_from(["console_scripts", "nlpkernels.data.v1", "x.nlpkernel.data.v1", "NLPKERNEL.data.v1"]),
)


@st.composite
def targets(draw: st.DrawFn) -> str:
    gap = [draw(spaces) for _ in range(4)]
    extras = draw(st.sampled_from(["", "[a]", "[a, b]", "[]", "[a.b-c]"]))
    return f"{draw(dotted)}{gap[0]}:{gap[1]}{draw(dotted)}{gap[2]}{extras}{gap[3]}"


@st.composite
def well_formed(draw: st.DrawFn) -> str:
    """The text of an `entry_points.txt` that importlib.metadata reads too."""
    lines = [draw(st.sampled_from(["", "# comment", "  # nlpkernel.x.v1", "\t"]))]
    for group in draw(st.lists(groups, max_size=3)):
        lines.append(f"{draw(spaces)}[{group}]{draw(spaces)}")
        for _ in range(draw(st.integers(0, 3))):
            kind = draw(st.integers(0, 5))
            entry = f"{draw(spaces)}{draw(entry_names)}{draw(spaces)}={draw(spaces)}{draw(targets())}"
            lines.append(entry if kind else draw(st.sampled_from(["", " ", "#x = y:z", " # [x]"])))
    return draw(st.sampled_from(["\n", "\r\n", "\r"])).join(lines) + draw(st.sampled_from(["", "\n"]))


#: (name as its author writes it, name in the metadata folder)
names = st.sampled_from(
    [
        ("A.B_c", "A.B_c"),
        ("A.B_c", "a_b_c"),
        ("a-b-c", "a_b_c"),
        ("other", "other"),
        ("nlpkernel-x", "nlpkernel_x"),
    ]
)
installed = st.lists(
    st.tuples(names, st.sampled_from(["1.0", "2.0rc1", "0.1+local.1"]), well_formed()), max_size=4
)


def write(folder: Path, laid: list[tuple[tuple[str, str], str, str]], kind: str) -> None:
    folder.mkdir()
    seen: set[str] = set()
    for (name, stem), release, text in laid:
        # Twice in one folder is an accident, in which importlib.metadata goes by the order of the directory.
        if normalise(name) in seen:
            continue
        seen.add(normalise(name))
        location = folder / f"{stem}-{release}.{kind}"
        location.mkdir()
        header = "METADATA" if kind == "dist-info" else "PKG-INFO"
        (location / header).write_bytes(f"Name: {name}\nVersion: {release}\n\nText\n".encode())
        (location / "entry_points.txt").write_bytes(text.encode())


def seen_by_importlib(paths: list[str]) -> list[tuple[str, int, str, str, str, str]]:
    found = set()
    seen: set[str] = set()
    for distribution in importlib.metadata.distributions(path=paths):
        key = normalise(distribution.metadata["Name"])
        if key in seen:
            continue
        seen.add(key)
        for entry in distribution.entry_points:
            prefix, _, rest = entry.group.partition(".")
            point, _, version = rest.rpartition(".v")
            if prefix == "nlpkernel" and point:
                target = f"{entry.module}:{entry.attr}"
                found.add((point, int(version), entry.name, target, key, distribution.version))
    return sorted(found)


@given(one=installed, two=installed, kind=st.sampled_from(["dist-info", "egg-info"]))
def test_the_scanner_sees_what_importlib_metadata_sees(
    one: list[tuple[tuple[str, str], str, str]], two: list[tuple[tuple[str, str], str, str]], kind: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder, "one")), str(Path(folder, "two"))]
        write(Path(paths[0]), one, kind)
        write(Path(paths[1]), two, "dist-info")
        found = scan_all(paths)
        assert found.broken == []
        assert sorted(offer[:6] for offer in found.offers) == seen_by_importlib(paths)
        assert set(distributions(paths)) == {
            normalise(each.metadata["Name"]) for each in importlib.metadata.distributions(path=paths)
        }


junk = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.sampled_from(
            [
                b"[nlpkernel.data.v1]",
                b"[nlpkernel.",
                b"x = m:X",
                b"=",
                b"]",
                b"[",
                b"x =",
                b"\xff",
                b"\xef\xbb\xbf",
            ]
        ),
    ),
    max_size=8,
)


@given(lines=junk, metadata=st.binary(max_size=30))
def test_no_metadata_can_make_the_scanner_fail(lines: list[bytes], metadata: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        location = Path(folder, "p-1.dist-info")
        location.mkdir()
        (location / "METADATA").write_bytes(metadata)
        (location / "entry_points.txt").write_bytes(b"\n".join(lines))
        lay(Path(folder), "good-1.dist-info", "[nlpkernel.data.v1]\ngood = m:X\n")
        found = scan_all([folder])
        assert "good" in {offer.distribution for offer in found.offers}
        text = b"\n".join(lines)
        if found.offers[1:]:
            seen = {
                (entry.name, f"{entry.module}:{entry.attr}")
                for entry in importlib.metadata.EntryPoints._from_text(_without_lone_lines(text.decode()))  # type: ignore[attr-defined]
                if entry.group.startswith("nlpkernel.") and entry.pattern.match(entry.value)
            }
            assert {(o.name, o.target) for o in found.offers if o.distribution != "good"} <= seen


def _without_lone_lines(text: str) -> str:
    """Without the lines on which importlib.metadata raises."""
    kept = [
        line
        for line in text.splitlines()
        if "=" in line or (line.strip().startswith("[") and line.strip().endswith("]"))
    ]
    return "\n".join(kept)


@settings(max_examples=25)
@given(st.lists(st.tuples(names, st.just("1.0"), well_formed()), max_size=4), st.randoms())
def test_the_order_of_laying_does_not_show(
    laid: list[tuple[tuple[str, str], str, str]], shuffled: random.Random
) -> None:
    unique = list({normalise(each[0][0]): each for each in laid}.values())
    answers = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder, "x"), unique, "dist-info")
            answers.append([offer[:6] for offer in scan([str(Path(folder, "x"))])])
        shuffled.shuffle(unique)
    assert answers[0] == answers[1]


@given(st.text("aB-_.1", min_size=1))
def test_names_are_normalised_as_packaging_does(name: str) -> None:
    from packaging.utils import canonicalize_name

    assert normalise(name) == canonicalize_name(name)
