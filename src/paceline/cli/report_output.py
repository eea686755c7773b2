"""Where a report goes besides the terminal and files of its own form: options of `report`."""

import argparse
from pathlib import Path

from paceline.arguments import say


def add_output_options(report: argparse.ArgumentParser) -> None:
    report.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write the run as a trace for Perfetto or chrome://tracing (.json, or .json.gz)",
    )


def is_output_asked(arguments: argparse.Namespace) -> bool:
    return arguments.trace is not None


def send_report(runs: list[Path], arguments: argparse.Namespace) -> int:
    """Everything that was asked for of these options; the exit code."""
    if arguments.trace is not None:
        _write_trace(runs, arguments.trace)
    return 0


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
