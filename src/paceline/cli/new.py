"""The verb that writes a start for a task of one's own."""

import argparse
import re
from pathlib import Path

from paceline.arguments import Verbs, say


def add_new(verbs: Verbs) -> None:
    new = verbs.add_parser("new", help="write a task of your own that trains at once, as a start")
    new.add_argument("directory", type=Path, metavar="DIR", help="new or empty; . is here")
    new.set_defaults(call=write_task)


def write_task(arguments: argparse.Namespace) -> int:
    from paceline.errors import UserError

    folder: Path = arguments.directory
    name = re.sub(r"\W+", "-", folder.absolute().name).strip("-").lower() or "task"
    files = {
        folder / "task.py": _template("task.py.txt", name),
        folder / f"{name}.yaml": _template("recipe.yaml.txt", name),
    }
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file", "name a directory")
    for path in files:
        if path.exists():
            raise UserError(f"{path} is there already", "name another directory")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
        print(path)
    here = folder.absolute() == Path.cwd()
    say(
        "it trains as it is:\n"
        + ("" if here else f"  cd {folder}\n")
        + f"  paceline train {name}.yaml\n  paceline report runs/{name}"
    )
    return 0


def _template(file: str, name: str) -> str:
    from importlib import resources

    text = (resources.files("paceline") / "templates" / file).read_text(encoding="utf-8")
    words = [word for word in re.split(r"[^A-Za-z0-9]+", name) if word]
    title = "".join(word[:1].upper() + word[1:] for word in words)
    class_name = title if title[:1].isalpha() else f"Task{title}"
    return text.replace("CLASS", class_name).replace("NAME", name)
