"""`make demo`: the main job on data that Paceline makes itself, from nothing to a report."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from paceline.machine.devices import num_visible_devices
from paceline.tasks.nmt.preparation import prepare as nmt

RUN = Path("runs/demo")
NUM_UNSEEN = 3


def main() -> None:
    """The commands a user would type, shown as they are run."""
    _run("data", "nmt", "--from", "stand-in")
    _run("train", "nmt-tiny", *_device(), "--run", str(RUN), "--procs", "2")
    _run("evaluate", str(RUN), "--split", "test")
    _translate_unseen_sentences()
    _run("report", str(RUN), "--lines", "18")
    place = os.path.relpath(Path(sys.executable).parent)
    _say(
        f"\nWhere to look next (the commands are in {place}):\n"
        f"  paceline report {RUN}              everything about this run\n"
        f"  paceline translate {RUN}           type English, read German\n"
        f"  paceline log {RUN} --csv           its curves as a table\n"
        f"  paceline checkpoint {RUN}          what was saved\n"
        f"  tensorboard --logdir {RUN}         the curves in a browser\n"
        f"  paceline recipes                     what else can be trained\n"
    )


def _device() -> list[str]:
    """The demonstration has two processes; a machine with one GPU trains them on its processor."""
    return ["device=cpu"] if num_visible_devices() == 1 else []


def _translate_unseen_sentences() -> None:
    """Test sentences: no split holds a sentence of another."""
    test = nmt.open_split(nmt.default_directory("stand-in"), "test")
    sentences = "".join(f"{line}\n" for line in test.source_text()[:NUM_UNSEEN])
    _say(f"\n$ paceline translate {RUN}     # sentences it never saw\n{sentences}")
    _call(["translate", str(RUN)], sentences)


def _run(*words: str) -> None:
    _say(f"\n$ paceline {shlex.join(words)}\n")
    _call(list(words))


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _call(words: list[str], text: str | None = None) -> None:
    command = [sys.executable, "-m", "paceline.cli", *words]
    result = subprocess.run(command, check=False, input=text, text=True)
    if result.returncode:
        sys.exit(result.returncode)


if __name__ == "__main__":
    main()
