"""YAML as a person would write it: in order, texts of several lines as blocks, a heading on top."""

from collections.abc import Sequence
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Blocks for texts of several lines; lists are indented, and nothing is an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(heading: Sequence[str], *documents: dict[str, Any]) -> str:
    """Documents after a heading of comment lines; what is None or empty is left out."""
    top = "".join(f"# {line}".rstrip() + "\n" for line in heading)
    parts = [
        yaml.dump(without_empty(one), Dumper=_Dumper, sort_keys=False, width=1000)
        for one in documents
    ]
    return top + "---\n".join(parts)


def without_empty(value: Any) -> Any:
    """None, lists without anything, and mappings that held nothing else mean: not asked for. A
    mapping that was written empty stays, since some fields say something by being there."""
    if isinstance(value, dict):
        kept = {name: without_empty(part) for name, part in value.items()}
        asked = {name: part for name, part in kept.items() if part is not None}
        return asked if asked or not value else None
    if isinstance(value, list):
        return [without_empty(part) for part in value] or None
    return value
