"""Where parallel text comes from: WMT16's archives, somebody's own files, sacreBLEU's test sets.

Everything ends as plain files of lines, two for each corpus. What is in the lines is not looked at.
"""

import html
import io
import json
import re
import tarfile
import urllib.error
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from paceline.data.archive import members, open_archive
from paceline.data.fetch import Source
from paceline.errors import UserError
from paceline.tasks.nmt.preparation.text import unpack_gzip, write_lines, write_stream

TRAIN: Final = "train"
VALIDATION: Final = "validation"
TEST: Final = "test"

# Sizes and hashes as TensorFlow Datasets and Hugging Face Datasets both recorded them, each from
# downloads of its own.
ARCHIVES: Final = (
    Source(
        file_name="training-parallel-europarl-v7.tgz",
        mirrors=(
            "https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
            "https://statmt.org/wmt13/training-parallel-europarl-v7.tgz",
            "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
        ),
        checksum="sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
        size_bytes=657_632_379,
    ),
    Source(
        file_name="training-parallel-commoncrawl.tgz",
        mirrors=(
            "https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
            "https://statmt.org/wmt13/training-parallel-commoncrawl.tgz",
            "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
        ),
        checksum="sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
        size_bytes=918_311_367,
    ),
    Source(
        file_name="training-parallel-nc-v11.tgz",
        mirrors=(
            "https://data.statmt.org/wmt16/translation-task/training-parallel-nc-v11.tgz",
            "http://data.statmt.org/wmt16/translation-task/training-parallel-nc-v11.tgz",
        ),
        checksum="sha256:cfe8ab047e05043476e498ee765c98e939c7b7d6d294e856344c84476b619d6a",
        size_bytes=75_178_032,
    ),
)
DEV_ARCHIVE: Final = "dev.tgz"

# sacreBLEU's names. Its "wmt14" is newstest2014 as it was scored at the time: 2,737 of the 3,003
# sentences ("wmt14/full") of English-German.
VALIDATION_SET: Final = "wmt13"
TEST_SET: Final = "wmt14"

_VALIDATION_STEMS: Final = ("validation", "valid", "val", "dev", "newstest2013")
_TEST_STEMS: Final = ("test", "newstest2014")
_MEMBERS_NAME: Final = "members.json"
_SEGMENT: Final = re.compile(r"<seg[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Languages:
    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


@dataclass(frozen=True)
class Corpus:
    """Two files whose lines belong together; `split` says what for."""

    name: str
    split: str
    source: Path
    target: Path


@dataclass(frozen=True)
class Material:
    """What was found: archives, or text, or training archives with text to score on.

    Without text to score on, sacreBLEU's sets are used; `test_set` names the one to test on.
    """

    archives: tuple[Path, ...]
    texts: tuple[Corpus, ...]
    test_set: str | None

    def files(self) -> list[Path]:
        return [
            *self.archives,
            *(path for text in self.texts for path in (text.source, text.target)),
        ]


def check_languages(languages: Languages) -> None:
    for language in (languages.source, languages.target):
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_@-]*", language):
            raise UserError(f"'{language}' is not a language code", "use codes like en and de")
    if languages.source == languages.target:
        raise UserError(
            f"source and target are both '{languages.source}'", "name two languages: en and de"
        )


def find_material(directory: Path, languages: Languages, test_name: str | None) -> Material:
    """WMT's archives, or else train.XX and train.YY; and whatever there is to score on."""
    if not directory.is_dir():
        raise UserError(
            f"there is no directory {directory} to take text from",
            "say --from web, --from stand-in, or --from a directory with text or WMT's archives",
        )
    named = [directory / archive.file_name for archive in ARCHIVES]
    archives = [path for path in named if path.is_file()]
    texts = [
        _find_evaluation(directory, VALIDATION, _VALIDATION_STEMS, languages),
        _find_test(directory, languages, test_name, is_required=not archives),
    ]
    if archives and (directory / DEV_ARCHIVE).is_file():
        archives.append(directory / DEV_ARCHIVE)
    if not archives:
        texts.append(_find_training(directory, languages))
        if texts[0] is None:
            raise UserError(
                f"{directory} has no text for validation",
                f"put valid.{languages.source} and valid.{languages.target} beside the training "
                "text (also as val, dev or validation, plain or .gz)",
            )
    found = tuple(text for text in texts if text is not None)
    return Material(tuple(archives), found, test_name)


