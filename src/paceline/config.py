"""Typed settings from YAML: load a file, lay `name=value` over it, list every mistake at once.

This module knows nothing of any particular recipe; what settings exist is written in `recipe.py`.
"""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Never, TypeVar, get_args

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from paceline.errors import UserError

Settings = dict[str, Any]
Place = tuple[str, ...]

_KIND = "kind"
"""The setting of a group that a single word stands for: `optimizer: adamw`."""

_COMMAND_LINE = 0
"""Stands for the command line where a line of the file would be."""


class Section(BaseModel):
    """A group of settings. Unknown names are mistakes, and values do not change after loading.

    Checks of a setting, also those that look at others, are field validators: pydantic then runs
    them beside all other mistakes, while checks of a whole group wait until there are none.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _word_is_its_kind(cls, given: Any) -> Any:
        return {_KIND: given} if isinstance(given, str) and _KIND in cls.model_fields else given

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Python takes true for 1; whoever writes `steps=true` meant something else."""
        given = value if isinstance(value, list) else [value]
        if any(isinstance(part, bool) for part in given):
            annotation = cls.model_fields[info.field_name or ""].annotation
            if _mentions(annotation, int, float) and not _mentions(annotation, bool):
                raise ValueError("input should be a number, not true or false")
        return value


def _mentions(annotation: Any, *kinds: type) -> bool:
    return annotation in kinds or any(_mentions(part, *kinds) for part in get_args(annotation))


PathKind = Literal[False, True, "or name", "or here"]


def setting(
    default: Any = ...,
    about: str = "",
    *,
    fixed: bool = False,
    path: PathKind = False,
    **rules: Any,
) -> Any:
    """A setting and what it means; when `fixed`, a run cannot go on with another value.

    A `path` is as seen from where the user is, see `resolve_paths`; with "or name", a text that
    does not look like a path is left alone, with "or here" unless there is a file of that name.
    """
    marks: Any = {"fixed": True} if fixed else {}
    marks |= {"path": path} if path else {}
    return Field(default, description=about, json_schema_extra=marks or None, **rules)


def refuse_together(text: str, *names: str) -> Never:
    """Raised in a validator: settings of one group that do not go together, by their names."""
    raise PydanticCustomError("together", "{text}", {"text": text, "names": list(names)})


@dataclass(frozen=True)
class Document:
    """YAML with the line that each setting stands on, to point at mistakes."""

    name: str
    settings: Any
    lines: dict[Place, int] = field(default_factory=dict)
    texts: dict[Place, str] = field(default_factory=dict)
    """What was typed, for names that YAML takes for numbers or truth."""
    repeated: list[tuple[Place, int]] = field(default_factory=list)
    """Settings given twice, with the line of the second time."""

    def where(self, place: Place) -> str:
        """The line of a setting, or of the nearest group that contains it."""
        for length in range(len(place), 0, -1):
            line = self.lines.get(place[:length])
            if line is not None:
                return _line_in_words(line)
        return self.name


def _line_in_words(line: int) -> str:
    return "command line" if line == _COMMAND_LINE else f"line {line}"


SectionType = TypeVar("SectionType", bound=Section)


