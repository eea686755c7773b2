"""A report as an object: a notebook shows it as a page, a terminal as text."""

import html
from pathlib import Path

from paceline.record.writer import write_file
from paceline.report.facts.facts import Options
from paceline.report.report import Report, open_report
from paceline.units import parse_link_speed

_HEIGHT = 720


class ReportView:
    """`print` it, leave it as the last line of a notebook's cell, or `save` it."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def text(self) -> str:
        return self._report.text()

    def html(self) -> str:
        """A whole page, with nothing to load."""
        return self._report.html()

    def markdown(self) -> str:
        return self._report.markdown()

    def json(self) -> str:
        return self._report.json()

    def save(self, path: str | Path) -> Path:
        """As the ending says: .html, .md, .json, else plain text."""
        forms = {".html": self.html, ".md": self.markdown, ".json": self.json}
        target = Path(path)
        write_file(target, forms.get(target.suffix, self.text)())
        return target

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """In a frame of its own, so that its style and the notebook's do not meet."""
        page = html.escape(self.html(), quote=True)
        return (
            f'<iframe srcdoc="{page}" title="Paceline report" sandbox="" '
            f'style="width:100%;height:{_HEIGHT}px;border:1px solid #8884"></iframe>'
        )


def open_view(runs: list[Path], link: str | None = None, price: float | None = None) -> ReportView:
    speed = parse_link_speed(link) if link else None
    return ReportView(open_report(runs, Options(speed, price)))
