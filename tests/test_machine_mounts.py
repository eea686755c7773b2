"""Which file system a path is on decides what can be expected of it."""

from pathlib import Path

import pytest

from paceline.machine.mounts import filesystem_of, is_object_store

MOUNTS = """/dev/sda1 / ext4 rw 0 0
10.0.0.9:/runs /mnt/nfs nfs4 rw 0 0
some-bucket: /mnt/paceline fuse.rclone rw 0 0
some-bucket /gcs/some-bucket fuse.gcsfuse rw 0 0
me@host: /mnt/ssh fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind", "is_bucket"),
    [
        ("/home/me/run", "ext4 /dev/sda1", False),
        ("/mnt/nfs/run", "nfs4 10.0.0.9:/runs", False),
        ("/mnt/paceline/runs/a", "fuse.rclone some-bucket:", True),
        ("/gcs/some-bucket/runs", "fuse.gcsfuse some-bucket", True),
        ("/mnt/ssh/run", "fuse.sshfs me@host:", False),
    ],
)
def test_buckets_are_told_from_file_systems(
    tmp_path: Path, path: str, kind: str, is_bucket: bool
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS, encoding="utf-8")
    assert filesystem_of(Path(path), mounts) == kind
    assert is_object_store(Path(path), mounts) == is_bucket