class _Loader(yaml.SafeLoader):
    """YAML without dates: no setting is one, and a directory may well be called 2024-01-01."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (PyYAML's own table, not ours to annotate)
        first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def parse_yaml(text: str, name: str = "") -> Document:
    """Any YAML value; raises ValueError with one line that says what is wrong, and where."""
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        document = Document(name, loader.construct_document(node) if node else None)
        _note_places(node, (), document)
    except yaml.YAMLError as error:
        raise ValueError(_first_line(error)) from error
    except RecursionError as error:
        raise ValueError("it contains itself, or is nested too deeply") from error
    except (ArithmeticError, AttributeError, LookupError) as error:
        # PyYAML trusts a written tag: `!!int ''` and `!!bool maybe` fail in its own code.
        raise ValueError(f"a value does not fit its tag: {error}") from error
    finally:
        if loader is not None:
            loader.dispose()
    return document


def _first_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}: {problem}" if mark else problem


def _note_places(node: yaml.Node | None, place: Place, document: Document) -> None:
    if isinstance(node, yaml.ScalarNode):
        document.texts[place] = node.value
    if isinstance(node, yaml.SequenceNode):
        for index, entry in enumerate(node.value):
            _note_places(entry, (*place, str(index)), document)
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        inner = (*place, str(key.value))
        line = key.start_mark.line + 1
        if inner in document.lines:
            document.repeated.append((inner, line))
        document.lines.setdefault(inner, line)
        _note_places(value, inner, document)


def read_document(path: Path) -> Document:
    try:
        document = parse_yaml(path.read_text(encoding="utf-8"), path.name)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", "check the path") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text (UTF-8)", "give a YAML recipe") from error
    except ValueError as error:
        raise UserError(f"{path} is not valid YAML: {error}", "correct the file") from error
    if not isinstance(document.settings, dict):
        raise UserError(f"{path} holds no settings", "write them as 'name: value' lines")
    return document


def with_overrides(document: Document, overrides: Iterable[str]) -> Document:
    """The document with every `name=value` laid over it."""
    document = replace(
        document,
        settings=_copy(document.settings),
        lines=dict(document.lines),
        texts=dict(document.texts),
        repeated=list(document.repeated),
    )
    for override in overrides:
        place, value = parse_override(override)
        _forget_below(document, place)
        _set(document.settings, place, value.settings)
        for length in range(1, len(place)):
            document.lines.setdefault(place[:length], _COMMAND_LINE)
        document.lines[place] = _COMMAND_LINE
        document.lines.update(((*place, *inner), _COMMAND_LINE) for inner in value.lines)
        document.texts.update(((*place, *inner), text) for inner, text in value.texts.items())
        document.repeated.extend(((*place, *inner), _COMMAND_LINE) for inner, _ in value.repeated)
    return document


def parse_override(text: str) -> tuple[Place, Document]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UserError(
            f"'{text}' is not a setting", "write settings as name=value, e.g. steps=1000"
        )
    try:
        return tuple(name.strip().split(".")), parse_yaml(value)
    except ValueError as error:
        raise UserError(
            f"the value in '{text}' cannot be read", "quote it for the shell"
        ) from error


def _copy(settings: Settings) -> Settings:
    return {k: _copy(v) if isinstance(v, dict) else v for k, v in settings.items()}


def _forget_below(document: Document, place: Place) -> None:
    """What is replaced as a whole is no longer in the file, and neither are its mistakes."""
    for table in (document.lines, document.texts):
        for old in [old for old in table if old[: len(place)] == place]:
            del table[old]
    document.repeated[:] = [old for old in document.repeated if old[0][: len(place)] != place]


def _set(settings: Settings, place: Place, value: Any) -> None:
    """A word given for a group is its kind, whether it comes before or after what is inside."""
    *groups, last = place
    for group in groups:
        inner = settings.get(group)
        if not isinstance(inner, dict):
            inner = settings[group] = {_KIND: inner} if isinstance(inner, str) else {}
        settings = inner
    if isinstance(value, str) and isinstance(settings.get(last), dict):
        settings[last][_KIND] = value
    else:
        settings[last] = value


def validate(document: Document, kind: type[SectionType]) -> SectionType:
    """The typed settings, or one error that lists every mistake with its place."""
    misplaced = _inside_plain_settings(document, kind)
    mistakes = [*_repetitions(document), *misplaced.values()]
    try:
        valid = kind.model_validate(_as_typed(document.settings, document.texts, kind))
        if not mistakes:
            return valid
    except ValidationError as error:
        known = list(setting_names(kind))
        plain = {place[:-1] for place in misplaced}
        mistakes += [
            _describe(mistake, document, known)
            for mistake in error.errors()
            if _place_of(mistake) not in plain
        ]
    raise UserError(
        f"{_who_has(document, mistakes)}\n" + "\n".join(f"  {line}" for line in mistakes),
        "correct what is listed; `paceline recipes show NAME` explains every setting",
    )


def _who_has(document: Document, mistakes: list[str]) -> str:
    """The file, or the command line, or both."""
    count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    num_typed = sum(line.startswith(f"{_line_in_words(_COMMAND_LINE)}:") for line in mistakes)
    if num_typed == 0:
        return f"{document.name} has {count}"
    if num_typed == len(mistakes):
        return f"the command line has {count}"
    return f"{document.name} and the command line have {count}"


def _repetitions(document: Document) -> Iterator[str]:
    for place, line in document.repeated:
        name = ".".join(place)
        yield f"{_line_in_words(line)}: the setting '{name}' is given twice; keep one of them"


def _inside_plain_settings(document: Document, kind: type[Section]) -> dict[Place, str]:
    """`steps.more=3` is a mistake of its own: `steps` takes a value and has nothing inside."""
    plain = {tuple(name.split(".")) for name in setting_names(kind, groups=False)}
    return {
        place: f"{document.where(place)}: there is no setting '{'.'.join(place)}'; "
        f"'{'.'.join(place[:-1])}' takes a value and is not a group"
        for place in document.lines
        if place[:-1] in plain
    }


def _as_typed(settings: Settings, texts: dict[Place, str], kind: type[Section]) -> Settings:
    """Settings that are text get the text: `data=123` is a name, whatever YAML makes of it."""
    typed = _copy(settings)
    for name in setting_names(kind, groups=False, only=str):
        *groups, last = name.split(".")
        inner: Any = typed
        for group in groups:
            inner = inner.get(group) if isinstance(inner, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get(last), bool | int | float):
            inner[last] = texts.get((*groups, last), inner[last])
    return typed


def _place_of(mistake: Any) -> Place:
    return tuple(str(part) for part in mistake["loc"])


def _describe(mistake: Any, document: Document, known: list[str]) -> str:
    place = _place_of(mistake)
    name = ".".join(place)
    where = document.where(place)
    if mistake["type"] == "extra_forbidden" and document.texts.get(place[:-1]) == mistake["input"]:
        group = ".".join(place[:-1])
        return f"{where}: '{group}' is a group of settings; write {group}.NAME={mistake['input']}"
    if mistake["type"] == "extra_forbidden":
        return f"{where}: there is no setting '{name}'{_did_you_mean(name, known)}"
    if mistake["type"] == "missing":
        return f"{where}: the setting '{name}' is missing"
    if mistake["type"] == "together":
        others = [document.where((*place[:-1], other)) for other in mistake["ctx"]["names"]]
        where = "command line" if "command line" in others else where
    problem = mistake["msg"].removeprefix("Value error, ")
    given = mistake["input"]
    nothing = isinstance(given, dict) or (given is None and mistake["type"] == "together")
    shown = "" if nothing else f" (given: {given!r})"
    return f"{where}: {name or 'recipe'}: {problem[:1].lower() + problem[1:]}{shown}"


def _did_you_mean(name: str, known: list[str]) -> str:
    last = name.rsplit(".", 1)[-1]
    same = [other for other in known if other.rsplit(".", 1)[-1] == last]
    close = difflib.get_close_matches(name, same, n=1, cutoff=0.0) or difflib.get_close_matches(
        name, known, n=1, cutoff=0.6
    )
    return f"; did you mean '{close[0]}'?" if close else ""


def setting_names(
    kind: type[Section], prefix: str = "", *, groups: bool = True, only: type | None = None
) -> Iterator[str]:
    """Every setting as the YAML names it; without groups, and only of one type, where asked."""
    for name, field_info in kind.model_fields.items():
        full = prefix + (field_info.alias or name)
        inner = section_type(field_info.annotation)
        if groups if inner else (only is None or _mentions(field_info.annotation, only)):
            yield full
        if inner is not None:
            yield from setting_names(inner, full + ".", groups=groups, only=only)


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
    for name, field_info in type(section).model_fields.items():
        shown = field_info.alias or name
        about = f"  # {field_info.description}" if field_info.description else ""
        inner = getattr(section, name)
        if isinstance(inner, Section):
            yield f"{indent}{shown}:{about}"
            yield from _annotated_lines(inner, depth + 1)
        else:
            value = yaml.safe_dump(values[shown], default_flow_style=True, width=1000)
            value = value.removesuffix("...\n").strip()
            yield f"{indent}{shown}: {value}".ljust(34) + about


def with_defaults(settings: Settings, kind: type[Section]) -> Settings:
    """Settings written before others existed, with what those are when nobody sets them."""
    filled = dict(settings)
    for name, field_info in kind.model_fields.items():
        shown = field_info.alias or name
        inner = section_type(field_info.annotation)
        if inner is not None and isinstance(filled.setdefault(shown, {}), dict):
            filled[shown] = with_defaults(filled[shown], inner)
        elif inner is None and not field_info.is_required():
            filled.setdefault(shown, field_info.get_default(call_default_factory=False))
    return filled


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
    for name, field_info in kind.model_fields.items():
        extra = field_info.json_schema_extra
        fixed = inherited or (isinstance(extra, dict) and bool(extra.get("fixed")))
        full = prefix + (field_info.alias or name)
        inner = section_type(field_info.annotation)
        if inner is not None:
            yield from fixed_names(inner, full + ".", fixed)
        elif fixed:
            yield full


def is_path(text: str) -> bool:
    """Whether a text that may also be a plain name is a path: 'a/b', './b', '~/b', not 'b'."""
    return "/" in text or text.startswith((".", "~"))


def resolve_paths(settings: Settings, kind: type[Section], folder: Path) -> Settings:
    """The settings with relative paths made absolute, as seen from this folder.

    Processes that read them later may run elsewhere. '~' stays: each host has its own.
    """
    resolved = dict(settings)
    for name, field_info in kind.model_fields.items():
        shown = field_info.alias or name
        value, inner = settings.get(shown), section_type(field_info.annotation)
        if inner is not None and isinstance(value, dict):
            resolved[shown] = resolve_paths(value, inner, folder)
            continue
        extra = field_info.json_schema_extra
        mark = extra.get("path") if isinstance(extra, dict) else None
        if mark and isinstance(value, str) and value and _means_path(value, mark, folder):
            resolved[shown] = _absolute(value, folder)
    return resolved


def _means_path(text: str, mark: Any, folder: Path) -> bool:
    return mark is True or is_path(text) or (mark == "or here" and (folder / text).exists())


def _absolute(text: str, folder: Path) -> str:
    """Only '..' at the beginning is taken off: after a symbolic link it means something else."""
    path = Path(text)
    if path.is_absolute() or text.startswith("~"):
        return text
    while path.parts[:1] == ("..",):
        folder, path = folder.parent, Path(*path.parts[1:])
    return str(folder / path)
