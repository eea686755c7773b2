"""Answers about the machines: were they busy, and was network or input the bottleneck."""

import math
from typing import Any

from paceline.record.schema import INPUT, NETWORK
from paceline.report.answer import QUESTIONS, Answer
from paceline.report.answers_traffic import MISSING_PROBES, link_of, sent_per_step
from paceline.report.summary import Summary
from paceline.report.wording import bits, percent, times_as_fast
from paceline.units import count_of, format_bytes, format_seconds, plural

_HOW_PHASES = (
    "the mean over all processes of what each booked to the phase, as a share of the loop "
    "(input, compute, network, optimizer, checkpoint)"
)


# ---- busy


def achieved_flops(summary: Summary) -> float | None:
    flops, times = summary.facts.get("flops_per_unit"), summary.step_times
    if not isinstance(flops, int | float) or times is None:
        return None
    return float(flops) * times.units_per_second


def utilisation(summary: Summary) -> tuple[float, str]:
    """Mean over hosts, and of what."""
    devices = [use.device_share for use in summary.hosts if math.isfinite(use.device_share)]
    if devices:
        return sum(devices) / len(devices), "devices"
    cores = [use.cpu_share for use in summary.hosts if math.isfinite(use.cpu_share)]
    return (sum(cores) / len(cores), "cores") if cores else (math.nan, "devices")


def own_cpu_share(summary: Summary) -> float | None:
    """Of the time of all cores, what the run's own processes took."""
    cores, wall = summary.environment.get("num_cores"), summary.story.wall_seconds
    if not isinstance(cores, int) or not wall or not summary.cpu_seconds:
        return None
    return summary.cpu_seconds / (wall * cores * summary.num_hosts)


def busy(summary: Summary) -> Answer:
    share, what = utilisation(summary)
    achieved, peak = achieved_flops(summary), summary.peak_flops
    of_peak = achieved / peak if achieved and peak else math.nan
    figures: dict[str, Any] = {}
    if math.isfinite(share):
        figures |= {"utilisation": share, "utilisation_of": what}
        figures["utilisation_by_host"] = {use.host: use.cpu_share for use in summary.hosts}
    own = own_cpu_share(summary)
    if own is not None:
        figures["own_cpu_share"] = own
    if achieved:
        figures |= {"achieved_flops": achieved}
    if achieved and peak:
        figures |= {"peak_flops": peak, "share_of_peak": of_peak}
    return Answer(
        "busy",
        QUESTIONS["busy"],
        _busy_sentence(summary, share, what, of_peak),
        figures,
        "the operating system's (or the driver's) counters every few seconds on each host; "
        "operations counted once per unit, against a plain product of matrices timed in every "
        "process at the start",
        _busy_missing(share, achieved, peak),
        _busier(summary, of_peak),
    )


def _busy_sentence(summary: Summary, share: float, what: str, of_peak: float) -> str:
    achieved, parts = achieved_flops(summary), []
    if math.isfinite(share):
        parts.append(f"The {what} were {percent(share)} busy")
        own = own_cpu_share(summary)
        if what == "cores" and own is not None:
            parts[-1] += f", {percent(own)} with this run"
    stolen = [use.stolen_share for use in summary.hosts if use.stolen_share > 0.02]
    if stolen:
        parts[-1] += f", and others on the machine took {percent(max(stolen))} of the time"
    if achieved and summary.peak_flops:
        parts.append(
            f"the model reached {_flops(achieved)}, {percent(of_peak)} of the "
            f"{_flops(summary.peak_flops)} that a plain product of matrices reaches here"
        )
    if not parts:
        return "Not known: the run has no probes of its hosts and no count of its arithmetic."
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}.{_busy_meaning(summary, share, of_peak)}"


def _busy_meaning(summary: Summary, share: float, of_peak: float) -> str:
    own = own_cpu_share(summary)
    if share > 0.7 and own is not None and own < 0.7 * share and not _has_devices(summary):
        return " Other programs used the machine as well."
    if not (math.isfinite(share) and math.isfinite(of_peak)):
        return ""
    if of_peak > 1:
        return " More than a plain product, because convolutions took fewer operations than that."
    if share > 0.8 and of_peak < 0.2:
        return (
            " Busy, but mostly not with arithmetic: memory, small pieces of work or waiting in a "
            "spin."
        )
    if share < 0.6:
        return " They could have done more: see what held it up."
    return ""


def _has_devices(summary: Summary) -> bool:
    return any(use.device_names for use in summary.hosts)


def _flops(flops: float) -> str:
    for size, name in ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s")):
        if flops >= size:
            return f"{flops / size:.3g} {name}"
    return f"{flops / 1e6:.3g} MFLOP/s"


def _busy_missing(share: float, achieved: float | None, peak: float | None) -> str:
    lacking = []
    if not math.isfinite(share):
        lacking.append("probes (events/host-*.jsonl), which training writes by itself")
    if not achieved or not peak:
        lacking.append("flops_per_unit and peak_flops in the begin event")
    return " and ".join(lacking)


