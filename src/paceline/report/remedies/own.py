"""What would make a run of ours faster: settings, each as the command that changes it."""

from collections.abc import Iterator
from math import ceil
from typing import Any

from paceline.pace.job import Figure
from paceline.pace.predict import Range
from paceline.pace.remedies import (
    DILOCO_SHARE,
    OVERLAP_BUCKET_BYTES,
    Change,
    Situation,
    faster_compute,
    faster_link,
    in_16_bits,
    in_order_of_need,
    larger_batch,
    more_hosts,
    more_workers,
    rarer_exchange,
    rarer_saves,
)
from paceline.record.schema import CHECKPOINT, COMPUTE, INPUT, NETWORK
from paceline.report.commands import again, go_on
from paceline.report.facts.arithmetic import could_be_lighter
from paceline.report.facts.busyness import is_on_cuda
from paceline.report.facts.facts import Facts
from paceline.report.facts.learning import diverged
from paceline.report.facts.network import link_of
from paceline.report.facts.verdict import STRAGGLER
from paceline.report.remedies.offer import Idea
from paceline.report.remedies.situation import (
    TENSOR_CORES,
    cores_are_full,
    cores_of_others,
    ten_times_the_link,
    times_the_workers,
    without_others,
    without_straggler,
)
from paceline.report.roles.use import SERVER_COMPUTE, SERVER_LINK
from paceline.units import percent

_FULLER_DEVICE = Figure(1.2, 0.12, "assumed: kernels of twice the size on a device half idle")
_FELT = 0.02
"""Of the loop: what takes less is not looked into."""


def ideas(facts: Facts, now: Situation | None) -> Iterator[Idea]:
    """What held the run up comes first; nobody wants faster what has diverged."""
    if diverged(facts.learning):
        return
    word, shares = facts.verdict.word, facts.verdict.shares if now else {}
    if word in (SERVER_LINK, SERVER_COMPUTE):
        yield _more_servers(facts)
    if word == INPUT or shares.get(INPUT, 0.0) > _FELT:
        yield from _input(facts, now)
    if word == STRAGGLER and facts.verdict.straggler is not None:
        change = without_straggler(facts, facts.verdict.straggler)
        yield Idea("straggler", *repair(facts, change))
    if word == NETWORK or shares.get(NETWORK, 0.0) > _FELT:
        yield from _network(facts)
    if word == CHECKPOINT or shares.get(CHECKPOINT, 0.0) > _FELT:
        yield _fewer_saves(facts)
    if word == COMPUTE:
        yield from _compute(facts)


def _more_servers(facts: Facts) -> Idea:
    """The same gradients over one server more: each waits for a smaller part of them."""
    num = len(facts.roles.servers) if facts.roles is not None else 1
    saved = facts.verdict.share / (num + 1)
    low, middle, high = (1 / (1 - part * saved) for part in (0.6, 0.9, 1.0))
    how = (
        f"--roles ...,server={num + 1}; a larger batch, or strategy=all-reduce, which shares the "
        "links evenly, may do more"
    )
    gain = Range(middle, low, high)
    return Idea("servers", "one server more, each with a smaller shard", _as_it_is, how, gain=gain)


def _as_it_is(now: Situation) -> Situation:
    return now


def _input(facts: Facts, now: Situation | None) -> Iterator[Idea]:
    settings = facts.settings.get("input")
    if not isinstance(settings, dict) or "workers" not in settings:
        yield _faster_disk(facts)
    elif not cores_are_full(facts):
        have = max(int(facts.loader_workers or settings.get("workers") or 1), 1)
        want = max(ceil(have * times_the_workers(now)), have + 1)
        setting = f"input.workers={want}"
        change = more_workers(want / have)
        how = again(facts.run, setting)
        yield Idea("workers", "more workers that read ahead", change, how, setting)


def _faster_disk(facts: Facts) -> Idea:
    task = facts.settings.get("workload")
    how = f"paceline data {task} --from PATH --to DIR; then {again(facts.run, 'data=DIR')}"
    return Idea("disk", "the data on a disk of twice the speed", more_workers(2), how)


