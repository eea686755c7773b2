"""What chief, workers and servers did; asked only of runs whose processes have roles."""

from typing import Any

from paceline.record.schema import NETWORK, OPTIMIZER
from paceline.report.answers.answer import OF_ROLES, QUESTIONS, Answer
from paceline.report.answers.words import listed
from paceline.report.facts.facts import Facts
from paceline.report.facts.network import sent_per_step
from paceline.report.roles.use import RolesUse, RoleUse, ServerUse
from paceline.units import count_of, format_bits, format_bytes, format_seconds, percent, plural


def roles(facts: Facts, found: RolesUse) -> Answer:
    sentences = [
        _who(found),
        *(_server(server) for server in found.servers),
        _staleness(found),
        _steps(found),
        _lost_work(found, facts),
    ]
    return Answer(
        "roles",
        OF_ROLES,
        " ".join(filter(None, sentences)),
        figures_of(found),
        "each process times its own phases; a server's threads work side by side, and a moment in "
        "which it updates weights counts as optimizer, one in which it only sends or receives as "
        "network; bytes are those of gradients and weights",
    )


def in_words(found: RolesUse) -> str:
    backup = f" with {count_of(found.backup, 'backup worker')}" if found.backup else ""
    limit = f" (at most {found.most_staleness})" if found.most_staleness is not None else ""
    return f"{found.mode}{backup}{limit}"


def _who(found: RolesUse) -> str:
    counts = [f"{name}={found.all_roles.count(name)}" for name in dict.fromkeys(found.all_roles)]
    told = f" ({', '.join(counts)})" if counts else ""
    trains = "" if found.chief is None else " The chief decided and evaluated, and did not train."
    return f"Parameter servers in mode {in_words(found)}{told}.{trains}"


def _server(server: ServerUse) -> str:
    host = f" on {server.host}" if server.host else ""
    share = server.link_share
    link = (
        f", {percent(share)} of what its link of {format_bits(server.link_bits_per_second)} could "
        "carry"
        if share is not None and server.link_bits_per_second
        else ""
    )
    return (
        f"{server.name.capitalize()}{host} held {format_bytes(server.shard_bytes)} of weights, "
        f"took in {format_bytes(server.received_bytes)} of gradients and gave "
        f"{format_bytes(server.sent_bytes)} of weights{link}; it was busy with the network for "
        f"{percent(server.share_in(NETWORK))} and with updates for "
        f"{percent(server.share_in(OPTIMIZER))} of the time."
    )


def _staleness(found: RolesUse) -> str:
    if found.is_sync:
        return ""
    if not found.staleness:
        return "No update was recorded."
    limit = f", and {found.most_staleness} were allowed" if found.most_staleness is not None else ""
    return (
        f"A gradient was {found.mean_staleness:.1f} updates old on average when it was applied, at "
        f"most {max(found.staleness)}{limit}."
    )


def _steps(found: RolesUse) -> str:
    if found.is_sync and not found.backup:
        return "All workers have the same step number at any time."
    shares = [f"{use.name} {use.num_steps:,}" for use in found.trainers]
    return (
        f"Steps are numbered over all workers; of them {listed(shares)} were theirs, so that a "
        "worker sees numbers with gaps."
    )


def _lost_work(found: RolesUse, facts: Facts) -> str:
    told = []
    if found.num_dropped:
        share = found.dropped_units / max(facts.num_units + found.dropped_units, 1)
        told.append(
            f"{count_of(found.num_dropped, 'gradient')} ({percent(share)} of all "
            f"{plural(facts.unit)} computed) came too late and were computed again"
        )
    if found.lost:
        told.append(f"workers were lost {count_of(len(found.lost), 'time')}")
    return f"Lost work: {'; '.join(told)}." if told else "No work was lost."


def figures_of(found: RolesUse) -> dict[str, Any]:
    return {
        "mode": found.mode,
        "backup": found.backup,
        "roles": list(found.all_roles),
        "trainers": [_trainer_figures(use) for use in found.trainers],
        "chief": _trainer_figures(found.chief) if found.chief else None,
        "servers": [_server_figures(use) for use in found.servers],
        "waits_seconds": vars(found.waits),
        "staleness": {str(age): num for age, num in sorted(found.staleness.items())},
        "mean_staleness": found.mean_staleness,
        "most_staleness_allowed": found.most_staleness,
        "num_dropped": found.num_dropped,
        "dropped_units": found.dropped_units,
        "num_lost_workers": len(found.lost),
    }


def _trainer_figures(use: RoleUse) -> dict[str, Any]:
    return {
        "name": use.name,
        "rank": use.rank,
        "host": use.host,
        "phases_seconds": use.phases,
        "num_steps": use.num_steps,
        "num_units": use.num_units,
        "step_numbers": [[round(t, 3), int(s)] for t, s in _spread(use)],
    }


def _spread(use: RoleUse, most: int = 50) -> list[tuple[float, float]]:
    pairs = list(zip(use.times.tolist(), use.steps.tolist(), strict=True))
    every = -(-len(pairs) // most) if pairs else 1
    return pairs[::every]


def _server_figures(use: ServerUse) -> dict[str, Any]:
    return {
        **_trainer_figures(use),
        "shard_bytes": use.shard_bytes,
        "sent_bytes": use.sent_bytes,
        "received_bytes": use.received_bytes,
        "link_bits_per_second": use.link_bits_per_second,
        "link_share": use.link_share,
    }


def server_sentence(found: RolesUse) -> str:
    """Behind the verdict: the server that set the pace, with its figures."""
    server = found.busiest
    if server is None:
        return ""
    share = server.link_share
    link = f", {percent(share)} of its link" if share is not None else ""
    per_second = format_bytes(
        (server.sent_bytes + server.received_bytes) / max(server.loop_seconds, 1e-9)
    )
    seconds = format_seconds(server.phases.get(OPTIMIZER, 0.0) / max(server.num_steps, 1))
    return (
        f" {server.name.capitalize()} moved {per_second} a second{link}, and an update took it "
        f"{seconds}."
    )


def traffic_of_servers(facts: Facts) -> Answer:
    """In place of what a ring would send: what went to servers and came from them."""
    found, per_host = facts.roles, sent_per_step(facts)
    assert found is not None  # noqa: S101  (only asked where there are servers)
    num_steps = max(facts.num_steps, 1)
    received = sum(use.received_bytes for use in found.servers) / num_steps
    sent = sum(use.sent_bytes for use in found.servers) / num_steps
    gradients = facts.begin.get("gradient_bytes") or 0.0
    each = "every worker's" if found.is_sync else "one worker's"
    counted = (
        f" By its interface's own counters each host sent {format_bytes(per_host)} a step."
        if per_host is not None
        else ""
    )
    return Answer(
        "traffic",
        QUESTIONS["traffic"],
        f"Servers take in {each} gradients in a step, {format_bytes(received)} "
        f"({format_bytes(gradients)} from each), and give {format_bytes(sent)} of weights, for "
        f"evaluations and checkpoints too.{counted}",
        {
            "received_bytes_per_step": received,
            "sent_bytes_per_step": sent,
            "measured_bytes_per_step": per_host,
            "world_size": facts.world.size,
            "num_hosts": facts.world.num_hosts,
        },
        "gradients and weights counted at the servers, divided by the steps",
    )
