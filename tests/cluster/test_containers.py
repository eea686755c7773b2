"""`container:` of the hosts file, with real containers of Podman on the lab's hosts.

The image holds next to nothing: the machine's own /usr and Python are mounted into it. So it is
made in a moment, and what runs in it still runs in an image of its own.
"""

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

import paceline
from tests.cluster.conftest import PracticeLab, Result
from tests.cluster.remote_run import RemoteRun, weights

pytestmark = pytest.mark.cluster

IMAGE = "paceline:practice"
HOSTS = ("node0", "node1")
SCRIPT = """
from pathlib import Path
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
image = Path("/etc/image").read_text().strip()
print(f"rank {dist.get_rank()} of {total.item():.0f} in image {image}", flush=True)
dist.destroy_process_group()
"""


def make_image(archive: Path, mark: str) -> Path:
    """Its digest depends on the mark, and Podman's own date of creation."""
    folder = archive.parent / f"root-{mark}"
    for name in ("etc", "tmp", "usr", "proc", "sys", "dev", "run"):
        (folder / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (folder / name).symlink_to(f"usr/{name}")
    (folder / "etc" / "image").write_text(mark, encoding="utf-8")
    with tarfile.open(archive, "w") as file:
        file.add(folder, ".")
    return archive


CONFIGURATION = {
    # Kernels without CAP_SYS_RESOURCE cannot raise limits, and crun knows no mixture of cgroups.
    "containers.conf": """
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=1024:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
""",
    "policy.json": '{"default": [{"type": "insecureAcceptAnything"}]}',
    "registries.conf": "",
}


def write_configuration(folder: Path) -> Path:
    folder.mkdir()
    for name, text in CONFIGURATION.items():
        (folder / name).write_text(text, encoding="utf-8")
    storage = f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/storage"\n'
    (folder / "storage.conf").write_text(f'{storage}runroot = "{folder}/run"\n', encoding="utf-8")
    return folder


@pytest.fixture
def podman(lab: PracticeLab, tmp_path: Path) -> Iterator[PracticeLab]:
    """Two hosts with a Podman of their own, which has no image yet."""
    assert shutil.which("podman"), "tools/cluster-packages installs it"
    for name in HOSTS:
        folder = write_configuration(tmp_path / f"containers-{name}")
        limits = "/etc/security/limits.d"
        assert lab.inside(name, "mount", "-t", "tmpfs", "tmpfs", limits).returncode == 0
        bound = lab.inside(name, "mount", "--bind", str(folder), "/etc/containers")
        assert bound.returncode == 0, bound.stderr
    yield lab
    for name in HOSTS:
        lab.power_off(name)
        lab.power_on(name)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This machine's Podman, with the image, apart from whatever else is in it."""
    folder = write_configuration(tmp_path / "containers-here")
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(folder / "storage.conf"))
    archive = make_image(tmp_path / "image.tar", "first")
    subprocess.run(["podman", "import", "--quiet", str(archive), IMAGE], check=True)
    return folder


def hosts_file(lab: PracticeLab, path: Path, *mounts: Path) -> Path:
    lab.write_hosts(path, 2)
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    project = Path(paceline.__file__).parents[2]
    own = ["/usr:ro", f"{sys.base_prefix}:ro", f"{sys.prefix}:ro", f"{project}:ro"]
    settings["container"] = {
        "image": IMAGE,
        "runtime": "podman",
        "mounts": [*own, *(f"{mount}:ro" for mount in mounts)],
    }
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def import_image(lab: PracticeLab, name: str, archive: Path) -> None:
    done = lab.inside(name, "podman", "import", "--quiet", str(archive), IMAGE)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("here")
def test_the_image_of_this_machine_is_sent_to_all_hosts_and_a_script_runs_in_it(
    podman: PracticeLab, tmp_path: Path, command: Callable[..., Result]
) -> None:
    hosts = hosts_file(podman, tmp_path / "hosts.yaml", tmp_path)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    started = ("run", "--hosts", str(hosts), "--run", str(tmp_path / "run"), str(script))

    too_early = command(*started)
    assert too_early.returncode == 2
    assert f"podman has no image {IMAGE}" in too_early.stderr
    assert "paceline hosts setup --container (step image)" in too_early.stderr

    words = ("hosts", "setup", "--container", "--hosts", str(hosts))
    asked = command(*words)
    assert f"podman save {IMAGE} | (there) podman load" in asked.stderr, "shown before it is asked"
    assert "image done" not in asked.stderr
    done = command(*words, "--yes")
    assert "node0: image done" in done.stderr and "node1: image done" in done.stderr
    again = command(*words, "--yes")
    assert "image" not in again.stderr, "nothing is done twice"

    ran = command(*started)
    assert ran.returncode == 0, ran.stderr
    for rank in (0, 1):
        assert f"rank {rank} of 2 in image first" in ran.stdout + ran.stderr


def test_images_of_one_name_that_differ_between_hosts_are_told(
    podman: PracticeLab, tmp_path: Path, command: Callable[..., Result]
) -> None:
    hosts = hosts_file(podman, tmp_path / "hosts.yaml")
    words = ("hosts", "check", "--quick", "--hosts", str(hosts), "--run", str(tmp_path / "run"))
    import_image(podman, "node0", make_image(tmp_path / "first.tar", "first"))
    missing = command(*words)
    assert missing.returncode == 1
    assert f"podman has no image {IMAGE}" in missing.stdout
    import_image(podman, "node1", make_image(tmp_path / "other.tar", "other"))
    different = command(*words)
    assert different.returncode == 1
    assert "another image than on the others" in different.stdout
    assert "name it by its digest" in different.stdout


def test_a_training_in_containers_survives_the_loss_of_one_and_is_exact(
    podman: PracticeLab, pictures: Path, tmp_path: Path, undisturbed: Callable[..., str]
) -> None:
    archive = make_image(tmp_path / "image.tar", "same")
    import_image(podman, "node0", archive)
    saved = tmp_path / "saved.tar"
    podman.inside("node0", "podman", "save", "--quiet", "--output", str(saved), IMAGE)
    assert podman.inside("node1", "podman", "load", "--input", str(saved)).returncode == 0
    hosts = hosts_file(podman, tmp_path / "hosts.yaml", pictures)
    run = RemoteRun.start(hosts, pictures, tmp_path / "run", "steps=24", practice="compute=0.1")
    try:
        run.wait_for_steps(1, more=7, seconds=180)
        listed = podman.inside("node1", "podman", "ps", "--quiet")
        assert len(listed.stdout.split()) == 1, "it runs in a container"
        assert podman.inside("node1", "podman", "kill", "--all").returncode == 0
        assert run.finish(180) == 0, run.said
    finally:
        run.end()
    assert len(run.launches()) > 1, "it was started again"
    assert weights(run.run.path) == undisturbed(2, 24)
    for name in HOSTS:
        assert not podman.inside(name, "podman", "ps", "--all", "--quiet").stdout
