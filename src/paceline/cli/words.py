"""Words that people type for settings: names from other tools, options that are settings, epochs.

What is meant without a doubt is understood, and it is said as what; for the rest the error names
the right setting.
"""

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from paceline.errors import Say, UserError
from paceline.task_finder import find_task

if TYPE_CHECKING:
    from paceline.settings import Recipe

WorldSize = Callable[["Recipe"], int | None]
"""How many processes would train a recipe; None where hosts decide on that."""
_EPOCHS = ("epochs", "num_epochs", "max_epochs")
_RATES = ("lr", "learning_rate", "optimizer.lr", "optimizer.learning_rate")
_SAME = {
    **dict.fromkeys(_RATES, "schedule.rate"),
    **dict.fromkeys(("max_steps", "num_steps", "iterations", "max_iters"), "steps"),
    **dict.fromkeys(("wd", "weight_decay"), "optimizer.weight_decay"),
    **dict.fromkeys(("warmup", "warmup_steps"), "schedule.warmup_steps"),
    "momentum": "optimizer.momentum",
}
_GROUPS = {"optimizer": "optimizer.kind", "schedule": "schedule.policy"}
"""A group to which people give the name of its kind: `optimizer=adam`."""
_OTHERS = {
    **dict.fromkeys(
        ("batch", "batch_size", "batchsize", "bs"),
        "batch.global=N is the batch of a step over all processes, batch.per_device=N that of each "
        "process (with batch.global=null); batch.micro is one forward pass",
    ),
    **dict.fromkeys(
        ("gpus", "num_gpus", "nproc", "num_procs", "procs", "nproc_per_node", "world_size"),
        "--procs N starts N processes on this machine (or on each of --hosts)",
    ),
}


def options_as_settings(words: list[str], options: Iterable[str]) -> list[str]:
    """`--steps 10` means `steps=10`, unless the verb has an option of that name (or beginning)."""
    known = list(options)
    settled: list[str] = []
    found: list[str] = []
    rest = iter([*words, None])
    word = next(rest)
    while word is not None:
        following = next(rest)
        name, equals, value = word[2:].partition("=")
        is_option = any(option.startswith(word.partition("=")[0]) for option in known)
        if not word.startswith("--") or not name or is_option:
            settled.append(word)
        elif equals:
            found.append(f"{name.replace('-', '_')}={value}")
        elif following is None or following.startswith("--"):
            found.append(f"{name.replace('-', '_')}=true")
        else:
            found.append(f"{name.replace('-', '_')}={following}")
            following = next(rest)
        word = following
    return [*settled, *found]  # at the end, because the first plain word is the recipe


def understand(recipe: str, settings: list[str], world_size: WorldSize, say: Say) -> list[str]:
    """The settings under their right names."""
    kept: list[str] = []
    epochs: str | None = None
    for word in settings:
        name, _, value = word.partition("=")
        if name in _EPOCHS:
            epochs = value
        else:
            kept.append(_translated(name, value, say) if "=" in word else word)
    _refuse_rate_of_formula(recipe, settings, kept)
    if epochs is None:
        return kept
    loaded = _load(recipe, kept)
    return [*kept, _steps_for(epochs, loaded, world_size(loaded), say)]


def _translated(name: str, value: str, say: Say) -> str:
    if name in _OTHERS and not value.startswith("{"):
        raise UserError(
            f"the command line has '{name}={value}', which is no setting", _OTHERS[name]
        )
    is_kind = name in _GROUPS and not value.startswith("{")
    right = _GROUPS[name] if is_kind else _SAME.get(name)
    if right is None:
        return f"{name}={value}"
    say(f"{name}={value} is taken as {right}={value}")
    return f"{right}={value}"


def _load(recipe: str, settings: list[str]) -> "Recipe":
    from paceline.recipe import load

    return load(recipe, settings)


def _refuse_rate_of_formula(recipe: str, settings: list[str], kept: list[str]) -> None:
    typed = [word for word in settings if word.partition("=")[0] in _RATES]
    if not typed:
        return
    schedule = _load(recipe, kept).schedule
    if schedule.policy == "transformer":
        raise UserError(
            f"'{typed[0]}' does not fit this recipe: its schedule, 'transformer', computes the "
            "learning rate from the step, and schedule.rate is only a factor of that formula",
            "set the factor with schedule.rate=..., or choose another schedule, e.g. "
            "schedule.policy=one-cycle schedule.rate=0.001",
        )


def _steps_for(epochs: str, recipe: "Recipe", num_procs: int | None, say: Say) -> str:
    """Enough steps to see all training data so often."""
    try:
        number = float(epochs)
    except ValueError:
        number = 0.0
    if not (number > 0 and math.isfinite(number)):
        raise UserError(f"'epochs={epochs}' is not a number above 0", "write it like epochs=3")
    if recipe.batch.per_device and num_procs is None:
        raise UserError(
            "how many steps an epoch has depends on the number of processes here "
            "(batch.per_device), and the hosts decide on that",
            "give steps=N, or set batch.global instead of batch.per_device",
        )
    per_epoch = find_task(recipe.workload).micro_batches_per_epoch(recipe)
    steps_per_epoch = per_epoch / recipe.num_micro_batches(num_procs or 1)
    steps = max(1, math.ceil(number * steps_per_epoch - 1e-9))
    once = f"{steps_per_epoch:,.1f} steps see all data once"
    say(f"epochs={epochs} is taken as steps={steps} ({once})")
    return f"steps={steps}"
