"""The devices of this host that workers can have, and which one is whose; asked without torch."""

import subprocess
from collections.abc import Mapping, Sequence

from paceline.errors import UserError


def num_procs_here() -> int:
    """One process per CUDA device; on a CPU one process with all cores."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 1
    return max(1, listed.stdout.count("GPU "))


def choose_index(local_rank: int, num_visible: int, variables: Mapping[str, str]) -> int:
    """Which of the CUDA devices that a process sees is its own.

    Mostly all processes of a host see all devices and count off. A scheduler may also show each
    process its own alone (`srun --gpus-per-task=1`), and that one has number 0 in all of them.
    """
    if local_rank < num_visible:
        return local_rank
    if num_visible and _sees_own_devices_alone(variables):
        return 0
    raise UserError(
        f"process {local_rank} of this host has no CUDA device: there are {num_visible}",
        "start at most one process per device (--procs)",
    )


def _sees_own_devices_alone(variables: Mapping[str, str]) -> bool:
    """What Slurm sets for each task, and what wrapper scripts of mpirun do by hand. The latter may
    be one device for all processes by mistake: see `refuse_shared_device`."""
    per_task = variables.get("SLURM_GPUS_PER_TASK") or "gpu" in variables.get(
        "SLURM_TRES_PER_TASK", ""
    )
    visible = variables.get("CUDA_VISIBLE_DEVICES", "")
    return bool(per_task) or (visible != "" and "," not in visible)


def refuse_shared_device(owners: Sequence[str]) -> None:
    """`owners` has each process's device, by rank, under a name that no other device has."""
    ranks: dict[str, list[int]] = {}
    for rank, device in enumerate(owners):
        ranks.setdefault(device, []).append(rank)
    for device, sharing in ranks.items():
        if len(sharing) > 1:
            raise UserError(
                f"processes {', '.join(map(str, sharing))} would share one CUDA device, {device}",
                "start at most one process per device (--procs), or let CUDA_VISIBLE_DEVICES "
                "name another one for each",
            )
