"""One process of our own that does one job with a worker's environment, e.g. an evaluation."""

import os
import subprocess
import sys
import time
from typing import IO

from paceline.machine.tuning import speed_environment


def run_alone(module: str, arguments: list[str], stdout: IO[bytes] | int | None = None) -> int:
    """Run one module of ours to its end, pass signals on, and return its exit code."""
    environment = {**os.environ, **speed_environment(1)}
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments], env=environment, stdout=stdout
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        time.sleep(0.1)
        process.kill()
        return 130
