"""The observer in an environment that knows no Paceline, in spawned processes, in a notebook."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from paceline.report.own.run import read_run
from tests.observed_scripts import of_kind, paceline_run, phases_of, write_script

SPAWNED = """
import os
import sys
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset


def work(rank):
    torch.set_num_threads(1)
    store = "file://" + os.path.abspath("store")
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for (x,) in DataLoader(TensorDataset(torch.randn(96, 64)), 8):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    total = torch.ones(100)
    dist.all_reduce(total)
    dist.destroy_process_group()


if __name__ == "__main__":
    assert not any(name.startswith(("paceline", "pydantic", "psutil")) for name in sys.modules)
    try:
        import pydantic
    except ImportError:
        print("no pydantic here")
    torch.multiprocessing.spawn(work, nprocs=2)
"""
NEEDED_BY_TORCH = (
    "torch",
    "torchgen",
    "functorch",
    "typing_extensions.py",
    "sympy",
    "mpmath",
    "networkx",
    "jinja2",
    "markupsafe",
    "filelock",
    "fsspec",
    "setuptools",
)


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with torch and nothing of Paceline's, and a sitecustomize of its own."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    visible = folder / "visible"
    visible.mkdir()
    installed = Path(sysconfig.get_path("purelib"))
    for name in NEEDED_BY_TORCH:
        if (installed / name).exists():
            (visible / name).symlink_to(installed / name)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "torch-only.pth").write_text(f"{visible}\n")
    (site / "sitecustomize.py").write_text(
        "import os\nos.environ.setdefault('CHAINED', 'yes')\n", encoding="utf-8"
    )
    return folder / "venv" / "bin" / "python"


def test_spawned_ddp_processes_of_a_bare_environment_are_observed(
    tmp_path: Path, bare_python: Path
) -> None:
    write_script(tmp_path, SPAWNED + "    print('chained', os.environ['CHAINED'])\n")
    ended = paceline_run(tmp_path, "--python", str(bare_python), "train.py")
    assert ended.returncode == 0, ended.stderr
    said = [
        line for line in ended.stdout.splitlines() if not line.startswith("[Gloo]")
    ]  # torch 2.10
    assert said == ["no pydantic here", "chained yes"]
    run = tmp_path / "runs" / "train"
    for rank in (0, 1):
        (begin,) = of_kind(run, "begin", rank)
        assert begin["world_size"] == 2
        assert begin["parallel"] == "ddp"
        lines = of_kind(run, "steps", rank)
        assert lines[-1]["step"] == 12
        assert sum(line["reduced_bytes"] for line in lines) == 12 * 4 * (64 * 64 + 64)
        assert phases_of(run, rank)["network"] > 0
        assert len(of_kind(run, "end", rank)) == 1
    facts = read_run(run)
    assert facts.world.size == 2
    assert facts.environment["libraries"].keys() == {"torch"}
    events = {path.name for path in (run / "events").iterdir()}
    assert "idle.jsonl" not in events


def test_one_line_observes_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_OBSERVE")
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    cells = [
        "import torch\nimport paceline.observe",
        "model = torch.nn.Linear(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(12):\n"
        "    model(torch.randn(8, 4)).square().mean().backward()\n"
        "    optimizer.step()",
        "import paceline\nprint(paceline.open('runs/notebook').report())",
    ]
    made: Any = nbformat.v4
    notebook = made.new_notebook(cells=[made.new_code_cell(cell) for cell in cells])
    client = NotebookClient(
        notebook, timeout=180, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    (printed,) = [o["text"] for o in notebook.cells[2].outputs if o.get("name") == "stdout"]
    assert "notebook" in printed
    facts = read_run(tmp_path / "runs" / "notebook")
    assert facts.step == 12
    assert facts.is_observed


def test_the_observer_needs_nothing_when_nobody_asks(tmp_path: Path) -> None:
    site = Path(__file__).parents[1] / "src" / "paceline" / "observe" / "site"
    variables = {k: v for k, v in os.environ.items() if k != "PACELINE_OBSERVE"}
    shown = subprocess.run(
        [sys.executable, "-c", "import sys; print('_paceline_observe' in sys.modules)"],
        env={**variables, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "False\n"
