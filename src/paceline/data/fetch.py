"""Downloads: mirrors, resumption and checksums, with nothing but the standard library.

Files of several gigabytes over bad lines are the case in mind: a cut connection goes on where it
was cut, also in another process tomorrow. What is in the files is not known here.
"""

import fcntl
import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from paceline.data.places import require_space, writing_to
from paceline.data.progress import BYTES, Progress, Say
from paceline.errors import UserError
from paceline.files import move_into_place
from paceline.units import format_bytes

_CHUNK_BYTES = 1 << 18
_TIMEOUT_SECONDS = 30.0
_MOST_TRIES = 50
_MOST_IDLE_TRIES = 3
_PAUSE_SECONDS = 0.3


@dataclass(frozen=True)
class Source:
    """A file on the web that never changes."""

    file_name: str
    mirrors: tuple[str, ...]
    checksum: str  # "sha256:..." or "md5:..."
    size_bytes: int | None = None

    @property
    def algorithm(self) -> str:
        return self.checksum.partition(":")[0]


class _MirrorFailedError(Exception):
    """This mirror will not give the file; another one may."""


class _CutError(Exception):
    """The connection ended early; the same mirror may well go on."""


def fetch(source: Source, to: Path, say: Say) -> Path:
    """The file in directory `to`, downloaded unless it is there already, and always verified."""
    path = to / source.file_name
    if _is_right(path, source):
        return path
    with writing_to(to):
        to.mkdir(parents=True, exist_ok=True)
        with _open_part(path.with_name(path.name + ".part")) as part:
            # looked at again, for another process may have finished it just before the lock
            if not _is_right(path, source):
                _remove_wrong(path, say)
                _download(source, part, say)
                move_into_place(Path(part.name), path)
    return path


def _is_right(path: Path, source: Source) -> bool:
    return path.is_file() and checksum_of(path, source.algorithm) == source.checksum


def _remove_wrong(path: Path, say: Say) -> None:
    if path.is_file():
        say(f"{path} is not what it should be (checksum differs); getting it again")
        path.unlink()


