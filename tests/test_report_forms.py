"""The report as text, Markdown, JSON and one HTML file, from the command line as a user has it."""

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from benchmarks import report as benchmark

from paceline.record.schema import RunDirectory
from paceline.report.answers.answer import QUESTIONS
from paceline.report.own.run import read_run
from paceline.report.render.html import render
from paceline.report.render.svg import Axis, Line, line_plot, nice_ticks
from tests import stored_runs
from tests.conftest import CommandLine
from tests.stored_runs import SCENES


class Page(HTMLParser):
    """Checks that every element is closed, and collects what a reader would meet."""

    _VOID = ("meta", "br", "link", "img", "input", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []
        self.tooltips = 0
        self.feed(text)
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        self.tooltips += tag == "title" and "svg" in self.open
        if tag not in self._VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def plots_of(text: str) -> list[str]:
    return re.findall(r"<figcaption>(.*?)</figcaption>", text)


@pytest.mark.parametrize("name", SCENES)
def test_every_run_has_a_page_that_is_whole_and_needs_nothing_else(
    tmp_path: Path, name: str
) -> None:
    text = render(read_run(SCENES[name](tmp_path / "a").path))
    page = Page(text)
    assert page.links == [] and "url(" not in text and "@import" not in text
    assert "script" not in page.seen
    assert all(f'id="{key}"' in text for key in QUESTIONS if key != "verdict")


def test_the_page_has_all_plots_with_axes_and_tooltips(tmp_path: Path) -> None:
    text = render(read_run(stored_runs.plateaued(tmp_path / "a").path))
    assert plots_of(text) == [
        "Loss",
        "Score (top1)",
        "Learning rate",
        "How long steps took",
        "Phases over time",
        "Traffic of each host",
        "Utilisation of each host",
    ]
    assert Page(text).tooltips > 100
    assert text.count('class="tick"') > 50 and "receives (eth0)" in text


def test_names_from_outside_cannot_break_the_page(tmp_path: Path) -> None:
    run = stored_runs.three_steps(tmp_path / "<b>a & b")
    run.write(run.run.rank_events(0), "warning", step=1, text="<script>alert(1)</script>")
    text = render(read_run(run.path))
    assert "script" not in Page(text).seen and "&lt;script&gt;" in text


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (3, 3, [3]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
        (0, 300_000, [0, 100_000, 200_000, 300_000]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert nice_ticks(low, high) == pytest.approx(expected)


def test_values_that_are_no_numbers_are_left_out_of_a_plot() -> None:
    import numpy as np

    xs = np.array([1.0, 2.0, 3.0])
    plot = line_plot("t", Axis("x"), Axis("y"), [Line("a", xs, np.array([1.0, np.nan, np.inf]))])
    assert "nan" not in plot.lower() and "inf" not in plot and "<circle" in plot
    assert line_plot("t", Axis("x"), Axis("y"), [Line("a", xs, np.full(3, np.nan))]) == ""


@pytest.fixture
def two_runs(tmp_path: Path) -> Path:
    stored_runs.one_of_a_pair(tmp_path / "runs" / "one", 1)
    stored_runs.one_of_a_pair(tmp_path / "runs" / "two", 2)
    return tmp_path


def test_files_are_written_into_the_run_or_where_the_user_says(
    two_runs: Path, paceline: CommandLine
) -> None:
    result = paceline("report", "runs/one", "--html", "--md", "--json", "mine.json")
    assert result.returncode == 0 and result.stdout == ""
    assert "wrote runs/one/report.html" in result.stderr
    assert Page((two_runs / "runs/one/report.html").read_text()).seen
    assert "## 12. What did it cost?" in (two_runs / "runs/one/report.md").read_text()
    report = json.loads((two_runs / "mine.json").read_text())
    assert [answer["key"] for answer in report["answers"]] == list(QUESTIONS)
    assert report["verdict"] == "compute" and report["step"] == 400


def test_an_option_before_the_run_does_not_swallow_it(
    two_runs: Path, paceline: CommandLine
) -> None:
    assert paceline("report", "--html", "runs/one").returncode == 0
    assert (two_runs / "runs/one/report.html").is_file()


def test_a_dash_prints_the_form_itself(two_runs: Path, paceline: CommandLine) -> None:
    result = paceline("report", "runs/one", "--json", "-", "--price", "2", "--link", "1Gbit")
    cost = next(a for a in json.loads(result.stdout)["answers"] if a["key"] == "cost")
    assert cost["figures"]["price_per_hour"] == 2


def test_several_runs_are_compared_in_every_form(two_runs: Path, paceline: CommandLine) -> None:
    text = " ".join(paceline("report", "runs/one", "runs/two").stdout.split())
    assert "runs/two trained 1.42 times as many images a second as runs/one" in text
    result = paceline("report", "runs/one", "runs/two", "--html", "--md", "--json", "-")
    found = json.loads(result.stdout)["figures"]["against_first"][0]
    assert found["speed_up"] == pytest.approx(1.42, abs=0.01)
    assert Page((two_runs / "runs/two/comparison.html").read_text()).seen.count("table") == 1
    assert "| images/s |" in (two_runs / "runs/two/comparison.md").read_text()


def test_mistakes_are_answered_with_what_to_do(two_runs: Path, paceline: CommandLine) -> None:
    for words, said in (
        ((), "no run is named"),
        (("runs/absent",), "runs/absent is not a run directory"),
        (("runs/one", "--link", "fast"), "'fast' is not a link speed"),
        (("runs/one", "--html", "/proc/none/a.html"), "cannot write /proc/none/a.html"),
    ):
        result = paceline("report", *words)
        assert result.returncode == 2 and said in result.stderr, words
        assert "fix: " in result.stderr and "Traceback" not in result.stderr


def test_no_form_of_the_report_imports_torch(two_runs: Path) -> None:
    code = (
        "import sys; from paceline.cli import main\n"
        "try: main()\n"
        "finally: sys.stderr.write('TORCH' if 'torch' in sys.modules else 'free of it')"
    )
    for words in (["runs/one", "--html", "a.html", "--md", "-"], ["runs/one", "runs/two"]):
        result = subprocess.run(
            [sys.executable, "-c", code, "report", *words],
            capture_output=True,
            text=True,
            check=True,
            cwd=two_runs,
        )
        assert result.stderr.endswith("free of it")


def test_a_run_of_300_000_steps_and_16_ranks_opens_in_little_time_and_memory(
    tmp_path: Path,
) -> None:
    """Processor seconds, which other programs change little; 1.2 of them on a quiet machine."""
    size = benchmark.Size(300_000, 16, 4)
    run = RunDirectory(tmp_path / "long")
    benchmark.make_run(run.path, benchmark.Size(1000, 16, 4))
    benchmark.write_lines(run.launcher_events, benchmark.launcher_events(size))
    benchmark.write_lines(run.rank_events(0), benchmark.rank_events(0, size))
    for rank in range(1, 16):
        shutil.copy(run.rank_events(0), run.rank_events(rank))
    taken = benchmark.measure(run.path)
    shutil.rmtree(run.path)
    assert taken.cpu_seconds < 8 and taken.peak_bytes < 500e6
