"""Runs a script observed where Python ignores its environment (`-I`, `-E`) or its site (`-S`), so
that `sitecustomize` is not reached: `python -I isolated.py train.py ...`, or `-m module ...`."""

import os
import runpy
import sys
from types import ModuleType


def _start_observer() -> None:
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    with open(f"{here}/sitecustomize.py", encoding="utf-8") as file:  # noqa: PTH123
        own = compile(file.read(), f"{here}/sitecustomize.py", "exec")
    names = {"__file__": f"{here}/sitecustomize.py", "__name__": "paceline_start"}
    exec(own, names)  # noqa: S102
    names["start_unless_it_fails"]()  # type: ignore[operator]


def _take_place_of(script: str, main: ModuleType) -> None:
    """As if it had been named on the command line."""
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[0] = os.path.dirname(script)  # noqa: PTH120
    for name in [name for name in vars(main) if not name.startswith("__")]:
        delattr(main, name)
    main.__file__ = script
    main.__doc__ = None


def _run(words: list[str]) -> None:
    sys.argv = words
    if words[0] == "-m":
        sys.argv = words[1:]
        if not sys.flags.isolated:
            sys.path[0] = os.getcwd()  # noqa: PTH109
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    main, script = sys.modules["__main__"], os.path.abspath(words[0])  # noqa: PTH100
    with open(script, "rb") as file:  # noqa: PTH123
        content = file.read()
    code = compile(content, script, "exec", dont_inherit=True)
    _take_place_of(script, main)
    exec(code, vars(main))  # noqa: S102


_start_observer()
_run(sys.argv[1:])
