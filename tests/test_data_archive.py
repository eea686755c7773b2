"""Archives that are damaged or mean harm, and the one kind of error that comes of them."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from paceline.data.archive import read_files
from paceline.errors import UserError


def file_member(name: str) -> tarfile.TarInfo:
    return tarfile.TarInfo(name)


def link_member(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = target
    return member


def special_member(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    return member


def write_tar(path: Path, *members: tarfile.TarInfo, content: bytes = b"harm") -> Path:
    """A harmless file first, then the members."""
    with tarfile.open(path, "w") as tar:
        for member in (file_member("good/a.txt"), *members):
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content))
    return path


def packed(tmp_path: Path, mode: str = "gz") -> Path:
    path = tmp_path / f"archive.{mode}"
    with tarfile.open(path, f"w:{mode}") as tar:  # type: ignore[call-overload]
        for number in range(3):
            member = file_member(f"data/{number}.bin")
            content = os.urandom(100_000)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def read_all(path: Path) -> dict[str, bytes]:
    return dict(read_files(path, lambda member: True))


@pytest.mark.parametrize("mode", ["", "gz", "bz2", "xz"])
def test_files_are_read_whatever_the_name_says(tmp_path: Path, mode: str) -> None:
    contents = read_all(packed(tmp_path, mode).rename(tmp_path / "nothing-in-a-name"))
    assert list(contents) == ["data/0.bin", "data/1.bin", "data/2.bin"]
    assert {len(content) for content in contents.values()} == {100_000}


def test_links_that_stay_inside_are_passed_over(tmp_path: Path) -> None:
    links = link_member("good/b.txt", "a.txt"), link_member("c", "good/a.txt", tarfile.LNKTYPE)
    assert read_all(write_tar(tmp_path / "a.tar", *links)) == {"good/a.txt": b"harm"}


HARMFUL = {
    "absolute path": [file_member("/tmp/paceline-harm")],  # noqa: S108 (never written)
    "path upwards": [file_member("../harm.txt")],
    "path upwards from the middle": [file_member("good/../../harm.txt")],
    "link to an absolute path": [link_member("good/link", "/etc/passwd")],
    "link upwards": [link_member("good/link", "../../harm.txt")],
    "hard link upwards": [link_member("link", "../harm.txt", tarfile.LNKTYPE)],
    "device": [special_member("good/null", tarfile.CHRTYPE)],
    "disk": [special_member("good/sda", tarfile.BLKTYPE)],
    "pipe": [special_member("good/pipe", tarfile.FIFOTYPE)],
}


@pytest.mark.parametrize("harm", HARMFUL)
def test_an_archive_that_reaches_outside_is_refused_and_the_member_named(
    tmp_path: Path, harm: str
) -> None:
    path = write_tar(tmp_path / "bad.tar", *HARMFUL[harm])
    culprit = HARMFUL[harm][-1].name
    with pytest.raises(UserError, match="not safe") as caught:
        read_all(path)
    assert f"'{culprit}'" in caught.value.what
    assert str(path) in caught.value.what


@pytest.mark.parametrize("mode", ["", "gz", "bz2", "xz"])
@pytest.mark.parametrize("kept_bytes", [100, 150_000, 290_000])
def test_a_truncated_archive_says_so_and_what_to_do(
    tmp_path: Path, mode: str, kept_bytes: int
) -> None:
    path = packed(tmp_path, mode)
    path.write_bytes(path.read_bytes()[:kept_bytes])
    with pytest.raises(UserError) as caught:
        read_all(path)
    assert str(path) in caught.value.what
    assert "download it again" in caught.value.fix


@pytest.mark.parametrize("mode", ["gz", "bz2", "xz"])
def test_even_the_last_bytes_of_a_compressed_archive_are_missed(tmp_path: Path, mode: str) -> None:
    path = packed(tmp_path, mode)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(UserError, match="damaged"):
        read_all(path)


@pytest.mark.parametrize("mode", ["gz", "bz2", "xz"])
def test_a_flipped_byte_is_noticed(tmp_path: Path, mode: str) -> None:
    path = packed(tmp_path, mode)
    content = bytearray(path.read_bytes())
    content[150_000] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(UserError, match="damaged"):
        read_all(path)


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path: Path) -> None:
    path = packed(tmp_path, "")
    content = bytearray(path.read_bytes())
    content[512 + 100_352 + 10] ^= 0xFF  # in the header of the second member
    path.write_bytes(content)
    with pytest.raises(UserError, match="damaged"):
        read_all(path)


@pytest.mark.parametrize("content", [b"", b"hello, world\n" * 1000, b"PK\x03\x04 a zip file"])
def test_what_is_no_archive_is_called_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "data.tar.gz"
    path.write_bytes(content)
    with pytest.raises(UserError, match="is not a tar archive"):
        read_all(path)


def test_an_archive_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no archive"):
        read_all(tmp_path / "missing.tar")
