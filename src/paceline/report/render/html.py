"""The report as one HTML file that needs nothing else: readable offline, on paper, on a phone."""

import json
import math
import re
from html import escape

from paceline.record.schema import PHASE_MEANING, PHASES
from paceline.report.answers import answers
from paceline.report.answers.answer import Answer
from paceline.report.answers.words import commands_marked
from paceline.report.comparison import Comparison
from paceline.report.facts.facts import Facts
from paceline.report.facts.learning import series
from paceline.report.remedies.offer import with_gain
from paceline.report.render.curves import compared_loss, compared_scaling, compared_score, plots_of
from paceline.report.render.heading import heading
from paceline.report.render.style import page, phase_class
from paceline.report.roles.tables import role_plots, role_tables
from paceline.task_finder import scales_of
from paceline.units import count_of, format_count, format_score_value, format_seconds, plural


def render(facts: Facts) -> str:
    return _of_run(facts) if facts.is_own else _of_log(facts)


def _of_run(facts: Facts) -> str:
    found = answers(facts)
    title = escape(str(facts.run))
    parts = [
        f"<header><h1>{title}</h1><p class=soft>{escape(_subtitle(facts))}</p></header>",
        _tiles(facts),
        _verdict(found),
        _findings(facts),
        *(f"<p class=warning>{escape(text)}</p>" for text in facts.warnings[-5:]),
        "<h2>Curves</h2><div class=plots>"
        + "".join([*plots_of(facts), *role_plots(facts.roles)])
        + "</div>",
        _phases(facts),
        _roles(facts),
        _questions(found),
        _details(facts),
    ]
    return page(f"{title} - Paceline", "\n".join(parts))


def _of_log(facts: Facts) -> str:
    found, plots = answers(facts), plots_of(facts)
    title, *rest = (escape(text) for text in heading(facts))
    more = "".join(f"<p class=soft>{text}</p>" for text in rest)
    curves = "<h2>Curves</h2><div class=plots>" + "".join(plots) + "</div>" if plots else ""
    parts = [f"<header><h1>{title}</h1>{more}</header>", _verdict(found), curves, _questions(found)]
    return page(title, "\n".join(parts))


