"""Lines in, lines out: whatever the input is, there is one answer per line and in its order.

Input is read as bytes, so that neither a locale nor a bad byte can stop a job halfway. Who
translates is behind `Translator`: nothing here knows torch, CTranslate2 or SentencePiece.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final, NamedTuple, Protocol

from paceline.data.progress import Progress
from paceline.errors import UserError

Say = Callable[[str], None]

# A block is sorted by length into batches, so it should hold many; it also is all that is in
# memory, so it must not hold too many.
BLOCK_LINES: Final = 2000
BLOCK_BYTES: Final = 4 << 20

# A sentence somewhat longer than any in training is better off whole than cut; far beyond, a
# Transformer says nothing useful, and slowly.
LONGEST_PART: Final = 256

_SHOWN_OF_EACH_KIND: Final = 5
_BLANKS = re.compile("[\t\r]")
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
# A capitalised word of at most three letters before a full stop is a title more often than an end.
_SENTENCE_END = re.compile(
    r"(?<!\b[A-Z]\.)(?<!\b[A-Z][a-z]\.)(?<!\b[A-Z][a-z][a-z]\.)"
    r"(?<=[.!?\u2026])[\"'\u201d\u2019»)]*(\s+)(?=[^\sa-z])"
)


@dataclass(frozen=True)
class Search:
    """How translations are searched for; with `num_best` None, scores are nobody's business."""

    beam: int = 4
    length_penalty: float = 0.6
    extra_length: int = 50
    num_best: int | None = None

    def divisor(self, length: int) -> float:
        """What the log probability of a translation of this length, end included, is divided by."""
        return float(((5 + length) / 6) ** self.length_penalty)


@dataclass(frozen=True)
class Wish:
    """What a user asked for; None and False leave it to the recipe."""

    beam: int | None = None
    is_greedy: bool = False
    num_best: int | None = None

    def laid_over(self, usual: Search) -> Search:
        if self.is_greedy and (self.beam or 1) > 1:
            raise UserError(f"greedy search has no beam of {self.beam}", "give one of the two")
        asked = 1 if self.is_greedy else self.beam
        # a wide enough beam is what somebody means who asks for many translations
        beam = asked or max(usual.beam, self.num_best or 1)
        if (self.num_best or 1) > beam:
            raise UserError(
                f"a beam of {beam} has no {self.num_best} best translations",
                f"give --beam {self.num_best} or more",
            )
        return replace(usual, beam=beam, num_best=self.num_best)


class Candidate(NamedTuple):
    text: str
    score: float


class Translator(Protocol):
    """Whoever can translate a list of texts, each of them a part of a line."""

    @property
    def longest_seen(self) -> int:
        """Pieces of the longest sentence in training: what is longer is cut at sentence ends."""

    def count_pieces(self, texts: Sequence[str]) -> list[int]: ...

    def translate(self, texts: Sequence[str], search: Search) -> list[list[Candidate]]:
        """The best translations of each text, best first."""


@dataclass(frozen=True)
class Streams:
    read: BinaryIO
    write: BinaryIO
    is_interactive: bool = False
    shows_progress: bool = False

    @classmethod
    def of_this_process(cls) -> "Streams":
        is_interactive = sys.stdin.isatty()
        is_watched = sys.stderr.isatty() and not sys.stdout.isatty()
        return cls(
            sys.stdin.buffer, sys.stdout.buffer, is_interactive, is_watched and not is_interactive
        )


def answer(translator: Translator, search: Search, streams: Streams, say: Say) -> None:
    """Translate everything there is to read; memory is bounded by a block, or one longer line."""
    notes, num_lines = Notes(say), 0
    with Progress("translated", "lines", None, say) as progress:
        for block in _ask(streams) if streams.is_interactive else read_blocks(streams.read):
            lines = [
                _cleaned(raw, num_lines + index, notes) for index, raw in enumerate(block, start=1)
            ]
            answers = translate_lines(translator, lines, search, notes, num_lines + 1)
            streams.write.write("".join(_written(answers, num_lines + 1, search)).encode())
            streams.write.flush()
            num_lines += len(block)
            if streams.shows_progress:
                progress.advance(len(block))
    notes.conclude()


def read_blocks(
    stream: BinaryIO, num_lines: int = BLOCK_LINES, num_bytes: int = BLOCK_BYTES
) -> Iterator[list[bytes]]:
    """Lines without their ends, in blocks of at most so many lines and about so many bytes."""
    block: list[bytes] = []
    block_bytes = 0
    for line in stream:
        block.append(line.removesuffix(b"\n"))
        block_bytes += len(line)
        if len(block) >= num_lines or block_bytes >= num_bytes:
            yield block
            block, block_bytes = [], 0
    if block:
        yield block


