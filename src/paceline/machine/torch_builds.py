"""Which CUDA devices a build of torch has kernels for, and which release to take where it has none.

Pure functions; no torch. From the build matrix in PyTorch's RELEASE.md: what `pip install torch`
installs on Linux by default.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from paceline.machine.arithmetic import Capability, shown
from paceline.units import count_of

_TEGRA: Final = ((5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0))
"""Jetson and its kin: kernels for cards do not run there, whatever their number says."""

_THOR: Final = (11, 0)

NEWEST: Final = "2.13.0"
"""What `constraints.txt` pins: 7.5 and higher, with CUDA 13."""

WITH_CUDA_12: Final = "2.10.0"
"""What `constraints-older-gpus.txt` pins: 7.0 and higher, and older drivers."""

_LEAST_DRIVER: Final = {13: 580, 12: 525}
"""By CUDA's major version; NVIDIA's "CUDA Compatibility", minor version compatibility."""


@dataclass(frozen=True)
class Release:
    """A release of torch whose default build has kernels for some device."""

    version: str
    constraints: str = ""
    """The file of ours that pins it, where there is one."""

    @property
    def command(self) -> str:
        if not self.constraints:
            return f"pip install torch=={self.version}"
        return f"pip install -c {self.constraints} torch=={self.version}"


def has_kernels(capability: Capability, built_for: Sequence[str]) -> bool:
    """`built_for` is torch.cuda.get_arch_list(). Machine code ('sm_80') runs on later minor
    versions of its major one, portable code ('compute_90') on all later ones; code for one
    architecture with all that is special to it ('sm_90a') there alone."""
    return any(_runs_on(capability, each) for each in built_for)


def _runs_on(capability: Capability, built: str) -> bool:
    match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", built)
    if match is None:
        return False
    number = (int(match[2]), int(match[3]))
    if match[4] == "a" or (match[1] == "sm" and _is_tegra(capability, number)):
        return capability == number
    if match[1] == "compute" and not match[4]:
        return capability >= number
    return capability[0] == number[0] and capability >= number


def _is_tegra(*capabilities: Capability) -> bool:
    return any(capability in _TEGRA for capability in capabilities)


def fitting_release(capability: Capability) -> Release | None:
    """None where no default build has kernels for it: a Jetson has builds of its own, but for the
    newest, which the build for ARM has."""
    if capability in _TEGRA and capability != _THOR:
        return None
    if capability < (5, 0):
        return None
    if capability < (7, 0):
        return Release("2.7.1")  # the last with CUDA 12.6, which has Maxwell and Pascal
    if capability < (7, 5):
        return Release(WITH_CUDA_12, "constraints-older-gpus.txt")  # the last with Volta
    return Release(NEWEST, "constraints.txt")


def default_build_has(version: str, capability: Capability) -> bool:
    """Whether the default build of a release has kernels for a device."""
    number = _number(version)
    if capability == _THOR:
        return number >= (2, 11)
    first = (5, 0) if number < (2, 8) else (7, 0) if number < (2, 11) else (7, 5)
    last = (9, 0) if number < (2, 8) else (12, 1)
    return first <= capability <= last and capability not in _TEGRA


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


@dataclass(frozen=True)
class Card:
    """As nvidia-smi tells it."""

    capability: Capability
    driver: int | None = None
    """Its first number; None where it is not known."""

    @classmethod
    def parse(cls, line: str) -> "Card | None":
        """'7.5, 550.54.15': compute_cap and driver_version."""
        match = re.search(r"(\d+)\.(\d+)(?:\s*,\s*(\d+)\.)?", line)
        if match is None:
            return None
        return cls((int(match[1]), int(match[2])), int(match[3]) if match[3] else None)

    def why_not(self, version: str) -> str | None:
        """What keeps the default build of a release from running on it."""
        if not default_build_has(version, self.capability):
            return f"has no kernels for compute capability {shown(self.capability)}"
        least = _LEAST_DRIVER[13 if _number(version) >= (2, 11) else 12]
        if self.driver is not None and self.driver < least:
            return f"needs NVIDIA's driver {least} or newer, and a host has {self.driver}"
        return None


def version_for_all(here: str, cards: Sequence[Card]) -> str:
    """The release that hosts with these cards install: the one here if its default build runs on
    all of them, else the newest that does. Where none does, the one here too: what is wrong with
    it is told by the doctor."""
    known = [fitting_release(card.capability) for card in cards]
    versions = [here, *(release.version for release in known if release), WITH_CUDA_12]
    for version in versions:
        if not any(card.why_not(version) for card in cards):
            return version
    return here


def remedy_for(capability: Capability) -> str:
    """What to install so that torch has kernels for it."""
    if capability in _TEGRA and capability != _THOR:
        return (
            "a Jetson needs NVIDIA's own build of torch for its JetPack (docs/gpus.md); "
            "or train on the processor: device=cpu"
        )
    release = fitting_release(capability)
    if release is None:
        return "no torch that Paceline runs with has kernels for it: device=cpu"
    return f"torch {release.version} has them: {release.command}; or train there with device=cpu"


def without_kernels(name: str, capability: Capability, built_for: Sequence[str]) -> str | None:
    """What is wrong with this torch for that device, if anything is. AMD's builds name their
    devices otherwise ('gfx90a'), and are left to themselves."""
    if any(each.startswith("gfx") for each in built_for) or has_kernels(capability, built_for):
        return None
    built = ", ".join(built_for) or "no CUDA device"
    return (
        f"{name} has compute capability {shown(capability)}, and this torch has kernels for "
        f"{built} only"
    )


def why_on_processor(
    num_devices: int, torch_version: str, cuda_version: str | None, driver: str | None
) -> str:
    """Of a host whose driver lists devices of which torch can use none: why, and what helps."""
    listed = f"NVIDIA's driver lists {count_of(num_devices, 'device')}"
    place = "so this run is on the processor"
    if cuda_version is None:
        return (
            f"{listed}, but torch {torch_version} is built without CUDA, {place}. Install a build "
            "with CUDA (docs/gpus.md)"
        )
    least = _LEAST_DRIVER.get(int(cuda_version.partition(".")[0]))
    have = re.match(r"\d+", driver or "")
    if least is not None and have is not None and int(have[0]) < least:
        return (
            f"{listed}, but torch {torch_version} is built with CUDA {cuda_version}, which needs "
            f"driver {least} or newer, and this is {driver}, {place}. Update the driver, or "
            f"{_older_torch(int(have[0]))}"
        )
    return f"{listed}, but torch finds none of them, {place}. See `paceline selftest`"


def _older_torch(driver: int) -> str:
    if driver < _LEAST_DRIVER[12]:
        return "see docs/gpus.md for older releases of torch"
    return f"pip install -c constraints-older-gpus.txt torch=={WITH_CUDA_12}, which has CUDA 12"
