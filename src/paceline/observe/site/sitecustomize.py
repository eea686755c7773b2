"""Runs at the start of every Python process that has this folder on its PYTHONPATH.

It loads the observer from the folder above by its path, because the process may know no Paceline,
and then runs the sitecustomize that would have run in its place.
"""

import contextlib
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  (pathlib is slow here)


def _start_observer() -> None:
    if not os.environ.get("PACELINE_OBSERVE"):
        return
    folder = os.path.dirname(_HERE)  # noqa: PTH120
    name = "_paceline_observe"
    spec = importlib.util.spec_from_file_location(
        name, folder + "/__init__.py", submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    module.start()


def _run_next_sitecustomize() -> None:
    """The one that this file hides; errors in it are its own and are told as Python tells them."""
    others = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def start_unless_it_fails() -> None:
    """An error of the observer never reaches the script."""
    with contextlib.suppress(Exception):
        _start_observer()


if __name__ == "sitecustomize":
    start_unless_it_fails()
    _run_next_sitecustomize()
