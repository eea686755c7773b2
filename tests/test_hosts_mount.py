"""What `paceline hosts mount` makes of an address."""

import os
import subprocess

import pytest

from paceline.errors import UserError
from paceline.hosts.file import Host
from paceline.hosts.mount import mount_steps, read_storage


def test_efs_is_mounted_with_the_options_that_fit() -> None:
    storage = read_storage("nfs://fs-123.efs.us-east-1.amazonaws.com/")
    assert (storage.kind, storage.source) == ("nfs4", "fs-123.efs.us-east-1.amazonaws.com:/")
    names = [step.name for step in mount_steps(storage, "/data")]
    assert names == ["nfs-common", "directory", "mount", "fstab"]
    assert "noresvport" in storage.options and "hard" in storage.options


def test_a_password_is_never_written() -> None:
    with pytest.raises(UserError, match="never written into /etc/fstab"):
        read_storage("smb://server/share")
    assert read_storage("smb://server/share", "/etc/smb").options.startswith("credentials=/etc/smb")


def test_files_of_a_share_belong_to_the_user_who_trains() -> None:
    """Root mounts it; the host's own shell says who the user is, now and in fstab."""
    steps = mount_steps(read_storage("smb://server/share", "/etc/smb"), "/data")
    apply = {step.name: step.apply or "" for step in steps}
    assert ",uid=$(id -u),gid=$(id -g)," in apply["mount"]
    written = apply["fstab"].partition("&& ")[2].partition(" |")[0]
    line = subprocess.check_output(["sh", "-c", written], text=True)
    owner = f"uid={os.getuid()},gid={os.getgid()}"
    options = f"credentials=/etc/smb,vers=3.0,{owner},_netdev"
    assert line == f"//server/share /data cifs {options} 0 0\n"


def test_two_machines_without_anything_share_over_ssh() -> None:
    with pytest.raises(UserError, match="a private key that the other host lets in"):
        read_storage("sshfs://me@first/srv/runs")
    storage = read_storage("sshfs://me@first/srv/runs", "/home/me/.ssh/key")
    assert (storage.kind, storage.source) == ("fuse.sshfs", "me@first:/srv/runs")
    assert "IdentityFile=/home/me/.ssh/key" in storage.options
    assert "UserKnownHostsFile=/home/me/.ssh/known_hosts" in storage.options
    there = storage.on(Host("first", "203.0.113.1", "10.0.0.1"))
    assert (there.kind, there.source) == ("none", "/srv/runs"), "it is that host's own directory"
    assert storage.on(Host("second", "203.0.113.2", "10.0.0.2")) == storage


@pytest.mark.parametrize(
    "address", ["/data", "nfs://", "s3://bucket", "nfs://a/b;reboot", "smb://a"]
)
def test_what_cannot_be_mounted_is_refused(address: str) -> None:
    with pytest.raises(UserError):
        read_storage(address)


@pytest.mark.parametrize("directory", ["data", "/da ta", "/a;b", "/"])
def test_a_directory_must_be_an_absolute_path(directory: str) -> None:
    with pytest.raises(UserError, match="absolute path"):
        mount_steps(read_storage("nfs://a/b"), directory)
