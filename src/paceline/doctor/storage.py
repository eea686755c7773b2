"""Judgements about the storage that a run directory and data are on: what is too slow there.

Pure functions from what the probe has timed to rows of the table. The figures that matter: a
checkpoint and every line of events are flushed to the disk, and data of many small files is opened
file by file in every epoch.
"""

from collections.abc import Mapping

from paceline.doctor.rows import Facts, Row, all_of
from paceline.machine.mounts import OBJECT_STORES
from paceline.units import format_seconds

_SLOW_FLUSH_SECONDS = 0.2
_FEW_FILES_PER_SECOND = 500.0
_MANY_FILES = 20_000
_MILLION = 1_000_000
_NETWORK = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "lustre", "gluster", "beegfs", "gpfs")


def is_network(filesystem: str) -> bool:
    """'nfs4 server:/export' is; what a kernel of its own serves is not."""
    return filesystem.lower().startswith(_NETWORK)


def judge_storage(written: Mapping[str, Facts]) -> list[Row]:
    """Where the run directory is, by what each host has timed there."""
    timed = {name: facts["speed"] for name, facts in written.items() if facts.get("speed")}
    rows: list[Row] = []
    for name, speed in timed.items():
        rows += _slow_flushing(name, speed)
        rows += _slow_files(name, speed)
        rows += _bucket(name, speed)
    if rows or not timed:
        return rows
    slowest = max(speed["flush_seconds"] for speed in timed.values())
    fewest = min(speed["files_per_second"] for speed in timed.values())
    shown = f"a flush takes {format_seconds(slowest)}, {fewest:,.0f} small files a second"
    return [Row(all_of(timed), "storage", "ok", _server(timed) + shown)]


def _server(timed: Mapping[str, Facts]) -> str:
    """Storage over the network is named where it is fast too: so one sees that it is mounted."""
    places = {str(speed.get("filesystem") or "") for speed in timed.values()}
    named = sorted(place for place in places if is_network(place))
    return f"{', '.join(named)}: " if named else ""


def _slow_flushing(name: str, speed: Facts) -> list[Row]:
    seconds = float(speed["flush_seconds"])
    if seconds < _SLOW_FLUSH_SECONDS:
        return []
    shown = f"{speed['filesystem']}: flushing a few bytes takes {format_seconds(seconds)} (fsync)"
    remedy = "save less often (checkpoint.every_steps), or choose a --run on faster storage"
    return [Row(name, "storage", "warn", shown, remedy)]


def _slow_files(name: str, speed: Facts) -> list[Row]:
    rate = float(speed["files_per_second"])
    if rate >= _FEW_FILES_PER_SECOND:
        return []
    whole = format_seconds(_MILLION / max(rate, 0.1))
    shown = f"{speed['filesystem']}: {rate:,.0f} small files a second, a million take {whole}"
    remedy = "keep data of many files off it: on a local disk, or packed into few large files"
    return [Row(name, "storage", "warn", shown, remedy)]


def _bucket(name: str, speed: Facts) -> list[Row]:
    if not any(kind in str(speed["filesystem"]).lower() for kind in OBJECT_STORES):
        return []
    shown = f"{speed['filesystem']}: a bucket shows what one host writes to the others late"
    remedy = "hosts then watch their own processes only; NFS or a volume is better"
    return [Row(name, "storage", "warn", shown, remedy)]


def judge_data_files(found: Mapping[str, Facts]) -> list[Row]:
    """Many files on storage over the network, each opened in every epoch."""
    rows = []
    for name, facts in found.items():
        data = facts.get("data") or {}
        count, filesystem = int(data.get("num_files") or 0), str(data.get("filesystem") or "")
        if count > _MANY_FILES and is_network(filesystem):
            shown = f"{data['path']}: {count:,} files on {filesystem}, opened one by one"
            remedy = "copy them to a local disk there, or pack them into few large files"
            rows.append(Row(name, "storage", "warn", shown, remedy))
    return rows
