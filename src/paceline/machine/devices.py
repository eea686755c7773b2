"""The devices of this host that workers can have; asked without torch."""

import subprocess


def num_procs_here() -> int:
    """One process per CUDA device; on a CPU one process with all cores."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 1
    return max(1, listed.stdout.count("GPU "))
