"""The verdict in words, with the remedy that this project offers as a command."""

from typing import Any

from paceline.record.schema import CHECKPOINT, COMPUTE, INPUT, NETWORK
from paceline.report.answer import QUESTIONS, Answer
from paceline.report.answers_machine import own_cpu_share, utilisation
from paceline.report.answers_training import diverged
from paceline.report.summary import Summary
from paceline.report.verdict import LEAST_SHARE, STRAGGLER, Straggler, Verdict
from paceline.report.wording import again, go_on, percent
from paceline.units import format_seconds

_MUCH_OTHER_LOAD = 0.3


def verdict(summary: Summary) -> Answer:
    found = summary.verdict
    figures: dict[str, Any] = {"verdict": found.word, "share": found.share, "shares": found.shares}
    if found.straggler is not None:
        figures["straggler"] = vars(found.straggler)
    return Answer(
        "verdict",
        QUESTIONS["verdict"],
        sentence(found),
        figures,
        f"a bottleneck is what would save at least {percent(LEAST_SHARE)} of the loop if it took "
        "no time; waiting for one late process is told apart from the network",
        f"a clearer picture: {found.why_unclear}" if found.word == "unclear" else "",
        remedy(summary),
    )


def sentence(found: Verdict) -> str:
    share, late = percent(found.share), found.straggler
    if found.word == INPUT:
        return f"Input: {share} of the loop is waiting for the next batch."
    if found.word == NETWORK:
        return f"Network: {share} of the loop is communication that compute did not hide."
    if found.word == CHECKPOINT:
        return f"Checkpoint: {share} of the loop is standing still for saves."
    if found.word == STRAGGLER and late is not None:
        return f"Straggler: {share} of the loop is lost to {_who(late)}."
    if found.word == COMPUTE:
        return (
            f"Compute: {share} of the loop is forward, backward and update; nothing else takes a "
            "quarter."
        )
    return f"Unclear: {found.why_unclear}."


def _who(late: Straggler) -> str:
    host = f" on {late.host}" if late.host else ""
    return (
        f"rank {late.rank}{host}: the others wait {format_seconds(late.seconds_per_step)} a step "
        f"for it, and its extra time lies in {late.phase} "
        f"({format_seconds(late.extra_seconds)} a step more than the others)"
    )


def remedy(summary: Summary) -> str:
    """What this project offers against it, as a command."""
    offered = {
        INPUT: _faster_input,
        NETWORK: _less_traffic,
        CHECKPOINT: _fewer_saves,
        STRAGGLER: _find_the_cause,
        COMPUTE: _faster_compute,
    }
    offer = offered.get(summary.verdict.word)
    return offer(summary) if offer else ""


def _fewer_saves(summary: Summary) -> str:
    every = (summary.settings.get("checkpoint") or {}).get("every_steps") or 100
    return f"save less often: {go_on(summary.run, f'checkpoint.every_steps={10 * every}')}"


def _find_the_cause(summary: Summary) -> str:
    if summary.num_hosts == 1:
        return f"see what else runs on the host while it trains: paceline watch {summary.run}"
    return "compare the hosts and leave out or repair the slow one: paceline hosts check"


def _faster_input(summary: Summary) -> str:
    settings = summary.settings.get("input")
    if isinstance(settings, dict) and "workers" in settings:
        now = summary.facts.get("loader_workers") or settings.get("workers") or 2
        more = again(summary.run, f"input.workers={max(2 * int(now), 2)}")
        return f"more workers that decode ahead: {more}"
    workload = summary.settings.get("workload")
    return (
        "put the data on a faster disk: "
        f"paceline data {workload} --from PATH --to DIR, then {again(summary.run, 'data=DIR')}"
    )


def _less_traffic(summary: Summary) -> str:
    """The same bytes move per step whatever its batch, so a larger one moves fewer per sample."""
    batch = summary.settings.get("batch") or {}
    name = "global" if batch.get("global") else "per_device"
    size = batch.get(name)
    larger = f"batch.{name}={2 * size}" if isinstance(size, int) else "batch.global=..."
    return (
        f"more work per exchange: {again(summary.run, larger)}; "
        "measure the links: paceline hosts check"
    )


def _faster_compute(summary: Summary) -> str:
    if diverged(summary):
        return ""  # nobody wants that faster
    busy, own = utilisation(summary), own_cpu_share(summary)
    if own is not None and busy[1] == "cores" and busy[0] - own > _MUCH_OTHER_LOAD:
        return f"other programs took {percent(busy[0] - own)} of the cores: give it its own machine"
    on_cuda = str(summary.facts.get("device", "")).startswith("cuda")
    if on_cuda and summary.settings.get("precision") == "fp32":
        return f"lighter arithmetic: {again(summary.run, 'precision=bf16')}"
    return f"more machines: {again(summary.run, '--hosts hosts.yaml')}"
