"""`make demo`: the main job on data that Paceline makes itself, from nothing to a report."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

RUN = Path("runs/demo")


def main() -> None:
    """The commands a user would type, shown as they are run."""
    recipe = ["train", "cifar10-tiny", "--run", str(RUN), "--procs", "2"]
    _run("data", "cifar10", "--from", "stand-in")
    _run(*recipe)
    _run("evaluate", str(RUN), "--split", "test")
    _run("report", str(RUN), "--lines", "20")
    sys.stderr.write(
        f"\nWhere to look next:\n"
        f"  paceline report {RUN}              everything about this run\n"
        f"  paceline log {RUN} --csv           its curves as a table\n"
        f"  paceline checkpoint {RUN}          what was saved\n"
        f"  tensorboard --logdir {RUN}         the curves in a browser\n"
        f"  paceline recipes                     what else can be trained\n"
        f"(the commands are in {os.path.relpath(Path(sys.executable).parent)})\n"
    )


def _run(*words: str) -> None:
    sys.stderr.write(f"\n$ paceline {shlex.join(words)}\n")
    sys.stderr.flush()
    result = subprocess.run([sys.executable, "-m", "paceline.cli", *words], check=False)
    if result.returncode:
        sys.exit(result.returncode)


if __name__ == "__main__":
    main()
