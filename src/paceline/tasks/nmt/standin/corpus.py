"""The stand-in corpus on disk: composed sentences in archives named and laid out like WMT's.

The sentences come from `synthetic.sentences`; reading the archives back is `nmt_sources`' work,
which cannot tell them from the real ones.
"""

import gzip
import html
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

from paceline.data.progress import Progress, Say
from paceline.data.workers import run_all
from paceline.files import whole_file, write_whole
from paceline.tasks.nmt.standin import sentences

LANGUAGES: Final = ("en", "de")
NUM_VALIDATION_PAIRS: Final = 500
NUM_TEST_PAIRS: Final = 1000

_PAIRS_PER_BLOCK: Final = 20_000
# The archive, its members without the language, and its share of the pairs in hundredths.
_ARCHIVES: Final = (
    ("training-parallel-europarl-v7.tgz", "training/europarl-v7.de-en", 43),
    ("training-parallel-commoncrawl.tgz", "commoncrawl.de-en", 52),
    ("training-parallel-nc-v11.tgz", "training-parallel-nc-v11/news-commentary-v11.de-en", 5),
)
_DEV_ARCHIVE: Final = "dev.tgz"


@dataclass(frozen=True)
class _Block:
    """Pairs `start` to `stop` of the training split, as two files of lines."""

    seed: int
    start: int
    stop: int
    paths: tuple[Path, Path]


@dataclass(frozen=True)
class _Package:
    archive: Path
    member: str
    blocks: tuple[_Block, ...]


def description(num_pairs: int, seed: int) -> dict[str, Any]:
    """Everything that the text depends on."""
    return {
        "grammar": sentences.GRAMMAR_VERSION,
        "seed": seed,
        "num_train": num_pairs,
        "num_validation": NUM_VALIDATION_PAIRS,
        "num_test": NUM_TEST_PAIRS,
    }


def write_archives(
    directory: Path, num_pairs: int, seed: int, num_workers: int, say: Say
) -> list[Path]:
    """Training archives and dev.tgz; what an interrupted call left behind is used."""
    directory.mkdir(parents=True, exist_ok=True)
    packages = [
        package
        for package in _packages(directory, num_pairs, seed)
        if not package.archive.is_file()
    ]
    blocks = [block for package in packages for block in package.blocks]
    if blocks:
        say(f"composing {num_pairs:,} pairs of sentences")
    with Progress("composing", "pairs", num_pairs, say) as progress:
        for number, _ in run_all(_write_block, blocks, num_workers):
            progress.advance(blocks[number].stop - blocks[number].start)
    for _ in run_all(_pack, packages, num_workers):
        pass
    _pack_dev(directory / _DEV_ARCHIVE, seed)
    return [*(directory / name for name, _, _ in _ARCHIVES), directory / _DEV_ARCHIVE]


def _packages(directory: Path, num_pairs: int, seed: int) -> Iterator[_Package]:
    start, share = 0, 0
    for name, member, percent in _ARCHIVES:
        share += percent
        # every archive has at least one pair, as long as there are three
        stop = max(num_pairs * share // 100, start + 1)
        blocks = tuple(
            _block(directory, seed, first, min(first + _PAIRS_PER_BLOCK, stop))
            for first in range(start, stop, _PAIRS_PER_BLOCK)
        )
        yield _Package(directory / name, member, blocks)
        start = stop


def _block(directory: Path, seed: int, start: int, stop: int) -> _Block:
    first, second = (directory / f"block-{start:010d}.{language}" for language in LANGUAGES)
    return _Block(seed, start, stop, (first, second))


def _write_block(block: _Block) -> None:
    if all(path.is_file() for path in block.paths):
        return
    pairs = list(sentences.pairs(block.seed, "train", block.start, block.stop))
    for side, path in enumerate(block.paths):
        write_whole(path, _lines(pair[side] for pair in pairs))


def _lines(side: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in side).encode()


def _pack(package: _Package) -> None:
    def fill(tar: tarfile.TarFile) -> None:
        for side, language in enumerate(LANGUAGES):
            files = [block.paths[side] for block in package.blocks]
            size_bytes = sum(file.stat().st_size for file in files)
            _add(tar, f"{package.member}.{language}", size_bytes, _Joined(files))

    _write_archive(package.archive, fill)
    for block in package.blocks:
        for path in block.paths:
            path.unlink()


def _pack_dev(archive: Path, seed: int) -> None:
    """newstest2013 is plain text in WMT's archive, newstest2014 is SGML."""
    if archive.is_file():
        return
    validation = list(sentences.pairs(seed, "validation", 0, NUM_VALIDATION_PAIRS))
    test = list(sentences.pairs(seed, "test", 0, NUM_TEST_PAIRS))
    contents = {}
    for side, language in enumerate(LANGUAGES):
        other = LANGUAGES[1 - side]
        contents[f"dev/newstest2013.{language}"] = _lines(pair[side] for pair in validation)
        for kind in ("src", "ref"):
            name = f"dev/newstest2014-deen-{kind}.{language}.sgm"
            contents[name] = _sgml([pair[side] for pair in test], kind, language, other)

    def fill(tar: tarfile.TarFile) -> None:
        for name, content in contents.items():
            _add(tar, name, len(content), io.BytesIO(content))

    _write_archive(archive, fill)


def _sgml(side: Sequence[str], kind: str, language: str, partner: str) -> bytes:
    source, target = (language, partner) if kind == "src" else (partner, language)
    tag = f"{kind}set"
    lines = [f'<{tag} setid="newstest2014" srclang="{source}" trglang="{target}">']
    lines.append('<doc sysid="ref" docid="stand-in" genre="news" origlang="en">\n<p>')
    lines += [
        f'<seg id="{number}">{html.escape(line, quote=False)}</seg>'
        for number, line in enumerate(side, 1)
    ]
    lines += ["</p>\n</doc>", f"</{tag}>"]
    return _lines(lines)


def _write_archive(archive: Path, fill: Callable[[tarfile.TarFile], None]) -> None:
    """Without times and owners, so that equal sentences make equal archives."""
    with (
        whole_file(archive) as file,
        gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as zipped,
        tarfile.open(fileobj=cast(IO[bytes], zipped), mode="w") as tar,
    ):
        fill(tar)


def _add(tar: tarfile.TarFile, name: str, size_bytes: int, content: Any) -> None:
    member = tarfile.TarInfo(name)
    member.size = size_bytes
    tar.addfile(member, content)


class _Joined:
    """Files read one after the other as one, which is all that `tarfile` asks of its input."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._content = self._read(paths)
        self._rest = b""

    @staticmethod
    def _read(paths: Sequence[Path]) -> Iterator[bytes]:
        for path in paths:
            yield path.read_bytes()

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and (more := next(self._content, b"")):
            self._rest += more
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken
