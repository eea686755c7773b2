"""The page's server: its fixed files, one stream of records and metrics, to this machine only.

No request names a file, so none can name a wrong one. A request must call this server by a loopback
name, or else a foreign page could point a name of its own at 127.0.0.1 and read along (DNS
rebinding). Nothing can be changed through it: it answers GET and HEAD, and POST for TensorBoard,
which is passed on (`passing_on.py`).
"""

import http.client
import json
import math
import secrets
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

from paceline.board.metrics import CONTENT_TYPE, render_metrics
from paceline.board.passing_on import (
    MOST_SENT_BYTES,
    STRICTER_POLICY,
    is_from_here,
    is_tensorboards,
    pass_on,
)
from paceline.board.tensorboard import LOOPBACK, TensorBoard
from paceline.errors import UserError
from paceline.record.palette import phase_style_sheet
from paceline.record.schema import PHASES
from paceline.watch.live import RECENT_SECONDS, LiveRun

_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_LOCAL_NAMES = (LOOPBACK, "localhost")
_MOST_RECORDS = 20_000
_LEAST_SECONDS_BETWEEN_READS = 0.3
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Board:
    """One run, one page. A context manager: leaving it ends the server and TensorBoard."""

    def __init__(self, live: LiveRun, port: int = 0, with_tensorboard: bool = True) -> None:
        self._live = live
        self._reading = threading.Lock()
        self._read_at = 0.0
        self._with_tensorboard = with_tensorboard
        self._tensorboard: TensorBoard | None = None
        self.identity = secrets.token_hex(8)
        """A page that was opened before this server started has to begin anew."""
        try:
            self._server = _Server((LOOPBACK, port), self)
        except OSError as error:
            raise UserError(
                f"cannot serve on port {port}: {error.strerror}", "omit --port to get a free one"
            ) from error
        self.port: int = self._server.server_address[1]

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/"

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.server_close()
        if self._tensorboard is not None:
            self._tensorboard.stop()

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        self._server.shutdown()

    def data(self, known: str, since: int) -> dict[str, Any]:
        """What a page that has `since` records of the server `known` lacks."""
        with self._reading:
            self._read()
            live = self._live
            first = since if known == self.identity and 0 <= since <= len(live.records) else 0
            records = live.records[first:]
            return {
                "server": self.identity,
                "from": first,
                "upto": len(live.records),
                "records": records if first else thinned(records, _MOST_RECORDS),
                "now": self._now(),
            }

    def metrics(self) -> str:
        """For monitoring, in the OpenMetrics text format."""
        with self._reading:
            self._read()
            return render_metrics(self._live)

    def _read(self) -> None:
        """Many pages may look at once; the files are read once for all."""
        if time.monotonic() - self._read_at >= _LEAST_SECONDS_BETWEEN_READS:
            self._live.update()
            self._read_at = time.monotonic()
        if self._with_tensorboard and self._tensorboard is None:
            directory = self._live.run.tensorboard
            if directory.is_dir():
                self._tensorboard = TensorBoard(directory)

    @property
    def tensorboard_port(self) -> int | None:
        """Its own, on loopback; None unless it answers."""
        board = self._tensorboard
        return board.port if board is not None and board.address() else None

    def _now(self) -> dict[str, Any]:
        live = self._live
        since = live.last_time - RECENT_SECONDS
        slow = live.straggler()
        return {
            "run": live.run.path.name or str(live.run.path),
            "workload": str(live.settings.get("workload", "")),
            "state": live.state(),
            "going_on": live.is_going_on(),
            "attempt": live.attempt,
            "step": live.step,
            "total_steps": live.total_steps,
            "seconds_left": live.seconds_left(),
            "unit": str(live.facts.get("unit", "unit")),
            "best_by": str(live.facts.get("best_by", "")),
            "world_size": live.facts.get("world_size"),
            "phases": list(PHASES),
            "ranks": [
                {"rank": n, "host": rank.host, "step": rank.step, "phases": rank.phases(since)}
                for n, rank in sorted(live.ranks.items())
            ],
            "straggler": slow and {"rank": slow.rank, "phase": slow.phase, "share": slow.share},
            "hosts": [probe for _, probe in sorted(live.hosts.items())],
            "tensorboard": self._tensorboard and self._tensorboard.address(),
            "tensorboard_starting": self._tensorboard is not None,
        }


