"""From a bare image to a host that trains: the steps of `paceline hosts setup`.

The environment itself is sent by `hosts push`, which comes after them; or it is in a container, and
then the host needs that container's runtime and image instead.
"""

import shlex
import shutil
import subprocess

from paceline.hosts.container import Container
from paceline.hosts.push import FIND_PYTHON
from paceline.hosts.steps import Step, add_line, install

NEEDED_FOR_ENVIRONMENT = frozenset({"python", "venv"})
"""Steps without which no environment can be made."""
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


def container_steps(container: Container) -> list[Step]:
    return [
        _driver(),
        *_runtime(container),
        _image(container, has_image_here(container)),
        _shared_memory(),
        _open_files(),
        _clock(),
    ]


def _runtime(container: Container) -> list[Step]:
    if container.runtime == "apptainer":
        missing = "install it: apptainer.org/docs (Ubuntu: ppa:apptainer/ppa; Fedora: dnf)"
        return [Step("apptainer", "Apptainer", "command -v apptainer", missing=missing)]
    if container.runtime == "podman":
        fitting = install("podman crun", "podman")
        return [Step("podman", "install Podman", "command -v podman", fitting), _toolkit()]
    is_member = 'id -Gn "$(id -un)" | tr " " "\\n" | grep -qx docker'
    return [
        Step("docker", "install Docker", "command -v docker", install("docker.io", "docker")),
        Step(
            "user",
            "let this user use Docker, from the next login on",
            f"[ $(id -u) = 0 ] || docker version || {is_member}",
            '$S usermod -aG docker "$(id -un)"',
        ),
        _toolkit(),
    ]


def _toolkit() -> Step:
    """It comes from an archive of its own; which archives a host trusts, its owner decides."""
    return Step(
        "toolkit",
        "NVIDIA's container toolkit",
        check="! nvidia-smi -L || command -v nvidia-ctk",
        missing="GPUs are not seen in containers without NVIDIA's container toolkit: "
        "docs.nvidia.com/datacenter/cloud-native/container-toolkit has the three commands",
    )


def has_image_here(container: Container) -> bool:
    if container.runtime == "apptainer" or shutil.which(container.runtime) is None:
        return False
    words = [container.runtime, "image", "inspect", container.image]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _image(container: Container, is_here: bool) -> Step:
    """The very image of this machine where it has one, so that all hosts get the same."""
    runtime, image = container.runtime, shlex.quote(container.image)
    if runtime == "apptainer":
        missing = f"put it on storage that all hosts see: apptainer build {image} docker://..."
        return Step("image", container.image, f"[ -r {image} ]", missing=missing)
    # A user who was let in a moment ago is not a member before the next login: root is, always.
    name = "$S docker" if runtime == "docker" else runtime
    there = f"{name} image inspect {image}"
    if is_here:
        save = (runtime, "save", container.image)
        return Step("image", f"send {container.image}", there, f"{name} load --quiet", sends=save)
    return Step("image", f"pull {container.image}", there, f"{name} pull --quiet {image}")


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
    """The system's own, or a newer one beside it: Ubuntu 22.04's is too old."""
    newer = " || ".join(f"( {install(f'{p} {p}-venv', p)} )" for p in ("python3.12", "python3.11"))
    too_old = "the packages of this system have no Python 3.11 or newer: install one"
    return Step(
        "python",
        "install Python 3.11 or newer",
        check=FIND_PYTHON,
        apply=f"( {FIND_PYTHON} ) || ( {install('python3', 'python3')} ) || true\n"
        f"( {FIND_PYTHON} ) || {newer} || true\n"
        f"( {FIND_PYTHON} ) || {{ echo {shlex.quote(too_old)} >&2; exit 1; }}",
    )


def _virtual_environments() -> Step:
    """Debian and Ubuntu have a package of their own for it, one for each Python."""
    package = '"$(basename "$python")-venv"'
    return Step(
        "venv",
        "install what makes Python environments",
        check=f"{FIND_PYTHON} && $python -c 'import ensurepip, venv'",
        apply=f"{FIND_PYTHON} && {{ {install(package, 'python3-pip')}; }}",
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
