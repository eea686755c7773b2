"""What would make an observed script faster, in the script's own terms."""

from collections.abc import Iterator
from math import ceil

from paceline.pace.remedies import (
    Situation,
    faster_compute,
    faster_link,
    in_16_bits,
    larger_batch,
    more_hosts,
    more_workers,
    rarer_saves,
)
from paceline.record.schema import CHECKPOINT, COMPUTE, INPUT, NETWORK
from paceline.report.facts.arithmetic import AUTOCAST, lighter_precision
from paceline.report.facts.facts import Facts
from paceline.report.facts.network import link_of
from paceline.report.facts.verdict import STRAGGLER
from paceline.report.own.observed import loader_facts
from paceline.report.remedies.offer import Idea
from paceline.report.remedies.own import repair
from paceline.report.remedies.situation import (
    TENSOR_CORES,
    cores_are_full,
    cores_of_others,
    ten_times_the_link,
    times_the_workers,
    without_others,
    without_straggler,
)
from paceline.units import percent

_FELT = 0.02


def ideas(facts: Facts, now: Situation | None) -> Iterator[Idea]:
    word, shares = facts.verdict.word, facts.verdict.shares if now else {}
    if word == INPUT or shares.get(INPUT, 0.0) > _FELT:
        yield from _input(facts, now)
    if word == STRAGGLER and facts.verdict.straggler is not None:
        change = without_straggler(facts, facts.verdict.straggler)
        yield Idea("straggler", *repair(facts, change))
    if word == NETWORK or shares.get(NETWORK, 0.0) > _FELT:
        yield from _network(facts)
    if word == CHECKPOINT or shares.get(CHECKPOINT, 0.0) > _FELT:
        beside = "torch.distributed.checkpoint.async_save, which writes beside"
        yield Idea("saves", f"save a tenth as often, or with {beside}", rarer_saves(10))
    if word == COMPUTE:
        yield from _compute(facts)


def _input(facts: Facts, now: Situation | None) -> Iterator[Idea]:
    loader = loader_facts(facts.begin)
    have = int(loader.get("workers") or 0)
    if have and cores_are_full(facts):
        return
    want = max(ceil(max(have, 1) * times_the_workers(now)), have + 1, 2)
    change = more_workers(want / max(have, 1))
    keep = "" if have and loader.get("persistent") else ", persistent_workers=True"
    text = f"more loader processes than {have}" if have else "loading in processes of their own"
    yield Idea("workers", text, change, f"`DataLoader(..., num_workers={want}{keep})`")


def _network(facts: Facts) -> Iterator[Idea]:
    """The same bytes move per step whatever its batch."""
    size = loader_facts(facts.begin).get("batch_size")
    larger = f"batch_size={2 * size}" if isinstance(size, int) else "twice the batch"
    how = f"{larger} for each process, or two batches for a step under `ddp.no_sync()`"
    yield Idea(
        "batch", "exchange gradients half as often", larger_batch(2), how, changes_result=True
    )
    how = "a 16-bit communication hook (`ddp.register_comm_hook`)"
    yield Idea("16-bit", "send half the bytes", in_16_bits("bf16"), how, changes_result=True)
    if (facts.world.num_hosts or 1) > 1:
        speed = ten_times_the_link(facts)
        how = "measure what there are with paceline hosts check"
        yield Idea("link", f"links of {speed}", faster_link(10), how)
        yield Idea("one-host", "one host alone", more_hosts(1))


def _compute(facts: Facts) -> Iterator[Idea]:
    lighter = lighter_precision(facts)
    if other := cores_of_others(facts):
        text = (
            f"other programs used {percent(other)} of the cores: stop them, or train on a machine "
            "of its own"
        )
        yield Idea("alone", text, without_others(facts))
    elif lighter is not None:
        how = f"`{AUTOCAST[lighter]}` around the forward pass"
        yield Idea("precision", "lower precision", faster_compute(TENSOR_CORES), how)
    else:
        hosts = 2 * (facts.world.num_hosts or 1)
        speed = "" if link_of(facts) else " with links of 1 Gbit/s"
        like = "these" if hosts > 2 else "this one"
        how = "paceline run --hosts hosts.yaml"
        yield Idea("hosts", f"{hosts} hosts like {like}{speed}", more_hosts(hosts), how)
