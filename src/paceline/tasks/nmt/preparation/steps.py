"""The steps from text to tokens, one after the other, and the card that tells what they did.

Each step leaves files that are complete or absent, and looks for what an interrupted run left.
The work on lines and arrays itself is done in `nmt_pieces` and `nmt_store`.
"""

import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from paceline.data.card import describe_file, fingerprint, write_card
from paceline.data.places import require_space
from paceline.data.progress import Progress, Say
from paceline.data.workers import default_num_workers, run_all
from paceline.errors import UserError
from paceline.files import sha256_of, write_whole
from paceline.tasks.nmt.preparation import sources as nmt_sources
from paceline.tasks.nmt.preparation.pieces import (
    LINES_PER_CHUNK,
    SIDES,
    PieceCounts,
    PieceTask,
    VocabularyTask,
    encode_piece,
    learn_vocabulary,
)
from paceline.tasks.nmt.preparation.sources import Corpus, Languages, Material
from paceline.tasks.nmt.preparation.text import REASONS, Chunk, Limits, chunks, read_lines
from paceline.tasks.nmt.standin import corpus as nmt_stand_in
from paceline.tasks.nmt.store import (
    SPLITS,
    WORKLOAD,
    MergeTask,
    merge_side,
    split_counts,
    write_evaluation_split,
)
from paceline.tasks.nmt.vocabulary import MODEL_NAME, Vocabulary

# Sizes when none is asked for, as limits: no more is made than the text supports.
_LARGE_TEXT_VOCABULARY: Final = 32_768
_SMALL_TEXT_VOCABULARY: Final = 8_192
_STAND_IN_VOCABULARY: Final = 3_072
_LARGE_TEXT_LINES: Final = 500_000

# Starting processes takes half a second; less text than this is done before.
_WORTH_PROCESSES_BYTES: Final = 8_000_000


@dataclass(frozen=True)
class Origin:
    """Where the text comes from. Equal `identity` and options mean equal data."""

    kind: str
    location: str
    identity: dict[str, Any]
    material: Material
    files: tuple[dict[str, Any], ...] = ()
    is_official: bool = False


@dataclass(frozen=True)
class Work:
    """One preparation on its way.

    `vocabulary`: a foreign model, a size, or None for the usual; `num_workers`: None for as many
    as are worth it.
    """

    directory: Path
    languages: Languages
    vocabulary: Path | int | None
    limits: Limits
    seed: int
    num_workers: int | None
    say: Say

    @property
    def new(self) -> Path:
        """What is to become the directory of prepared data."""
        return self.directory / "new"

    def workers_for(self, num_bytes: int) -> int:
        if self.num_workers is not None:
            return self.num_workers
        return default_num_workers() if num_bytes > _WORTH_PROCESSES_BYTES else 1


@dataclass(frozen=True)
class _Training:
    """The training text of all corpora, cut into chunks."""

    names: tuple[str, ...]  # of the corpus of each chunk
    chunks: tuple[Chunk, ...]
    num_bytes: int

    @property
    def num_lines(self) -> int:
        return sum(chunk.num_lines for chunk in self.chunks)


def fill(work: Work, origin: Origin, key: str) -> None:
    """Everything in `work.new`; the card comes last and says that the rest is there."""
    if origin.kind == "stand-in":
        origin = _compose(work, origin)
    corpora = _unpack(work, origin)
    training = _cut(corpora)
    texts = _read_evaluation(corpora)
    require_space(work.directory, training.num_bytes)
    model = _make_vocabulary(work, origin, training)
    counts = _encode(work, training, model)
    vocabulary = Vocabulary.load(model)
    # whatever a killed run left here may be incomplete, or a file under a passing name
    shutil.rmtree(work.new, ignore_errors=True)
    work.new.mkdir()
    shutil.copyfile(model, work.new / MODEL_NAME)
    _merge(work, training, vocabulary)
    for split, text in texts.items():
        write_evaluation_split(work.new, split, text, vocabulary)
    card = {
        **_describe_origin(work, origin, key),
        **_describe_training(training, counts, corpora),
        **_describe_result(work, vocabulary, _given_text(work, training, corpora)),
    }
    write_card(work.new, card)


def _compose(work: Work, origin: Origin) -> Origin:
    num_pairs = int(origin.identity["num_train"])
    archives = nmt_stand_in.write_archives(
        work.directory / "archives",
        num_pairs,
        work.seed,
        work.workers_for(num_pairs * 100),
        work.say,
    )
    files = tuple(describe_file(archive) for archive in archives)
    return replace(origin, material=Material(tuple(archives), (), None), files=files)


