"""Tokenizers from files: tokenizer.json, Hugging Face folders, SentencePiece models."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlpkernel.context import Run
from nlpkernel.errors import DataError, PluginError
from nlpkernel.plan.train import Train
from nlpkernel_text.cache import described
from nlpkernel_text.tokenizers import spm
from nlpkernel_text.tokenizers.components import Bpe, Characters, Pretrained, Unigram, WordPiece
from nlpkernel_text.tokenizers.encoders import ByteTokenizer
from nlpkernel_text.tokenizers.finding import load_saved

TEXTS = [
    "the cat sat on the mat, and the dog was not there; <a> </s> & (more)\n" * 5,
    "été, naïve, 日本語 の 日本; Straße \U0001f600. running runs run ran, walking walks\n" * 5,
]
TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=50)


def run_in(folder: Path) -> Run:
    return Run(name="test", folder=folder, cache=folder, train=Train())


def opened(path: Path, **settings: Any) -> Any:
    made = Pretrained(path=path, **settings)
    assert not list(made.check_settings())
    return made.create_tokenizer(run_in(path.parent), tuple)


def again(tokenizer: Any) -> Any:
    """The same tokenizer as a version gives it back, which has no path any more."""
    return Pretrained(path=Path("gone")).load_tokenizer(None, tokenizer.save())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`bpe.json`, `words.json`, a folder `gpt2` with vocab.json and merges.txt, and a folder `bert` with vocab.txt."""
    made = tmp_path_factory.mktemp("pretrained")
    run = run_in(made)
    bpe = Bpe(vocabulary=320).create_tokenizer(run, lambda: TEXTS).save()
    (made / "bpe.json").write_bytes(bpe)
    words = WordPiece(vocabulary=200, end="[SEP]", special=("[PAD]", "[CLS]")).create_tokenizer(
        run, lambda: TEXTS
    )
    (made / "words.json").write_bytes(words.save())
    gpt2, bert = made / "gpt2", made / "bert"
    gpt2.mkdir()
    bert.mkdir()
    model = json.loads(bpe)["model"]
    (gpt2 / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"]), ""]
    (gpt2 / "merges.txt").write_text("\n".join(merges), encoding="utf-8")
    entries = {**json.loads(words.save())["model"]["vocab"]}
    entries |= {token["content"]: token["id"] for token in json.loads(words.save())["added_tokens"]}
    (bert / "vocab.txt").write_text(
        "\n".join(sorted(entries, key=entries.__getitem__)) + "\n", encoding="utf-8"
    )
    return made


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Train a SentencePiece model."""
    library = pytest.importorskip("sentencepiece")
    made = tmp_path_factory.mktemp("pieces")

    def train(name: str, **options: Any) -> Path:
        path = made / f"{name}.model"
        if not path.exists():
            out = io.BytesIO()
            defaults = {
                "vocab_size": 400,
                "model_type": "bpe",
                "byte_fallback": True,
                "hard_vocab_limit": False,
                "normalization_rule_name": "identity",
                "remove_extra_whitespaces": False,
                "minloglevel": 2,
            }
            lines = [line for text in TEXTS for line in text.split("\n")]
            library.SentencePieceTrainer.train(
                sentence_iterator=iter(lines), model_writer=out, **{**defaults, **options}
            )
            path.write_bytes(out.getvalue())
        return path

    return train


# -- tokenizer.json ----------------------------------------


def test_a_trained_tokenizers_file_is_read_with_its_end(folder: Path) -> None:
    trained = Bpe(vocabulary=320).load_tokenizer(None, (folder / "bpe.json").read_bytes())
    read = opened(folder / "bpe.json")
    assert (read.vocabulary, read.end, read.pad) == (320, trained.end, None)
    assert read.encode(TEXTS[0]) == trained.encode(TEXTS[0])
    assert read.save() == trained.save()
    assert read.byte_lengths is not None


@given(TEXT)
def test_it_is_the_same_after_it_was_saved(folder: Path, text: str) -> None:
    for settings in ({}, {"special": ("<x>", "cat"), "pad": "<x>"}, {"end": ""}):
        for name in ("bpe.json", "gpt2", "words.json", "bert"):
            first = opened(folder / name, **settings)
            second = again(first)
            assert second.save() == first.save()
            assert (second.vocabulary, second.end, second.pad) == (first.vocabulary, first.end, first.pad)
            assert second.encode(text) == first.encode(text)
            if name in ("bpe.json", "gpt2"):
                assert second.decode(second.encode(text)) == text


@given(TEXT, TEXT)
def test_domain_tokens_are_added_and_never_split(folder: Path, before: str, after: str) -> None:
    for name in ("bpe.json", "gpt2", "words.json"):
        bare, made = opened(folder / name), opened(folder / name, special=("<gene>", "<drug>"))
        assert made.vocabulary == bare.vocabulary + 2
        assert made.encode("<drug>") == [made.vocabulary - 1]
        assert made.vocabulary - 2 in made.encode(before + "<gene>" + after)
        assert made.decode([made.vocabulary - 2]) == "<gene>"
        if "<" not in before + after and name != "words.json":
            # What stands on both sides is tokenized as if it stood alone.
            ids = made.encode(before + "<gene>" + after)
            assert ids == [*bare.encode(before), made.vocabulary - 2, *bare.encode(after)]


def test_the_name_of_a_control_token_in_a_text_is_text_also_where_the_model_would_find_it(
    folder: Path,
) -> None:
    run = run_in(folder)
    values = json.loads(Unigram(vocabulary=300).create_tokenizer(run, lambda: TEXTS).save())
    # As T5 and XLM-R have it: the end is a piece of the model with the best of all scores.
    values["model"]["vocab"].append(["ENDS", 0.0])
    number = len(values["model"]["vocab"]) - 1
    values["added_tokens"] = [dict(values["added_tokens"][0], id=number, content="ENDS")]
    values["post_processor"] = None
    path = folder / "found.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    made = opened(path, end="ENDS")
    assert made.end == number
    for text in ("ENDS", "it ENDS here", "the ENDSENDS", "END"):
        ids = made.encode(text)
        assert number not in ids
        assert made.encode_batch([text, "the"])[0].tolist() == ids
        assert made.decode([*ids, number]) == text


def test_a_control_token_that_is_named_as_special_is_read_in_texts(folder: Path) -> None:
    bare = opened(folder / "words.json")
    assert "[SEP]" in [bare.piece(number) for number in range(bare.vocabulary)]
    made = opened(folder / "words.json", special=("[UNK]",), end="")
    assert made.vocabulary == bare.vocabulary
    assert made.encode("[UNK]") == [bare.unknown]
    assert made.end is None


def test_padding_and_end_are_named_by_the_settings(folder: Path) -> None:
    made = opened(folder / "words.json", pad="[PAD]", end="[CLS]")
    assert made.decode([made.pad, *made.encode("cat"), made.end]) == "cat"
    assert (again(made).pad, again(made).end) == (made.pad, made.end)
    assert made.end not in made.encode("[CLS] [PAD] cat")
    added = opened(folder / "bpe.json", pad="<pad>", special=("<pad>",))
    assert (added.pad, added.vocabulary) == (320, 321)
    assert 320 not in added.encode("a<pad>b")
    with pytest.raises(
        DataError, match=r"bpe\.json: TXT016 the tokenizer has no token '<|edn|>' that could be its end"
    ):
        opened(folder / "bpe.json", end="<|edn|>")


def test_a_tokenizer_without_an_end_says_so(folder: Path, make_run: Callable[..., Run], heard: Any) -> None:
    Pretrained(path=folder / "gpt2").create_tokenizer(make_run(), tuple)
    (notice,) = heard.notices
    assert notice.endswith(
        "vocab.json names no token that ends a document, so nothing stands between documents; `end` names one"
    )
    Pretrained(path=folder / "gpt2", end="").create_tokenizer(make_run(), tuple)
    assert len(heard.notices) == 1


def test_tokenizers_of_this_package_that_need_no_library_are_read_too(folder: Path) -> None:
    (folder / "bytes.json").write_bytes(ByteTokenizer().save())
    made = Characters(end=True).create_tokenizer(run_in(folder), lambda: ["abc"])
    (folder / "characters.json").write_bytes(made.save())
    assert opened(folder / "bytes.json").vocabulary == 257
    assert opened(folder / "characters.json").encode("cab") == [2, 0, 1]
    assert load_saved(made.save()).end == 3
    with pytest.raises(DataError, match=r"TXT014 .* it is one of kind 'bytes', which takes no other tokens"):
        opened(folder / "bytes.json", special=("<x>",))


def test_dropout_of_a_file_is_off(folder: Path) -> None:
    values = json.loads((folder / "bpe.json").read_text(encoding="utf-8"))
    values["model"]["dropout"] = 0.9
    (folder / "dropout.json").write_text(json.dumps(values), encoding="utf-8")
    plain, made = opened(folder / "bpe.json"), opened(folder / "dropout.json")
    assert made.encode(TEXTS[0]) == plain.encode(TEXTS[0])
    assert again(made).encode(TEXTS[0]) == plain.encode(TEXTS[0])


def test_padding_and_truncation_of_a_file_do_not_change_texts(folder: Path) -> None:
    values = json.loads((folder / "bpe.json").read_text(encoding="utf-8"))
    values["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    values["padding"] = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|end|>",
    }
    (folder / "padded.json").write_text(json.dumps(values), encoding="utf-8")
    made = opened(folder / "padded.json")
    assert made.pad == 0
    for tokenizer in (made, again(made)):
        assert tokenizer.encode_flat(["a", TEXTS[0]])[1].tolist() == [
            1,
            len(opened(folder / "bpe.json").encode(TEXTS[0])),
        ]


def test_a_version_needs_the_file_no_more(folder: Path, tmp_path: Path) -> None:
    import nlpkernel

    shutil.copy(folder / "bpe.json", tmp_path / "mine.json")
    (tmp_path / "a.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    plan = nlpkernel.Plan.of(
        {
            "name": "own",
            "train": {"steps": 2, "batch": 2, "threads": 1},
            "data": {
                "use": "text",
                "paths": ["a.txt"],
                "window": 16,
                "validation": 0,
                "tokenizer": {"use": "pretrained", "path": "mine.json", "special": ["<gene>"]},
            },
            "model": {"use": "gpt", "layers": 1, "heads": 2, "width": 16},
            "optimizer": {"use": "tiny", "lr": 0.05},
            "checkpoint": {"use": "store", "fsync": False},
        },
        base=tmp_path,
    )
    nlpkernel.run(plan, runs_folder=tmp_path / "runs")
    (tmp_path / "mine.json").unlink()
    codec = nlpkernel.open_model(tmp_path / "runs" / "own").codec
    assert codec.info.vocabulary == 321
    assert codec.decode([*codec.encode("a <gene>"), codec.end]) == "a <gene>"
    assert codec.encode("<gene>") == [320]


# -- Hugging Face folders ----------------------------------------


@given(TEXT)
def test_vocab_and_merges_are_the_same_as_their_tokenizer_json(folder: Path, text: str) -> None:
    whole, parts = opened(folder / "bpe.json"), opened(folder / "gpt2", end="<|end|>")
    assert (parts.vocabulary, parts.end) == (whole.vocabulary, whole.end)
    assert parts.encode(text) == whole.encode(text)
    assert parts.decode([*parts.encode(text), parts.end]) == text


@given(TEXT)
def test_vocab_txt_is_the_same_as_its_tokenizer_json(folder: Path, text: str) -> None:
    whole, parts = opened(folder / "words.json"), opened(folder / "bert")
    assert parts.vocabulary == whole.vocabulary
    if not any(token in text for token in ("[PAD]", "[CLS]")):
        # Ours composes characters first, and does not take accents away.
        import unicodedata

        plain = unicodedata.normalize("NFC", text)
        if unicodedata.normalize("NFD", plain) == plain:
            assert parts.encode(plain) == whole.encode(plain)


def test_special_tokens_come_from_the_configuration(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "gpt2"
    shutil.copytree(folder / "gpt2", made)
    (made / "special_tokens_map.json").write_text(
        json.dumps({"eos_token": {"content": "<|end|>", "lstrip": False}, "pad_token": "[old]"}),
        encoding="utf-8",
    )
    (made / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "GPT2Tokenizer",
                "pad_token": "<pad>",
                "added_tokens_decoder": {
                    "320": {"content": "<pad>", "special": True, "normalized": False},
                    "321": {"content": "<tool>", "special": False, "normalized": False},
                },
            }
        ),
        encoding="utf-8",
    )
    read = opened(made)
    assert (read.end, read.pad, read.vocabulary) == (0, 320, 322)
    assert read.encode("<tool>") == [321]
    assert 320 not in read.encode("<pad>")
    assert (again(read).end, again(read).pad) == (0, 320)
    other = opened(made, pad="<|end|>", end="<pad>")
    assert (other.end, other.pad) == (320, 0)
    config = json.loads((made / "tokenizer_config.json").read_text())
    config["added_tokens_decoder"] = {"400": {"content": "<far>"}}
    (made / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(
        DataError, match=r"TXT014 .* the token '<far>' beside it has the id 400, and here 320"
    ):
        opened(made)


def test_a_bert_folder_ends_documents_with_its_separator(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "bert"
    shutil.copytree(folder / "bert", made)
    config = {
        "tokenizer_class": "BertTokenizer",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "do_lower_case": False,
    }
    (made / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    read = opened(made)
    assert (read.piece(read.end), read.piece(read.pad)) == ("[SEP]", "[PAD]")
    assert read.encode("Cat") != read.encode("cat")
    assert opened(folder / "bert").encode("Cat") == opened(folder / "bert").encode("cat")


def test_a_folder_with_several_forms_is_read_by_the_most_exact(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "both"
    shutil.copytree(folder / "bert", made)
    shutil.copy(folder / "bpe.json", made / "tokenizer.json")
    assert opened(made).vocabulary == 320


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "TXT013 the folder holds no tokenizer: .*; it is empty"),
        (
            {"model.safetensors": b"x", "vocab.json": b"{}"},
            "TXT013 .*; it holds model.safetensors, vocab.json",
        ),
        ({"tokenizer.json": b'{"model": '}, "TXT014 .* it begins as JSON and cannot be read as such"),
        (
            {"tokenizer.json": b'{"config": 1, "vocab": 2}'},
            "TXT014 .* no `model` with `added_tokens`; it has config, vocab",
        ),
        (
            {"tokenizer.json": b'{"model": {"type": "X"}, "added_tokens": []}'},
            "TXT014 .* the tokenizers library does not take it",
        ),
        (
            {"tokenizer.model": b"PK\x03\x04 not one"},
            "TXT014 .* it is neither JSON nor a whole SentencePiece model",
        ),
        ({"vocab.json": b"[1]", "merges.txt": b""}, "TXT014 .* it does not give each token its id"),
        ({"vocab.json": b'{"a": 0}', "merges.txt": b""}, "TXT014 .* it lacks 255 of the 256 bytes"),
        ({"vocab.txt": b"a\nb\n"}, r"TXT014 .* it has no token '\[UNK\]'"),
        ({"vocab.txt": b"\xff\xfe"}, "TXT014 .* it is no text"),
        (
            {"vocab.txt": b"[UNK]\n", "tokenizer_config.json": b'{"tokenizer_class": "EsmTokenizer"}'},
            "TXT014 .* it is a EsmTokenizer, which vocab.txt alone does not make",
        ),
        (
            {"vocab.txt": b"[UNK]\n", "tokenizer_config.json": b"{"},
            "tokenizer_config.json: TXT014 .* cannot be read as JSON",
        ),
        (
            {"vocab.txt": b"[UNK]\n", "added_tokens.json": b"[]"},
            "added_tokens.json: TXT014 .* it holds no JSON object",
        ),
    ],
)
def test_what_is_no_tokenizer_is_refused_naming_what_was_found(
    tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    made = tmp_path / "here"
    made.mkdir()
    for name, content in files.items():
        (made / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        opened(made)


def test_a_path_that_leads_nowhere_is_an_error_with_what_is_there(folder: Path) -> None:
    with pytest.raises(DataError, match=r"bpf\.json: TXT013 there is no tokenizer.*did you mean 'bpe\.json'"):
        opened(folder / "bpf.json")
    with pytest.raises(DataError, match=r"TXT013 .*; there is no folder .*nowhere either"):
        opened(folder / "nowhere" / "x.json")


def test_a_broken_line_of_merges_is_an_error_with_its_place(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "gpt2"
    shutil.copytree(folder / "gpt2", made)
    with (made / "merges.txt").open("a", encoding="utf-8") as file:
        file.write("q z\n")
    line = len((made / "merges.txt").read_text(encoding="utf-8").split("\n")) - 1
    with pytest.raises(DataError, match=rf"merges\.txt:{line}:1: TXT014 the line 'q z' is no pair"):
        opened(made)


def test_the_key_of_the_cache_goes_by_content(folder: Path, tmp_path: Path) -> None:
    made = tmp_path / "gpt2"
    shutil.copytree(folder / "gpt2", made)
    component = Pretrained(path=made)
    before = described(component)
    assert described(Pretrained(path=made)) == before
    (made / "special_tokens_map.json").write_text('{"eos_token": "<|end|>"}')
    after = described(component)
    assert after != before
    (made / "model.safetensors").write_bytes(b"weights")
    assert described(component) == after
    assert described(Pretrained(path=made, special=("<x>",))) != after


# -- SentencePiece ----------------------------------------


@given(TEXT.filter(lambda text: "\u2581" not in text and "\0" not in text), st.lists(TEXT, max_size=3))
def test_a_model_with_byte_fallback_gives_every_text_back(
    pieces: Callable[..., Path], text: str, more: list[str]
) -> None:
    import sentencepiece

    path = pieces("bytes")
    library = sentencepiece.SentencePieceProcessor(model_file=str(path))
    made = opened(path)
    ids = made.encode(text)
    assert ids == library.encode(text)
    assert made.decode(ids) == text
    assert (made.unknown, made.byte_lengths) == (None, None)
    flat, sizes = made.encode_flat([text, *more])
    assert flat.tolist() == [number for each in (text, *more) for number in made.encode(each)]
    assert sizes.tolist() == [len(found) for found in made.encode_batch([text, *more])]
    assert again(made).encode(text) == ids
    assert again(made).save() == made.save() == path.read_bytes()


@given(TEXT.filter(lambda text: "\u2581" not in text and "\0" not in text))
def test_bytes_are_known_where_the_model_changes_nothing(pieces: Callable[..., Path], text: str) -> None:
    made = opened(pieces("exact", add_dummy_prefix=False))
    ids = made.encode(text)
    assert made.byte_lengths is not None
    assert made.byte_lengths[ids].sum() == len(text.encode())
    assert made.decode(ids) == text


def test_a_model_without_byte_fallback_has_unknown_characters(pieces: Callable[..., Path]) -> None:
    made = opened(pieces("plain", model_type="unigram", byte_fallback=False, vocab_size=60))
    assert made.unknown == 0
    assert made.byte_lengths is None
    assert 0 in made.encode("ω")
    assert 0 not in made.encode("the cat")


@given(TEXT, TEXT)
def test_domain_tokens_of_a_model_are_never_split(
    pieces: Callable[..., Path], before: str, after: str
) -> None:
    path = pieces("bytes")
    bare = opened(path)
    made = opened(path, special=("<gene>", "<pad>"), pad="<pad>")
    assert (made.vocabulary, made.pad, made.end) == (bare.vocabulary + 2, bare.vocabulary + 1, bare.end)
    text = before.replace("\0", "") + "<gene>" + after.replace("\0", "")
    ids = made.encode(text)
    assert bare.vocabulary in ids
    assert made.pad not in made.encode("<pad>")
    assert again(made).encode(text) == ids
    assert (again(made).pad, again(made).end) == (made.pad, made.end)
    if "\u2581" not in text:
        assert made.decode([made.pad, *ids, made.end]) == text


def test_the_end_of_a_model_is_its_own_or_the_one_that_is_named(pieces: Callable[..., Path]) -> None:
    path = pieces("bytes")
    assert opened(path).piece(opened(path).end) == "</s>"
    assert opened(path).end not in opened(path).encode("a </s>")
    begins = opened(path, end="<s>")
    assert begins.piece(begins.end) == "<s>"
    assert opened(path, end="").end is None
    with pytest.raises(DataError, match="TXT016 the tokenizer has no token '<end>' that could be its end"):
        opened(path, end="<end>")
    with pytest.raises(DataError, match="TXT017 '</s>' cannot be a special token"):
        opened(path, special=("</s>",))


def test_a_folder_whose_class_numbers_otherwise_is_refused(
    pieces: Callable[..., Path], tmp_path: Path
) -> None:
    shutil.copy(pieces("bytes"), tmp_path / "tokenizer.model")
    config = tmp_path / "tokenizer_config.json"
    vocabulary = opened(pieces("bytes")).vocabulary
    added = {str(vocabulary): {"content": "<tool>", "special": False}}
    config.write_text(json.dumps({"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": added}))
    assert opened(tmp_path).encode("<tool>")[-1] == vocabulary
    config.write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
    with pytest.raises(
        DataError, match=r"TXT014 .* a XLMRobertaTokenizer, which numbers the pieces otherwise"
    ):
        opened(tmp_path)


def test_a_model_that_is_cut_off_is_refused(pieces: Callable[..., Path], tmp_path: Path) -> None:
    content = pieces("bytes").read_bytes()
    for end in (10, len(content) // 2, len(content) - 1):
        (tmp_path / "cut.model").write_bytes(content[:end])
        with pytest.raises(DataError, match=r"cut\.model: TXT014"):
            opened(tmp_path / "cut.model")
        with pytest.raises(DataError, match="TXT012"):
            load_saved(content[:end])


def test_without_the_package_the_error_names_the_extra(
    pieces: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pieces("bytes")
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(PluginError, match=r'TXT015 .*; pip install "nlpkernel-plugin-text\[sentencepiece\]"'):
        opened(path)


@given(st.data())
def test_a_damaged_file_is_an_error_or_a_tokenizer(
    folder: Path, pieces: Callable[..., Path], data: st.DataObject
) -> None:
    content = bytearray(data.draw(st.sampled_from([folder / "words.json", pieces("bytes")])).read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=4))
    damaged = folder / "damaged"
    damaged.write_bytes(content)
    for read in (lambda: opened(damaged), lambda: load_saved(bytes(content))):
        with contextlib.suppress(DataError):
            made = read()
            assert again(made).encode("the cat") == made.encode("the cat")


@given(st.binary(max_size=200))
def test_bytes_that_are_no_model_are_none(content: bytes) -> None:
    found = spm.read_model(content)
    assert found is None or found.pieces


@given(st.integers(0, 2**63 - 1))
def test_numbers_of_a_protocol_buffer_come_back(value: int) -> None:
    assert spm._read_varint(spm._varint(value), 0) == (value, len(spm._varint(value)))
