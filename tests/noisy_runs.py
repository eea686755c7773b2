"""Run directories whose steps are as noisy as on shared machines, for comparing speed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.stored_runs import FACTS, START, StoredRun

LINE_STEPS = 10
USUAL = {"input": 0.02, "compute": 0.14, "network": 0.03, "optimizer": 0.01}


def noise(random: np.random.Generator, num_steps: int) -> NDArray[np.float64]:
    """Factors: every step by 6 %, a wandering of the whole machine, a hundredth of steps late,
    and a slow start."""
    steps = random.gamma(280, 1 / 280, num_steps)
    wander = np.cumsum(random.normal(0, 1, num_steps)) / np.sqrt(num_steps)
    late = np.where(random.random(num_steps) < 0.01, random.uniform(2, 12, num_steps), 1.0)
    factors: NDArray[np.float64] = steps * (1 + 0.006 * wander) * late
    factors[:8] *= 3
    return factors


def noisy_run(
    path: Path, seed: int, slower: dict[str, float] | None = None, num_steps: int = 600
) -> Path:
    """One process; `slower` adds seconds to the phases of every step."""
    run = StoredRun(path, [dict(USUAL)], overrides=[f"steps={num_steps}", "data=/absent"])
    run.launch()
    run.begin()
    random = np.random.default_rng(seed)
    usual = {name: s + (slower or {}).get(name, 0.0) for name, s in USUAL.items()}
    factors = noise(random, num_steps)
    lines, now = [], START + 5
    for first in range(0, num_steps, LINE_STEPS):
        own = factors[first : first + LINE_STEPS]
        shares = random.dirichlet([60 * usual[name] / 0.2 for name in usual])
        parts = 0.5 * shares * sum(usual.values()) + 0.5 * np.array(list(usual.values()))
        phases = dict(zip(usual, (parts * own.sum()).tolist(), strict=True))
        seconds = own * sum(usual.values())
        now += float(seconds.sum())
        lines.append(_line(first + LINE_STEPS, now, seconds, phases))
    with run.run.rank_events(0).open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return path


def _line(
    step: int, now: float, seconds: NDArray[np.float64], phases: dict[str, float]
) -> dict[str, Any]:
    return {
        "kind": "steps",
        "time": now,
        "attempt": 1,
        "step": step,
        "num_steps": LINE_STEPS,
        "loss": 1.0,
        "rate": 0.1,
        "num_units": 128 * LINE_STEPS,
        "seconds": float(seconds.sum()),
        "phases": phases,
        "step_seconds": [round(float(value), 6) for value in seconds],
        "cpu_seconds": float(seconds.sum()),
        "reduced_bytes": LINE_STEPS * FACTS["num_parameters"] * 4,  # type: ignore[operator]
    }
