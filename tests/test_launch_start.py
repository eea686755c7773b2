"""What a start costs: which process imports what, and what the forked ones begin with."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import CommandLine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")

# For PYTHONPATH: every process notes which of these it loads; asking where they are is no load.
_NOTES_IMPORTS = """
import os, sys

class Notes:
    def find_spec(self, name, path=None, target=None):
        if name not in ("torch", "sympy", "torch._dynamo"):
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((each for each in found if each is not None), None)
        if spec is not None:
            load = spec.loader.exec_module
            def note_and_load(module):
                with open(os.environ["IMPORTS"], "a") as file:
                    file.write(f"{name} {os.getpid()}\\n")
                load(module)
            spec.loader.exec_module = note_and_load
        return spec

sys.meta_path.insert(0, Notes())
"""


def run_python(code: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert result.returncode == 0, result.stderr


def test_two_workers_and_their_launcher_import_torch_once_and_its_compiler_never(
    paceline: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_NOTES_IMPORTS, encoding="utf-8")
    notes = tmp_path / "imports"
    words = paceline.training("runs/a", "steps=2", "evaluate.every_steps=null")
    result = paceline(*words, "--procs", "2", PYTHONPATH=str(tmp_path), IMPORTS=str(notes))
    assert result.returncode == 0, result.stderr
    assert [line.split()[0] for line in notes.read_text().splitlines()] == ["torch"]


def test_what_is_forked_begins_without_threads_and_without_a_device() -> None:
    """numpy's and torch's own threads are a matter of OMP_NUM_THREADS, and made for forking."""
    run_python(
        "import os; os.environ['OMP_NUM_THREADS'] = '1'\n"
        "from paceline.launch.forkserver import preload; preload()\n"
        "import torch, paceline.train.attempt\n"
        "assert len(os.listdir('/proc/self/task')) == 1\n"
        "assert not torch.cuda.is_initialized()"
    )


def test_a_network_can_still_be_compiled_and_the_compiler_be_asked() -> None:
    run_python(
        "import sys, torch\n"
        "from paceline.machine.compiler import keep_compiler_out; keep_compiler_out()\n"
        "network = torch.nn.Linear(2, 2)\n"
        "torch.optim.SGD(network.parameters(), lr=0.1).step()\n"
        "assert 'sympy' not in sys.modules\n"
        "compiled = torch.compile(network, backend='eager')\n"
        "assert torch.equal(compiled(torch.ones(1, 2)), network(torch.ones(1, 2)))\n"
        "assert torch._dynamo.utils.counters['frames']['ok'] == 1"
    )


def test_whatever_else_is_asked_of_the_compiler_brings_it_in() -> None:
    run_python(
        "import sys, torch\n"
        "from paceline.machine.compiler import keep_compiler_out; keep_compiler_out()\n"
        "import torch._dynamo.config\n"
        "assert 'torch._dynamo.symbolic_convert' in sys.modules\n"
        "assert torch._dynamo is sys.modules['torch._dynamo']"
    )


def test_a_mistake_in_the_recipe_ends_the_process_that_imports_torch(
    paceline: CommandLine, tmp_path: Path
) -> None:
    result = paceline("train", "cifar10-tiny", "no.such=1", TMPDIR=str(tmp_path))
    assert result.returncode == 2
    assert "no setting" in result.stderr
    assert not list(tmp_path.iterdir())