def _find_training(directory: Path, languages: Languages) -> Corpus:
    corpus = _find_text(directory, TRAIN, TRAIN, languages)
    if corpus is None:
        names = ", ".join(source.file_name for source in ARCHIVES)
        raise UserError(
            f"{directory} has no text to train on",
            f"put train.{languages.source} and train.{languages.target} there (plain or .gz), or "
            f"WMT's archives ({names})",
        )
    return corpus


def _find_evaluation(
    directory: Path, split: str, stems: Iterable[str], languages: Languages
) -> Corpus | None:
    for stem in stems:
        if corpus := _find_text(directory, stem, split, languages):
            return corpus
    return None


def _find_test(
    directory: Path, languages: Languages, name: str | None, is_required: bool
) -> Corpus | None:
    """The test set of that name, or without one whatever looks like the only one."""
    if name is not None:
        found = _find_text(directory, name, TEST, languages)
        if found is None and is_required:
            raise UserError(
                f"{directory} has no {name}.{languages.source} and {name}.{languages.target} "
                "to test on",
                "name a test set that is there, or none",
            )
        return found
    if found := _find_evaluation(directory, TEST, _TEST_STEMS, languages):
        return found
    ending = re.compile(rf"(test.*)\.{re.escape(languages.source)}(\.gz)?")
    matches = (ending.fullmatch(path.name) for path in directory.iterdir())
    stems = sorted({match[1] for match in matches if match})
    if len(stems) > 1:
        raise UserError(
            f"{directory} has several test sets: {', '.join(stems)}", "choose one with --test NAME"
        )
    return _find_text(directory, stems[0], TEST, languages) if stems else None


def _find_text(directory: Path, stem: str, split: str, languages: Languages) -> Corpus | None:
    """Both sides, neither, or a UserError: one side alone is always a mistake."""
    found = []
    for language in (languages.source, languages.target):
        names = (f"{stem}.{language}", f"{stem}.{language}.gz")
        paths = [directory / name for name in names if (directory / name).is_file()]
        found.append(paths[0] if paths else None)
    source, target = found
    if source is not None and target is not None:
        return Corpus(stem, split, source, target)
    for there, missing in ((source, languages.target), (target, languages.source)):
        if there is not None:
            raise UserError(
                f"{there} has no other side: {directory / stem}.{missing} is missing",
                "put it there (plain or .gz), or name the languages with --source and --target",
            )
    return None


def unpack_text(corpus: Corpus, to: Path) -> Corpus:
    """The same with gzip files replaced by plain ones under `to`."""

    def plain(path: Path) -> Path:
        if path.suffix != ".gz":
            return path
        unpacked = to / path.stem
        if not unpacked.is_file():
            unpack_gzip(path, unpacked)
        return unpacked

    to.mkdir(parents=True, exist_ok=True)
    return Corpus(corpus.name, corpus.split, plain(corpus.source), plain(corpus.target))


def unpack_archive(archive: Path, languages: Languages, to: Path) -> list[Corpus]:
    """The corpora of these languages in an archive; what was unpacked before is not again."""
    to.mkdir(parents=True, exist_ok=True)
    is_dev = archive.name == DEV_ARCHIVE
    corpora_in = _evaluation_corpora if is_dev else _training_corpora
    listed = to / _MEMBERS_NAME
    if not listed.is_file():
        names = _extract_members(archive, to, _member_filter(languages, is_dev))
        write_stream(io.BytesIO(json.dumps(names).encode()), listed)
    corpora = corpora_in(archive, to, json.loads(listed.read_text()), languages)
    if not corpora and not is_dev:
        raise UserError(
            f"{archive} holds no parallel text of {languages.source} and {languages.target}",
            "name languages that it has with --source and --target",
        )
    return corpora


