"""The verdict in words, with the remedy that this project offers as a command."""

from typing import Any

from paceline.record.schema import CHECKPOINT, COMPUTE, INPUT, NETWORK
from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.answers.script import remedy_of_script, unmeasured_of_script
from paceline.report.answers.words import again, go_on
from paceline.report.facts.arithmetic import could_be_lighter
from paceline.report.facts.busyness import utilisation
from paceline.report.facts.facts import Facts, Failed
from paceline.report.facts.learning import diverged
from paceline.report.facts.network import predicted_per_step
from paceline.report.facts.stragglers import Straggler
from paceline.report.facts.verdict import LEAST_SHARE, STRAGGLER, UNCLEAR, Verdict
from paceline.report.roles.answer import server_sentence
from paceline.report.roles.use import SERVER_COMPUTE, SERVER_LINK
from paceline.units import format_bits, format_seconds, percent

_MUCH_OTHER_LOAD = 0.3
_MANY_TIMES = 9.5
_MOST_SETTINGS = 12
_LONG_VALUE = 60
_OTHER_RANK = 0.1
"""Of the step: a rank that waits so much longer than any other is alone with it."""
_HARDLY_FELT = 0.1
"""Of the step's other work: a link on which the all-reduce takes no more no longer matters."""


def verdict(facts: Facts) -> Answer:
    found = facts.verdict
    figures: dict[str, Any] = {"verdict": found.word, "share": found.share, "shares": found.shares}
    if found.straggler is not None:
        figures["straggler"] = vars(found.straggler)
    if facts.failure is not None and not facts.step:
        return _failed(facts, facts.failure)
    if facts.world.rank_inputs:
        figures["input_share_by_rank"] = {r.name: r.input_share for r in facts.world.rank_inputs}
    return Answer(
        "verdict",
        QUESTIONS["verdict"],
        sentence(found)
        + _servers(facts)
        + _slow_rank(facts)
        + _loader(facts)
        + unmeasured_of_script(facts),
        figures,
        f"a bottleneck is what would save at least {percent(LEAST_SHARE)} of the {found.whole} if "
        "it took no time; waiting for a straggler (one slow process) is not counted as network",
        _missing(found),
        remedy(facts),
    )


def _servers(facts: Facts) -> str:
    if facts.roles is None or facts.verdict.word not in (SERVER_LINK, SERVER_COMPUTE):
        return ""
    return server_sentence(facts.roles)


def _failed(facts: Facts, failure: Failed) -> Answer:
    """A start that failed has no step to judge; what failed is what held it up."""
    what = f"{failure.kind} ({failure.line})" if failure.kind else failure.line
    told = [f"{name} {value}" for name, value in facts.printed.items() if _is_short(value)]
    said = f" The configuration says: {', '.join(told[:_MOST_SETTINGS])}." if told else ""
    return Answer(
        "verdict",
        QUESTIONS["verdict"],
        f"It failed before its first step: {what}.{said}",
        {"verdict": UNCLEAR, "failure": failure.line, "failure_kind": failure.kind},
        "the last error in the log that no step follows",
        "" if failure.kind else "what the error means: it is of no kind that is known here",
        failure.remedy,
    )


def _is_short(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and len(value) < _LONG_VALUE)


def _slow_rank(facts: Facts) -> str:
    """Processes step together: the one that waits longest for its batches sets the pace."""
    ranks, found = facts.world.rank_inputs, facts.verdict
    if len(ranks) < 2 or found.word != INPUT:
        return ""
    slowest = max(ranks, key=lambda rank: rank.input_share)
    others = [rank.input_share for rank in ranks if rank is not slowest]
    if slowest.input_share - max(others) < _OTHER_RANK:
        low, high = percent(min(others)), percent(slowest.input_share)
        each = f" ({low} to {high})" if low != high else ""
        return f" All {len(ranks)} processes wait for it alike{each}."
    spread = percent(max(others)) if len(others) == 1 else f"at most {percent(max(others))}"
    name = slowest.name if not slowest.name.isdecimal() else f"process {slowest.name} of the log"
    return (
        f" That is {name}, the straggler: the others wait for their own batches for {spread} and "
        "then for it."
    )


def sentence(found: Verdict) -> str:
    share, late = f"{percent(found.share)} of the {found.whole}", found.straggler
    said = {
        INPUT: f"Input: {share} is waiting for the next batch.",
        NETWORK: f"Network: {share} is communication{_hidden(found)}.",
        CHECKPOINT: f"Checkpoint: for {share} it stood still while checkpoints were saved.",
        SERVER_LINK: f"Server link: {share} is waiting for gradients and weights on their way.",
        SERVER_COMPUTE: f"Server compute: {share} is waiting for servers to make the update.",
    }
    if found.word in said:
        return said[found.word]
    if found.word == STRAGGLER and late is not None:
        return f"Straggler: {share} is lost to {_who(late)}."
    if found.word == COMPUTE:
        work = "forward, backward and update" if found.whole == "loop" else "not waiting"
        return f"Compute: {share} is {work}; nothing else takes a quarter of it."
    known = [f"{name} {percent(part)}" for name, part in found.shares.items()]
    told = f"; known is {', '.join(known)} of the step" if found.lacking and known else ""
    return f"Unclear: {found.why_unclear}{told}."


