"""The answer about the machines: were they busy, and with what."""

import math
from typing import Any

from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.facts.busyness import (
    achieved_flops,
    is_on_cuda,
    longest_wait,
    utilisation,
)
from paceline.report.facts.facts import Facts
from paceline.report.remedies.offer import offers_of
from paceline.report.remedies.own import busier_ideas
from paceline.units import format_flops, percent

_HOW = (
    "counters of the operating system (or of the GPU driver) every few seconds on each host, for "
    "the cores that the run may use; this run's part is the CPU time of all its processes on those "
    "machines"
)
_HOW_TASK = (
    "floating-point operations are counted once per unit and compared with a matrix multiplication "
    "that every process times at the start"
)
_HOW_SCRIPT = "floating-point operations are read from autograd's graph of the first step"


_NOT_WITH_ARITHMETIC = {
    "cores": " So the cores were busy, but mostly not with arithmetic: with memory traffic, with "
    "many small operations, or with threads that spin while they wait.",
    "devices": " So the devices were busy, but mostly not with arithmetic: with memory traffic, or "
    "with many small operations.",
}


def busy(facts: Facts) -> Answer:
    share, what = utilisation(facts)
    achieved, peak = achieved_flops(facts), facts.world.peak_flops
    of_peak = achieved / peak if achieved and peak else math.nan
    figures: dict[str, Any] = {}
    if math.isfinite(share):
        figures |= {"utilisation": share, "utilisation_of": what}
        figures["utilisation_by_host"] = _by_host(facts)
    own = facts.world.own_cpu_share
    if own is not None:
        figures["own_cpu_share"] = own
    if achieved:
        figures |= {"achieved_flops": achieved}
    if achieved and peak:
        figures |= {"peak_flops": peak, "share_of_peak": of_peak}
    sentence = _measured(facts, share, what, of_peak)
    if not sentence:
        sentence, bound = _at_most(facts)
        figures |= bound
    return Answer(
        "busy",
        QUESTIONS["busy"],
        sentence + _main_process(facts, figures),
        figures,
        _how(facts),
        _missing(facts, share, achieved, peak),
        _busier(facts, of_peak),
    )


def _how(facts: Facts) -> str:
    if not facts.is_own:
        return facts.world.counters_how
    return f"{_HOW}; {_HOW_SCRIPT if facts.is_observed else _HOW_TASK}"


def _by_host(facts: Facts) -> dict[str, float]:
    known = {use.host: use.cpu_share for use in facts.world.hosts}
    return {host: share for host, share in known.items() if facts.is_own or math.isfinite(share)}


def _measured(facts: Facts, share: float, what: str, of_peak: float) -> str:
    achieved, parts = achieved_flops(facts), []
    if math.isfinite(share):
        parts.append(f"The {what} were {percent(share)} busy")
        own = facts.world.own_cpu_share
        if what == "cores" and own is not None:
            parts[-1] += f", {percent(min(own, share))} with this run"
    stolen = [use.stolen_share for use in facts.world.hosts if use.stolen_share > 0.02]
    if stolen and parts:
        parts[-1] += (
            f", and other virtual machines on the same hardware took {percent(max(stolen))} of "
            "the time"
        )
    if achieved and not facts.world.peak_flops:
        parts.append(f"the model reached {format_flops(achieved)} in forward and backward")
    elif achieved and facts.world.peak_flops:
        parts.append(
            f"the model reached {format_flops(achieved)}, {percent(of_peak)} of the "
            f"{format_flops(facts.world.peak_flops)} that matrix multiplication reaches here"
        )
    if not parts:
        return ""
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}.{_meaning(facts, share, of_peak)}"


def _meaning(facts: Facts, share: float, of_peak: float) -> str:
    own = facts.world.own_cpu_share
    has_devices = any(use.device_names for use in facts.world.hosts)
    if share > 0.7 and own is not None and own < 0.7 * share and not has_devices:
        return " Other programs used the machine as well."
    if not (math.isfinite(share) and math.isfinite(of_peak)):
        return ""
    if of_peak > 1:
        return (
            " That is more than matrix multiplication reaches, because the convolutions here need "
            "fewer operations than are counted for them."
        )
    if share > 0.8 and of_peak < 0.2:
        return _NOT_WITH_ARITHMETIC["devices" if is_on_cuda(facts) else "cores"]
    if share < 0.6:
        return " They could have done more: see what held it up."
    return ""


def _at_most(facts: Facts) -> tuple[str, dict[str, Any]]:
    """What is known to be waiting bounds the rest."""
    wait = longest_wait(facts)
    if wait is None:
        of = "the run has no probes of its hosts and no count of its arithmetic"
        return f"Not known: {of if facts.is_own else 'the log does not tell'}.", {}
    name, share = wait
    return (
        f"They computed for at most {percent(1 - share)} of a step: {percent(share)} is waiting "
        f"for {name}, whatever a utilisation meter shows."
    ), {"most_busy_share": 1 - share}


def _main_process(facts: Facts, figures: dict[str, Any]) -> str:
    if not facts.world.main_cpu_seconds or not facts.wall_seconds:
        return ""
    cores = figures["main_process_cores"] = facts.world.main_cpu_seconds / facts.wall_seconds
    return f" The main process used {cores:.2f} cores on average."


def _missing(facts: Facts, share: float, achieved: float | None, peak: float | None) -> str:
    if not facts.is_own and math.isfinite(share):
        return ""
    if not facts.is_own:
        return (
            "utilisation: run `nvidia-smi --query-gpu=utilization.gpu,power.draw --format=csv -l 5`"
            " beside it, or `paceline train`, which probes every host"
        )
    lacking = []
    if not math.isfinite(share) and is_on_cuda(facts) and facts.world.hosts:
        lacking.append("the use of the devices, which NVIDIA's library (NVML) did not tell")
    elif not math.isfinite(share):
        lacking.append("probes (events/host-*.jsonl), which training writes by itself")
    if facts.is_observed and not achieved:
        lacking.append(
            "the floating-point operations of a step, which compiled and checkpointed models hide"
        )
    elif facts.is_observed and not peak:
        lacking.append("what matrix multiplication reaches here: it is not timed inside a script")
    elif not achieved or not peak:
        lacking.append("flops_per_unit and peak_flops in the begin event")
    if (facts.world.num_hosts or 1) > 1 and facts.world.own_cpu_share is None:
        lacking.append(
            "which hosts share a machine, so the load of other programs cannot be told from the "
            "load of this run on another host"
        )
    return " and ".join(lacking)


def _busier(facts: Facts, of_peak: float) -> str:
    if not (math.isfinite(of_peak) and of_peak < 0.3):
        return ""
    return "; ".join(offer.in_words for offer in offers_of(facts, busier_ideas)[:1])