def _ask(streams: Streams) -> Iterator[list[bytes]]:
    """One line at a time; prompts go to the terminal even if the answers go to a file."""
    while True:
        sys.stderr.write("> ")
        sys.stderr.flush()
        line = streams.read.readline()
        if not line:
            sys.stderr.write("\n")
            return
        yield [line.removesuffix(b"\n")]


def _cleaned(raw: bytes, number: int, notes: "Notes") -> str:
    if number == 1:
        raw = raw.removeprefix(_BYTE_ORDER_MARK)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode(errors="replace")
        notes.add(number, "not UTF-8: undecodable bytes were replaced")
    text = _BLANKS.sub(" ", text)
    if _CONTROLS.search(text):
        text = _CONTROLS.sub(" ", text)
        notes.add(number, "control characters were replaced by blanks")
    return text.strip()


def translate_lines(
    translator: Translator, lines: Sequence[str], search: Search, notes: "Notes", first: int = 1
) -> list[list[Candidate]]:
    """The candidates of each clean line; an empty line has one, which is empty."""
    parts = [
        _parts(line, num_pieces, translator)
        for line, num_pieces in zip(lines, translator.count_pieces(lines), strict=True)
    ]
    for number, found in enumerate(parts, start=first):
        if len(found) > 1:
            notes.add(number, f"too long: translated in {len(found)} parts")
    flat = iter(translator.translate([text for found in parts for text in found], search))
    return [_joined([next(flat) for _ in found]) for found in parts]


def _parts(line: str, num_pieces: int, translator: Translator) -> list[str]:
    if num_pieces == 0:
        return []
    return [line] if num_pieces <= translator.longest_seen else cut(line, translator)


def cut(line: str, translator: Translator) -> list[str]:
    """Sentence by sentence; one of more than LONGEST_PART pieces is halved at blanks, and once
    it is, until its parts are of a length that training has seen."""
    sentences = _sentences(line)
    parts = []
    for sentence, num_pieces in zip(sentences, translator.count_pieces(sentences), strict=True):
        parts += _cut_sentence(sentence, translator) if num_pieces > LONGEST_PART else [sentence]
    return [part for part in parts if part]


def _cut_sentence(sentence: str, translator: Translator) -> list[str]:
    waiting, done = [sentence], []
    while waiting:
        text = waiting.pop()
        if len(text) > 1 and translator.count_pieces([text])[0] > translator.longest_seen:
            waiting.extend(reversed(_halves(text)))
        else:
            done.append(text)
    return done


def _sentences(line: str) -> list[str]:
    ends = [match.start(1) for match in _SENTENCE_END.finditer(line)]
    bounds = zip([0, *ends], [*ends, len(line)], strict=True)
    return [line[begin:end].strip() for begin, end in bounds]


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    before, after = text.rfind(" ", 0, middle), text.find(" ", middle)
    blanks = [place for place in (before, after) if place > 0]
    place = min(blanks, key=lambda blank: abs(blank - middle)) if blanks else middle
    return [text[:place].strip(), text[place:].strip()]


def _joined(parts: list[list[Candidate]]) -> list[Candidate]:
    """The k-th best of a line are the k-th best of its parts, and their scores add up."""
    if not parts:
        return [Candidate("", 0.0)]
    return [
        Candidate(_on_one_line(" ".join(c.text for c in ranked)), sum(c.score for c in ranked))
        for ranked in zip(*parts, strict=False)
    ]


def _on_one_line(text: str) -> str:
    return _CONTROLS.sub(" ", text)


def _written(answers: list[list[Candidate]], first: int, search: Search) -> Iterator[str]:
    for number, candidates in enumerate(answers, start=first):
        if search.num_best is None:
            yield f"{candidates[0].text}\n"
            continue
        for candidate in candidates:
            yield f"{number}\t{candidate.score:.4f}\t{candidate.text}\n"


@dataclass
class Notes:
    """What was odd about which line: the first few of each kind, and at the end how many more."""

    say: Say
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, number: int, text: str) -> None:
        kind = text.partition(":")[0]
        self.counts[kind] += 1
        if self.counts[kind] <= _SHOWN_OF_EACH_KIND:
            self.say(f"line {number:,}: {text}")

    def conclude(self) -> None:
        for kind, num_lines in self.counts.items():
            if num_lines > _SHOWN_OF_EACH_KIND:
                self.say(f"{num_lines:,} lines in all: {kind}")
