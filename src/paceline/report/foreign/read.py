"""Finding out which tool wrote a log, and reading it."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from paceline.errors import UserError
from paceline.record.schema import RunDirectory
from paceline.report.facts.facts import Facts, Options
from paceline.report.foreign import tensorboard
from paceline.report.foreign.as_facts import as_facts
from paceline.report.foreign.counters.beside import counters_in, counters_of
from paceline.report.foreign.counters.beside import reader_of as reader_of_counters
from paceline.report.foreign.event_files import is_event_file
from paceline.report.foreign.failures import read_failed_start
from paceline.report.foreign.joining import Gathering, beside, is_named_after_rank, one_run
from paceline.report.foreign.reading import formats
from paceline.report.foreign.reading.longest import is_much, last_step_of_text, longest
from paceline.report.foreign.run import ForeignRun
from paceline.report.foreign.text_lines import looks_like_text, text_lines
from paceline.units import count_of

_READABLE = (
    "give a run directory of `paceline train`, TensorBoard event files, or what another tool "
    "printed or stored: the PyTorch ImageNet example, OpenSeq2Seq, Hugging Face, Lightning, timm, "
    "mmdetection, nanoGPT, Megatron, fairseq, Keras, W&B, MLflow, a notebook and others "
    "(docs/foreign-formats.md), text as it is or compressed. Of an unknown tool, three lines at "
    "least must name a step and a loss"
)
_LOG_SUFFIXES = {"", ".log", ".out", ".err", ".txt", ".gz", ".bz2", ".xz", ".jsonl"}
_JSON_LOGS = (".log.json", "scalars.json")
_EVENT_FOLDERS = {"tensorboard", "tb", "tb_logs", "tf_logs", "vis_data", "events", "runs", "logs"}
_MOST_FILES = 2000
_LFS = b"version https://git-lfs.github.com/spec/"
_LINES_AT_BEGIN = 20_000


def is_foreign(path: Path) -> bool:
    """Whether this is for `read_foreign`: any file, and a directory of logs that is no run."""
    if path.is_dir():
        return not RunDirectory(path).exists() and (
            bool(tensorboard.event_files(path))
            or bool(formats.stores_in(path))
            or next(_known_logs(path), None) is not None
        )
    return path.is_file()


def read_log(path: Path, options: Options | None = None, watched: Sequence[Path] = ()) -> Facts:
    """`watched` are records of tools that watched the machines meanwhile."""
    if not watched and is_counters(path):
        raise UserError(
            f"{path} says how busy a machine was, not what it trained",
            f"give it with the log: paceline report LOG {path}",
        )
    run = read_foreign(path)
    for file in watched:
        run.counters += counters_of(file)
    return as_facts(run, options or Options())


def is_counters(path: Path) -> bool:
    return path.is_file() and not is_event_file(path) and reader_of_counters(path) is not None


def read_foreign(path: Path) -> ForeignRun:
    """What the log says, as plain data. A log of no known tool is a mistake of the user's."""
    if not path.exists():
        raise UserError(f"{path} does not exist", _READABLE)
    run = _read_directory(path) if path.is_dir() else _read_file(path)
    if run is None:
        _refuse_pointers(path)
        raise UserError(f"{path} holds nothing that can be reported", _READABLE)
    if path.is_dir():
        run.counters += counters_in(path)
    if run.path != path and path.is_dir():
        run.notes.append(f"read from {run.path}")
    return run


def _refuse_pointers(path: Path) -> None:
    """A repository cloned without Git LFS holds a few lines in place of each large file."""
    files = [path] if path.is_file() else (f for f in path.rglob("*") if f.is_file())
    pointer = next((file for file in islice(files, _MOST_FILES) if _is_lfs_pointer(file)), None)
    if pointer is not None:
        raise UserError(
            f"{pointer} is only a pointer of Git LFS: the file itself was not fetched",
            "in that repository: git lfs pull",
        )


def _is_lfs_pointer(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_LFS)) == _LFS
    except OSError:
        return False