def _busier(summary: Summary, of_peak: float) -> str:
    if not (math.isfinite(of_peak) and of_peak < 0.3):
        return ""
    micro = (summary.settings.get("batch") or {}).get("micro")
    on_cuda = str(summary.facts.get("device", "")).startswith("cuda")
    if on_cuda and summary.settings.get("precision") == "fp32":
        return f"{_again(summary, 'precision=bf16')}"
    if on_cuda and isinstance(micro, int):
        return f"larger pieces of work: {_again(summary, f'batch.micro={2 * micro}')}"
    return ""


def _again(summary: Summary, setting: str) -> str:
    return f"paceline train {summary.run}/recipe.yaml {setting} --run {summary.run}-2"


# ---- network and input


def network(summary: Summary) -> Answer:
    ask, found = QUESTIONS["network"], summary.verdict
    if not found.step_seconds:
        return Answer("network", ask, "No step was recorded.", missing="steps")
    if summary.world_size == 1:
        return Answer(
            "network",
            ask,
            "No: it was one process, which has nobody to wait for.",
            {"share": 0.0, "step_seconds": found.step_seconds},
            _HOW_PHASES,
        )
    share = summary.times.per_step(NETWORK) / found.step_seconds
    figures: dict[str, Any] = {
        "share": share,
        "step_seconds": found.step_seconds,
        "without_network_seconds": found.without_network_seconds,
        "share_without_stragglers": found.shares.get(NETWORK, 0.0),
    }
    link_figures, link_text, missing = _link_use(summary)
    is_it = "Yes" if found.word == NETWORK else "No"
    fastest = found.without_network_seconds
    sentence = (
        f"{is_it}: processes waited for each other {percent(share)} of the loop. On an infinitely "
        f"fast network a step would take {format_seconds(fastest)} instead of "
        f"{format_seconds(found.step_seconds)} "
        f"({times_as_fast(found.step_seconds, fastest)}).{_waited_for(summary)}{link_text}"
    )
    return Answer(
        "network",
        ask,
        sentence,
        figures | link_figures,
        _HOW_PHASES + "; traffic from the interface's own counters",
        missing,
    )


def _waited_for(summary: Summary) -> str:
    late = summary.verdict.straggler
    if late is None:
        return ""
    return f" Much of it was waiting for rank {late.rank}, which no network cures."


def _link_use(summary: Summary) -> tuple[dict[str, Any], str, str]:
    """Figures, words, and what is missing about the link."""
    per_step, link = sent_per_step(summary), link_of(summary)
    if summary.num_hosts == 1 and link is None:
        return {}, " All processes were on one host, so no link was used.", ""
    if per_step is None:
        return {}, "", MISSING_PROBES
    if link is None:
        return {"sent_bytes_per_step": per_step}, "", "the link's speed: give it with --link 1Gbit"
    wire_seconds = 8 * per_step / link
    share = wire_seconds / summary.verdict.step_seconds
    text = (
        f" A step sends {format_bytes(per_step)} from each host, which takes a link of "
        f"{bits(link)} {format_seconds(wire_seconds)}: {percent(share)} of the step."
    )
    if summary.verdict.word == NETWORK and share < 0.3 * summary.verdict.share:
        text += (
            " So it is not the link's speed that was lacking, but the time of many small messages "
            "or processes that are not ready together."
        )
    figures = {
        "sent_bytes_per_step": per_step,
        "link_bits_per_second": link,
        "wire_seconds_per_step": wire_seconds,
        "link_share": share,
    }
    return figures, text, ""


def input_(summary: Summary) -> Answer:
    ask, found = QUESTIONS["input"], summary.verdict
    if not found.step_seconds:
        return Answer("input", ask, "No step was recorded.", missing="steps")
    share = found.shares.get(INPUT, 0.0)
    fastest = found.without_input_seconds
    is_it = "Yes" if found.word == INPUT else "No"
    workers = summary.facts.get("loader_workers")
    threads = f" with {count_of(workers, 'worker')} per process" if workers else ""
    sentence = (
        f"{is_it}: the loop waited for its next batch {percent(share)} of the time{threads}. On "
        f"infinitely fast input a step would take {format_seconds(fastest)} instead of "
        f"{format_seconds(found.step_seconds)} ({times_as_fast(found.step_seconds, fastest)})."
    )
    chosen = summary.story.of_kind("input")
    if chosen and chosen[-1].get("text"):
        sentence += f" The loader's own note: {chosen[-1]['text']}."
    figures = {
        "share": share,
        "step_seconds": found.step_seconds,
        "without_input_seconds": fastest,
        "loader_workers": workers,
    }
    return Answer("input", ask, sentence, figures, _HOW_PHASES)


def units_name(summary: Summary) -> str:
    return plural(str(summary.facts.get("unit", "unit")))
