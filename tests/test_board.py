"""The page of a run: what its server says and to whom, and the page itself in a real browser."""

import http.client
import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil
import pytest

from paceline.board.server import Board, thinned
from paceline.record.palette import PHASE_COLOURS
from paceline.watch.live import open_run
from tests.browser import find_browser, open_browser
from tests.conftest import CommandLine
from tests.growing_run import GrowingRun

SENT_AS_MARKUP = "<img src=x onerror=document.title=1>"


@contextmanager
def served(path: Path) -> Iterator[Board]:
    with Board(open_run(path), with_tensorboard=False) as board:
        thread = threading.Thread(target=board.serve)
        thread.start()
        try:
            yield board
        finally:
            board.stop()
            thread.join()


def ask(
    board: Board, path: str, method: str = "GET", host: str | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", board.port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{board.port}")
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def data(board: Board, known: str = "", since: int = 0) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(ask(board, f"/data?server={known}&since={since}")[1])
    return told


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[GrowingRun]:
    run = GrowingRun(tmp_path / "run")
    run.hold_lock()
    run.begin()
    run.steps(3)
    run.probe()
    yield run
    run.close()


def test_a_page_is_sent_only_what_it_lacks(growing: GrowingRun) -> None:
    with served(growing.path) as board:
        first = data(board)
        assert [r["kind"] for r in first["records"]] == ["probe", "cut", "steps", "steps", "steps"]
        assert first["now"]["state"] == "running"
        growing.steps(1)
        time.sleep(0.4)
        more = data(board, first["server"], first["upto"])
        assert [r["step"] for r in more["records"]] == [8]
        assert more["from"] == first["upto"]
        # A page of another server, or from the future, begins anew.
        assert data(board, "other", 3)["from"] == 0
        assert data(board, first["server"], 10**9)["from"] == 0


def test_a_diverged_run_is_sent_as_json_that_browsers_read(growing: GrowingRun) -> None:
    growing.ranks[0].write(
        "steps",
        step=8,
        num_steps=2,
        loss=float("nan"),
        rate=float("inf"),
        num_units=64,
        seconds=1.0,
        phases={"compute": 1.0},
    )
    with served(growing.path) as board:
        text = ask(board, "/data")[1].decode()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert json.loads(text)["records"][-1]["loss"] is None


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/page.py",
        "/server.py",
        "/data/../recipe.yaml",
        "/recipe.yaml",
        "/..\\..\\etc\\passwd",
    ],
)
def test_no_request_reaches_a_file(growing: GrowingRun, path: str) -> None:
    with served(growing.path) as board:
        response, body = ask(board, path)
    assert response.status == 404
    assert b"root:" not in body


def test_only_a_loopback_name_is_answered(growing: GrowingRun) -> None:
    with served(growing.path) as board:
        for host in ("evil.example", f"evil.example:{board.port}", "127.0.0.1", "127.0.0.1:1"):
            response, body = ask(board, "/data", host=host)
            assert response.status == 403
            assert b"records" not in body
        assert ask(board, "/", host=f"localhost:{board.port}")[0].status == 200


def test_only_this_machine_is_answered(growing: GrowingRun) -> None:
    with served(growing.path) as board:
        listening = [c for c in psutil.Process().net_connections() if c.status == "LISTEN"]
        assert {c.laddr.ip for c in listening if c.laddr.port == board.port} == {"127.0.0.1"}


def test_nothing_can_be_written_and_pages_may_not_embed_others(growing: GrowingRun) -> None:
    with served(growing.path) as board:
        assert ask(board, "/data", "POST")[0].status == 501
        response, body = ask(board, "/", "HEAD")
    assert (response.status, body) == (200, b"")
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_page_gets_the_colours_of_phases_that_the_report_has(growing: GrowingRun) -> None:
    with served(growing.path) as board:
        page = ask(board, "/")[1].decode()
        response, sheet = ask(board, "/phases.css")
        own = ask(board, "/page.css")[1].decode()
    assert 'href="phases.css"' in page
    assert response.getheader("Content-Type") == "text/css; charset=utf-8"
    assert f"--compute:{PHASE_COLOURS['compute'].light};" in sheet.decode()
    assert "--compute" not in own


def test_a_very_long_run_is_thinned_for_the_page() -> None:
    records: list[dict[str, Any]] = [{"kind": "steps", "step": step} for step in range(1000)]
    records += [{"kind": "score", "step": 5}]
    kept = thinned(records, 100)
    assert len(kept) == 101
    assert kept[-1]["kind"] == "score"


def test_a_port_that_is_taken_is_explained(paceline: CommandLine, growing: GrowingRun) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = paceline("board", str(growing.path), "--no-browser", "--port", port)
    assert result.returncode == 2
    assert f"cannot serve on port {port}" in result.stderr