def _unpack(work: Work, origin: Origin) -> list[Corpus]:
    """Plain files of everything: archives, gzip files, and published sets if there are no other."""
    text, material = work.directory / "text", origin.material
    tasks = [(path, work.languages, text / path.stem) for path in material.archives]
    if tasks and origin.kind != "stand-in":  # those were packed here a moment ago
        work.say(f"unpacking {', '.join(path.name for path, _, _ in tasks)}")
    num_workers = work.workers_for(sum(path.stat().st_size for path in material.archives))
    by_archive = dict(run_all(_unpack_archive, tasks, num_workers))
    corpora = [corpus for number in sorted(by_archive) for corpus in by_archive[number]]
    # what was asked for by name, or lies beside the archives, goes before what is in them
    elsewhere = {corpus.split for corpus in material.texts}
    if material.test_set is not None:
        elsewhere.add(nmt_sources.TEST)
    corpora = [corpus for corpus in corpora if corpus.split not in elsewhere]
    corpora += [nmt_sources.unpack_text(corpus, text) for corpus in material.texts]
    if material.archives:
        corpora += _published_sets(work, material, {corpus.split for corpus in corpora})
    return corpora


def _unpack_archive(task: tuple[Path, Languages, Path]) -> list[Corpus]:
    return nmt_sources.unpack_archive(*task)


def _published_sets(work: Work, material: Material, there: set[str]) -> list[Corpus]:
    names = {
        nmt_sources.VALIDATION: nmt_sources.VALIDATION_SET,
        nmt_sources.TEST: material.test_set or nmt_sources.TEST_SET,
    }
    return [
        nmt_sources.sacrebleu_corpus(name, split, work.languages)
        for split, name in names.items()
        if split not in there
    ]


def _cut(corpora: list[Corpus]) -> _Training:
    names: list[str] = []
    parts: list[Chunk] = []
    num_bytes = 0
    for corpus in corpora:
        if corpus.split == nmt_sources.TRAIN:
            its_chunks = chunks(corpus.source, corpus.target, LINES_PER_CHUNK)
            names += [corpus.name] * len(its_chunks)
            parts += its_chunks
            num_bytes += corpus.source.stat().st_size + corpus.target.stat().st_size
    return _Training(tuple(names), tuple(parts), num_bytes)


def _read_evaluation(corpora: list[Corpus]) -> dict[str, tuple[list[str], list[str]]]:
    texts = {}
    for corpus in corpora:
        if corpus.split != nmt_sources.TRAIN:
            chunks(corpus.source, corpus.target, LINES_PER_CHUNK)  # refuses unequal or empty sides
            texts[corpus.split] = (read_lines(corpus.source), read_lines(corpus.target))
    return texts


def _make_vocabulary(work: Work, origin: Origin, training: _Training) -> Path:
    model = work.directory / MODEL_NAME
    if isinstance(work.vocabulary, Path):
        write_whole(model, work.vocabulary.read_bytes())
    elif not model.is_file():
        size = work.vocabulary or _usual_size(origin, training)
        what = "" if work.vocabulary else "at most "
        work.say(f"learning {what}{size:,} pieces from {training.num_lines:,} pairs")
        task = VocabularyTask(
            training.chunks,
            training.num_bytes,
            work.limits,
            size,
            not work.vocabulary,
            work.seed,
            model,
        )
        # apart, so that its memory goes back and Ctrl-C is heard meanwhile
        list(run_all(learn_vocabulary, [task], work.workers_for(training.num_bytes)))
    return model


def _usual_size(origin: Origin, training: _Training) -> int:
    if origin.kind == "stand-in":
        return _STAND_IN_VOCABULARY
    is_large = training.num_lines >= _LARGE_TEXT_LINES
    return _LARGE_TEXT_VOCABULARY if is_large else _SMALL_TEXT_VOCABULARY


def _pieces(work: Work, training: _Training) -> list[Path]:
    pieces = work.directory / "pieces"
    pieces.mkdir(exist_ok=True)
    return [pieces / f"{number:06d}.npz" for number in range(len(training.chunks))]


