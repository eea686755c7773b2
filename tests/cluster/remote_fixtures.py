"""Fixtures of the tests that train on the lab's hosts."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.remote_run import RemoteRun, Start, environment, weights, words

if TYPE_CHECKING:
    from tests.cluster.conftest import PracticeLab

SLOW = "compute=0.1"  # a step long enough to be disturbed in


@pytest.fixture
def start(lab: "PracticeLab", pictures: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a run on the first hosts of the lab; it is ended with the test."""
    begun: list[RemoteRun] = []

    def starts(num_hosts: int, *settings: str, practice: str = SLOW) -> RemoteRun:
        hosts = lab.write_hosts(tmp_path / "hosts.yaml", num_hosts)
        run = tmp_path / f"run{len(begun)}"
        begun.append(RemoteRun.start(hosts, pictures, run, *settings, practice=practice))
        return begun[-1]

    yield starts
    for run in begun:
        run.end()


@pytest.fixture(scope="session")
def undisturbed(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """The weights of the same run with as many processes on this machine, and no fault."""
    known: dict[tuple[int, int], str] = {}

    def weights_of(num_procs: int, steps: int) -> str:
        if (num_procs, steps) not in known:
            run = tmp_path_factory.mktemp("undisturbed")
            command = [*words(pictures, run, f"steps={steps}"), "--procs", str(num_procs)]
            subprocess.run(command, check=True, capture_output=True, env=environment(), timeout=120)
            known[num_procs, steps] = weights(run)
        return known[num_procs, steps]

    return weights_of
