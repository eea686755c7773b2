"""Tokens and text: our own SentencePiece models and foreign ones."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece

from paceline.errors import UserError
from paceline.tasks.nmt.standin.sentences import pairs
from paceline.tasks.nmt.vocabulary import MODEL_NAME, Vocabulary, train_model

LINES = [line for both in pairs(0, "train", 0, 2000) for line in both]
REAL_DATA = Path(
    os.environ.get("PACELINE_REAL_DATA", Path(__file__).parents[2] / "shared" / "data")
)
OPENSEQ2SEQ = REAL_DATA / "openseq2seq"


@pytest.fixture(scope="module")
def model() -> bytes:
    return train_model(lambda: LINES, 1000, is_limit=False)


@pytest.fixture(scope="module")
def vocabulary(model: bytes) -> Vocabulary:
    return Vocabulary.from_bytes(model, "test")


def test_text_comes_back_as_it_was(vocabulary: Vocabulary) -> None:
    assert vocabulary.decode(vocabulary.encode(LINES[:500])) == LINES[:500]


def test_padding_end_start_and_unknown_have_the_classic_numbers(vocabulary: Vocabulary) -> None:
    specials = (vocabulary.pad_id, vocabulary.eos_id, vocabulary.bos_id, vocabulary.unk_id)
    assert specials == (0, 1, 2, 3)
    assert vocabulary.size == 1000


def test_every_character_of_a_small_alphabet_is_known(vocabulary: Vocabulary) -> None:
    numbers = [number for line in vocabulary.encode(LINES) for number in line]
    assert vocabulary.unk_id not in numbers


def test_a_sentence_ends_at_its_end_and_padding_is_not_read(vocabulary: Vocabulary) -> None:
    (hello,) = vocabulary.encode(["The dog sleeps."])
    around = [vocabulary.bos_id, *hello, 1007, vocabulary.eos_id, *hello, vocabulary.pad_id]
    assert vocabulary.decode([around, [], [vocabulary.eos_id]]) == ["The dog sleeps.", "", ""]


def test_equal_text_makes_an_equal_model(model: bytes) -> None:
    assert train_model(lambda: LINES, 1000, is_limit=False) == model


def test_a_vocabulary_larger_than_the_text_supports_is_refused_with_what_is_possible() -> None:
    with pytest.raises(UserError, match="larger than this text supports") as caught:
        train_model(lambda: LINES, 50_000, is_limit=False)
    largest = int(caught.value.fix.split()[2])
    assert Vocabulary.from_bytes(train_model(lambda: LINES, largest, False), "").size == largest


def test_a_vocabulary_taken_as_a_limit_is_as_large_as_the_text_supports() -> None:
    vocabulary = Vocabulary.from_bytes(train_model(lambda: LINES, 50_000, is_limit=True), "")
    assert 1000 < vocabulary.size < 50_000


@pytest.mark.parametrize("size", [20, 3, -1])
def test_a_vocabulary_smaller_than_the_alphabet_is_refused(size: int) -> None:
    with pytest.raises(UserError, match="vocabulary of"):
        train_model(lambda: LINES, size, is_limit=False)


@pytest.mark.parametrize("content", [b"", b"the\t0\n", b"\x0a\x00" * 9, b"\x7fELF" * 99])
def test_a_file_that_is_no_sentencepiece_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.model"
    path.write_bytes(content)
    with pytest.raises(UserError, match="is not a SentencePiece model"):
        Vocabulary.load(path)


def test_a_model_that_was_cut_short_is_refused(tmp_path: Path, model: bytes) -> None:
    (tmp_path / MODEL_NAME).write_bytes(model[: len(model) // 2])
    with pytest.raises(UserError, match="is not a SentencePiece model"):
        Vocabulary.load(tmp_path)


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no SentencePiece model .*nowhere"):
        Vocabulary.load(tmp_path / "nowhere")


def test_what_a_foreign_model_lacks_gets_numbers_after_its_pieces() -> None:
    foreign = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=foreign,
        model_type="unigram",
        vocab_size=500,
        pad_id=-1,
        bos_id=-1,
        eos_id=-1,
        unk_id=0,
        minloglevel=2,
    )
    vocabulary = Vocabulary.from_bytes(foreign.getvalue(), "foreign")
    assert (vocabulary.pad_id, vocabulary.bos_id, vocabulary.eos_id) == (500, 501, 502)
    assert vocabulary.size == 503
    (ids,) = vocabulary.encode([LINES[0]])
    assert vocabulary.decode([[501, *ids, 502, 500, 500]]) == [LINES[0]]


def test_no_torch_is_needed() -> None:
    program = (
        "import sys, paceline.tasks.nmt.vocabulary, paceline.tasks.nmt.preparation.prepare;"
        "sys.exit('torch' in sys.modules or 'sacrebleu' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.skipif(not OPENSEQ2SEQ.is_dir(), reason="OpenSeq2Seq's files are not here")
@pytest.mark.parametrize("name", ["wmt14-en-de.src.BPE_common.32K.tok", "wmt14.tiny.tok"])
def test_openseq2seqs_model_gives_token_for_token_what_its_files_hold(name: str) -> None:
    """Its tokenizer stripped each line, encoded it and joined the pieces with blanks."""
    vocabulary = Vocabulary.load(OPENSEQ2SEQ / "m_common.model")
    pieces = (OPENSEQ2SEQ / "m_common.vocab").read_text(encoding="utf-8").split("\n")
    numbers = {line.split("\t")[0]: number for number, line in enumerate(pieces)}
    tokenized = (OPENSEQ2SEQ / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    lines = ["".join(line.split(" ")).replace("▁", " ").strip() for line in tokenized]
    assert [" ".join(vocabulary.pieces(line)) for line in lines] == tokenized
    expected = [
        [numbers.get(piece, vocabulary.unk_id) for piece in line.split(" ")] for line in tokenized
    ]
    assert vocabulary.encode(lines) == expected
    assert vocabulary.size == 32_768
