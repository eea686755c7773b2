"""What differs between two runs besides the number of machines, and may explain their speed."""

from collections.abc import Iterator
from typing import Any

from paceline.report.facts.facts import Facts
from paceline.report.own.data_card import trained_with
from paceline.units import format_bytes

_NEITHER = ("about", "log", "guard", "target", "evaluate")
"""Settings that change neither the speed of a step nor what it learns."""
_ONLY_LEARNING = ("seed", "steps", "schedule", "label_smoothing")
_ONLY_SPEED = (
    "input",
    "checkpoint",
    "compile",
    "hosts",
    "reduce.bucket_mb",
    "reduce.first_bucket_mb",
)
_SAME_RESULT = ("plain", "overlap")
"""Kinds of exchange after which weights are the same."""
_BATCH = ("batch.global", "batch.per_device")
"""Told as the global batch, which is what both come to."""
_SOFTWARE = ("paceline", "python", "libraries", "platform", "kernels")
_THREADS = "threads per process"
_NOT_SET = "not set"
_SHARED_NAMES = {
    "model": ("arch", "model", "model_name", "base_model"),
    "loader workers": ("workers", "num_workers", "dataloader_num_workers"),
    "batch of a process": ("batch_size", "batch_size_per_gpu", "per_device_train_batch_size"),
    "precision": ("dtype", "precision", "amp", "fp16", "bf16"),
    "optimizer": ("optimizer", "opt", "optim"),
}
_LEARNING_OF_OTHERS = {
    *("lr", "learning_rate", "epochs", "start_epoch", "max_steps", "num_epochs", "seed"),
    *("logdir", "output_dir", "save_checkpoint_steps", "print_freq", "print_loss_steps"),
    *("rank", "gpu", "world_size", "dist_url", "resume", "evaluate", "momentum", "weight_decay"),
}
_LONG = 60


def what_differs(first: Facts, other: Facts) -> list[dict[str, str]]:
    """Everything but the number of machines that may explain a difference in speed.

    What one of the two does not tell is no difference: older runs know fewer settings.
    """
    before, after = _all_facts(first), _all_facts(other)
    found = _differences(before, after) + _differences(*_variables(first, other))
    names = {entry["name"] for entry in found}
    # The variable is how the number of threads is set: once is enough.
    return [e for e in found if e["name"] != "OMP_NUM_THREADS" or _THREADS not in names]


def what_changes_learning(first: Facts, other: Facts) -> list[dict[str, str]]:
    """Settings that leave a step as long as it is, but not what it learns."""
    before, after = (
        {name: value for name, value in _flat(facts.settings) if _is_one_of(name, _ONLY_LEARNING)}
        for facts in (first, other)
    )
    return _differences(before, after)


def learns_otherwise(first: Facts, other: Facts) -> list[str]:
    """What makes a step of the one worth more or less than a step of the other."""
    of_recipe = {name for facts in (first, other) for name, _ in _flat(facts.settings)}
    found = [
        entry
        for entry in what_differs(first, other)
        if entry["name"] in ("global batch", "data (fingerprint)", *of_recipe)
        and not _is_one_of(entry["name"], _ONLY_SPEED)
        and not {entry["first"], entry["other"]} <= {*_SAME_RESULT}
    ]
    return in_words(found)


def in_words(differences: list[dict[str, str]]) -> list[str]:
    return [f"{entry['name']} ({entry['first']} to {entry['other']})" for entry in differences]


def is_same_machine(first: Facts, other: Facts) -> bool:
    """Both ran on the same hardware; where a run does not tell that, by the hosts' names."""
    machines = first.world.machines, other.world.machines
    if all(machines) and len(machines[0] | machines[1]) > 1:
        return False
    names = machines if all(machines) else (_hosts(first), _hosts(other))
    kinds = [
        [facts.environment.get(name) for name in ("device_name", "num_machine_cores")]
        for facts in (first, other)
    ]
    return bool(names[0]) and names[0] == names[1] and kinds[0] == kinds[1]


def _hosts(facts: Facts) -> set[str]:
    times = facts.world.times
    named = {host for host in times.hosts if host} if times is not None else set()
    own = facts.environment.get("host")
    return named or ({str(own)} if own else set())


def _chosen_exchange(facts: Facts) -> Any:
    is_auto = (facts.settings.get("reduce") or {}).get("kind") == "auto"
    return facts.begin.get("reduce") if is_auto else None


def _differences(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {"name": name, "first": shown(before[name]), "other": shown(after[name])}
        for name in before
        if name in after and before[name] != after[name]
    ]


def _all_facts(facts: Facts) -> dict[str, Any]:
    skipped = (*_NEITHER, *_ONLY_LEARNING, *_BATCH)
    found = {n: value for n, value in _flat(facts.settings) if not _is_one_of(n, skipped)}
    if facts.is_own and not facts.is_observed:
        found.setdefault("reduce.kind", _SAME_RESULT[0])  # older runs know no other
    environment = facts.environment
    memory = environment.get("memory_bytes")
    known = {
        "global batch": facts.data.global_batch,
        "data (fingerprint)": _fingerprint(facts),
        "device": facts.begin.get("device"),
        _THREADS: environment.get("threads"),
        "processor": environment.get("device_name"),
        "cores of a host": environment.get("num_cores"),
        "memory of a host": format_bytes(memory) if memory else None,
        "precision": facts.begin.get("precision"),
        "reduce chosen": _chosen_exchange(facts),
        "tf32": facts.begin.get("tf32"),
    }
    found |= _printed(facts)
    for name in _SOFTWARE:
        known |= dict(_flat({name: environment.get(name)}))
    if known["data (fingerprint)"] is not None:
        found.pop("data", None)  # the same files may lie elsewhere
    return found | {name: value for name, value in known.items() if value is not None}


def _printed(facts: Facts) -> dict[str, Any]:
    """What another tool printed of its settings, under the names that all of them share."""
    found: dict[str, Any] = {}
    for name, value in _flat(facts.printed):
        leaf = name.rpartition(".")[2]
        shared = next((n for n, all_names in _SHARED_NAMES.items() if leaf in all_names), name)
        if leaf not in _LEARNING_OF_OTHERS and isinstance(value, str | int | float | bool):
            found.setdefault(shared, value if len(str(value)) < _LONG else "...")
    if facts.num_parameters and not facts.is_own:
        found["parameters"] = facts.num_parameters
    return found


def _variables(first: Facts, other: Facts) -> tuple[dict[str, str], dict[str, str]]:
    """Environment variables of the workers; one that only one run has is a difference too."""
    told = [facts.environment.get("settings") for facts in (first, other)]
    if not all(isinstance(each, dict) for each in told):
        return {}, {}
    names = dict.fromkeys(name for each in told if each for name in each)
    before, after = ({n: str((each or {}).get(n, _NOT_SET)) for n in names} for each in told)
    return before, after


def _is_one_of(name: str, groups: tuple[str, ...]) -> bool:
    return any(name == group or name.startswith(f"{group}.") for group in groups)


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _fingerprint(facts: Facts) -> str | None:
    card = facts.data.card
    return trained_with(facts.saving.newest) or (card.fingerprint if card else None)


def shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
