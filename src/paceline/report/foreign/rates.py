"""Learning-rate policies of other tools, as this project's own settings where they are the same."""

from typing import Any

from paceline.schedule import ScheduleSettings


def schedule_of(config: dict[str, Any]) -> ScheduleSettings | None:
    """From OpenSeq2Seq's `lr_policy` and `lr_policy_params`; None where ours has no such form."""
    given = config.get("lr_policy_params")
    policy = str(config.get("lr_policy", "")).rpartition(".")[2]
    if not isinstance(given, dict) or policy not in _MAKERS:
        return None
    settings = _MAKERS[policy](given)
    try:
        return ScheduleSettings.model_validate(settings) if settings else None
    except ValueError:
        return None


def _transformer(given: dict[str, Any]) -> dict[str, Any] | None:
    if given.get("max_lr") is not None:
        return None
    return {
        "policy": "transformer",
        "rate": given.get("learning_rate", 1.0) * given.get("coefficient", 1.0),
        "warmup_steps": given.get("warmup_steps"),
        "width": given.get("d_model"),
    }


def _fixed(given: dict[str, Any]) -> dict[str, Any] | None:
    return {"policy": "fixed", "rate": given.get("learning_rate")}


def _exponential(given: dict[str, Any]) -> dict[str, Any] | None:
    if given.get("use_staircase_decay") or given.get("begin_decay_at") or given.get("min_lr"):
        return None
    return {
        "policy": "exponential",
        "rate": given.get("learning_rate"),
        "factor": given.get("decay_rate"),
        "decay_steps": given.get("decay_steps"),
    }


_MAKERS = {"transformer_policy": _transformer, "fixed_lr": _fixed, "exp_decay": _exponential}
