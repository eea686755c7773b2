"""Observing a training script from inside its own process, with no line of it changed.

`paceline run` has every process of the script load this folder (`site/sitecustomize.py`); or a
notebook says `import paceline.observe`, before or after torch. Everything here runs in a stranger's
process: the standard library and the torch found there are all it may use, Python 3.10 and torch
2.4 must do, no error may reach the script, and nothing may change what it computes. The variable
PACELINE_OBSERVE=off leaves it all out.

    order      what the launcher told        imports    acting on modules as they are imported
    hooks/     where the script is watched   boundaries phases from what was seen, by elimination
    recorder   lines of events               measures/  losses, samples, work, exposed communication
    habits/    what a reviewer would ask     compiled   keeping out of the way of torch.compile
"""

import os
import sys

_started = False


def start(run: str = "") -> None:
    """Once in a process: hooks are set as modules are imported, and nothing is written before the
    first step of an optimizer."""
    global _started  # noqa: PLW0603
    if _started:
        return
    _started = True
    from . import agent  # noqa: PLC0415  (a process without orders pays nothing)

    agent.start(run)


# Paceline's own training uses parts of this folder, and records itself.
_is_asked = "paceline.train" not in sys.modules and os.environ.get("PACELINE_OBSERVE") != "off"
if __name__ == "paceline.observe" and _is_asked:
    start(os.environ.get("PACELINE_RUN") or "runs/notebook")  # importing it asks for it
