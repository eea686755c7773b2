"""Python in a process of its own, for what is decided once in a process."""

import os
import subprocess
import sys


def run_python(script: str, kernel: str) -> list[str]:
    environment = {**os.environ, "PACELINE_KERNEL": kernel}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()
