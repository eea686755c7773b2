"""Measures `paceline run` on scripts that know nothing of it.

    python -m benchmarks.observe                     # what the observer adds to a step
    sudo python -m benchmarks.observe bottlenecks    # verdicts and shares, on two practice hosts
    sudo python -m benchmarks.observe rivals         # other tools on the same bottlenecks
    python -m benchmarks.observe tables --keep DIR   # what those two kept, as tables for a page

The second and third need root, ssh and sshfs, and the extra `frameworks`; `--scripts` and
`--injections` choose some of them. The third needs the other tools in an environment of their own
(`--python`), as docs/benchmarks.md says.
"""

import argparse
from pathlib import Path

from benchmarks.observe import bottlenecks, overhead, rivals, tables
from benchmarks.observe.injections import INJECTIONS
from benchmarks.observe.lab_run import SCRIPTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", default="overhead", choices=_PARTS)
    parser.add_argument("--scripts", default="", help=f"some of {','.join(SCRIPTS)}")
    parser.add_argument("--injections", default="", help=f"some of {','.join(INJECTIONS)}")
    parser.add_argument("--keep", type=Path, help="where runs and results are kept")
    parser.add_argument("--python", help="of the environment that has the other tools")
    _PARTS[(given := parser.parse_args()).what](given)


_PARTS = {
    "overhead": lambda given: overhead.main(),
    "bottlenecks": bottlenecks.main,
    "rivals": rivals.main,
    "tables": tables.main,
}

if __name__ == "__main__":
    main()