def _encode(work: Work, training: _Training, model: Path) -> list[PieceCounts]:
    sha256 = sha256_of(model)
    tasks = [
        PieceTask(chunk, work.limits, model, sha256, piece)
        for chunk, piece in zip(training.chunks, _pieces(work, training), strict=True)
    ]
    work.say(f"encoding {training.num_lines:,} pairs")
    counts: dict[int, PieceCounts] = {}
    with Progress("encoding", "pairs", training.num_lines, work.say) as progress:
        for number, count in run_all(encode_piece, tasks, work.workers_for(training.num_bytes)):
            counts[number] = count
            progress.advance(count.num_lines, was_there=count.was_there)
    in_order = [counts[number] for number in range(len(tasks))]
    if not all(sum(count.num_tokens[side] for count in in_order) for side in range(len(SIDES))):
        dropped = ", ".join(f"{n:,} {reason}" for reason, n in _sum_dropped(in_order).items() if n)
        raise UserError(
            f"none of the {training.num_lines:,} pairs is fit for training (dropped: {dropped})",
            "look at the text: is it one sentence per line, in UTF-8?",
        )
    return in_order


def _merge(work: Work, training: _Training, vocabulary: Vocabulary) -> None:
    work.say("shuffling and storing")
    pieces = tuple(_pieces(work, training))
    tasks = [MergeTask(side, pieces, vocabulary.size, work.seed, work.new) for side in SIDES]
    list(run_all(merge_side, tasks, work.workers_for(training.num_bytes)))


# ----------------------------------------------------------------------------- the card


def _describe_origin(work: Work, origin: Origin, key: str) -> dict[str, Any]:
    return {
        "workload": WORKLOAD,
        "source": {
            "kind": origin.kind,
            "location": origin.location,
            "key": key,
            "is_official": origin.is_official,
        },
        "stand_in": origin.identity if origin.kind == "stand-in" else None,
        "languages": str(work.languages),
        "files": list(origin.files),
        "settings": {
            "seed": work.seed,
            "limits": asdict(work.limits),
            "length_is_counted_in": "words between blanks",
        },
    }


def _describe_training(
    training: _Training, counts: list[PieceCounts], corpora: list[Corpus]
) -> dict[str, Any]:
    described = []
    for corpus in corpora:
        if corpus.split == nmt_sources.TRAIN:
            its_counts = [
                count
                for name, count in zip(training.names, counts, strict=True)
                if name == corpus.name
            ]
            kept: dict[str, Any] = {
                "num_lines": sum(count.num_lines for count in its_counts),
                "num_kept": sum(count.num_kept for count in its_counts),
                "dropped": _sum_dropped(its_counts),
            }
        else:
            kept = {"sha256": [sha256_of(corpus.source), sha256_of(corpus.target)]}
        text_bytes = corpus.source.stat().st_size + corpus.target.stat().st_size
        described.append(
            {
                "name": corpus.name,
                "split": corpus.split,
                "text_mb": round(text_bytes / 1e6, 1),
                **kept,
            }
        )
    return {"corpora": described, "dropped": _sum_dropped(counts)}


def _sum_dropped(counts: list[PieceCounts]) -> dict[str, int]:
    return {reason: sum(count.dropped[reason] for count in counts) for reason in REASONS}


def _given_text(work: Work, training: _Training, corpora: list[Corpus]) -> dict[str, Any]:
    """The training text as the user has it, before anything is dropped or compressed."""
    ours = [corpus for corpus in corpora if corpus.split == nmt_sources.TRAIN]
    return {
        "bytes": training.num_bytes,
        "form": "text",
        "num_lines": training.num_lines,
        "bytes_by_part": {
            work.languages.source: sum(corpus.source.stat().st_size for corpus in ours),
            work.languages.target: sum(corpus.target.stat().st_size for corpus in ours),
        },
    }


def _describe_split(split: str, work: Work, arrays: dict[str, Any]) -> dict[str, Any]:
    stored = [file["bytes"] for name, file in arrays.items() if name.startswith(f"{split}.")]
    return {**split_counts(work.new, split), "stored_bytes": sum(stored)}


def _describe_result(work: Work, vocabulary: Vocabulary, given: dict[str, Any]) -> dict[str, Any]:
    arrays = {file.name: describe_file(file) for file in sorted(work.new.iterdir())}
    splits = {
        split: _describe_split(split, work, arrays)
        for split in SPLITS
        if f"{split}.source.tokens.npy" in arrays
    }
    return {
        "vocabulary": {
            "size": vocabulary.size,
            "kind": "foreign" if isinstance(work.vocabulary, Path) else "trained",
            "sha256": arrays[MODEL_NAME]["sha256"],
            **{
                name: getattr(vocabulary, name) for name in ("pad_id", "bos_id", "eos_id", "unk_id")
            },
        },
        "splits": {**splits, "train": {**splits["train"], "given": given}},
        "total_mb": round(sum(array["bytes"] for array in arrays.values()) / 1e6, 1),
        "arrays": arrays,
        "fingerprint": fingerprint({name: array["sha256"] for name, array in arrays.items()}),
    }
