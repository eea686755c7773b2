"""`container:` of the hosts file: Python on a host is then the one inside of an image.

The run directory has the same path inside and outside, so that everything else that is done on a
host (looking, collecting) need not know of the container. Network, processes and shared memory are
the host's own: NCCL and Gloo want its addresses, and whoever ends a run must see its processes.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import field_validator

from paceline.config import Section, setting
from paceline.errors import UserError

Runtime = Literal["docker", "podman", "apptainer"]

_IMAGE = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./:@+-]*")
_NO_IMAGE = "is not the name of an image"
_PATH = r"/[A-Za-z0-9_./+=@-]*"
_MOUNT = re.compile(rf"{_PATH}(:{_PATH})?(:ro)?")
# The cache holds compiled kernels and, where no other place is named, data.
_PREPARE = """\
set -e
cache=$HOME/.cache/paceline
mkdir -p "$cache" {needed}
[ ! -d "$HOME/paceline-host" ] || pushed=$HOME/paceline-host
[ "$(id -u)" = 0 ] || other_user=yes
! command -v nvidia-smi >/dev/null 2>&1 || card=yes
"""


class ContainerSettings(Section):
    """What stands below `container:`."""

    image: str = setting(..., "the image, as its runtime knows it; for Apptainer a .sif file")
    runtime: Runtime = setting("docker", "docker, podman or apptainer")
    mounts: list[str] = setting([], "paths of the host to see inside: [/data, '/scratch:/tmp:ro']")
    options: list[str] = setting([], "more words for the runtime: ['--ulimit=memlock=-1']")

    @field_validator("image")
    @classmethod
    def _is_image(cls, image: str) -> str:
        if not _IMAGE.fullmatch(image):
            raise ValueError(_NO_IMAGE)
        return image

    @field_validator("mounts")
    @classmethod
    def _are_mounts(cls, mounts: list[str]) -> list[str]:
        for mount in mounts:
            if not _MOUNT.fullmatch(mount):
                raise ValueError(f"write mounts like /data or /host/path:/inside:ro, not '{mount}'")
        return mounts

    @field_validator("options")
    @classmethod
    def _are_options(cls, options: list[str]) -> list[str]:
        for option in options:
            if not option.startswith("--"):
                raise ValueError(f"options are one word each, like --shm-size=8g, not '{option}'")
        return options


@dataclass(frozen=True)
class Container:
    image: str
    runtime: Runtime = "docker"
    mounts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: ContainerSettings) -> "Container":
        return cls(
            settings.image, settings.runtime, tuple(settings.mounts), tuple(settings.options)
        )


def check_image(image: str) -> str:
    if not _IMAGE.fullmatch(image):
        raise UserError(f"{image!r} {_NO_IMAGE}", "like registry.example/paceline:cuda")
    return image


def words_inside(container: Container, words: Sequence[str], needed: Sequence[str]) -> list[str]:
    """A command of the host that runs these words in the container. `needed`: directories that
    must be there, inside and outside; they are made where they are missing."""
    both_sides = [_both_sides(mount) for mount in (*needed, *container.mounts)]
    mounts = list({mount.split(":")[1]: mount for mount in both_sides}.values())
    start = _apptainer if container.runtime == "apptainer" else _docker
    prepared = _PREPARE.format(needed=shlex.join(needed))
    return ["sh", "-c", prepared + start(container, mounts, words)]


def _both_sides(mount: str) -> str:
    path, _, rest = mount.partition(":")
    return f"{path}:{path}{':ro' if rest == 'ro' else ''}" if rest in ("", "ro") else mount


def _docker(container: Container, mounts: Sequence[str], words: Sequence[str]) -> str:
    """As the user who has logged in, so that what a run writes is theirs."""
    is_podman = container.runtime == "podman"
    card = "--device=nvidia.com/gpu=all" if is_podman else "--gpus=all"
    fixed = [
        "--rm",
        "--interactive",
        "--pull=never",
        "--network=host",
        "--pid=host",
        "--ipc=host",
        "--security-opt=label=disable",
        "--workdir=/",
        *(f"--volume={mount}" for mount in mounts),
        *container.options,
    ]
    return (
        f"exec {container.runtime} run {shlex.join(fixed)} "
        '--user="$(id -u):$(id -g)" --env=USER="$(id -un)" --env=HOME="$HOME" '
        f'--volume="$cache:$cache" ${{pushed:+"--volume=$pushed:$pushed:ro"}} ${{card:+{card}}} '
        f"{'${other_user:+--userns=keep-id} ' if is_podman else ''}"
        f"{shlex.join([f'--entrypoint={words[0]}', container.image, *words[1:]])}"
    )


def _apptainer(container: Container, mounts: Sequence[str], words: Sequence[str]) -> str:
    """It keeps the host's network, processes and user by itself, and mounts the home directory."""
    fixed = [*(f"--bind={mount}" for mount in mounts), *container.options]
    command = shlex.join([container.image, *words])
    return f"exec apptainer exec ${{card:+--nv}} {shlex.join(fixed)} {command}"