def render_comparison(compared: Comparison) -> str:
    head, *rows = compared.table
    cells = "".join(f"<th class=n>{escape(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr><td>{escape(row[0])}</td>"
        + "".join(f"<td class=n>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    opening = "".join(f"<p><b>{escape(text)}</b></p>" for text in compared.opening)
    told = "".join(f"<li>{escape(text)}</li>" for text in compared.sentences)
    title = " against ".join(compared.runs)
    plots = compared_loss(compared.curves) + compared_score(compared.curves)
    plots += compared_scaling(compared.scaling)
    return page(
        escape(title),
        f"<h1>{escape(title)}</h1><div class=verdict>{opening}</div>"
        f"<h2>Side by side</h2><div class=scroll><table><tr>{cells}</tr>{body}</table></div>"
        f"<h2>What explains it</h2><ul>{told}</ul>{_tracks(compared)}"
        f"<h2>Curves</h2><div class=plots>{plots}</div>",
    )


def _tracks(compared: Comparison) -> str:
    """A bar for each run: the time of 1,000 units, by phase."""
    totals = [sum(speed.seconds_per_1000_units.values()) for speed in compared.speeds]
    longest = max(filter(math.isfinite, totals), default=0.0)
    if not longest or not all(map(math.isfinite, totals)):
        return ""
    rows = "".join(
        f"<p class=soft>{escape(speed.run)}: {format_seconds(total)}</p><div class=track>"
        + "".join(
            f'<span class="{phase_class(phase)}" style="width:{100 * seconds / longest:.2f}%" '
            f'title="{phase}: {format_seconds(seconds)}"></span>'
            for phase, seconds in speed.seconds_per_1000_units.items()
        )
        + "</div>"
        for speed, total in zip(compared.speeds, totals, strict=True)
    )
    keys = "".join(
        f'<span class="key"><i class="{phase_class(phase)}"></i>{phase}</span>'
        for phase in compared.speeds[0].seconds_per_1000_units
    )
    unit = escape(plural(compared.speeds[0].unit))
    return f"<h2>Time of 1,000 {unit}, by phase</h2><div class=keys>{keys}</div>{rows}"


def _subtitle(facts: Facts) -> str:
    world = ""
    if facts.begin:
        size, hosts = facts.world.size or 1, facts.world.num_hosts or 1
        world = f", {count_of(size, 'process')} on {count_of(hosts, 'host')}"
    return f"{facts.settings.get('workload')}, {facts.reason} {facts.how_far}{world}"


def _tiles(facts: Facts) -> str:
    tiles = [("wall time", format_seconds(facts.wall_seconds))]
    times, best_by = facts.step_times, facts.learning.best_by
    if times is not None:
        tiles.append(("a step (median)", format_seconds(times.median_seconds)))
    if times is not None and times.units_per_second is not None:
        tiles.append((f"{plural(facts.unit)}/s", f"{times.units_per_second:,.0f}"))
    scores = series(facts.learning.scores, best_by)
    if len(scores):
        where = f"best {best_by}, step {scores.steps[scores.values.argmax()]:,.0f}"
        scale = scales_of(facts.settings.get("workload")).get(best_by)
        tiles.append((where, format_score_value(float(scores.values.max()), scale)))
    if facts.num_parameters:
        tiles.append(("parameters", format_count(facts.num_parameters)))
    tiles.append(("held up by", facts.verdict.word))
    inner = "".join(
        f"<div class=tile><b>{escape(value)}</b><span>{escape(name)}</span></div>"
        for name, value in tiles
    )
    return f"<div class=tiles>{inner}</div>"


def _findings(facts: Facts) -> str:
    if not facts.findings:
        return ""
    items = "".join(
        f"<li><b>{escape(one.what)}</b>{f' ({escape(one.place)})' if one.place else ''}: "
        f"{escape(one.evidence)}.<br>Change: {escape(with_gain(one))}</li>"
        for one in facts.findings
    )
    return f"<section><h2>Findings in the script</h2><ol>{items}</ol></section>"


def _verdict(found: list[Answer]) -> str:
    return "".join(
        f"<div class=verdict>{escape(answer.sentence)}{_remedy(answer)}</div>"
        for answer in found
        if answer.key == "verdict"
    )


def _remedy(answer: Answer) -> str:
    if not answer.remedy:
        return ""
    inner = "".join(
        f"<code>{escape(text)}</code>" if is_code else escape(text)
        for text, is_code in commands_marked(answer.remedy)
    )
    return f"<p class=remedy>Remedy: {inner}</p>"


def _phases(facts: Facts) -> str:
    total = sum(facts.phases.values())
    if not total:
        return "<p>No step was recorded yet.</p>"
    rows = "".join(
        _phase_row(name, seconds, seconds / total)
        for name in PHASES
        if (seconds := facts.phases.get(name, 0.0)) >= 0.0005 * total
    )
    return (
        "<h2>Where the time went</h2><div class=scroll><table><tr><th>phase</th>"
        "<th class=n>seconds</th><th class=n>share</th><th></th><th class=what>what it is</th></tr>"
        f"{rows}<tr><td>in all</td><td class=n>{total:,.1f}</td><td></td><td></td>"
        "<td class=what></td></tr></table></div>"
    )


def _roles(facts: Facts) -> str:
    if facts.roles is None:
        return ""
    tables = "".join(map(_table, role_tables(facts.roles)))
    return f"<h2>Chief, workers, servers</h2>{tables}"


def _table(rows: list[list[str]]) -> str:
    head, *body = rows
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in body
    )
    return f"<div class=scroll><table><tr>{cells}</tr>{lines}</table></div>"


def _phase_row(name: str, seconds: float, share: float) -> str:
    bar = f'<span class="bar {phase_class(name)}" style="width:{100 * share:.1f}%"></span>'
    return (
        f"<tr><td>{name}</td><td class=n>{seconds:,.1f}</td><td class=n>{100 * share:.1f} %</td>"
        f'<td class=bars>{bar}</td><td class="soft what">{escape(PHASE_MEANING[name])}</td></tr>'
    )


def _questions(found: list[Answer]) -> str:
    shown = [answer for answer in found if answer.key != "verdict"]
    inner = "".join(_question(number, answer) for number, answer in enumerate(shown, start=1))
    return f"<h2>Questions</h2><div class=questions>{inner}</div>"


def _question(number: int, answer: Answer) -> str:
    parts = [f"<h3>{number}. {escape(answer.question)}</h3><p>{_coded(answer.sentence)}</p>"]
    if answer.missing:
        parts.append(f"<p class=missing>Missing: {_coded(answer.missing)}</p>")
    parts.append(_remedy(answer))
    if answer.how:
        parts.append(f"<p class=small>Measured: {_coded(answer.how)}</p>")
    return f'<article id="{escape(answer.key)}">{"".join(parts)}</article>'


def _coded(text: str) -> str:
    """What stands in backquotes becomes code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _details(facts: Facts) -> str:
    blocks = [("The recipe", facts.settings), ("The environment", facts.environment)]
    return "".join(
        f"<details><summary>{name}</summary><pre>"
        f"{escape(json.dumps(content, indent=1, ensure_ascii=False, default=str))}</pre></details>"
        for name, content in blocks
        if content
    )
