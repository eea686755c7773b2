"""What stays of a lab when it ends: the files that its users made, such as runs."""

import shutil
from pathlib import Path

from paceline.units import count_of

_MARK = ".kept"
"""In a directory that held a lab and now holds only what was kept of it: a new one may use it."""


def kept_folders(directory: Path) -> list[Path]:
    """Folders for the users of a lab that have something in them."""
    found = [directory / "shared", directory / "local", *directory.glob("hosts/*/local")]
    return [folder for folder in found if folder.is_dir() and any(folder.iterdir())]


def is_kept(directory: Path) -> bool:
    return (directory / _MARK).is_file()


def remove_files(directory: Path, keeps_runs: bool) -> list[Path]:
    """Everything of the lab but, unless told so, what its users made; what was kept."""
    kept = kept_folders(directory) if keeps_runs else []
    if not kept:
        shutil.rmtree(directory)
        return []
    (directory / _MARK).touch()
    _remove_but(directory, {*kept, directory / _MARK})
    return kept


def _remove_but(directory: Path, kept: set[Path]) -> None:
    for path in directory.iterdir():
        if path in kept:
            continue
        if not path.is_dir() or path.is_symlink():
            path.unlink()
        elif any(path in other.parents for other in kept):
            _remove_but(path, kept)
        else:
            shutil.rmtree(path)


def kept_in_words(kept: list[Path]) -> str:
    """One line for each folder, with the number of runs in it."""
    lines = []
    for folder in kept:
        num_runs = sum(1 for _ in folder.rglob("recipe.yaml"))
        lines.append(f"  {folder}" + (f" ({count_of(num_runs, 'run')})" if num_runs else ""))
    return "\n".join(lines)
