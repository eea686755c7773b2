"""One process of our own that does one job with a worker's environment, e.g. an evaluation."""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import IO, Any

from paceline.machine.signals import caught_by
from paceline.machine.tuning import speed_environment


def run_alone(
    module: str,
    arguments: list[str],
    stdout: IO[bytes] | int | None = None,
    variables: Mapping[str, str] | None = None,
) -> int:
    """Run one module of ours to its end, pass signals on, and return its exit code."""
    environment = {**os.environ, **speed_environment(1), **(variables or {})}
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments], env=environment, stdout=stdout
    )
    asked: list[int] = []

    def end(number: int, _frame: Any) -> None:
        asked.append(number)
        process.terminate()

    with caught_by(end):
        code = process.wait()
    if asked:
        return 128 + asked[0]
    return code if code >= 0 else 128 - code
