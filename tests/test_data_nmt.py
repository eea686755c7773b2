"""Parallel text from archives, files, the web and the stand-in: what ends in the store, and what
is refused.
"""

import fcntl
import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from paceline.data.fetch import Source
from paceline.errors import UserError
from paceline.tasks.nmt.preparation import sources as nmt_sources
from paceline.tasks.nmt.preparation.pieces import token_type
from paceline.tasks.nmt.preparation.prepare import Options, Pairs, open_split, prepare
from paceline.tasks.nmt.preparation.text import index_lines
from paceline.tasks.nmt.standin import corpus as nmt_stand_in
from paceline.tasks.nmt.standin import sentences
from paceline.tasks.nmt.vocabulary import MODEL_NAME, Vocabulary

REAL_DATA = Path(
    os.environ.get("PACELINE_REAL_DATA", Path(__file__).parents[2] / "shared" / "data")
)
NUM_PAIRS = 600
SMALL = Options(num_pairs=NUM_PAIRS, vocab_size=400)
GOOD = list(sentences.pairs(0, "train", 0, 300))


def quiet(_text: str) -> None:
    pass


def write_text(directory: Path, stem: str, pairs: list[tuple[str, str]]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for side, language in enumerate(("en", "de")):
        lines = "".join(f"{pair[side]}\n" for pair in pairs)
        (directory / f"{stem}.{language}").write_text(lines, encoding="utf-8", newline="\n")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A directory of plain parallel text, as people have it."""
    directory = tmp_path / "text"
    write_text(directory, "train", GOOD)
    write_text(directory, "valid", list(sentences.pairs(0, "validation", 0, 20)))
    write_text(directory, "test", list(sentences.pairs(0, "test", 0, 20)))
    return directory


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare("stand-in", tmp_path_factory.mktemp("data") / "nmt", SMALL, quiet)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("archives")
    nmt_stand_in.write_archives(directory, NUM_PAIRS, 0, 1, quiet)
    return directory


def texts_of(pairs: Pairs, vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """What is in the store, as text again."""
    numbers = range(len(pairs))
    sources = vocabulary.decode([pairs.source(i).tolist() for i in numbers])
    targets = vocabulary.decode([pairs.target(i).tolist() for i in numbers])
    return list(zip(sources, targets, strict=True))


def card_of(directory: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((directory / "card.json").read_text(encoding="utf-8"))
    return card


def contents_of(directory: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()
    }


# ------------------------------------------------------------------------- the stand-in


def test_the_stand_in_ends_in_the_store_pair_for_pair(stand_in: Path) -> None:
    stored = texts_of(open_split(stand_in, "train"), Vocabulary.load(stand_in))
    composed = list(sentences.pairs(0, "train", 0, NUM_PAIRS))
    assert Counter(stored) == Counter(composed)


def test_the_store_is_shuffled(stand_in: Path) -> None:
    stored = texts_of(open_split(stand_in, "train"), Vocabulary.load(stand_in))
    composed = list(sentences.pairs(0, "train", 0, NUM_PAIRS))
    num_in_place = sum(a == b for a, b in zip(stored, composed, strict=True))
    assert num_in_place < NUM_PAIRS / 20


@pytest.mark.parametrize(("split", "num_pairs"), [("validation", 500), ("test", 1000)])
def test_what_is_scored_on_keeps_its_order_and_its_raw_text(
    stand_in: Path, split: str, num_pairs: int
) -> None:
    pairs = open_split(stand_in, split)
    composed = list(sentences.pairs(0, split, 0, num_pairs))
    assert list(zip(pairs.source_text(), pairs.target_text(), strict=True)) == composed
    assert texts_of(pairs, Vocabulary.load(stand_in)) == composed


def test_lengths_and_slices_agree(stand_in: Path) -> None:
    pairs = open_split(stand_in, "train")
    assert len(pairs.source_lengths) == len(pairs.target_lengths) == len(pairs) == NUM_PAIRS
    for number in (0, 1, NUM_PAIRS - 1):
        assert len(pairs.source(number)) == pairs.source_lengths[number]
        assert len(pairs.target(number)) == pairs.target_lengths[number]
    assert pairs.source_lengths.sum() == len(pairs.source_tokens)


def test_tokens_are_read_where_they_lie(stand_in: Path) -> None:
    pairs = open_split(stand_in, "train")
    assert isinstance(pairs.source_tokens, np.memmap)
    assert pairs.source_tokens.dtype == np.uint16


def test_the_card_counts_what_there_is(stand_in: Path) -> None:
    card = card_of(stand_in)
    pairs = open_split(stand_in, "train")
    assert card["splits"]["train"]["num_pairs"] == NUM_PAIRS
    assert card["splits"]["train"]["num_target_tokens"] == len(pairs.target_tokens)
    assert card["splits"]["train"]["longest_source"] == pairs.source_lengths.max()
    stored = sum(file.stat().st_size for file in stand_in.glob("train.*"))
    assert card["splits"]["train"]["stored_bytes"] == stored
    given = card["splits"]["train"]["given"]
    assert (given["form"], given["num_lines"]) == ("text", NUM_PAIRS)
    assert given["bytes"] == sum(given["bytes_by_part"].values())
    text = [" ".join(each) for each in texts_of(pairs, Vocabulary.load(stand_in))]
    assert given["bytes"] == sum(
        len(line.encode()) + 1 for line in text
    )  # two ends of lines, a blank
    assert card["vocabulary"]["size"] == Vocabulary.load(stand_in).size == 400
    assert sum(corpus.get("num_kept", 0) for corpus in card["corpora"]) == NUM_PAIRS
    assert sum(card["dropped"].values()) == 0
    assert card["stand_in"]["num_train"] == NUM_PAIRS
    assert [file["name"] for file in card["files"]][:2] == [
        "training-parallel-europarl-v7.tgz",
        "training-parallel-commoncrawl.tgz",
    ]


def test_several_processes_write_the_same_bytes_as_one(stand_in: Path, tmp_path: Path) -> None:
    options = Options(num_pairs=NUM_PAIRS, vocab_size=400, num_workers=3)
    assert contents_of(prepare("stand-in", tmp_path / "nmt", options, quiet)) == contents_of(
        stand_in
    )


def test_another_seed_is_another_text_and_another_order(stand_in: Path, tmp_path: Path) -> None:
    options = Options(num_pairs=NUM_PAIRS, vocab_size=400, seed=1)
    other = prepare("stand-in", tmp_path / "nmt", options, quiet)
    assert card_of(other)["fingerprint"] != card_of(stand_in)["fingerprint"]


def test_german_to_english_is_the_same_the_other_way_round(stand_in: Path, tmp_path: Path) -> None:
    options = Options("de", "en", num_pairs=NUM_PAIRS, vocab_size=400)
    turned = open_split(prepare("stand-in", tmp_path / "nmt", options, quiet), "test")
    straight = open_split(stand_in, "test")
    assert turned.source_text() == straight.target_text()
    assert turned.target_text() == straight.source_text()


def test_what_is_prepared_already_is_left_alone(stand_in: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in stand_in.iterdir()}
    said: list[str] = []
    prepare("stand-in", stand_in, SMALL, said.append)
    assert {path.name: path.stat().st_mtime_ns for path in stand_in.iterdir()} == before
    assert said[0].startswith("nothing to do")


def test_other_options_and_damage_make_it_anew(tmp_path: Path) -> None:
    to = tmp_path / "nmt"
    options = Options(num_pairs=100, vocab_size=200)
    prepare("stand-in", to, options, quiet)
    before = contents_of(to)
    prepare("stand-in", to, Options(num_pairs=120, vocab_size=200), quiet)
    assert len(open_split(to, "train")) == 120
    (to / "train.source.tokens.npy").write_bytes(b"spoilt")
    said: list[str] = []
    prepare("stand-in", to, options, said.append)
    assert contents_of(to) == before
    assert not list(tmp_path.glob(".*"))


# ------------------------------------------------------------------- archives and the web


def test_archives_at_a_path_are_read_like_the_stand_ins_own(
    archives: Path, stand_in: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    to = prepare(str(archives), tmp_path / "nmt", Options(vocab_size=400), said.append)
    names = set(contents_of(stand_in)) - {"card.json"}
    assert {name: contents_of(to)[name] for name in names} == {
        name: contents_of(stand_in)[name] for name in names
    }
    assert card_of(to)["source"]["is_official"] is False
    assert any("not the official one" in text for text in said)


def add_member(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def test_members_of_other_languages_are_passed_over(text: Path, tmp_path: Path) -> None:
    with tarfile.open(text / "training-parallel-nc-v11.tgz", "w:gz") as tar:
        for language in ("en", "de"):
            content = (text / f"train.{language}").read_bytes()
            add_member(tar, f"nc/news-commentary-v11.de-en.{language}", content)
            add_member(tar, f"nc/news-commentary-v11.ru-en.{language}", b"nothing\n")
        add_member(tar, "nc/news-commentary-v11.de-en.annotation", b"x\n")
    to = prepare(str(text), tmp_path / "nmt", Options(vocab_size=300), quiet)
    assert [corpus["name"] for corpus in card_of(to)["corpora"]] == [
        "news-commentary-v11.de-en",
        "valid",
        "test",
    ]
    assert len(open_split(to, "train")) == len(GOOD)


def test_an_archive_with_one_side_only_is_refused(text: Path, tmp_path: Path) -> None:
    with tarfile.open(text / "training-parallel-nc-v11.tgz", "w:gz") as tar:
        add_member(tar, "nc/news-commentary-v11.de-en.en", b"one\n")
    with pytest.raises(UserError, match=r"news-commentary-v11\.de-en\.de is missing"):
        prepare(str(text), tmp_path / "nmt", Options(), quiet)


def test_an_archive_without_the_languages_is_refused(archives: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no parallel text of en and fr"):
        prepare(str(archives), tmp_path / "nmt", Options(target_language="fr"), quiet)


def test_an_archive_cut_short_is_refused(archives: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.mkdir()
    content = (archives / "training-parallel-commoncrawl.tgz").read_bytes()
    (cut / "training-parallel-commoncrawl.tgz").write_bytes(content[: len(content) // 2])
    write_text(cut, "valid", GOOD[:5])
    write_text(cut, "test", GOOD[:5])
    with pytest.raises(UserError, match=r"commoncrawl\.tgz is damaged or was not downloaded"):
        prepare(str(cut), tmp_path / "nmt", Options(), quiet)


@pytest.fixture
def web(archives: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The archives behind a web server that is the second mirror of each; the first is gone."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(archives))
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"

    def served(source: Source) -> Source:
        digest = hashlib.sha256((archives / source.file_name).read_bytes()).hexdigest()
        mirrors = (f"{address}/gone/{source.file_name}", f"{address}/{source.file_name}")
        return Source(source.file_name, mirrors, f"sha256:{digest}")

    sources = tuple(served(source) for source in nmt_sources.ARCHIVES)
    monkeypatch.setattr(nmt_sources, "ARCHIVES", sources)
    monkeypatch.setenv("PACELINE_DATA", str(tmp_path / "home"))
    yield address
    server.shutdown()
    thread.join()
    server.server_close()


def sacrebleu_set(monkeypatch: pytest.MonkeyPatch, name: str, cache: Path, address: str) -> None:
    """Let sacreBLEU download into a cache of the test's, from the test's server."""
    from sacrebleu.dataset import DATASETS

    dataset = DATASETS[name]
    monkeypatch.setattr(dataset, "_outdir", str(cache))
    monkeypatch.setattr(dataset, "_rawdir", str(cache / "raw"))
    monkeypatch.setattr(dataset, "data", [f"{address}/{name}.tgz"])
    monkeypatch.setattr(dataset, "md5", None)


def write_published_set(archive: Path, split: str, names: tuple[str, str]) -> None:
    """A test set in WMT's SGML, as sacreBLEU gets it."""
    pairs = list(sentences.pairs(0, split, 0, 10))
    with tarfile.open(archive, "w:gz") as tar:
        for side, name in enumerate(names):
            lines = ['<refset setid="x" srclang="any" trglang="de">']
            lines.append('<doc docid="1" genre="news" origlang="en">')
            lines += [f'<seg id="{n}">{pair[side]}</seg>' for n, pair in enumerate(pairs, 1)]
            content = "\n".join([*lines, "</doc>", "</refset>", ""])
            add_member(tar, f"test/{name}", content.encode())


def test_the_web_gives_archives_and_sacrebleu_the_sets_to_score_on(
    web: str, archives: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ("newstest2013-src.en.sgm", "newstest2013-src.de.sgm")
    write_published_set(archives / "wmt13.tgz", "validation", names)
    names = ("newstest2014-deen-src.en.sgm", "newstest2014-deen-ref.de.sgm")
    write_published_set(archives / "wmt14.tgz", "test", names)
    for name in ("wmt13", "wmt14"):
        sacrebleu_set(monkeypatch, name, tmp_path / name, web)
    said: list[str] = []
    to = prepare("web", tmp_path / "nmt", Options(vocab_size=400), said.append)
    assert len(open_split(to, "train")) == NUM_PAIRS
    expected = [german for _, german in sentences.pairs(0, "test", 0, 10)]
    assert open_split(to, "test").target_text() == expected
    assert card_of(to)["source"]["is_official"] is True
    assert any("no luck with" in text and "404" in text for text in said)
    corpora = {corpus["split"]: corpus["name"] for corpus in card_of(to)["corpora"]}
    assert (corpora["validation"], corpora["test"]) == ("wmt13", "wmt14")


def test_a_test_set_asked_for_by_name_goes_before_the_one_that_is_there(
    web: str, archives: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ("newstest2014-deen-src.en.sgm", "newstest2014-deen-ref.de.sgm")
    write_published_set(archives / "wmt14.tgz", "test", names)
    sacrebleu_set(monkeypatch, "wmt14", tmp_path / "wmt14", web)
    options = Options(vocab_size=400, test_set="wmt14")
    to = prepare(str(archives), tmp_path / "nmt", options, quiet)
    assert [len(open_split(to, split)) for split in ("validation", "test")] == [500, 10]


def test_a_test_set_that_sacrebleu_cannot_get_is_a_clear_word(
    web: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sacrebleu_set(monkeypatch, "wmt13", tmp_path / "cache", f"{web}/nowhere")
    with pytest.raises(UserError, match="sacreBLEU could not get its test set 'wmt13'") as caught:
        prepare("web", tmp_path / "nmt", Options(), quiet)
    assert "newstest2013" in caught.value.fix


def test_a_pair_of_languages_that_no_test_set_has_is_refused() -> None:
    with pytest.raises(UserError, match="has no en-xx"):
        nmt_sources.sacrebleu_corpus("wmt14", "test", nmt_sources.Languages("en", "xx"))


# --------------------------------------------------------------------- anybody's own text


def test_gzip_files_and_other_names_of_the_splits_are_understood(
    text: Path, tmp_path: Path
) -> None:
    for path in list(text.iterdir()):
        name = path.name.replace("valid", "dev").replace("test", "test_2016_flickr")
        with gzip.open(text / f"{name}.gz", "wb") as file:
            file.write(path.read_bytes())
        path.unlink()
    to = prepare(str(text), tmp_path / "nmt", Options(vocab_size=300), quiet)
    assert [len(open_split(to, split)) for split in ("train", "validation", "test")] == [
        len(GOOD),
        20,
        20,
    ]


def test_of_several_test_sets_one_must_be_chosen(text: Path, tmp_path: Path) -> None:
    for language in ("en", "de"):
        (text / f"test.{language}").rename(text / f"test_a.{language}")
    write_text(text, "test_b", GOOD[:7])
    with pytest.raises(UserError, match="several test sets: test_a, test_b"):
        prepare(str(text), tmp_path / "nmt", Options(vocab_size=300), quiet)
    with pytest.raises(UserError, match=r"no test_c\.en and test_c\.de to test on"):
        prepare(str(text), tmp_path / "nmt", Options(test_set="test_c"), quiet)
    options = Options(vocab_size=300, test_set="test_b")
    assert len(open_split(prepare(str(text), tmp_path / "nmt", options, quiet), "test")) == 7


def test_every_dropped_pair_is_counted_by_its_reason(text: Path, tmp_path: Path) -> None:
    bad = [
        (b"", b"Nichts."),
        (b"Nothing.", b" \t\xc2\xa0 "),
        (b"Bad \xff byte.", b"Schlecht."),
        (b"word " * 81, b"Wort " * 81),
        (b"one", b"eins zwei drei vier sechs sieben acht neun zehn elf"),
        (b"x" * 1001, b"kurz"),
    ]
    kept = [(b"word " * 80, b"Wort " * 80), (b"one two", b"eins"), (b"y" * 1000, b"kurz")]
    for side, language in enumerate(("en", "de")):
        with (text / f"train.{language}").open("ab") as file:
            file.writelines(pair[side] + b"\n" for pair in bad + kept)
    to = prepare(str(text), tmp_path / "nmt", Options(vocab_size=300), quiet)
    assert card_of(to)["dropped"] == {
        "not UTF-8": 1,
        "empty": 2,
        "too long": 1,
        "length ratio": 1,
        "overlong word": 1,
    }
    assert len(open_split(to, "train")) == len(GOOD) + len(kept)
    vocabulary = Vocabulary.load(to)
    longest = max(texts_of(open_split(to, "train"), vocabulary), key=lambda pair: len(pair[0]))
    assert longest[0] == "y" * 1000


def test_odd_line_ends_do_not_shift_the_sides_against_each_other(
    text: Path, tmp_path: Path
) -> None:
    english = ["a\u2028b", "c\x0cd", "e\x85f", "g\x1ch", "i\rj"]
    for language, tail in (("en", english), ("de", ["eins", "zwei", "drei", "vier", "fünf"])):
        content = (text / f"train.{language}").read_text(encoding="utf-8")
        content += "\n".join(tail)  # and no line feed at the end
        with_mark = "\ufeff" + content.replace("\n", "\r\n")
        (text / f"train.{language}").write_bytes(with_mark.encode())
    to = prepare(str(text), tmp_path / "nmt", Options(vocab_size=300), quiet)
    stored = texts_of(open_split(to, "train"), Vocabulary.load(to))
    assert len(stored) == len(GOOD) + 5
    assert set(GOOD) <= set(stored)
    assert {target for _, target in stored} >= {"eins", "fünf"}


def test_sides_with_different_numbers_of_lines_are_refused(text: Path, tmp_path: Path) -> None:
    with (text / "train.de").open("a") as file:
        file.write("Noch eine Zeile.\n")
    with pytest.raises(UserError, match=r"train\.en has 300 lines and .*train\.de has 301"):
        prepare(str(text), tmp_path / "nmt", Options(), quiet)


def test_a_missing_side_is_refused(text: Path, tmp_path: Path) -> None:
    (text / "valid.de").unlink()
    with pytest.raises(UserError, match=r"valid\.en has no other side: .*valid\.de is missing"):
        prepare(str(text), tmp_path / "nmt", Options(), quiet)


@pytest.mark.parametrize("name", ["train.en", "test.de"])
def test_an_empty_file_is_refused(text: Path, tmp_path: Path, name: str) -> None:
    (text / name).write_bytes(b"")
    with pytest.raises(UserError, match=f"{name} is empty"):
        prepare(str(text), tmp_path / "nmt", Options(), quiet)


def test_a_gzip_file_cut_short_is_refused(text: Path, tmp_path: Path) -> None:
    content = gzip.compress((text / "train.en").read_bytes())
    (text / "train.en").unlink()
    (text / "train.en.gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"train\.en\.gz is damaged or was not downloaded"):
        prepare(str(text), tmp_path / "nmt", Options(), quiet)


def test_a_vocabulary_larger_than_the_text_supports_is_refused(text: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"32,768 pieces is larger than this text supports"):
        prepare(str(text), tmp_path / "nmt", Options(vocab_size=32_768), quiet)


def test_a_foreign_model_that_is_not_sentencepiece_is_refused(text: Path, tmp_path: Path) -> None:
    options = Options(spm=text / "train.en")
    with pytest.raises(UserError, match=r"train\.en is not a SentencePiece model"):
        prepare(str(text), tmp_path / "nmt", options, quiet)


def test_a_sentence_to_score_on_is_never_dropped_but_must_be_readable(
    text: Path, tmp_path: Path
) -> None:
    with (text / "test.de").open("ab") as file:
        file.write(b"\xff\xfe\n")
    with (text / "test.en").open("ab") as file:
        file.write(b"A long " + b"word " * 300 + b"\n")
    with pytest.raises(UserError, match=r"test\.de, line 21 is not UTF-8"):
        prepare(str(text), tmp_path / "nmt", Options(vocab_size=300), quiet)
    content = (text / "test.de").read_bytes().replace(b"\xff\xfe", b"")
    (text / "test.de").write_bytes(content)
    pairs = open_split(prepare(str(text), tmp_path / "nmt", Options(vocab_size=300), quiet), "test")
    assert (len(pairs), pairs.target_text()[20], pairs.target_lengths[20]) == (21, "", 0)
    assert pairs.source_lengths[20] > 300


def test_text_of_which_nothing_is_fit_for_training_is_refused(
    text: Path, tmp_path: Path, stand_in: Path
) -> None:
    write_text(text, "train", [("", "")] * 5)
    with pytest.raises(UserError, match=r"none of the 5 pairs is fit .* 5 empty"):
        prepare(str(text), tmp_path / "nmt", Options(spm=stand_in / MODEL_NAME), quiet)
    with pytest.raises(UserError, match="no text to make a vocabulary of"):
        prepare(str(text), tmp_path / "nmt", Options(), quiet)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(source_language="de"), "both 'de'"),
        (Options(source_language="../x"), "not a language code"),
        (Options(target_language="fr"), "composed in English and German"),
        (Options(num_pairs=5), "too few"),
        (Options(num_workers=0), "cannot work"),
        (Options(test_set="wmt14"), "its own test set"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(
    options: Options, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        prepare("stand-in", tmp_path / "nmt", options, quiet)


def test_a_model_and_a_size_exclude_each_other(stand_in: Path, tmp_path: Path) -> None:
    options = Options(spm=stand_in / MODEL_NAME, vocab_size=400)
    with pytest.raises(UserError, match="exclude each other"):
        prepare("stand-in", tmp_path / "nmt", options, quiet)


def test_a_path_without_text_says_what_should_be_there(text: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no directory"):
        prepare(str(tmp_path / "nowhere"), tmp_path / "nmt", Options(), quiet)
    with pytest.raises(UserError, match="has no text to train on") as caught:
        prepare(str(tmp_path), tmp_path / "nmt", Options(), quiet)
    assert "train.en" in caught.value.fix
    for language in ("en", "de"):
        (text / f"valid.{language}").unlink()
    with pytest.raises(UserError, match="no text for validation"):
        prepare(str(text), tmp_path / "nmt", Options(), quiet)


def test_somebody_elses_directory_is_not_overwritten(text: Path) -> None:
    with pytest.raises(UserError, match="is not empty: it holds"):
        prepare(str(text), text, Options(vocab_size=300), quiet)
    assert (text / "train.en").is_file()


def test_a_split_that_is_not_there_or_spoilt_is_named(stand_in: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no split 'dev'"):
        open_split(stand_in, "dev")
    with pytest.raises(UserError, match="no data directory"):
        open_split(tmp_path / "nowhere", "train")
    to = prepare("stand-in", tmp_path / "nmt", Options(num_pairs=100, vocab_size=200), quiet)
    tokens = to / "train.source.tokens.npy"
    tokens.write_bytes(tokens.read_bytes()[:-2])
    with pytest.raises(UserError, match=r"damaged: train\.source\.tokens\.npy has"):
        open_split(to, "train")
    with pytest.raises(UserError, match="no raw text of the train split"):
        open_split(stand_in, "train").source_text()


def test_a_large_vocabulary_takes_wider_tokens() -> None:
    assert token_type(65_536) == np.uint16
    assert token_type(65_537) == np.uint32


@pytest.mark.parametrize("num_lines", [0, 1, 2, 9, 10, 11, 100])
@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_chunks_start_where_their_lines_start(
    tmp_path: Path, num_lines: int, ending: bytes
) -> None:
    lines = [b"x" * (number % 7) + b"%d" % number for number in range(num_lines)]
    content = b"\n".join(lines) + (ending if lines else b"")
    (tmp_path / "text").write_bytes(content)
    index = index_lines(tmp_path / "text", 10)
    assert index.num_lines == num_lines
    starts = [content[start:].split(b"\n")[0] for start in index.chunk_starts]
    assert starts == lines[::10]


# ---------------------------------------------------------------------------- interruptions

PROGRAM = """
import os, signal, sys
from pathlib import Path
from paceline.tasks.nmt.preparation.prepare import Options, prepare

def say(text):
    if text.startswith(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    options = Options(num_pairs=int(sys.argv[3]), vocab_size=400, num_workers=2)
    prepare("stand-in", Path(sys.argv[1]), options, say)
"""


def start(directory: Path, die_at: str, num_pairs: int) -> "subprocess.Popen[bytes]":
    program = directory / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(directory / "nmt"), die_at, str(num_pairs)]
    return subprocess.Popen(command)


def test_killed_at_any_step_it_goes_on_and_ends_with_the_same_bytes(
    stand_in: Path, tmp_path: Path
) -> None:
    for step in ("composing", "learning", "encoding", "shuffling"):
        assert start(tmp_path, step, NUM_PAIRS).wait() == -signal.SIGKILL
        assert not (tmp_path / "nmt").exists()
    said: list[str] = []
    to = prepare("stand-in", tmp_path / "nmt", SMALL, said.append)
    assert said[0].startswith("going on with what an interrupted run left")
    assert not any(text.startswith(("composing", "learning")) for text in said)
    assert contents_of(to) == contents_of(stand_in)
    assert not (tmp_path / ".nmt.unfinished").exists()


def test_killed_while_encoding_no_worker_is_left_and_finished_pieces_are_kept(
    tmp_path: Path,
) -> None:
    num_pairs = 30_000
    process = start(tmp_path, "never", num_pairs)
    pieces = tmp_path / ".nmt.unfinished" / "pieces"
    while not list(pieces.glob("0*.npz")):
        assert process.poll() is None
        time.sleep(0.01)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive
    kept = {path: path.stat().st_mtime_ns for path in pieces.glob("0*.npz")}
    unfinished = {}

    def look(text: str) -> None:
        if text.startswith("shuffling"):
            unfinished.update({path: path.stat().st_mtime_ns for path in pieces.glob("0*.npz")})

    to = prepare("stand-in", tmp_path / "nmt", Options(num_pairs=num_pairs, vocab_size=400), look)
    assert kept.items() <= unfinished.items()
    assert len(open_split(to, "train")) == num_pairs


def test_a_finished_preparation_only_has_to_be_put_in_place(stand_in: Path, tmp_path: Path) -> None:
    """Killed between moving the old data away and the new data in."""
    to = tmp_path / "nmt"
    prepare("stand-in", to, SMALL, quiet)
    unfinished = tmp_path / ".nmt.unfinished"
    unfinished.mkdir()
    to.rename(unfinished / "new")
    (unfinished / "key.txt").write_text(card_of(unfinished / "new")["source"]["key"])
    said: list[str] = []
    prepare("stand-in", to, SMALL, said.append)
    assert contents_of(to) == contents_of(stand_in)
    assert len(said) == 2


def test_two_preparations_of_one_directory_do_not_mix(tmp_path: Path) -> None:
    unfinished = tmp_path / ".nmt.unfinished"
    unfinished.mkdir()
    with (unfinished / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is preparing"):
            prepare("stand-in", tmp_path / "nmt", SMALL, quiet)


# -------------------------------------------------------------------------------- real data


@pytest.mark.skipif(not (REAL_DATA / "multi30k").is_dir(), reason="Multi30k is not here")
def test_multi30k_is_prepared_as_it_is(tmp_path: Path) -> None:
    to = prepare(str(REAL_DATA / "multi30k"), tmp_path / "nmt", Options(), quiet)
    assert [len(open_split(to, split)) for split in ("train", "validation", "test")] == [
        29_000,
        1_014,
        1_000,
    ]
    pairs = open_split(to, "test")
    assert Vocabulary.load(to).decode([pairs.source(0).tolist()]) == [pairs.source_text()[0]]
    assert card_of(to)["vocabulary"]["size"] == 8_192


@pytest.mark.skipif(not (REAL_DATA / "openseq2seq").is_dir(), reason="OpenSeq2Seq is not here")
def test_a_foreign_model_is_used_as_it_is(text: Path, tmp_path: Path) -> None:
    model = REAL_DATA / "openseq2seq" / "m_common.model"
    to = prepare(str(text), tmp_path / "nmt", Options(spm=model), quiet)
    assert (to / MODEL_NAME).read_bytes() == model.read_bytes()
    assert card_of(to)["vocabulary"]["kind"] == "foreign"
    pairs, vocabulary = open_split(to, "validation"), Vocabulary.load(model)
    (expected,) = vocabulary.encode([pairs.source_text()[0]])
    assert pairs.source(0).tolist() == expected