def repair(facts: Facts, change: Change) -> tuple[str, Change, str]:
    if facts.world.num_hosts == 1:
        what = "see what else runs on the host while it trains"
        return what, change, f"paceline watch {facts.run}"
    what = "compare the hosts and leave out or repair the slow one"
    return what, change, "paceline hosts check"


def _network(facts: Facts) -> Iterator[Idea]:
    """The same bytes move per step whatever its batch, so a larger one moves fewer per sample."""
    if larger := _larger_batch(facts):
        text = "a larger batch, so that gradients are exchanged less often"
        how = again(facts.run, larger)
        yield Idea("batch", text, larger_batch(2), how, larger, changes_result=True)
    yield from _other_reduce(facts)
    if (facts.world.num_hosts or 1) > 1:
        speed = ten_times_the_link(facts)
        how = "measure what there are with paceline hosts check"
        yield Idea("link", f"links of {speed}", faster_link(10), how)
        how = f"paceline train {facts.run}/recipe.yaml --run {facts.run}-2"
        yield Idea("one-host", "one host alone", more_hosts(1), how)


def _larger_batch(facts: Facts) -> str:
    batch: Any = facts.settings.get("batch") or {}
    name = "global" if batch.get("global") else "per_device"
    size = batch.get(name)
    return f"batch.{name}={2 * size}" if isinstance(size, int) else ""


def _other_reduce(facts: Facts) -> Iterator[Idea]:
    """Only of a recipe that knows the setting; what changes the least comes first."""
    section = facts.settings.get("reduce")
    if not isinstance(section, dict) or section.get("kind") != "plain":
        return
    for kind, text, change in _kinds(facts.verdict.word == NETWORK):
        if kind == "overlap" and is_on_cuda(facts):  # written for processors
            continue
        setting = f"reduce.kind={kind}"
        how = again(facts.run, setting)
        yield Idea(kind, text, change, how, setting, changes_result=kind != "overlap")


def _kinds(with_local_steps: bool) -> Iterator[tuple[str, str, Change]]:
    text = "gradients that travel on through the next forward pass"
    yield "overlap", text, in_order_of_need(OVERLAP_BUCKET_BYTES)
    yield "bf16", "gradients in 16 bits on the wire, with fewer digits", in_16_bits("bf16")
    if with_local_steps:
        learns = "which learns otherwise"
        yield "local", f"weights averaged every 8 steps, {learns}", rarer_exchange(8)
        text = f"weights exchanged in parts beside 8 steps, {learns}"
        yield "diloco", text, rarer_exchange(8, DILOCO_SHARE)


def _fewer_saves(facts: Facts) -> Idea:
    setting = f"checkpoint.every_steps={10 * (facts.saving.every_steps or 100)}"
    how = go_on(facts.run, setting)
    return Idea("saves", "save a tenth as often", rarer_saves(10), how, setting)


def _compute(facts: Facts) -> Iterator[Idea]:
    if other := cores_of_others(facts):
        text = (
            f"other programs used {percent(other)} of the cores: stop them, or train on a machine "
            "of its own"
        )
        yield Idea("alone", text, without_others(facts))
    elif could_be_lighter(facts):
        yield _lower_precision(facts)
    else:
        yield _more_hosts(facts)


def _lower_precision(facts: Facts) -> Idea:
    setting = "precision=auto"
    change = faster_compute(TENSOR_CORES)
    return Idea("precision", "lower precision", change, again(facts.run, setting), setting)


def busier_ideas(facts: Facts, _now: Situation | None) -> Iterator[Idea]:
    """Of a device that computes far below its peak."""
    micro = (facts.settings.get("batch") or {}).get("micro")
    if could_be_lighter(facts):
        yield _lower_precision(facts)
    elif is_on_cuda(facts) and isinstance(micro, int):
        setting = f"batch.micro={2 * micro}"
        change = faster_compute(_FULLER_DEVICE)
        yield Idea("micro", "larger micro-batches", change, again(facts.run, setting), setting)


def _more_hosts(facts: Facts) -> Idea:
    hosts = 2 * (facts.world.num_hosts or 1)
    like = "these" if hosts > 2 else "this one"
    speed = "" if link_of(facts) else " with links of 1 Gbit/s"
    how = again(facts.run, "--hosts hosts.yaml")
    return Idea("hosts", f"{hosts} hosts like {like}{speed}", more_hosts(hosts), how)
