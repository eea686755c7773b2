"""Does a kernel run on every device, and is this torch built for it: with a played driver."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.doctor import torch_trial
from paceline.doctor.devices import judge_kernels
from paceline.doctor.rows import Row
from paceline.errors import UserError
from paceline.machine.arithmetic import Capability
from paceline.machine.torch_builds import (
    NEWEST,
    Card,
    default_build_has,
    fitting_release,
    has_kernels,
    version_for_all,
)
from paceline.world import refuse_without_kernels

# What torch.cuda.get_arch_list() says in the default builds.
TORCH_2_7 = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]
TORCH_2_10 = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]
TORCH_2_13 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]
JETSON_ORIN = ["sm_87"]
BUILDS = {"2.7.1": TORCH_2_7, "2.10.0": TORCH_2_10, NEWEST: TORCH_2_13}

CARDS: dict[str, Capability] = {
    "GTX 1080": (6, 1),
    "V100": (7, 0),
    "T4": (7, 5),
    "RTX 2080": (7, 5),
    "A100": (8, 0),
    "A10G": (8, 6),
    "RTX 3090": (8, 6),
    "L4": (8, 9),
    "RTX 4090": (8, 9),
    "H100": (9, 0),
    "RTX 5090": (12, 0),
}


@pytest.mark.parametrize("card", CARDS)
def test_the_release_that_is_named_for_a_card_has_kernels_for_it(card: str) -> None:
    release = fitting_release(CARDS[card])
    assert release is not None
    assert has_kernels(CARDS[card], BUILDS[release.version])


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ((7, 0), TORCH_2_13, False),
        ((7, 0), TORCH_2_10, True),
        ((8, 9), TORCH_2_13, True),  # by sm_86, of the same major version
        ((12, 0), TORCH_2_7, False),
        ((12, 0), ["sm_90", "compute_90"], True),  # compiled by the driver
        ((9, 0), ["sm_90a"], True),
        ((9, 1), ["sm_90a"], False),
        ((8, 7), TORCH_2_13, False),  # a Jetson takes no kernels of cards
        ((8, 7), JETSON_ORIN, True),
        ((8, 9), JETSON_ORIN, False),
        ((8, 0), [], False),
        ((8, 0), ["gfx90a"], False),
    ],
)
def test_which_kernels_run_where(capability: Capability, built_for: list[str], runs: bool) -> None:
    assert has_kernels(capability, built_for) == runs


@pytest.mark.parametrize("version", BUILDS)
def test_what_is_known_of_a_release_agrees_with_what_it_was_built_for(version: str) -> None:
    for capability in CARDS.values():
        assert default_build_has(version, capability) == has_kernels(capability, BUILDS[version])


@pytest.mark.parametrize(
    ("here", "lines", "version"),
    [
        ("2.13.0", [], "2.13.0"),
        ("2.13.0", ["7.5, 580.95.05", "12.0, 580.95.05"], "2.13.0"),
        ("2.13.0", ["7.0, 580.95.05", "12.0, 580.95.05"], "2.10.0"),
        ("2.13.0", ["7.5, 550.54.15"], "2.10.0"),  # CUDA 13 wants a newer driver
        ("2.13.0", ["8.6, 580.95.05", "7.5, 535.183.01"], "2.10.0"),
        ("2.13.0", ["7.5"], "2.13.0"),
        ("2.7.1", ["12.0, 580.95.05"], NEWEST),
        ("2.13.0", ["6.1, 580.95.05", "12.0, 580.95.05"], "2.13.0"),  # there is none
        ("2.13.0", ["7.5, 470.82.01"], "2.13.0"),  # nor here
    ],
)
def test_all_hosts_get_one_torch_that_runs_on_their_cards_and_drivers(
    here: str, lines: list[str], version: str
) -> None:
    cards = [card for card in map(Card.parse, lines) if card is not None]
    assert len(cards) == len(lines)
    assert version_for_all(here, cards) == version


def test_a_card_without_kernels_is_refused_before_the_first_one_is_launched() -> None:
    with pytest.raises(UserError, match=r"Tesla V100.* compute capability 7\.0") as caught:
        refuse_without_kernels("Tesla V100-SXM2-16GB", (7, 0), TORCH_2_13)
    assert "torch 2.10.0 has them: pip install -c constraints-older-gpus.txt" in caught.value.fix
    with pytest.raises(UserError) as caught:
        refuse_without_kernels("Orin", (8, 7), TORCH_2_13)
    assert "JetPack" in caught.value.fix
    refuse_without_kernels("Tesla T4", (7, 5), TORCH_2_13)
    refuse_without_kernels("AMD Instinct MI250X", (9, 0), ["gfx90a"])


def test_the_second_constraints_file_differs_in_torch_alone() -> None:
    root = Path(__file__).parents[1]

    def pins(name: str) -> set[str]:
        lines = (root / name).read_text(encoding="utf-8").splitlines()
        return {line for line in lines if line and not line.startswith("#")}

    newest, older = pins("constraints.txt"), pins("constraints-older-gpus.txt")
    assert newest - older == {f"torch=={NEWEST}"}
    assert older - newest == {"torch==2.10.0"}


# ---- judgements


def host(gpus: int, devices: list[dict[str, Any]], **tried: Any) -> dict[str, Any]:
    usual = {"version": "2.13.0", "cuda": "13.0", "seconds": 1.0, "path": "/venv/torch"}
    trial = {**usual, "built_for": TORCH_2_13, "devices": devices, **tried}
    return {"gpus": ["?"] * gpus, "driver": "580.95.05", "torch_import": trial}


def card(name: str, capability: Capability, **more: Any) -> dict[str, Any]:
    return {"name": name, "capability": list(capability), "memory_bytes": 15.8e9, **more}


def only_row(facts: dict[str, Any]) -> Row:
    (row,) = judge_kernels({"a": facts})
    return row


def test_a_device_is_named_with_capability_memory_driver_and_what_torch_was_built_for() -> None:
    row = only_row(host(2, [card("Tesla T4", (7, 5))] * 2))
    assert row.state == "ok"
    assert "2 x Tesla T4 (compute capability 7.5, 15.8 GB), driver 580.95.05" in row.found
    assert "torch 2.13.0 is built with CUDA 13.0 for sm_75, sm_80" in row.found


def test_a_card_that_this_torch_has_no_kernels_for_is_told_with_a_torch_that_has() -> None:
    error = "CUDA error: no kernel image is available for execution on the device"
    row = only_row(host(1, [card("Tesla V100-SXM2-16GB", (7, 0), error=error)]))
    assert row.state == "fail"
    assert "compute capability 7.0, and this torch has kernels for sm_75" in row.found
    assert row.remedy.startswith("torch 2.10.0 has them: pip install -c constraints-older-gpus.txt")


def test_a_kernel_that_fails_for_another_reason_is_told_as_it_is() -> None:
    error = "CUDA error: uncorrectable ECC error encountered"
    good, bad = card("A100", (8, 0)), card("A100", (8, 0), error=error)
    row = only_row(host(2, [good, bad]))
    assert row.state == "fail" and "uncorrectable ECC error" in row.found
    assert "nvidia-smi" in row.remedy


def test_a_driver_too_old_and_a_torch_without_cuda_are_told_apart() -> None:
    old = host(1, [], cuda_error="The NVIDIA driver on your system is too old (found 11040)")
    assert "driver on your system is too old" in only_row(old).found
    assert "update NVIDIA's driver" in only_row(old).remedy
    without = host(1, [], cuda=None, built_for=[], version="2.13.0+cpu")
    assert "torch 2.13.0+cpu is built without CUDA" in only_row(without).found


def test_hosts_without_devices_or_without_a_trial_have_no_row() -> None:
    assert judge_kernels({"a": host(0, [], cuda=None)}) == []
    assert judge_kernels({"a": {"gpus": ["?"], "driver": None, "torch_import": None}}) == []
    broken = {"gpus": ["?"], "driver": None, "torch_import": {"error": "libcudart is missing"}}
    assert judge_kernels({"a": broken}) == []


# ---- the trial on a host

PLAYED_TORCH = '''
"""What the trial asks of torch, on a machine with a V100 and a T4."""
__version__ = "2.13.0"

class version:
    cuda, hip = "13.0", None

class _About:
    def __init__(self, name, major, minor):
        self.name, self.major, self.minor, self.total_memory = name, major, minor, 16_000_000_000

class cuda:
    init = staticmethod(lambda: None)
    device_count = staticmethod(lambda: 2)
    get_arch_list = staticmethod(lambda: ["sm_75", "sm_80"])
    get_device_properties = staticmethod(lambda n: [_About("V100", 7, 0), _About("T4", 7, 5)][n])

def ones(_size, device):
    if device == "cuda:0":
        raise RuntimeError("CUDA error: no kernel image is available\\nCompile with ...")
    return 1.0
'''


def run_trial(python_path: str = "") -> dict[str, Any]:
    program = Path(torch_trial.__file__).read_text(encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": python_path},
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_the_trial_launches_a_kernel_on_every_device(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(PLAYED_TORCH, encoding="utf-8")
    tried = run_trial(str(tmp_path))
    first, second = tried["devices"]
    assert first["error"] == "CUDA error: no kernel image is available"
    assert "error" not in second and second["capability"] == [7, 5]
    rows = judge_kernels({"a": {"gpus": ["V100", "T4"], "driver": None, "torch_import": tried}})
    assert [row.state for row in rows] == ["fail"]
    assert "V100 has compute capability 7.0" in rows[0].found


def test_the_trial_works_with_the_torch_that_is_here() -> None:
    tried = run_trial()
    assert tried["devices"] == [] and tried["seconds"] > 0
    assert isinstance(tried["built_for"], list)


def test_an_old_python_can_read_the_trial() -> None:
    ast.parse(Path(torch_trial.__file__).read_text(encoding="utf-8"), feature_version=(3, 7))


def test_the_newest_jetson_has_kernels_in_the_build_for_arm() -> None:
    release = fitting_release((11, 0))
    assert release is not None and release.version == NEWEST
    assert default_build_has(NEWEST, (11, 0)) and not default_build_has("2.10.0", (11, 0))
    assert fitting_release((8, 7)) is None
