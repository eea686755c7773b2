"""Tar archives from strangers: read or extracted only if every member stays where it belongs.

Knows nothing of any data set. Compression is told by the contents, never by the file's name.
"""

import bz2
import gzip
import io
import lzma
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from paceline.data.places import writing_to
from paceline.errors import UserError

_CHUNK_BYTES = 1 << 20
_COMPRESSED: dict[bytes, Callable[[IO[bytes]], io.BufferedIOBase]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}


@contextmanager
def open_archive(path: Path) -> Iterator[tarfile.TarFile]:
    """An open archive; damage met while reading it is a UserError that names the file."""
    with _open_file(path) as file:
        try:
            with tarfile.open(fileobj=file, mode="r:*") as tar:
                yield tar
        except tarfile.ReadError as error:
            raise _unreadable(path, error) from error
        except (EOFError, zlib.error, lzma.LZMAError) as error:
            raise _damaged(path, error) from error
        except OSError as error:
            # gzip and bz2 report bad data as an OSError without a number; with one it is the disk's
            if error.errno is not None:
                raise
            raise _damaged(path, error) from error


def members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members in order, each checked before it is handed out; the first bad one ends it."""
    links: set[str] = set()
    for member in tar:
        _refuse_if_unsafe(member, links, str(tar.name))
        yield member
    _require_end(tar)


def read_files(
    path: Path, wanted: Callable[[tarfile.TarInfo], bool]
) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the plain files asked for, in one pass, without touching the disk.

    `wanted` sees a member's size, and should look at it: contents are held in memory.
    """
    with open_archive(path) as tar:
        for member in members(tar):
            if member.isfile() and wanted(member):
                file = tar.extractfile(member)
                if file is not None:
                    yield member.name, file.read()


def extract(path: Path, to: Path) -> list[Path]:
    """All of the archive under `to`; the plain files that it holds are returned."""
    extracted = []
    with open_archive(path) as tar, writing_to(to):
        to.mkdir(parents=True, exist_ok=True)
        # ignored by Python 3.11.0 to 3.11.3, which lack it: the checks here do not depend on it
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        for member in members(tar):
            _extract_one(tar, member, to, path)
            if member.isfile():
                extracted.append(to / member.name)
    return extracted


def _extract_one(tar: tarfile.TarFile, member: tarfile.TarInfo, to: Path, path: Path) -> None:
    try:
        tar.extract(member, to)
    except tarfile.ReadError:
        raise
    except tarfile.TarError as error:
        raise _unsafe(member, str(error), str(path)) from error


def _refuse_if_unsafe(member: tarfile.TarInfo, links: set[str], archive: str | None) -> None:
    reason = _reason_to_refuse(member, links)
    if reason is not None:
        raise _unsafe(member, reason, archive)
    if member.issym() or member.islnk():
        links.add(posixpath.normpath(member.name))


def _reason_to_refuse(member: tarfile.TarInfo, links: set[str]) -> str | None:
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        return "it is a device or another special file"
    if reason := _reason_against_name(member.name, links):
        return reason
    if member.issym():
        target = posixpath.join(posixpath.dirname(member.name), member.linkname)
        return _reason_against_target(member.linkname, target, links)
    if member.islnk():
        return _reason_against_target(member.linkname, member.linkname, links)
    return None


def _reason_against_name(name: str, links: set[str]) -> str | None:
    if name.startswith("/"):
        return "its path is absolute"
    if ".." in name.split("/"):
        return "its path contains '..'"
    if _passes_through(name, links):
        return "its path leads through a link of the same archive"
    return None


def _reason_against_target(linkname: str, target: str, links: set[str]) -> str | None:
    """Links through links could leave step by step what each of them alone stays in."""
    if linkname.startswith("/") or posixpath.normpath(target).split("/")[0] == "..":
        return f"it is a link to '{linkname}', outside of the archive"
    if _passes_through(target, links):
        return f"it is a link to '{linkname}', through another link"
    return None


def _passes_through(name: str, links: set[str]) -> bool:
    parts = name.split("/")
    return any(posixpath.normpath("/".join(parts[: i + 1])) in links for i in range(len(parts)))


def _require_end(tar: tarfile.TarFile) -> None:
    """tarfile takes a damaged header for the end, and never looks at the checksum after it."""
    if tar.fileobj is not None:
        while chunk := tar.fileobj.read(_CHUNK_BYTES):
            if chunk.strip(b"\0"):
                raise tarfile.ReadError("unexpected end: there is more data after the last member")


def _open_file(path: Path) -> IO[bytes]:
    if not path.is_file():
        raise UserError(f"there is no archive {path}", "check the path")
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", "check its permissions") from error


def _unsafe(member: tarfile.TarInfo, reason: str, archive: str | None) -> UserError:
    return UserError(
        f"{archive} is not safe to extract: member '{member.name}': {reason}",
        "do not use this archive; get it again from a source that you trust",
    )


def _unreadable(path: Path, error: Exception) -> UserError:
    """tarfile has one exception for a file that is no archive and for a damaged one."""
    if tarfile.is_tarfile(path) or not _decompresses(path):
        return _damaged(path, error)
    return UserError(
        f"{path} is not a tar archive (plain, gzip, bzip2 or xz)",
        "name the archive as it was downloaded; if this is it, download it again",
    )


def _decompresses(path: Path) -> bool:
    """Whether the beginning comes out well, of what says that it is compressed.

    Two megabytes of it, for bzip2 hands out wrong bytes first and checks a block at its end.
    """
    with path.open("rb") as file:
        start = file.read(6)
        file.seek(0)
        for magic, opened in _COMPRESSED.items():
            if start.startswith(magic):
                try:
                    return bool(opened(file).read(2 * _CHUNK_BYTES))
                except (OSError, EOFError, zlib.error, lzma.LZMAError):
                    return False
    return True


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(
        f"{path} is damaged or was not downloaded to its end ({error})",
        "remove it and download it again",
    )