def test_tensorboard_runs_beside_it_and_ends_with_it(
    paceline: CommandLine, finished_run: Path
) -> None:
    command = paceline.command("board", str(finished_run), "--no-browser")
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    port = int(process.stdout.readline().strip().removeprefix("http://127.0.0.1:").strip("/"))
    link, deadline = None, time.monotonic() + 90
    while link is None and time.monotonic() < deadline:
        link = json.loads(get(port, "/data"))["now"]["tensorboard"]
        time.sleep(0.2)
    assert link == "/tensorboard/"  # below the page's own address: one port, one tunnel
    use_tensorboard(port)
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    process.stdout.close()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def use_tensorboard(port: int) -> None:
    """Its page, its curves (which it asks for with POST), and who may not ask."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/tensorboard/")
    page = connection.getresponse()
    assert b"TensorBoard" in page.read()
    policies = page.headers.get_all("Content-Security-Policy")
    assert "frame-ancestors 'self'; form-action 'none'" in (policies or [])
    runs = json.loads(get(port, "/tensorboard/data/runs"))
    tags = json.loads(get(port, "/tensorboard/data/plugin/scalars/tags"))
    tag = next(iter(tags[runs[0]]))
    path = "/tensorboard/data/plugin/scalars/scalars_multirun"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    body = urlencode({"tag": tag, "runs": runs[0]})
    assert len(json.loads(post(port, path, body, form)[1])[runs[0]]) > 0
    assert post(port, path, body, {**form, "Origin": f"http://127.0.0.1:{port}"})[0] == 200
    assert post(port, path, body, {**form, "Origin": "http://evil.example"})[0] == 403
    assert post(port, path, body, {**form, "Host": "evil.example"})[0] == 403
    assert post(port, path, "", {**form, "Content-Length": str(1 << 21)})[0] == 413


def post(port: int, path: str, body: str, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", path, body, headers)
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    return response.status, answer


def test_a_tensorboard_that_is_not_there_is_said_to_be_so(growing: GrowingRun) -> None:
    with served(growing.path) as board:
        response, body = ask(board, "/tensorboard/")
        assert ask(board, "/tensorboard/../data")[0].status == 404
    assert response.status == 503
    assert b"does not answer (yet)" in body


def get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


def test_the_page_in_a_browser(growing: GrowingRun) -> None:
    path = find_browser()
    if path is None:
        pytest.skip("no browser here; `make test-cluster` installs one")
    use_the_page(path, growing)


def use_the_page(browser_path: str, growing: GrowingRun) -> None:
    """What a user does with it, at the width of a desk and of a phone."""
    growing.steps(20)
    growing.score(0.25)
    growing.warn(SENT_AS_MARKUP)
    problems: list[str] = []
    with open_browser(browser_path) as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        with served(growing.path) as board:
            page.goto(board.address)
            page.wait_for_selector("#ranks .rank")
            see_the_run(page)
            see_it_grow(page, growing)
            zoom(page)
            page.set_viewport_size({"width": 390, "height": 800})
            page.wait_for_timeout(200)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            assert page.evaluate("document.getElementById('hosts').scrollWidth") <= 390
            assert not problems, problems
        page.wait_for_selector("#trouble:not([hidden])")
        assert "Not up to date" in page.inner_text("#trouble")


def see_the_run(page: Any) -> None:
    assert page.inner_text("#state") == "running"
    assert "step 46 of 100 (46.0 %), 27.0 s left" in page.inner_text("#where")
    assert page.locator("#ranks .rank").count() == 2
    assert "node0" in page.inner_text("#hosts")
    assert "Tesla T4" in page.inner_text("#hosts")
    assert SENT_AS_MARKUP in page.inner_text("#warnings")  # as text, and not as markup
    assert page.locator("#warnings img").count() == 0
    titles = page.eval_on_selector_all("canvas", "all => all.map(one => one.dataset.title)")
    assert titles[:3] == ["Loss", "Score", "Where the time goes"]
    # Something is drawn: a chart's picture has more than one colour.
    colours = page.evaluate(
        """() => [...document.querySelectorAll("canvas")].slice(0, 9).map(one => new Set(
            new Uint32Array(
                one.getContext("2d").getImageData(0, 0, one.width, one.height).data.buffer
            )
        ).size)"""
    )
    assert min(colours) > 3, dict(zip(titles, colours, strict=False))


def see_it_grow(page: Any, growing: GrowingRun) -> None:
    page.evaluate("window.not_loaded_again = true")
    growing.steps(2)
    growing.warn("and another")
    page.locator("#where", has_text="step 50 of").wait_for()
    assert page.evaluate("window.not_loaded_again")
    assert "and another" in page.inner_text("#warnings")


def zoom(page: Any) -> None:
    loss = page.locator("canvas[data-title='Loss']")
    box = loss.bounding_box()
    shown = [float(loss.get_attribute(f"data-{end}")) for end in ("from", "to")]
    assert shown == [2, 50]
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.5, middle)
    assert "step 2" in page.inner_text(".chart:has(canvas[data-title='Loss']) .tip")
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, middle, steps=4)
    page.mouse.up()
    for title in ("Loss", "Learning rate"):  # charts over steps are zoomed together
        chart = page.locator(f"canvas[data-title='{title}']")
        first, last = (float(chart.get_attribute(f"data-{end}")) for end in ("from", "to"))
        assert 20 < first < 30 < last < 42
    page.click("#reset")
    assert float(loss.get_attribute("data-from")) == 2
    assert page.locator("#reset").is_hidden()
