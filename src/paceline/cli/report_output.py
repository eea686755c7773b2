"""Where a report goes besides the terminal and files of its own form: options of `report`."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import say

if TYPE_CHECKING:
    from paceline.report.slower import SlowerCheck


def add_output_options(report: argparse.ArgumentParser) -> None:
    report.add_argument(
        "--json-schema", action="store_true", help="print what --json holds, as a JSON Schema"
    )
    report.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write the run as a trace for Perfetto or chrome://tracing (.json, or .json.gz)",
    )
    report.add_argument(
        "--to",
        metavar="wandb|trackio|mlflow",
        help="send verdict, phases, network per host and the page to a run in that tracker",
    )
    report.add_argument(
        "--to-run",
        metavar="RUN",
        help="its run there: the id (wandb, mlflow) or PROJECT/NAME (trackio)",
    )
    report.add_argument(
        "--max-slower",
        metavar="5%",
        help="of two runs: exit with 1 if the second is slower by so much, beyond noise",
    )


def print_json_schema() -> int:
    from paceline.report.render.json import schema

    print(schema(), end="")
    return 0


class ReportOutput:
    """What was asked for by these options, for some runs."""

    def __init__(self, runs: list[Path], arguments: argparse.Namespace) -> None:
        self._runs, self._arguments = runs, arguments
        self._check = None if arguments.max_slower is None else _check_slower(runs, arguments)

    @property
    def is_asked(self) -> bool:
        asked = (self._check, self._arguments.trace, self._arguments.to)
        return any(one is not None for one in asked)

    def with_check(self, content: str) -> str:
        """The JSON form, with the outcome of --max-slower in it."""
        if self._check is None:
            return content
        from paceline.report.render.json import dump

        return dump({**json.loads(content), "max_slower": self._check.figures()})

    def send(self, is_printed: bool) -> int:
        """The exit code. Where a form of the report is printed, nothing else is on that stream."""
        from paceline.terminal import printable

        if self._arguments.trace is not None:
            _write_trace(self._runs, self._arguments.trace)
        if self._arguments.to is not None:
            _send_to_tracker(self._runs, self._arguments)
        if self._check is None:
            return 0
        (say if is_printed else print)(printable(self._check.sentence))
        return self._check.exit_code


def _write_trace(runs: list[Path], file: Path) -> None:
    from paceline.errors import UserError
    from paceline.report.foreign import is_foreign
    from paceline.report.trace.trace import write_trace
    from paceline.units import format_bytes, format_seconds, percent

    if len(runs) != 1 or is_foreign(runs[0]):
        raise UserError(
            "a trace is drawn of one run directory: the log of another tool does not say when each "
            "process did what",
            "paceline report runs/a --trace trace.json",
        )
    written = write_trace(runs[0], file)
    say(
        f"wrote {file} ({written.num_events:,} events, {format_bytes(written.num_bytes)}); open it "
        "at https://ui.perfetto.dev or chrome://tracing"
    )
    if written.share_drawn < 1:
        say(
            f"thinned: {percent(written.share_drawn)} of the log lines are drawn, those with the "
            "slowest steps among them"
        )
    for host, offset in written.offsets.items():
        ahead = offset.mean_seconds or 0.0
        if offset.uncertainty is None:
            say(f"the clock of {host} could not be compared: it shares no step with the first host")
        elif abs(ahead) >= 0.001:
            say(
                f"the clock of {host} was {format_seconds(abs(ahead))} "
                f"{'ahead' if ahead > 0 else 'behind'}: corrected"
            )


def _check_slower(runs: list[Path], arguments: argparse.Namespace) -> "SlowerCheck":
    from paceline.errors import UserError
    from paceline.report.report import read_facts
    from paceline.report.slower import check_slower, parse_share

    if len(runs) != 2:
        raise UserError(
            f"--max-slower compares two runs, {len(runs)} were given",
            "paceline report runs/before runs/after --max-slower 5%",
        )
    limit = parse_share(arguments.max_slower)
    base, now = (read_facts(run) for run in runs)
    return check_slower(base, now, limit)


def _send_to_tracker(runs: list[Path], arguments: argparse.Namespace) -> None:
    from paceline.errors import UserError
    from paceline.record.directory import require_run
    from paceline.report.own.run import read_run
    from paceline.report.render import html
    from paceline.report.tracked import tracked_values
    from paceline.terminal import printable
    from paceline.trackers.tracker import open_tracker

    if len(runs) != 1:
        raise UserError(
            "one run is sent to a tracker at a time", f"paceline report runs/a --to {arguments.to}"
        )
    require_run(runs[0])
    facts = read_run(runs[0])
    try:
        tracker = open_tracker(arguments.to, runs[0], arguments.to_run)
        tracker.add_report(tracked_values(facts), printable(html.render(facts)))
        tracker.close()
    except UserError:
        raise
    except Exception as error:  # whatever a tracker throws: it is not this program's
        raise UserError(
            f"{arguments.to} did not take the report: {error}",
            "check its settings, or try its offline mode first",
        ) from error
    say(f"sent the report to {arguments.to}: {tracker.place}")