def checksum_of(path: Path, algorithm: str) -> str:
    """In the form that `Source.checksum` has."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{digest.hexdigest()}"


def _difference(expected: str, found: str) -> str:
    return f"checksum differs: expected {expected}, found {found}"


@contextmanager
def _open_part(path: Path) -> Iterator[IO[bytes]]:
    """Locked, for two downloads into one file would spoil it; an empty one is not left behind."""
    with path.open("ab") as part:
        try:
            fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"another process is downloading {path.stem} into {path.parent}",
                "wait until it is done",
            ) from error
        try:
            yield part
        finally:
            if path.is_file() and path.stat().st_size == 0:
                path.unlink()


def _download(source: Source, part: IO[bytes], say: Say) -> None:
    failures = []
    directory = Path(part.name).parent
    if source.size_bytes is not None:
        require_space(directory, source.size_bytes - _size_of(part))
    for url in _urls_of(source):
        try:
            _download_from(url, source, part, say)
        except _MirrorFailedError as failure:
            failures.append(f"\n    {url}: {failure}")
            say(f"no luck with {url}: {failure}")
        else:
            return
    raise UserError(
        f"cannot download {source.file_name}:{''.join(failures)}",
        _fix_after(source, _size_of(part)),
    )


def _fix_after(source: Source, kept_bytes: int) -> str:
    again = "try again later"
    if kept_bytes:
        again += f" (it goes on from the {format_bytes(kept_bytes)} that are there)"
    return (
        f"check the network; {again}; set PACELINE_MIRROR to a web directory that has the file; "
        f"or bring {source.file_name} by hand and name its path with --from"
    )


def _urls_of(source: Source) -> tuple[str, ...]:
    """PACELINE_MIRROR stands in for all others: nobody who names one wants traffic elsewhere."""
    own = os.environ.get("PACELINE_MIRROR")
    urls = (f"{own.rstrip('/')}/{source.file_name}",) if own else source.mirrors
    for url in urls:
        if urlsplit(url).scheme not in ("http", "https"):
            raise UserError(f"'{url}' is not a web address", "use one with http:// or https://")
    return urls


def _download_from(url: str, source: Source, part: IO[bytes], say: Say) -> None:
    """Everything this mirror can do: go on, start over if what was there was wrong, give up."""
    resumed_bytes = _size_of(part)
    _read_to_the_end(url, source, part, say)
    found = checksum_of(Path(part.name), source.algorithm)
    if found != source.checksum and resumed_bytes:
        say(f"the {format_bytes(resumed_bytes)} there before were of no use; starting over")
        part.truncate(0)
        _read_to_the_end(url, source, part, say)
        found = checksum_of(Path(part.name), source.algorithm)
    if found != source.checksum:
        part.truncate(0)
        raise _MirrorFailedError(_difference(source.checksum, found))


def _read_to_the_end(url: str, source: Source, part: IO[bytes], say: Say) -> None:
    """A mirror that never answers is given up at once; one that stops midway is asked again."""
    num_idle_tries = 0
    with Progress(source.file_name, BYTES, source.size_bytes, say) as progress:
        for _ in range(_MOST_TRIES):
            before_bytes = _size_of(part)
            try:
                if before_bytes != source.size_bytes:
                    _read_once(url, source, part, progress)
                return
            except _CutError as cut:
                num_idle_tries = 0 if _size_of(part) > before_bytes else num_idle_tries + 1
                reason = str(cut)
                if num_idle_tries == _MOST_IDLE_TRIES:
                    break
                time.sleep(_PAUSE_SECONDS * (1 + num_idle_tries))
    raise _MirrorFailedError(reason)


def _read_once(url: str, source: Source, part: IO[bytes], progress: Progress) -> None:
    start_bytes = _size_of(part)
    with _open_url(url, start_bytes) as response:
        if response.status == 416:
            _settle_unsatisfiable(response, part)
            return
        if response.status == 200 and start_bytes:
            part.truncate(0)  # this server ignores ranges: it sends everything
            start_bytes = 0
        total_bytes = _announced_bytes(response, start_bytes, part)
        expected_bytes = source.size_bytes
        if None not in (total_bytes, expected_bytes) and total_bytes != expected_bytes:
            raise _MirrorFailedError(
                f"has {total_bytes:,} bytes where {expected_bytes:,} should be"
            )
        progress.total = total_bytes
        progress.start_at(start_bytes)
        _copy(response, part, progress)
    arrived_bytes = _size_of(part)
    if total_bytes is not None and arrived_bytes != total_bytes:
        raise _CutError(f"the connection ended after {arrived_bytes:,} of {total_bytes:,} bytes")


def _opener() -> urllib.request.OpenerDirector:
    """Made by hand, for the usual one would follow a redirection to ftp:// as well."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _open_url(url: str, start_bytes: int) -> Any:
    headers = {"User-Agent": "paceline", "Accept-Encoding": "identity"}
    if start_bytes:
        headers["Range"] = f"bytes={start_bytes}-"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 (scheme checked before)
    try:
        return _opener().open(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416 and start_bytes:
            return error
        error.close()
        what = f"the server answers {error.code} {error.reason}"
        if error.code >= 500 or error.code in (408, 429):
            raise _CutError(what) from error
        raise _MirrorFailedError(what) from error
    except (OSError, http.client.HTTPException) as error:
        what = str(getattr(error, "reason", "") or error or type(error).__name__)
        if start_bytes:
            raise _CutError(what) from error
        raise _MirrorFailedError(what) from error


def _settle_unsatisfiable(response: Any, part: IO[bytes]) -> None:
    """416: there is nothing after what we have, so we have all of it, or too much."""
    match = re.fullmatch(r"bytes \*/(\d+)", response.headers.get("Content-Range", ""))
    if match is None or int(match[1]) != _size_of(part):
        part.truncate(0)
        raise _CutError("what was there before is longer than the file; starting over")


def _announced_bytes(response: Any, start_bytes: int, part: IO[bytes]) -> int | None:
    if response.status == 206:
        match = re.match(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != start_bytes:
            part.truncate(0)
            raise _CutError("the server sends another part than it was asked for")
        return None if match[2] == "*" else int(match[2])
    length = response.headers.get("Content-Length")
    return int(length) if length and length.isdigit() else None


def _copy(response: Any, part: IO[bytes], progress: Progress) -> None:
    while True:
        try:
            chunk = response.read(_CHUNK_BYTES)
        except http.client.IncompleteRead as error:
            part.write(error.partial)
            raise _CutError("the connection was cut") from error
        except (OSError, http.client.HTTPException) as error:
            raise _CutError(str(error) or type(error).__name__) from error
        if not chunk:
            return
        part.write(chunk)
        progress.advance(len(chunk))


def _size_of(part: IO[bytes]) -> int:
    part.flush()
    return part.seek(0, os.SEEK_END)
