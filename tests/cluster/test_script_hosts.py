"""`paceline run --hosts`: from a script on this machine to a run that is collected from hosts."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.record.events import read_events
from paceline.record.schema import RunDirectory
from tests.cluster.conftest import PracticeLab, Result
from tests.cluster.remote_run import environment
from tests.cluster.script_run import SCRIPTS
from tests.cluster.test_own_task import make_environment

pytestmark = pytest.mark.cluster


@pytest.fixture
def project(lab: PracticeLab) -> Iterator[Path]:
    """Under the lab's `local`, which hosts have as well, but with their own files in it."""
    folder = lab.local / "scripts"
    folder.mkdir(parents=True)
    for name in ("ddp.py", "trouble.py"):
        (folder / name).write_bytes((SCRIPTS / name).read_bytes())
    yield folder
    subprocess.run(["rm", "-rf", str(folder), str(lab.local / "script-run")], check=True)


def paceline(folder: Path, *words: str) -> Result:
    return subprocess.run(
        [sys.executable, "-m", "paceline.cli", *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def own_python(lab: PracticeLab, name: str) -> dict[str, str]:
    make_environment(lab, name)
    (lab.local_of(name) / "sent" / "code").mkdir()
    return {"python": f"{lab.local}/sent/.venv/bin/python"}


def test_a_script_is_sent_compared_run_and_its_run_collected(
    lab: PracticeLab, project: Path, tmp_path: Path
) -> None:
    pythons = {name: own_python(lab, name) for name in ("node0", "node1")}
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 2, **pythons)
    run = RunDirectory(lab.local / "script-run")
    words = ["--hosts", str(hosts), "--run", str(run.path), "ddp.py", "--steps", "12"]

    refused = paceline(project, "run", *words)
    assert refused.returncode == 2
    assert "node0, node1  script  your script is not there" in refused.stdout + refused.stderr
    assert "add --push" in refused.stdout + refused.stderr
    assert not run.path.exists()

    (project / "weights.bin").write_bytes(bytes(21_000_000))
    done = paceline(project, "run", "--push", "--json", "-", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout), "standard output has the report alone"
    said = done.stderr
    assert "left out: weights.bin (21.0 MB); copy it to the hosts yourself" in said
    assert "[node0 rank 0] step 9" in said and "[node1 rank 1] step 9" in said
    assert "collected from node0, node1" in said
    assert "12 steps in" in said and f"paceline report {run.path}" in said
    for rank, host in enumerate(("node0", "node1")):
        events = read_events(run.rank_events(rank))
        assert [e["host"] for e in events if e["kind"] == "begin"] == [host]
        assert events[-1]["kind"] == "end" and events[-1]["step"] == 12
        assert read_events(run.host_events(host)), "the host was probed"

    changed = (project / "trouble.py").read_text(encoding="utf-8") + "\n# changed\n"
    lab.local_of("node1").joinpath("sent/projects/scripts/trouble.py").write_text(changed)
    other = paceline(project, "run", *words)
    assert other.returncode == 2
    assert "other code than here (trouble.py)" in other.stdout + other.stderr


def test_a_detached_script_is_attached_to_listed_and_stopped(
    lab: PracticeLab, tmp_path: Path
) -> None:
    hosts = lab.write_hosts(tmp_path / "hosts.yaml", 2)
    run = tmp_path / "runs" / "ddp"
    begun = paceline(SCRIPTS, "run", "--hosts", str(hosts), "--run", str(run), "--detach", "ddp.py")
    assert begun.returncode == 0, begun.stdout + begun.stderr
    with subprocess.Popen(
        [sys.executable, "-m", "paceline.cli", "attach", str(run)],
        stdout=subprocess.PIPE,
        text=True,
    ) as attached:
        assert attached.stdout is not None
        for line in attached.stdout:
            if "rank 1] step 9" in line:
                break
        listed = paceline(tmp_path, "runs")
        assert "runs/ddp  training  step" in listed.stdout + listed.stderr
        other = paceline(SCRIPTS, "run", "--run", str(run), "trouble.py")
        assert other.returncode == 2 and "another script" in other.stderr
        stopped = paceline(tmp_path, "stop", str(run))
        assert stopped.returncode == 0 and "has stopped" in stopped.stdout + stopped.stderr
        rest = attached.stdout.read()
    assert attached.returncode == 143
    assert "ending the script on all hosts" in rest
    assert "the script saved nothing that was seen, so all" in rest
    assert "runs/ddp  stopped" in paceline(tmp_path, "runs").stdout
