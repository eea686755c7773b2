"""Verbs that read a run directory."""

import argparse
from pathlib import Path

from paceline.arguments import Verbs, say
from paceline.cli.report_output import ReportOutput, add_output_options, print_json_schema

_FORMS = {"html": "html", "md": "markdown", "json": "json"}
"""Options that write files, and which form of the report each writes."""


def add_readers(verbs: Verbs) -> None:
    report = verbs.add_parser("report", help="where the time went, and what came of it")
    report.add_argument(
        "runs",
        nargs="*",
        type=Path,
        metavar="run",
        help="a run directory; several to compare them; or the log of another tool",
    )
    report.add_argument("--lines", type=int, help="only the first lines")
    for form in _FORMS:
        report.add_argument(
            f"--{form}",
            nargs="?",
            type=Path,
            const=Path(),
            metavar="FILE",
            help=f"write it as a file (default: report.{form} in the run; - prints it)",
        )
    report.add_argument("--link", help="speed of the hosts' links, like 1Gbit")
    report.add_argument("--price", type=float, help="price of a host for an hour")
    add_output_options(report)
    report.set_defaults(call=report_run)
    log = verbs.add_parser("log", help="the curves of a run as a table")
    log.add_argument("run", type=Path)
    log.add_argument("--csv", action="store_true", help="comma separated values (the default)")
    log.set_defaults(call=log_run)
    checkpoint = verbs.add_parser("checkpoint", help="what a checkpoint holds")
    checkpoint.add_argument("run", type=Path)
    checkpoint.add_argument("--checkpoint", default="newest", metavar="newest|best|STEP")
    checkpoint.set_defaults(call=checkpoint_run)


def report_run(arguments: argparse.Namespace) -> int:
    from paceline.errors import UserError
    from paceline.report.facts.facts import Options
    from paceline.report.report import open_report
    from paceline.units import parse_link_speed

    asked = {form: getattr(arguments, form) for form in _FORMS}
    # `report --html runs/a` means the run, not a file of that name.
    mistaken = {
        form: path for form, path in asked.items() if path != Path() and path and path.is_dir()
    }
    runs = [*arguments.runs, *mistaken.values()]
    if arguments.json_schema:
        return print_json_schema()
    if not runs:
        raise UserError("no run is named", "paceline report runs/a")
    files = {f: Path() if f in mistaken else path for f, path in asked.items() if path is not None}
    output = ReportOutput(runs, arguments)
    if output.is_asked and not files:
        return output.send(is_printed=False)
    link = parse_link_speed(arguments.link) if arguments.link else None
    report = open_report(runs, Options(link, arguments.price))
    for form, path in files.items():
        content = getattr(report, _FORMS[form])()
        told = output.with_check(content) if form == "json" else content
        write_form(told, path, Path(f"{report.stem}.{form}"))
    if not files:
        print("\n".join(report.text().splitlines()[: arguments.lines]))
    return output.send(is_printed=Path("-") in files.values())


def write_form(content: str, path: Path, usual: Path) -> None:
    from paceline.errors import UserError
    from paceline.record.writer import write_file

    if path == Path("-"):
        print(content, end="")
        return
    target = usual if path == Path() else path
    try:
        write_file(target, content)
    except OSError as error:
        raise UserError(
            f"cannot write {target}: {error.strerror}", "name another file after the option"
        ) from error
    say(f"wrote {target}")


def log_run(arguments: argparse.Namespace) -> int:
    import io

    from paceline.report.render.csv import write_csv
    from paceline.terminal import printable

    table = io.StringIO()  # names of scores come from events
    write_csv(arguments.run, table)
    print(printable(table.getvalue()), end="")
    return 0


def checkpoint_run(arguments: argparse.Namespace) -> int:
    from paceline.record.checkpoints import choose
    from paceline.record.directory import require_run
    from paceline.report.render.checkpoint import render

    require_run(arguments.run)
    print(render(choose(arguments.run, arguments.checkpoint, say)))
    return 0