def _member_filter(languages: Languages, is_dev: bool) -> Callable[[str], bool]:
    first, second = re.escape(languages.source), re.escape(languages.target)
    if is_dev:
        pair = f"{first}{second}|{second}{first}"
        pattern = rf"newstest201[34](-(?:{pair}))?(-src|-ref)?\.({first}|{second})(\.sgm)?"
    else:
        pattern = rf".+\.({first}-{second}|{second}-{first})\.({first}|{second})"
    matcher = re.compile(pattern)
    return lambda name: matcher.fullmatch(name) is not None


def _extract_members(archive: Path, to: Path, wanted: Callable[[str], bool]) -> list[str]:
    names = []
    with open_archive(archive) as tar:
        for member in members(tar):
            name = Path(member.name).name
            file = tar.extractfile(member) if member.isfile() and wanted(name) else None
            if file is not None:
                _write_member(file, to, name, archive)
                names.append(name)
    return names


def _write_member(file: IO[bytes], to: Path, name: str, archive: Path) -> None:
    if not name.endswith(".sgm"):
        write_stream(file, to / name)
        return
    try:
        text = file.read().decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{archive}: {name} is not UTF-8", "get the archive again") from error
    lines = [" ".join(html.unescape(segment).split()) for segment in _SEGMENT.findall(text)]
    write_lines(to / name, lines)


def _training_corpora(
    archive: Path, directory: Path, names: list[str], languages: Languages
) -> list[Corpus]:
    corpora = []
    for stem in sorted({name.rpartition(".")[0] for name in names}):
        sides = [f"{stem}.{language}" for language in (languages.source, languages.target)]
        missing = [side for side in sides if side not in names]
        if missing:
            raise UserError(
                f"{archive} has only one side of {stem}: {missing[0]} is missing",
                "get the archive again",
            )
        corpora.append(Corpus(stem, TRAIN, directory / sides[0], directory / sides[1]))
    return corpora


def _evaluation_corpora(
    archive: Path, directory: Path, names: list[str], languages: Languages
) -> list[Corpus]:
    """newstest2013 and 2014 in whichever of WMT's namings they are there with both sides."""
    source, target = languages.source, languages.target
    corpora = []
    for split, stem in ((VALIDATION, "newstest2013"), (TEST, "newstest2014")):
        pairs = [(f"{stem}.{source}", f"{stem}.{target}")]
        for code in ("", f"-{source}{target}", f"-{target}{source}"):
            ending = f"{stem}{code}"
            pairs.append((f"{ending}-src.{source}.sgm", f"{ending}-ref.{target}.sgm"))
        for first, second in pairs:
            if first in names and second in names:
                corpora.append(Corpus(stem, split, directory / first, directory / second))
                break
    return corpora


def sacrebleu_corpus(name: str, split: str, languages: Languages) -> Corpus:
    """A published test set, downloaded by sacreBLEU into its own cache unless it is there."""
    from sacrebleu.dataset import DATASETS  # noqa: PLC0415 (half a second, and not always needed)

    if name not in DATASETS:
        raise UserError(f"sacreBLEU has no test set '{name}'", "see: sacrebleu --list")
    dataset: Any = DATASETS[name]
    pair = str(languages)
    if pair not in dataset.langpairs:
        raise UserError(
            f"sacreBLEU's test set '{name}' has no {pair}",
            f"choose of {', '.join(sorted(dataset.langpairs))}, or put {split} text beside",
        )
    try:
        source = Path(dataset.get_source_file(pair))
        target = Path(dataset.get_reference_files(pair)[0])
    except (OSError, EOFError, tarfile.TarError, SystemExit) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise UserError(
            f"sacreBLEU could not get its test set '{name}': {error}",
            f"check the network, remove {dataset._outdir} if it is there, and run again; or put "
            f"newstest2013 and newstest2014 (each as .{languages.source} and .{languages.target}) "
            "beside the archives and name their directory with --from",
        ) from error
    return Corpus(name, split, source, target)
