"""Tar archives from strangers: read in one pass, and refused if a member would reach outside.

Nothing is extracted by a member's name. Knows nothing of any data set. Compression is told by the
contents, never by the file's name.
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
    for member in tar:
        if reason := _reason_to_refuse(member):
            raise _unsafe(member, reason, str(tar.name))
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


def _reason_to_refuse(member: tarfile.TarInfo) -> str | None:
    """Members are only read, so none could do harm; an archive that means harm is not used."""
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        return "it is a device or another special file"
    if reason := _reason_against(member.name):
        return f"its path {reason}"
    if member.issym() or member.islnk():
        base = posixpath.dirname(member.name) if member.issym() else ""
        if reason := _reason_against(posixpath.join(base, member.linkname)):
            return f"it is a link to '{member.linkname}', which {reason}"
    return None


def _reason_against(path: str) -> str | None:
    if path.startswith("/"):
        return "is absolute"
    if posixpath.normpath(path).split("/")[0] == "..":
        return "leads out of the archive"
    return None


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


def _unsafe(member: tarfile.TarInfo, reason: str, archive: str) -> UserError:
    return UserError(
        f"{archive} is not safe: member '{member.name}': {reason}",
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
