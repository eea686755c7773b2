"""What each kind of `reduce` does to the result: same samples, same seeds, two processes.

    python -m benchmarks.reduce_curves nmt --data DIR --runs runs/curves
    python -m benchmarks.reduce_curves cifar10 --data DIR --kinds plain,diloco+reduce.bits=16

Trains a small network with each kind (a run that was stopped goes on) and prints a table of
validation scores by step; `--svg FILE` draws the losses. Data: Multi30k with 4,000 pieces
(`paceline data nmt --from multi30k --vocab 4000`), CIFAR-10. Two to five minutes of two cores each.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from paceline.report.render.svg import HEIGHT, WIDTH, Axis, Line, line_plot

TASKS = {
    "nmt": [
        *("nmt-small", "model.size=tiny", "model.vocab_size=4000", "model.residual_dropout=0.1"),
        *("batch.global=4096", "batch.micro=2048", "steps=800"),
        *("schedule.rate=0.00424", "schedule.warmup_steps=100"),
        *("evaluate.every_steps=200", "checkpoint.every_steps=200"),
    ],
    "cifar10": [
        *("cifar10-tiny", "steps=1000", "evaluate.every_steps=200", "checkpoint.every_steps=200"),
    ],
}
SCORES = {"nmt": "bleu", "cifar10": "top1"}
COLOURS = ("#0b84d8", "#d1495b", "#2a9d5c", "#b26e00", "#8a63d2", "#00929e", "#888888")
KINDS = {
    "plain": [],
    "overlap": ["reduce=overlap"],
    "bf16": ["reduce=bf16"],
    "powersgd": ["reduce=powersgd"],
    "topk": ["reduce=topk"],
    "local": ["reduce=local"],
    "diloco": ["reduce=diloco"],
}


def train(task: str, kind: str, data: Path, run: Path) -> None:
    name, *more = kind.split("+")
    words = [*TASKS[task], f"data={data.absolute()}", "log.every_steps=16", *KINDS[name], *more]
    command = [sys.executable, "-m", "paceline.cli", "train", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "--procs", "2", "--run", str(run)], check=True, env=environment)


def scores(run: Path, name: str) -> dict[int, float]:
    """Of validation data, by step."""
    events = read_events(RunDirectory(run).rank_events(0))
    found = [e for e in events if e["kind"] == "score" and e["split"] == "validation"]
    return {event["step"]: float(event["scores"][name]) for event in found}


def bytes_per_step(run: Path) -> float:
    lines = [e for e in read_events(RunDirectory(run).rank_events(0)) if e["kind"] == "steps"]
    return float(sum(e["reduced_bytes"] for e in lines) / sum(e["num_steps"] for e in lines))


def table(task: str, runs: dict[str, Path]) -> str:
    """Markdown: the losses by step, the last against plain's, and the task's own score."""
    losses = {kind: scores(run, "loss") for kind, run in runs.items()}
    steps = sorted(set.intersection(*(set(found) for found in losses.values())))
    name, whole = SCORES[task], bytes_per_step(runs["plain"])
    heads = ["kind", "bytes", *(f"loss at {step:,}" for step in steps), "against plain", name]
    rows = []
    for kind, run in runs.items():
        last, plain = losses[kind][steps[-1]], losses["plain"][steps[-1]]
        rows.append(
            [
                kind,
                f"1/{whole / bytes_per_step(run):.3g}",
                *(f"{losses[kind][step]:.4f}" for step in steps),
                f"{100 * (last / plain - 1):+.2f} %",
                f"{scores(run, name)[steps[-1]]:.4g}",
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])


def picture(task: str, runs: dict[str, Path]) -> str:
    """An SVG that stands for itself: with colours, and names at the right."""
    lines = []
    for number, (kind, run) in enumerate(runs.items()):
        points = sorted(scores(run, "loss").items())
        xs, ys = (np.array(values, dtype=np.float64) for values in zip(*points, strict=True))
        lines.append(Line(kind, xs, ys, number, has_dots=True))
    plot = line_plot("", Axis("step"), Axis("validation loss"), lines)
    body = plot[plot.index(">", plot.index("<svg")) + 1 : plot.index("</svg>")]
    names = "".join(
        f'<text x="{WIDTH}" y="{30 + 18 * line.colour}" fill="{COLOURS[line.colour]}">'
        f"{line.name}</text>"
        for line in lines
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 80} {HEIGHT}">'
        f"<title>{task}</title><style>{style()}</style>{body}{names}</svg>\n"
    )


def style() -> str:
    """Readable on white and on black alike."""
    colours = "".join(
        f".line.c{number}{{stroke:{colour}}}.dot.c{number}{{fill:{colour}}}"
        for number, colour in enumerate(COLOURS)
    )
    return (
        "text{font:12px sans-serif}.tick,.label{fill:#808080}"
        ".grid,.axis{stroke:#808080;stroke-opacity:.4}.line{fill:none;stroke-width:1.8}" + colours
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=list(TASKS))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/curves"))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--svg", type=Path)
    asked = parser.parse_args(arguments)
    runs = {kind: asked.runs / f"{asked.task}-{kind}" for kind in asked.kinds.split(",")}
    for kind, run in runs.items():
        train(asked.task, kind, asked.data, run)
    print(table(asked.task, runs))
    if asked.svg:
        asked.svg.write_text(picture(asked.task, runs), encoding="utf-8")


if __name__ == "__main__":
    main()
