"""From a bare image to a host that trains: the steps of `paceline hosts setup`.

The environment itself is sent by `hosts push`, which comes after them.
"""

from paceline.hosts.steps import Step, add_line, install

LIMITS = "/etc/security/limits.d/90-paceline.conf"
_SHARED_MEMORY = "tmpfs /dev/shm tmpfs defaults,size=50% 0 0"


def setup_steps() -> list[Step]:
    return [
        _driver(),
        _python(),
        _virtual_environments(),
        _shared_memory(),
        _open_files(),
        _clock(),
    ]


def _driver() -> Step:
    """A driver needs a restart and fits a kernel: that is not for a training tool to decide."""
    return Step(
        "driver",
        "the driver of an NVIDIA card",
        check="! grep -qi 0x10de /sys/bus/pci/devices/*/vendor || nvidia-smi -L",
        missing="a card of NVIDIA is there and its driver does not answer; Ubuntu: `sudo "
        "ubuntu-drivers install`, then restart the host",
    )


def _python() -> Step:
    return Step(
        "python",
        "install Python 3.11 or newer",
        check="python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'",
        apply=install("python3 python3-venv", "python3")
        + "; python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || "
        "{ echo 'the Python of this system is too old: install 3.11 or newer' >&2; exit 1; }",
    )


def _virtual_environments() -> Step:
    return Step(
        "venv",
        "install what makes Python environments",
        check="python3 -c 'import ensurepip, venv'",
        apply=install("python3-venv", "python3-pip"),
    )


def _shared_memory() -> Step:
    return Step(
        "shm",
        "give /dev/shm half of the memory, now and after a restart",
        check="[ \"$(df -kP /dev/shm | awk 'NR==2 {print $2}')\" -ge 1048576 ]",
        apply="$S mount -o remount,size=50% /dev/shm; "
        f"grep -qs ' /dev/shm ' /etc/fstab || {add_line(_SHARED_MEMORY, '/etc/fstab')}",
    )


def _open_files() -> Step:
    return Step(
        "limits",
        "let a process have 65,536 files open, from the next login on",
        check=f"n=$(ulimit -Hn); [ -e {LIMITS} ] || [ $n = unlimited ] || [ $n -ge 65536 ]",
        apply=f"printf '* soft nofile 65536\\n* hard nofile 65536\\n' | $S tee {LIMITS} >/dev/null",
    )


def _clock() -> Step:
    return Step(
        "clock",
        "keep the clock right over the network",
        check="timedatectl show -p NTP --value | grep -q yes || pgrep -x 'chronyd|ntpd|ntpsec'",
        apply="$S timedatectl set-ntp true",
    )
