"""`paceline run --json`: the report for programs, which read something in any case."""

from pathlib import Path


def write_run_json(run: Path, target: Path) -> None:
    from paceline.cli.read import write_form
    from paceline.report.facts.facts import Options
    from paceline.report.report import open_report

    report = open_report([run], Options())
    write_form(report.json(), target, Path(f"{report.stem}.json"))


def write_no_run(code: int, text: str, target: Path) -> None:
    """Of a script that never trained."""
    from paceline.cli.read import write_form
    from paceline.report.render.json import render_no_run

    write_form(render_no_run(code, text), target, Path("report.json"))
