"""Containers of hosts that have one: is its runtime there, is it one image on all, are GPUs inside.

The question is a few lines of shell, since there may be no Python outside of the container. What
the answers mean is judged by pure functions.
"""

import re
import shlex
from collections.abc import Mapping

from paceline.doctor.rows import Facts, Row, all_of, usual
from paceline.hosts.container import Container
from paceline.hosts.ssh import Answer

_SETUP = "paceline hosts setup --container"
_QUESTION = """\
command -v {runtime} >/dev/null || {{ echo 'missing='; exit 0; }}
if said=$({version} 2>&1); then echo "version=${{said:-unknown}}" | head -n 1
else echo "refused=$(printf '%s' "$said" | tail -n 1)"; exit 0; fi
echo "image=$({image} 2>/dev/null | head -n 1)"
echo "gpus=$(nvidia-smi -L 2>/dev/null | grep -c .)"
"""
_NUM_SHOWN = 19
"""Of a digest: enough letters to tell images apart, `sha256:` included."""


def container_question(container: Container) -> str:
    """For the host's shell; every line of the answer is `name=value`."""
    runtime, image = container.runtime, shlex.quote(container.image)
    if runtime == "apptainer":
        version, digest = "apptainer --version", f"sha256sum {image} | cut -d' ' -f1"
    else:
        # The daemon's version: whether the user may talk to it shows as well.
        version = f"{runtime} version --format '{{{{.Server.Version}}}}'"
        version = version if runtime == "docker" else "podman --version"
        digest = f"{runtime} image inspect --format '{{{{.Id}}}}' {image}"
    return _QUESTION.format(runtime=runtime, version=version, image=digest)


def read_answer(container: Container, answer: Answer) -> dict[str, str]:
    told = dict(re.findall(r"^([a-z]+)=(.*)$", answer.stdout, re.MULTILINE))
    if "version" in told:
        told["version"] = told["version"].split()[-1]  # some say 'podman version 4.3.1'
    return {**told, "runtime": container.runtime, "name": container.image}


def why_unusable(facts: Facts) -> tuple[str, str] | None:
    """Why no Python can be started in the container there, and what to do."""
    runtime = facts["runtime"]
    if "missing" in facts:
        return f"{runtime}, which 'container' in the hosts file asks for, is not there", _SETUP
    if "refused" in facts:
        return f"{runtime} does not answer this user: {facts['refused']}", f"{_SETUP} (step user)"
    if not facts.get("image"):
        return f"{runtime} has no image {facts['name']}", f"{_SETUP} (step image)"
    return None


def judge_containers(found: Mapping[str, Facts], inside: Mapping[str, Facts]) -> list[Row]:
    """`found`: what the hosts say about their containers; `inside`: what is seen in there."""
    usable = {name: facts for name, facts in found.items() if why_unusable(facts) is None}
    if not usable:
        return []
    rows = [*_different_images(usable), *_without_gpus(usable, inside)]
    if rows:
        return rows
    some = next(iter(usable.values()))
    gpus = ", GPUs are seen inside" if any(int(f.get("gpus") or 0) for f in usable.values()) else ""
    shown = f"{some['runtime']} {some['version']}: {some['name']} ({_short(some)}), the same on all"
    return [Row(all_of(usable), "container", "ok", f"{shown}{gpus}")]


def _different_images(found: Mapping[str, Facts]) -> list[Row]:
    """A name like paceline:cuda can mean another image on every host."""
    most = usual([str(facts["image"]) for facts in found.values()])
    remedy = f"name it by its digest (NAME@sha256:...), or send one to all: {_SETUP}"
    return [
        Row(
            name,
            "container",
            "fail",
            f"{facts['name']} is {_short(facts)} there, another image than on the others",
            remedy,
        )
        for name, facts in found.items()
        if facts["image"] != most
    ]


def _without_gpus(found: Mapping[str, Facts], inside: Mapping[str, Facts]) -> list[Row]:
    rows = []
    for name, facts in found.items():
        outside, seen = int(facts.get("gpus") or 0), len(inside.get(name, {}).get("gpus", []))
        if name in inside and seen < outside:
            remedy = f"install NVIDIA's container toolkit there: {_SETUP} (step toolkit)"
            shown = f"the host has {outside} GPUs, the container sees {seen}"
            rows.append(Row(name, "container", "fail", shown, remedy))
    return rows


def _short(facts: Facts) -> str:
    return str(facts["image"])[:_NUM_SHOWN]
