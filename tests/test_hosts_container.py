"""`container:` of the hosts file: what it may say, what it starts, and what the doctor says."""

import os
import subprocess
from pathlib import Path

import pytest

from paceline.doctor.containers import judge_containers, why_unusable
from paceline.errors import UserError
from paceline.hosts.file import Host, load_hosts

FILE = """
container:
  image: registry.example/paceline:cuda
  runtime: {runtime}
  mounts: [/data, "/scratch:/fast:ro"]
  options: [--ulimit=memlock=-1]
data: /data/sets
hosts: [10.0.0.1]
"""


def host_of(folder: Path, text: str) -> Host:
    path = folder / "hosts.yaml"
    path.write_text(text, encoding="utf-8")
    return load_hosts(path).hosts[0]


def started(folder: Path, runtime: str, *, has_card: bool) -> list[str]:
    """The words that the runtime is started with, by a shell in which it is a stand-in."""
    programs = folder / "bin"
    programs.mkdir()
    for name in (runtime, *(["nvidia-smi"] if has_card else [])):
        (programs / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    host = host_of(folder, FILE.format(runtime=runtime))
    run = folder / "runs" / "it's mine"
    words = host.python_words(["-c", "print('a b')"], [str(run)])
    variables = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder)}
    words[-1] = words[-1].replace("/data/sets", str(folder / "sets"))
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=True)
    assert run.is_dir(), "the run directory must be there before it is mounted"
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("runtime", "card"), [("docker", "--gpus=all"), ("podman", "--device=nvidia.com/gpu=all")]
)
def test_python_starts_in_the_image_as_the_user_with_the_hosts_own_network(
    tmp_path: Path, runtime: str, card: str
) -> None:
    words = started(tmp_path, runtime, has_card=True)
    place = words.index("registry.example/paceline:cuda")
    assert words[place - 1] == "--entrypoint=python3"
    assert words[place + 1 :] == ["-c", "print('a b')"]
    options = words[:place]
    run = f"{tmp_path}/runs/it's mine"
    assert f"--volume={run}:{run}" in options, "the same path inside and outside"
    assert {"--network=host", "--ipc=host", "--pid=host", card} <= set(options)
    assert {"--volume=/data:/data", "--volume=/scratch:/fast:ro"} <= set(options)
    assert f"--user={os.getuid()}:{os.getgid()}" in options
    assert "--ulimit=memlock=-1" in options
    assert not any("privileged" in word or word.startswith("--publish") for word in options)


def test_gpus_are_asked_for_only_where_there_are_some(tmp_path: Path) -> None:
    assert "--gpus=all" not in started(tmp_path, "docker", has_card=False)


def test_apptainer_binds_what_is_needed_and_lets_gpus_in(tmp_path: Path) -> None:
    words = started(tmp_path, "apptainer", has_card=True)
    assert words[:2] == ["exec", "--nv"]
    assert "--bind=/scratch:/fast:ro" in words
    place = words.index("registry.example/paceline:cuda")
    assert words[place + 1 :] == ["python3", "-c", "print('a b')"]


def test_what_was_sent_to_the_host_is_seen_inside(tmp_path: Path) -> None:
    (tmp_path / "paceline-host").mkdir()
    pushed = f"{tmp_path}/paceline-host"
    assert f"--volume={pushed}:{pushed}:ro" in started(tmp_path, "docker", has_card=False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("{image: 'a; reboot'}", "is not the name of an image"),
        ("{image: '--privileged'}", "is not the name of an image"),
        ("{image: a, mounts: ['relative']}", "write mounts like /data"),
        ("{image: a, mounts: ['/a:/b:rw,exec']}", "write mounts like /data"),
        ("{image: a, options: ['-v', '/:/host']}", "options are one word each"),
        ("{image: a, runtime: lxc}", "'docker', 'podman' or 'apptainer'"),
        ("{images: a}", "did you mean 'image'"),
    ],
)
def test_mistakes_in_the_container_are_told_with_their_line(
    tmp_path: Path, wrong: str, said: str
) -> None:
    with pytest.raises(UserError) as caught:
        host_of(tmp_path, f"hosts: [a]\ncontainer: {wrong}\n")
    assert said in caught.value.what and "line 2" in caught.value.what


FACTS = {"runtime": "docker", "name": "paceline:cuda", "version": "27.1", "image": "sha256:1111"}


def test_images_that_differ_and_gpus_that_are_not_seen_inside_are_failures() -> None:
    found = {
        "a": {**FACTS, "gpus": "2"},
        "b": {**FACTS, "gpus": "2"},
        "c": {**FACTS, "image": "sha256:2222", "gpus": "0"},
    }
    inside: dict[str, dict[str, list[str]]] = {
        "a": {"gpus": ["T4", "T4"]},
        "b": {"gpus": []},
        "c": {"gpus": []},
    }
    rows = judge_containers(found, inside)
    assert [(row.where, row.state) for row in rows] == [("c", "fail"), ("b", "fail")]
    assert "2 GPUs, the container sees 0" in rows[1].found
    assert "step toolkit" in rows[1].remedy
    (row,) = judge_containers({"a": found["a"]}, inside)
    assert row.state == "ok" and "GPUs are seen inside" in row.found


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"runtime": "docker", "name": "x", "missing": ""}, "is not there"),
        ({"runtime": "docker", "name": "x", "refused": "permission denied"}, "permission denied"),
        ({**FACTS, "image": ""}, "has no image"),
    ],
)
def test_why_nothing_starts_in_the_container_comes_with_the_step_that_mends_it(
    facts: dict[str, str], said: str
) -> None:
    why = why_unusable(facts)
    assert why is not None and said in why[0] and "paceline hosts setup --container" in why[1]
