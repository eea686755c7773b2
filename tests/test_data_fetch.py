"""Downloads against a real web server on this machine, one that can be made to misbehave."""

import fcntl
import hashlib
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from paceline.data.fetch import Source, fetch
from paceline.errors import UserError

CONTENT = bytes(range(256)) * 4_000  # about 1 MB, so that it takes several reads
CHECKSUM = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Site:
    """What the server has, how it behaves, and what it was asked for."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=lambda: {"/big.tar": CONTENT})
    redirects: dict[str, str] = field(default_factory=dict)
    cut_after_bytes: list[int] = field(default_factory=list)  # one per answer, then no more cuts
    always_cut_after_bytes: int | None = None
    ignores_ranges: bool = False
    ranges_asked_for: list[str | None] = field(default_factory=list)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    site: Site


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        site = self.server.site
        site.ranges_asked_for.append(self.headers["Range"])
        if self.path in site.redirects:
            self.send_response(302)
            self.send_header("Location", site.redirects[self.path])
            self.end_headers()
        elif self.path not in site.files:
            self.send_error(404)
        else:
            self.send_file(site, site.files[self.path])

    def send_file(self, site: Site, content: bytes) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
        start = int(asked[1]) if asked and not site.ignores_ranges else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = site.cut_after_bytes.pop(0) if site.cut_after_bytes else site.always_cut_after_bytes
        self.wfile.write(content[start:][:cut])

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("PACELINE_MIRROR", raising=False)
    server = Server(("127.0.0.1", 0), Handler)
    server.site = Site(address=f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.site
    server.shutdown()
    thread.join()
    server.server_close()


def source_at(*urls: str, checksum: str = CHECKSUM, size_bytes: int | None = None) -> Source:
    return Source("big.tar", urls, checksum, size_bytes)


def source_on(site: Site, checksum: str = CHECKSUM, size_bytes: int | None = None) -> Source:
    return source_at(f"{site.address}/big.tar", checksum=checksum, size_bytes=size_bytes)


def nowhere() -> str:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/big.tar"


def ignore(_: str) -> None:
    """For messages that a test does not look at."""


def test_a_file_is_downloaded_and_nothing_else_is_left(site: Site, tmp_path: Path) -> None:
    path = fetch(source_on(site, size_bytes=len(CONTENT)), tmp_path / "new" / "place", ignore)
    assert path.read_bytes() == CONTENT
    assert [file.name for file in path.parent.iterdir()] == ["big.tar"]


def test_a_file_checked_by_md5_is_as_good(site: Site, tmp_path: Path) -> None:
    md5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
    assert fetch(source_on(site, checksum=f"md5:{md5}"), tmp_path, ignore).exists()


def test_a_file_that_is_there_and_right_is_not_asked_for_again(site: Site, tmp_path: Path) -> None:
    for _ in range(2):
        fetch(source_on(site), tmp_path, ignore)
    assert len(site.ranges_asked_for) == 1


def test_a_file_that_is_there_but_wrong_is_replaced(site: Site, tmp_path: Path) -> None:
    (tmp_path / "big.tar").write_bytes(b"something else")
    said: list[str] = []
    assert fetch(source_on(site), tmp_path, said.append).read_bytes() == CONTENT
    assert "checksum differs" in said[0]


def test_a_connection_that_is_cut_goes_on_where_it_was(site: Site, tmp_path: Path) -> None:
    site.cut_after_bytes = [300_000, 400_000]
    assert fetch(source_on(site), tmp_path, ignore).read_bytes() == CONTENT
    assert site.ranges_asked_for == [None, "bytes=300000-", "bytes=700000-"]


def test_what_an_earlier_process_got_is_not_downloaded_again(site: Site, tmp_path: Path) -> None:
    (tmp_path / "big.tar.part").write_bytes(CONTENT[:500_000])
    assert fetch(source_on(site), tmp_path, ignore).read_bytes() == CONTENT
    assert site.ranges_asked_for == ["bytes=500000-"]


def test_a_server_that_ignores_ranges_gives_the_right_file_too(site: Site, tmp_path: Path) -> None:
    site.ignores_ranges = True
    site.cut_after_bytes = [300_000]
    (tmp_path / "big.tar.part").write_bytes(CONTENT[:100_000])
    assert fetch(source_on(site), tmp_path, ignore).read_bytes() == CONTENT


@pytest.mark.parametrize("size_bytes", [None, len(CONTENT)])
def test_a_download_that_was_complete_but_not_renamed_is_taken(
    site: Site, tmp_path: Path, size_bytes: int | None
) -> None:
    (tmp_path / "big.tar.part").write_bytes(CONTENT)
    assert fetch(source_on(site, size_bytes=size_bytes), tmp_path, ignore).read_bytes() == CONTENT


@pytest.mark.parametrize("stale", [b"x" * 1000, b"x" * len(CONTENT), CONTENT + b"more"])
def test_a_stale_part_of_another_file_does_no_harm(
    site: Site, tmp_path: Path, stale: bytes
) -> None:
    (tmp_path / "big.tar.part").write_bytes(stale)
    source = source_on(site, size_bytes=len(CONTENT))
    assert fetch(source, tmp_path, ignore).read_bytes() == CONTENT


def test_the_next_mirror_is_tried_when_one_is_gone(site: Site, tmp_path: Path) -> None:
    good = f"{site.address}/big.tar"
    source = source_at(nowhere(), f"{site.address}/gone.tar", good)
    said: list[str] = []
    assert fetch(source, tmp_path, said.append).read_bytes() == CONTENT
    assert [("404" in line, "refused" in line) for line in said] == [(False, True), (True, False)]


def test_when_every_mirror_is_gone_each_is_named_with_its_reason(
    site: Site, tmp_path: Path
) -> None:
    silent, gone = nowhere(), f"{site.address}/gone.tar"
    with pytest.raises(UserError) as caught:
        fetch(source_at(silent, gone), tmp_path, ignore)
    assert re.search(re.escape(silent) + ".*refused", caught.value.what)
    assert re.search(re.escape(gone) + ".*404", caught.value.what)
    assert "--from" in caught.value.fix
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_checksum_is_named_and_nothing_is_kept(site: Site, tmp_path: Path) -> None:
    wrong = "sha256:" + "0" * 64
    with pytest.raises(UserError) as caught:
        fetch(source_on(site, checksum=wrong), tmp_path, ignore)
    assert f"expected {wrong}, found {CHECKSUM}" in caught.value.what
    assert list(tmp_path.iterdir()) == []


def test_a_mirror_with_wrong_bytes_does_not_stop_the_next_one(site: Site, tmp_path: Path) -> None:
    site.files["/bad/big.tar"] = b"x" * len(CONTENT)
    source = source_at(f"{site.address}/bad/big.tar", f"{site.address}/big.tar")
    assert fetch(source, tmp_path, ignore).read_bytes() == CONTENT


def test_a_login_page_in_place_of_the_file_is_noticed_by_its_size(
    site: Site, tmp_path: Path
) -> None:
    site.files["/big.tar"] = b"<html>please log in</html>"
    with pytest.raises(UserError, match="has 26 bytes where 1,024,000 should be"):
        fetch(source_on(site, size_bytes=len(CONTENT)), tmp_path, ignore)


def test_a_server_that_always_cuts_is_given_up_and_the_rest_can_follow_later(
    site: Site, tmp_path: Path
) -> None:
    site.cut_after_bytes = [300_000]
    site.always_cut_after_bytes = 0
    with pytest.raises(UserError, match=r"ended after 300,000 of 1,024,000") as caught:
        fetch(source_on(site), tmp_path, ignore)
    assert "goes on from the 300.0 kB" in caught.value.fix
    site.always_cut_after_bytes = None
    assert fetch(source_on(site), tmp_path, ignore).read_bytes() == CONTENT


def test_a_full_disk_is_named(site: Site, tmp_path: Path) -> None:
    (tmp_path / "big.tar.part").symlink_to("/dev/full")
    with pytest.raises(UserError, match="no space left") as caught:
        fetch(source_on(site), tmp_path, ignore)
    assert str(tmp_path) in caught.value.what


def test_a_file_that_cannot_fit_is_refused_before_it_is_downloaded(
    site: Site, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="free"):
        fetch(source_on(site, size_bytes=10**18), tmp_path, ignore)
    assert site.ranges_asked_for == []


def test_a_directory_that_cannot_be_made_is_named(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot write to"):
        fetch(source_on(site), tmp_path / "file" / "deeper", ignore)


def test_two_downloads_of_one_file_do_not_spoil_each_other(site: Site, tmp_path: Path) -> None:
    with (tmp_path / "big.tar.part").open("ab") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        with pytest.raises(UserError, match=r"another process is downloading big\.tar"):
            fetch(source_on(site), tmp_path, ignore)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/big.tar", "big.tar"])
def test_only_web_addresses_are_opened(tmp_path: Path, url: str) -> None:
    with pytest.raises(UserError, match="not a web address"):
        fetch(source_at(url), tmp_path, ignore)


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/big.tar", "file:///etc/hostname"])
def test_no_redirection_leads_away_from_the_web(site: Site, tmp_path: Path, target: str) -> None:
    site.redirects["/big.tar"] = target
    with pytest.raises(UserError, match=r"cannot download big\.tar"):
        fetch(source_on(site), tmp_path, ignore)


def test_a_redirection_within_the_web_is_followed(site: Site, tmp_path: Path) -> None:
    site.redirects["/old.tar"] = f"{site.address}/big.tar"
    source = source_at(f"{site.address}/old.tar")
    assert fetch(source, tmp_path, ignore).read_bytes() == CONTENT


def test_a_mirror_of_ones_own_is_asked_in_place_of_all_others(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_MIRROR", f"{site.address}/")
    assert fetch(source_at(nowhere()), tmp_path, ignore).read_bytes() == CONTENT
    monkeypatch.setenv("PACELINE_MIRROR", f"{site.address}/empty/")
    with pytest.raises(UserError, match="404"):
        fetch(source_on(site), tmp_path / "other", ignore)
