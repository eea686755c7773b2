"""Typed settings from YAML: load a file, lay `name=value` over it, list every mistake at once.

This module knows nothing of any particular recipe; what settings exist is written in `recipe.py`.
"""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paceline.errors import UserError

Settings = dict[str, Any]
Place = tuple[str, ...]


class Section(BaseModel):
    """A group of settings. Unknown names are mistakes, and values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def setting(default: Any = ..., about: str = "", *, fixed: bool = False, **rules: Any) -> Any:
    """A setting and what it means; when `fixed`, a run cannot go on with another value."""
    extra: Any = {"fixed": True} if fixed else None
    return Field(default, description=about, json_schema_extra=extra, **rules)


@dataclass(frozen=True)
class Document:
    """A YAML file with the line that each setting stands on, to point at mistakes."""

    name: str
    settings: Settings
    lines: dict[Place, int]

    def where(self, place: Place) -> str:
        """The line of a setting, or of the nearest group that contains it."""
        for length in range(len(place), 0, -1):
            line = self.lines.get(place[:length])
            if line:
                return f"line {line}"
            if line == 0:
                return "command line"
        return self.name


SectionType = TypeVar("SectionType", bound=Section)


def read_document(path: Path) -> Document:
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        settings = yaml.safe_load(text)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", "check the path") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text (UTF-8)", "give a YAML recipe") from error
    except yaml.YAMLError as error:
        raise UserError(
            f"{path} is not valid YAML: {_first_line(error)}", "correct the file"
        ) from error
    if not isinstance(settings, dict):
        raise UserError(f"{path} holds no settings", "write them as 'name: value' lines")
    return Document(path.name, settings, dict(_lines_of(node, ())))


def _first_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}: {problem}" if mark else problem


def _lines_of(node: yaml.Node | None, place: Place) -> Iterator[tuple[Place, int]]:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        inner = (*place, str(key.value))
        yield inner, key.start_mark.line + 1
        yield from _lines_of(value, inner)


def with_overrides(document: Document, overrides: Iterable[str]) -> Document:
    """The document with every `name=value` laid over it; the line 0 stands for the command line."""
    settings = _copy(document.settings)
    lines = dict(document.lines)
    for override in overrides:
        place, value = parse_override(override)
        _set(settings, place, value)
        lines[place] = 0
        for length in range(1, len(place)):
            lines.setdefault(place[:length], 0)
    return Document(document.name, settings, lines)


def parse_override(text: str) -> tuple[Place, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UserError(
            f"'{text}' is not a setting", "write settings as name=value, e.g. steps=1000"
        )
    try:
        return tuple(name.strip().split(".")), yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UserError(
            f"the value in '{text}' cannot be read", "quote it for the shell"
        ) from error


def _copy(settings: Settings) -> Settings:
    return {k: _copy(v) if isinstance(v, dict) else v for k, v in settings.items()}


def _set(settings: Settings, place: Place, value: Any) -> None:
    *groups, last = place
    for group in groups:
        inner = settings.get(group)
        if not isinstance(inner, dict):
            inner = settings[group] = {}
        settings = inner
    settings[last] = value


def validate(document: Document, kind: type[SectionType]) -> SectionType:
    """The typed settings, or one error that lists every mistake with its place."""
    try:
        return kind.model_validate(document.settings)
    except ValidationError as error:
        known = list(setting_names(kind))
        mistakes = [_describe(mistake, document, known) for mistake in error.errors()]
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise UserError(
            f"{document.name} has {count}\n" + "\n".join(f"  {line}" for line in mistakes),
            "correct what is listed; `paceline recipes show NAME` explains every setting",
        ) from error


def _describe(mistake: Any, document: Document, known: list[str]) -> str:
    place = tuple(str(part) for part in mistake["loc"])
    name = ".".join(place)
    where = document.where(place)
    if mistake["type"] == "extra_forbidden":
        return f"{where}: there is no setting '{name}'{_did_you_mean(name, known)}"
    if mistake["type"] == "missing":
        return f"{where}: the setting '{name}' is missing"
    problem = mistake["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(mistake["input"], dict) else f" (given: {mistake['input']!r})"
    return f"{where}: {name or 'recipe'}: {problem[:1].lower() + problem[1:]}{shown}"


def _did_you_mean(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not close:
        last = name.rsplit(".", 1)[-1]
        close = [other for other in known if other.rsplit(".", 1)[-1] == last][:1]
    return f"; did you mean '{close[0]}'?" if close else ""


def setting_names(kind: type[Section], prefix: str = "") -> Iterator[str]:
    for name, field in kind.model_fields.items():
        full = prefix + (field.alias or name)
        yield full
        inner = section_type(field.annotation)
        if inner is not None:
            yield from setting_names(inner, full + ".")


def section_type(annotation: Any) -> type[Section] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def dump(section: Section) -> Settings:
    """Every value explicit, under the names that the YAML uses."""
    return section.model_dump(mode="json", by_alias=True)


def to_yaml(settings: Settings) -> str:
    return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=100)


def annotated_yaml(section: Section) -> str:
    """The settings as YAML in which every line says what it means."""
    return "\n".join(_annotated_lines(section, 0)) + "\n"


def _annotated_lines(section: Section, depth: int) -> Iterator[str]:
    indent = "  " * depth
    values = dump(section)
    for name, field in type(section).model_fields.items():
        shown = field.alias or name
        about = f"  # {field.description}" if field.description else ""
        inner = getattr(section, name)
        if isinstance(inner, Section):
            yield f"{indent}{shown}:{about}"
            yield from _annotated_lines(inner, depth + 1)
        else:
            value = yaml.safe_dump(values[shown], default_flow_style=True, width=1000)
            value = value.removesuffix("...\n").strip()
            yield f"{indent}{shown}: {value}".ljust(34) + about


def differences(old: Settings, new: Settings, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each setting whose value differs, as (name, old value, new value)."""
    for name in {**old, **new}:
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from differences(before, after, f"{prefix}{name}.")
        elif before != after:
            yield prefix + name, before, after


def fixed_names(kind: type[Section], prefix: str = "", inherited: bool = False) -> Iterator[str]:
    """The settings that a run cannot change when it goes on; a fixed group fixes what is in it."""
    for name, field in kind.model_fields.items():
        extra = field.json_schema_extra
        fixed = inherited or (isinstance(extra, dict) and bool(extra.get("fixed")))
        full = prefix + (field.alias or name)
        inner = section_type(field.annotation)
        if inner is not None:
            yield from fixed_names(inner, full + ".", fixed)
        elif fixed:
            yield full