def _read_directory(path: Path) -> ForeignRun | None:
    """Event files, stores and the text logs beside them are of one run."""
    gathering, logs = Gathering(), dict(_known_logs(path))
    stores = formats.stores_in(path)
    events = tensorboard.event_files(path)
    pointers = [file for file in events if _is_lfs_pointer(file)]
    has_events = len(events) > len(pointers)
    only_seen: dict[Path, int] = {}
    for run in tensorboard.read(path, only_seen) if has_events else _read_stores(stores):
        near = [file for file in logs if is_beside(file, run.path, path)]
        for file in near:
            if found := one_run(_read_with(file, logs.pop(file))):
                run = beside(run, found)  # noqa: PLW2901
        gathering.add(run)
    for file, read in _worth_reading(logs, only_seen).items():
        if found := one_run(_read_with(file, read)):
            gathering.add(found)
    for place, step in only_seen.items():
        gathering.add_seen(place, step)
    chosen = gathering.finish()
    if chosen is not None and pointers:
        files = count_of(len(pointers), "event file")
        chosen.notes.append(f"not read: {files}, only pointers of Git LFS; `git lfs pull` fetches")
    if has_events and chosen is not None and len(stores) == 1:
        return _with_store(chosen, stores[0])
    return chosen


def _read_stores(stores: list[tuple[Path, formats.Store]]) -> Iterator[ForeignRun]:
    for place, read in stores:
        yield from read(place)


def _with_store(run: ForeignRun, store: tuple[Path, formats.Store]) -> ForeignRun:
    """Event files have clocks, a store has the rest, where both are of one run."""
    held = one_run(_read_stores([store]))
    return beside(run, held) if held is not None and held.step == run.step else run


def _worth_reading(
    logs: dict[Path, formats.Reader], only_seen: dict[Path, int]
) -> dict[Path, formats.Reader]:
    """Of very many the longest, with the files of its other processes."""
    if not is_much(list(logs), len(logs)):
        return logs
    ends = {file: last_step_of_text(file, read) for file, read in logs.items()}
    kept = longest(ends)
    first = max(kept, key=lambda file: ends[file] or 0)
    kept |= {file for file in logs if is_named_after_rank(file, first)}
    only_seen |= {file: step or 0 for file, step in ends.items() if file not in kept}
    return {file: read for file, read in logs.items() if file in kept}


def is_beside(log: Path, run: Path, top: Path) -> bool:
    """In the folder of the event files, or above one that holds nothing but them."""
    folder = log.parent
    is_of_store = folder.parent == run and folder.name == "files"
    return (
        folder == run
        or is_of_store
        or (folder == run.parent and run != top and run.name in _EVENT_FOLDERS)
    )


def _read_file(path: Path) -> ForeignRun | None:
    _refuse_pointers(path)
    if is_event_file(path):
        return one_run(tensorboard.read(path))
    if store := formats.store_of(path):
        return one_run(store(path))
    if not looks_like_text(path):
        raise UserError(f"{path} is not a log that Paceline knows: it is not text", _READABLE)
    read = formats.reader_of(lambda: text_lines(path))
    if read is None and (failed := read_failed_start(path, text_lines(path))):
        return failed[0]
    if read is None:
        raise UserError(f"{path} is not a log that Paceline knows", _READABLE)
    return one_run(_read_with(path, read))


def _read_with(path: Path, read: formats.Reader) -> list[ForeignRun]:
    return read(path, text_lines(path))


def _may_be_log(file: Path) -> bool:
    """OpenMMLab writes the same as text and as JSON."""
    if file.name.endswith(_JSON_LOGS):
        return not file.with_suffix("").is_file()
    return file.suffix in _LOG_SUFFIXES


def _known_logs(directory: Path) -> Iterator[tuple[Path, formats.Reader]]:
    """Text logs below a directory, one per process perhaps; only their begin is looked at."""
    files = sorted(file for file in directory.rglob("*") if file.is_file())
    for file in files[:_MOST_FILES]:
        if _may_be_log(file) and looks_like_text(file):
            begin = list(islice(text_lines(file), _LINES_AT_BEGIN))
            read = formats.reader_of(partial(iter, begin))
            if read is not None:
                yield file, read
