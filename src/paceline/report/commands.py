"""Commands that a report tells its reader to type."""

from pathlib import Path


def again(run: Path, setting: str, suffix: str = "-2") -> str:
    """The command that trains the same recipe with one thing changed, beside this run."""
    return f"paceline train {run}/recipe.yaml {setting} --run {run}{suffix}"


def go_on(run: Path, setting: str) -> str:
    return f"paceline train {run}/recipe.yaml {setting} --run {run}"
