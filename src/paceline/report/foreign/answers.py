"""The answers of a report, as far as another tool's log can give them; in the report's order.

Judgement only: functions of a `ForeignRun`. What cannot be answered says what is missing and what
would supply it.
"""

from pathlib import Path
from typing import Any

from paceline.report.answer import QUESTIONS, Answer
from paceline.report.foreign import answer_network, answer_time, answer_training
from paceline.report.foreign.answer_training import doubtful_first
from paceline.report.foreign.imagenet import NUM_TRAINING_PICTURES
from paceline.report.foreign.read import read_foreign
from paceline.report.foreign.ring import network_share
from paceline.report.foreign.run import ForeignRun
from paceline.report.wording import percent
from paceline.units import count_of, format_bytes, format_count, format_seconds

_ADAM_BYTES = 12
"""Per parameter: the weight and Adam's two averages, 4 bytes each."""


def answers_of_foreign(
    path: Path, link: float | None = None, price_per_hour: float | None = None
) -> list[Answer]:
    """`link` in bits per second between hosts, `price_per_hour` of one host."""
    return answers(read_foreign(path, link, price_per_hour))


def answers(run: ForeignRun) -> list[Answer]:
    return [
        answer_time.duration(run),
        answer_training.trained(run),
        answer_training.overfitting(run),
        _busy(run),
        answer_network.network(run),
        answer_time.input_wait(run),
        answer_network.verdict(run),
        answer_training.rate(run),
        _data(run),
        _checkpoint(run),
        answer_time.step(run),
        answer_network.traffic(run),
        _cost(run),
    ]


def headline(run: ForeignRun) -> list[str]:
    """What the log is of, in a line or two, and what a reader of it should know."""
    what = [f"{run.path}: {run.tool}, step {run.step:,}"]
    if run.steps_wanted:
        what[0] += f" of {run.steps_wanted:,}"
    if run.began:
        what[0] += f", begun {run.began}"
    facts = []
    if run.world:
        hosts = (
            f" on {count_of(len(run.hosts), 'host')} ({', '.join(run.hosts)})" if run.hosts else ""
        )
        facts.append(f"{count_of(run.world, 'process')}{hosts}")
    if run.devices:
        facts.append(" and ".join(run.devices))
    if run.num_parameters:
        facts.append(f"{format_count(run.num_parameters)} parameters")
    if run.global_batch:
        facts.append(f"batch {run.global_batch:,} ({run.batch_how})")
    return [*what, *([", ".join(facts)] if facts else []), *(f"note: {note}" for note in run.notes)]


def _busy(run: ForeignRun) -> Answer:
    question = QUESTIONS["busy"]
    missing = (
        "utilisation: run `nvidia-smi --query-gpu=utilization.gpu,power.draw --format=csv -l 5` "
        "beside it, or `paceline train`, which probes every host"
    )
    figures: dict[str, Any] = {}
    waiting = {"input": run.step_times.input_share, "the network": network_share(run)}
    known = {name: share for name, share in waiting.items() if share is not None and share >= 0.05}
    if not known:
        sentence = "The log does not tell."
    else:
        name, share = max(known.items(), key=lambda item: item[1])
        figures["most_busy_share"] = max(0.0, 1 - share)
        sentence = (
            f"At most {percent(max(0.0, 1 - share))} of a step with computing: "
            f"{percent(min(share, 1.0))} goes to waiting for {name}, whatever a utilisation meter "
            "shows."
        )
    if run.cpu_seconds and run.wall_seconds:
        cores = run.cpu_seconds / run.wall_seconds
        figures["main_process_cores"] = cores
        sentence += f" The main process itself kept {cores:.2f} of a core busy."
    return Answer("busy", question, sentence, figures, missing=missing)