def _hidden(found: Verdict) -> str:
    is_measured = found.whole == "loop"
    return (
        " that did not overlap with compute" if is_measured else ", if none overlaps with compute"
    )


def _who(late: Straggler) -> str:
    host = f" on {late.host}" if late.host else ""
    return (
        f"rank {late.rank}{host}: in each step the others wait "
        f"{format_seconds(late.seconds_per_step)} for it, and it is slower in {late.phase} "
        f"({format_seconds(late.extra_seconds)} a step more than the others)"
    )


def _loader(facts: Facts) -> str:
    """How much faster a loader that another tool ran would have to be."""
    if facts.is_own or facts.verdict.word != INPUT:
        return ""
    workers = facts.printed.get("workers")
    had = f" `workers` was {workers}." if workers else ""
    faster = 1 / max(1 - facts.verdict.share, 0.01)
    shown = f"{faster:.1f}" if faster < _MANY_TIMES else f"{faster:.0f}"
    return f"{had} A loader {shown} times as fast would keep up."


def _missing(found: Verdict) -> str:
    if found.word != UNCLEAR:
        return ""
    if found.lacking:
        return f"{' and '.join(found.lacking)}; `paceline train` measures every phase of a step"
    return f"a clearer picture: {found.why_unclear}"


def remedy(facts: Facts) -> str:
    """What this project offers against it, as a command; what a script can do, in its terms."""
    if facts.is_observed:
        return remedy_of_script(facts)
    offered = {
        INPUT: _faster_input,
        NETWORK: _less_traffic,
        CHECKPOINT: _fewer_saves,
        STRAGGLER: _find_the_cause,
        COMPUTE: _faster_compute,
        SERVER_LINK: _more_servers,
        SERVER_COMPUTE: _more_servers,
    }
    offer = offered.get(facts.verdict.word)
    return offer(facts) if offer else ""


def _more_servers(facts: Facts) -> str:
    num = len(facts.roles.servers) if facts.roles is not None else 1
    return (
        f"more servers, each with a smaller shard: --roles ...,server={num + 1}; a larger batch, "
        "so that gradients travel less often; or strategy=all-reduce, which shares the links evenly"
    )


def _fewer_saves(facts: Facts) -> str:
    every = facts.saving.every_steps or 100
    return f"save less often: {go_on(facts.run, f'checkpoint.every_steps={10 * every}')}"


def _find_the_cause(facts: Facts) -> str:
    if facts.world.num_hosts == 1:
        return f"see what else runs on the host while it trains: paceline watch {facts.run}"
    return "compare the hosts and leave out or repair the slow one: paceline hosts check"


def _faster_input(facts: Facts) -> str:
    settings = facts.settings.get("input")
    if not facts.is_own:
        return (
            "more loader processes (`--workers` in PyTorch's example), smaller pictures, a "
            "faster disk; `paceline train` finds in its first steps how many workers it needs "
            "(`input.workers=8` sets them)"
        )
    if isinstance(settings, dict) and "workers" in settings:
        now = facts.loader_workers or settings.get("workers") or 2
        more = again(facts.run, f"input.workers={max(2 * int(now), 2)}")
        return f"more workers that decode ahead: {more}"
    workload = facts.settings.get("workload")
    return (
        "put the data on a faster disk: "
        f"paceline data {workload} --from PATH --to DIR, then {again(facts.run, 'data=DIR')}"
    )


def _less_traffic(facts: Facts) -> str:
    """The same bytes move per step whatever its batch, so a larger one moves fewer per sample."""
    if not facts.is_own:
        return (
            f"a faster link{_fast_enough(facts)}, fewer bytes (16-bit gradients are half of them), "
            "or a larger batch for each exchange (`batch.global`)"
        )
    batch = facts.settings.get("batch") or {}
    name = "global" if batch.get("global") else "per_device"
    size = batch.get(name)
    larger = f"batch.{name}={2 * size}" if isinstance(size, int) else "batch.global=..."
    return (
        f"a larger batch, so that gradients are exchanged less often: "
        f"{again(facts.run, larger)}; "
        "measure the links: paceline hosts check"
    )


def _fast_enough(facts: Facts) -> str:
    sent, found = predicted_per_step(facts), facts.verdict
    if sent is None or not found.step_seconds:
        return ""
    rest = max(found.without_network_seconds, 0.05 * found.step_seconds)
    enough = format_bits(8 * sent / (_HARDLY_FELT * rest))
    return f" (from {enough} on it would hardly matter; `paceline hosts check` measures it)"


def _faster_compute(facts: Facts) -> str:
    if diverged(facts.learning):
        return ""  # nobody wants that faster
    if not facts.is_own:
        return "a faster device, a smaller model, or lower precision (`precision=auto`)"
    busy, own = utilisation(facts), facts.world.own_cpu_share
    if own is not None and busy[1] == "cores" and busy[0] - own > _MUCH_OTHER_LOAD:
        return (
            f"other programs used {percent(busy[0] - own)} of the cores: stop them, or train on a "
            "machine of its own"
        )
    if could_be_lighter(facts):
        return f"lower precision: {again(facts.run, 'precision=auto')}"
    return f"more machines: {again(facts.run, '--hosts hosts.yaml')}"
