"""On what kind of file system a path is."""

from pathlib import Path

OBJECT_STORES = ("rclone", "gcsfuse", "s3fs", "goofys", "mount-s3", "mountpoint-s3", "blobfuse")


def filesystem_of(path: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """Its type as Linux names it, with the device: 'nfs4 server:/export'; '' where unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
        wanted = path.resolve()
    except OSError:
        return ""
    found, depth = "", -1
    for line in lines:
        device, point, kind = line.split(" ")[:3]
        place = Path(point.replace("\\040", " "))
        if wanted.is_relative_to(place) and len(place.parts) >= depth:
            found, depth = f"{kind} {device}", len(place.parts)
    return found


def is_object_store(path: Path, mounts: Path = Path("/proc/mounts")) -> bool:
    """A bucket behind a cache: other hosts see what is written there late, or when it is closed."""
    kind = filesystem_of(path, mounts).lower()
    return kind.startswith("fuse") and any(name in kind for name in OBJECT_STORES)