def _data(run: ForeignRun) -> Answer:
    question = QUESTIONS["data"]
    figures: dict[str, Any] = {}
    sentences = []
    files = _training_files(run)
    if files:
        figures["files"] = files
        sentences.append(f"The configuration names {' and '.join(files)}.")
    if run.steps_per_epoch:
        figures["steps_per_epoch"] = run.steps_per_epoch
        text = f"An epoch is {run.steps_per_epoch:,} batches"
        if run.global_batch and not files:
            figures |= {"num_pictures": NUM_TRAINING_PICTURES, "global_batch": run.global_batch}
            text += (
                f", which fits the {NUM_TRAINING_PICTURES:,} pictures of ILSVRC 2012 in batches of "
                f"{run.global_batch:,} and no other size"
            )
        sentences.append(f"{text}.")
    if run.global_batch and run.step:
        figures["num_samples_seen"] = run.global_batch * run.step
        seen = format_count(run.global_batch * run.step)
        sentences.append(f"{seen} samples were drawn in {run.step:,} steps.")
    return Answer(
        "data",
        question,
        " ".join(sentences) or "The log does not tell.",
        figures,
        how=run.batch_how,
        missing="bytes, lines or pictures, tokens: look at the files; "
        "`paceline data` writes a card with them",
    )


def _training_files(run: ForeignRun) -> list[str]:
    given = run.config.get("data_layer_params")
    if not isinstance(given, dict):
        return []
    names = ("source_file", "target_file", "dataset_files", "dataset_path", "data_dir")
    return [str(given[name]) for name in names if given.get(name)]


def _checkpoint(run: ForeignRun) -> Answer:
    question = QUESTIONS["checkpoint"]
    figures: dict[str, Any] = {}
    sentences = []
    remedy = ""
    if run.num_parameters and "adam" in str(run.config.get("optimizer", "")).lower():
        size = _ADAM_BYTES * run.num_parameters
        figures["predicted_bytes"] = size
        sentences.append(
            f"With Adam's two averages a checkpoint holds {_ADAM_BYTES} bytes for each of "
            f"{format_count(run.num_parameters)} parameters, about {format_bytes(size)}."
        )
    every = run.config.get("save_checkpoint_steps")
    if isinstance(every, int):
        figures["every_steps"] = every
        sentences.append(f"It was set to save every {every:,} steps.")
        if every > (run.steps_wanted or run.step):
            sentences[-1] = (
                f"It was set to save every {every:,} steps, which is more than the whole run has, "
                "so besides a best one kept at evaluations a crash loses everything."
            )
            remedy = "save more often (`save_checkpoint_steps`; here `checkpoint.every_steps=1000`)"
    return Answer(
        "checkpoint",
        question,
        " ".join(sentences) or "The log does not tell.",
        figures,
        missing="the files themselves, and how long a save held the steps up; "
        "`paceline checkpoint RUN` lists them file by file",
        remedy=remedy,
    )


def _cost(run: ForeignRun) -> Answer:
    question = QUESTIONS["cost"]
    wall = run.wall_seconds or run.step_times.total_seconds + (run.start_up_seconds or 0.0)
    num_hosts = max(len(run.hosts), 1)
    host_hours = num_hosts * wall / 3600
    figures: dict[str, Any] = {"num_hosts": num_hosts, "host_hours": host_hours}
    hosts = count_of(num_hosts, "host") + ("" if run.hosts else ", if it was one")
    if not wall:
        return Answer("cost", question, "The log holds no times.", missing="how long it took")
    if not run.price_per_hour:
        return Answer(
            "cost",
            question,
            f"{host_hours:,.1f} host-hours ({hosts}).",
            figures,
            missing="the price of a host-hour: give it, e.g. `--price 3.06`",
        )
    cost = host_hours * run.price_per_hour
    figures |= {"price_per_hour": run.price_per_hour, "cost": cost}
    sentence = f"{cost:,.2f} for {host_hours:,.1f} host-hours ({hosts})"
    name, curve = next(iter(run.scores.items()), ("", None))
    if curve and curve.last and curve.last[1] > 0 and not doubtful_first(curve.points, run):
        figures["cost_per_point"] = cost / curve.last[1]
        sentence += f", {cost / curve.last[1]:,.2f} for each point of {name}"
    how = f"{format_seconds(wall)} at {run.price_per_hour:g} an hour for each host"
    return Answer("cost", question, sentence + ".", figures, how=how)