def thinned(records: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Every so-and-so-many-th of what is plenty (steps, probes); everything else."""
    plenty = ("steps", "probe")
    num_plenty = sum(record["kind"] in plenty for record in records)
    stride = max(1, -(-num_plenty // most))
    counts = dict.fromkeys(plenty, 0)
    kept = []
    for record in records:
        kind = record["kind"]
        if kind in counts:
            counts[kind] += 1
            if counts[kind] % stride:
                continue
        kept.append(record)
    return kept


def finite(value: Any) -> Any:
    """JSON as browsers read it has no NaN; a diverged run does."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list) else value


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], board: Board) -> None:
        super().__init__(address, _Handler)
        self.board = board


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "paceline"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_POST(self) -> None:
        if not is_tensorboards(urlsplit(self.path).path):
            self.send_error(HTTPStatus.NOT_IMPLEMENTED)
        elif not self._is_called_by_a_local_name() or not is_from_here(self.headers, self._names()):
            self._send(HTTPStatus.FORBIDDEN, b"not from this page\n", "text/plain")
        else:
            self._pass_on("POST")

    def _answer(self, with_body: bool) -> None:
        if not self._is_called_by_a_local_name():
            self._send(HTTPStatus.FORBIDDEN, b"ask for 127.0.0.1 by that name\n", "text/plain")
            return
        url = urlsplit(self.path)
        if is_tensorboards(url.path):
            self._pass_on("GET" if with_body else "HEAD")
        elif url.path == "/data":
            body = json.dumps(finite(self._data(url.query)), allow_nan=False).encode()
            self._send(HTTPStatus.OK, body if with_body else b"", "application/json")
        elif url.path == "/metrics":
            body = self.server.board.metrics().encode()
            self._send(HTTPStatus.OK, body if with_body else b"", CONTENT_TYPE)
        elif url.path == "/phases.css":
            body = phase_style_sheet().encode()
            self._send(HTTPStatus.OK, body if with_body else b"", "text/css; charset=utf-8")
        elif url.path in _FILES:
            name, kind = _FILES[url.path]
            body = (resources.files("paceline.board") / name).read_bytes()
            self._send(HTTPStatus.OK, body if with_body else b"", kind)
        else:
            self._send(HTTPStatus.NOT_FOUND, b"there is no such page\n", "text/plain")

    def _is_called_by_a_local_name(self) -> bool:
        return self.headers.get("Host", "").lower() in self._names()

    def _names(self) -> set[str]:
        return {f"{name}:{self.server.board.port}" for name in _LOCAL_NAMES}

    def _pass_on(self, method: str) -> None:
        port, told = self.server.board.tensorboard_port, self.headers.get("Content-Length", "0")
        num_bytes = int(told) if told.isdecimal() and len(told) < 10 else MOST_SENT_BYTES + 1
        if num_bytes > MOST_SENT_BYTES:
            self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, b"too much\n", "text/plain")
            return
        try:
            if port is None:
                raise ConnectionRefusedError
            sent = self.rfile.read(num_bytes)
            answer = pass_on(port, method, self.path, self.headers, sent)
        except (OSError, http.client.HTTPException):
            text = b"TensorBoard does not answer (yet); try again in a few seconds\n"
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, text, "text/plain")
            return
        self._send_all(answer.status, answer.headers, answer.body, STRICTER_POLICY)

    def _data(self, query: str) -> dict[str, Any]:
        asked = parse_qs(query)
        since = asked.get("since", ["0"])[0]
        number = int(since) if since.isdecimal() and len(since) < 18 else 0
        return self.server.board.data(asked.get("server", [""])[0], number)

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self._send_all(status, {"Content-Type": kind}, body)

    def _send_all(
        self, status: int, headers: dict[str, str], body: bytes, policy: str | None = None
    ) -> None:
        """Our headers hold unless the answer brings its own: TensorBoard has another policy."""
        own = {name.lower() for name in headers}
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        for name, value in _HEADERS.items():
            if name.lower() not in own:
                self.send_header(name, value)
        if policy is not None:
            self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: a page asks every second."""
