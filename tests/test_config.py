"""Typed settings: what a user sees when a file or a command line holds mistakes."""

from pathlib import Path

import pytest
import yaml

from paceline import config
from paceline.config import Section, setting
from paceline.errors import UserError


class Oven(Section):
    degrees: int = setting(180, "how hot", gt=0)
    fan: bool = setting(False, "moves the air: more even, drier")
    shelf_: str | None = setting(None, "where", alias="shelf")


class Cake(Section):
    name: str = setting(..., "what it is called", fixed=True)
    layers: list[int] = setting([], "heights; from the bottom")
    sugar: float = setting(0.25, "kilograms", ge=0)
    oven: Oven = setting(Oven(), "where it is baked", fixed=True)


GOOD = "name: sponge\nsugar: 0.5\noven:\n  degrees: 200\n"


def load(folder: Path, text: str, *overrides: str) -> Cake:
    path = folder / "cake.yaml"
    path.write_text(text, encoding="utf-8")
    return config.validate(config.with_overrides(config.read_document(path), overrides), Cake)


def mistakes(folder: Path, text: str, *overrides: str) -> list[str]:
    """The listed mistakes, one string each."""
    with pytest.raises(UserError) as caught:
        load(folder, text, *overrides)
    first, *listed = caught.value.what.splitlines()
    typed = [line.strip().startswith("command line:") for line in listed]
    assert first.startswith("cake.yaml ") is not all(typed)
    assert ("the command line ha" in first) is any(typed)
    assert caught.value.fix
    return [line.strip() for line in listed]


def test_a_file_and_defaults_make_the_settings(tmp_path: Path) -> None:
    cake = load(tmp_path, GOOD)
    assert (cake.name, cake.sugar, cake.oven.degrees, cake.oven.fan) == ("sponge", 0.5, 200, False)


def test_overrides_reach_groups_with_dots_and_take_lists_and_null(tmp_path: Path) -> None:
    cake = load(tmp_path, GOOD, "oven.degrees=220", "layers=[3, 2, 1]", "oven.shelf=top")
    assert cake.oven == Oven(degrees=220, shelf_="top") and cake.layers == [3, 2, 1]
    assert load(tmp_path, GOOD + "  shelf: top\n", "oven.shelf=null").oven.shelf_ is None


def test_an_override_makes_a_group_that_the_file_does_not_have(tmp_path: Path) -> None:
    assert load(tmp_path, "name: a\n", "oven.fan=true").oven.fan


class Icing(Section):
    kind: str = setting("sugar", "what it is made of")
    thick: bool = setting(False, "a second coat")


class Tart(Section):
    icing: Icing = setting(Icing(), "on top")


@pytest.mark.parametrize(
    ("file", "overrides"),
    [
        ("icing: lemon\n", ["icing.thick=true"]),
        ("icing:\n  thick: true\n", ["icing=lemon"]),
        ("{}\n", ["icing=lemon", "icing.thick=true"]),
        ("{}\n", ["icing.thick=true", "icing=lemon"]),
    ],
)
def test_a_word_given_for_a_group_is_its_kind(
    tmp_path: Path, file: str, overrides: list[str]
) -> None:
    path = tmp_path / "tart.yaml"
    path.write_text(file, encoding="utf-8")
    document = config.with_overrides(config.read_document(path), overrides)
    assert config.validate(document, Tart).icing == Icing(kind="lemon", thick=True)


def test_a_word_given_for_a_group_without_kinds_is_a_mistake_at_the_group(tmp_path: Path) -> None:
    assert mistakes(tmp_path, GOOD, "oven=hot") == [
        "command line: 'oven' is a group of settings; write oven.NAME=hot"
    ]


def test_the_last_of_two_overrides_wins(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD, "sugar=1", "sugar=2").sugar == 2


def test_a_value_may_hold_an_equals_sign_and_dots(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD, "name=a=b.c").name == "a=b.c"


def test_overriding_does_not_change_the_document_it_is_laid_over(tmp_path: Path) -> None:
    path = tmp_path / "cake.yaml"
    path.write_text(GOOD, encoding="utf-8")
    document = config.read_document(path)
    config.with_overrides(document, ["oven.degrees=1", "oven.shelf=low"])
    assert document.settings["oven"] == {"degrees": 200}


@pytest.mark.parametrize("text", ["steps", "=3", "  =3", ""])
def test_a_word_without_a_name_and_an_equals_sign_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="not a setting") as caught:
        config.parse_override(text)
    assert "name=value" in caught.value.fix


def test_a_value_that_is_not_yaml_is_refused() -> None:
    with pytest.raises(UserError, match="cannot be read"):
        config.parse_override("layers=[1, 2")


@pytest.mark.parametrize("value", ["0x_", "!!int ''", "!!bool maybe", "&a [*a, {b: *a}]"])
def test_a_value_that_yaml_stumbles_over_is_refused_like_other_bad_yaml(
    tmp_path: Path, value: str
) -> None:
    with pytest.raises(UserError):
        load(tmp_path, GOOD, f"layers={value}")
    with pytest.raises(UserError):
        load(tmp_path, f"name: a\nlayers: {value}\n")


@pytest.mark.parametrize("name", ["2024-01-01", "2024-13-45", "123", "1.10", "yes", "0x1f", "1:30"])
def test_a_name_is_what_was_typed_whatever_yaml_makes_of_it(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, f"name: {name}\n").name == name
    assert load(tmp_path, GOOD, f"name={name}").name == name
    assert load(tmp_path, GOOD, f"oven.shelf={name}").oven.shelf_ == name
    assert load(tmp_path, GOOD, f"oven={{shelf: {name}}}").oven.shelf_ == name


def test_what_looks_like_a_date_is_no_number(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, GOOD, "sugar=2024-13-45")
    assert found.startswith("command line: sugar: ") and "'2024-13-45'" in found


def test_every_mistake_is_listed_at_once_with_its_line_and_a_suggestion(tmp_path: Path) -> None:
    text = "name: sponge\nsuger: 1\nlayers: [1, x]\noven:\n  degrees: hot\n  fun: yes\n"
    found = mistakes(tmp_path, text)
    assert len(found) == 4
    by_line = {line.partition(":")[0]: line for line in found}
    assert sorted(by_line) == ["line 2", "line 3", "line 5", "line 6"]
    assert "no setting 'suger'; did you mean 'sugar'?" in by_line["line 2"]
    assert "layers.1" in by_line["line 3"] and "'x'" in by_line["line 3"]
    assert "oven.degrees" in by_line["line 5"] and "'hot'" in by_line["line 5"]
    assert "no setting 'oven.fun'; did you mean 'oven.fan'?" in by_line["line 6"]


def test_mistakes_of_the_command_line_are_said_to_be_there(tmp_path: Path) -> None:
    found = mistakes(tmp_path, GOOD + "  fan: perhaps\n", "sugar=-1", "oven.degres=3")
    assert [line.partition(":")[0] for line in sorted(found)] == [
        "command line",
        "command line",
        "line 5",
    ]


def test_an_override_corrects_a_mistake_of_the_file(tmp_path: Path) -> None:
    assert load(tmp_path, "name: a\nsugar: much\n", "sugar=1").sugar == 1


def test_a_missing_setting_is_named(tmp_path: Path) -> None:
    assert mistakes(tmp_path, "sugar: 1\n") == ["cake.yaml: the setting 'name' is missing"]


def test_a_group_given_as_a_value_is_a_mistake_at_the_group(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, GOOD, "oven=3")
    assert found.startswith("command line: oven: ") and "(given: 3)" in found


def test_a_setting_in_the_wrong_group_is_found_by_its_last_name(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, GOOD, "degrees=3")
    assert found.endswith("did you mean 'oven.degrees'?")


def test_the_same_name_in_another_group_is_suggested_before_a_similar_one(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, GOOD, "oven.sugar=3")
    assert found.endswith("did you mean 'sugar'?")


def test_nonsense_gets_no_suggestion(tmp_path: Path) -> None:
    assert mistakes(tmp_path, GOOD, "qqq=3") == ["command line: there is no setting 'qqq'"]


@pytest.mark.parametrize("number", [".nan", "-.inf", ".inf", "1e999"])
def test_a_number_must_be_finite(tmp_path: Path, number: str) -> None:
    (found,) = mistakes(tmp_path, GOOD, f"sugar={number}")
    assert found.startswith("command line: sugar: ")


@pytest.mark.parametrize("name", ["oven.degrees", "sugar", "layers"])
def test_true_is_not_a_number(tmp_path: Path, name: str) -> None:
    value = "[true]" if name == "layers" else "true"
    (found,) = mistakes(tmp_path, GOOD, f"{name}={value}")
    assert found.startswith(f"command line: {name}: ") and "number" in found


def test_a_mistake_in_a_group_given_on_the_command_line_is_said_to_be_there(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, GOOD, "oven={degrees: -1}")
    assert found.startswith("command line")
    (found,) = mistakes(tmp_path, GOOD + "  fun: 1\n", "sugar=-1", "oven={degrees: 100}")
    assert found.startswith("command line: sugar")


@pytest.mark.parametrize("text", [GOOD, "name: sponge\n"])
def test_a_dot_behind_a_plain_setting_is_an_unknown_setting_of_the_command_line(
    tmp_path: Path, text: str
) -> None:
    (found,) = mistakes(tmp_path, text, "sugar.brown=3")
    assert found == (
        "command line: there is no setting 'sugar.brown'; 'sugar' takes a value and is not a group"
    )


def test_a_setting_inside_a_plain_one_of_the_file_is_named_with_its_line(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, "name: a\nsugar:\n  brown: 3\n")
    assert found.startswith("line 3: there is no setting 'sugar.brown'")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no settings"),
        (b"- a\n- b\n", "holds no settings"),
        (b"just words\n", "holds no settings"),
        (b"name: [1, 2\n", "not valid YAML: line 2"),
        (b"name: !!python/object:os.system {}\n", "not valid YAML: line 1"),
        (b"\xff\xfe\x00\x01\x80", "not text"),
    ],
)
def test_a_file_that_holds_no_settings_is_refused(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "cake.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        config.read_document(path)
    assert words in caught.value.what and "cake.yaml" in caught.value.what


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*absent\.yaml: No such file"):
        config.read_document(tmp_path / "absent.yaml")


def test_a_setting_given_twice_in_a_file_is_a_mistake(tmp_path: Path) -> None:
    found = mistakes(tmp_path, "name: a\nsugar: 1\nsugar: 2\noven:\n  fan: no\n  fan: perhaps\n")
    assert len(found) == 3
    assert found[0].startswith("line 3: the setting 'sugar' is given twice")
    assert found[1].startswith("line 6: the setting 'oven.fan' is given twice")
    assert "oven.fan" in found[2]


def test_settings_do_not_change_after_loading(tmp_path: Path) -> None:
    cake = load(tmp_path, GOOD)
    with pytest.raises(ValueError, match="frozen"):
        cake.sugar = 3


def test_what_is_dumped_has_every_value_and_loads_again_as_the_same(tmp_path: Path) -> None:
    cake = load(tmp_path, GOOD, "sugar=1e-8", "name='null'")
    assert set(config.dump(cake)["oven"]) == {"degrees", "fan", "shelf"}
    assert load(tmp_path, config.to_yaml(config.dump(cake))) == cake


@pytest.mark.parametrize(
    "name", ["plain", "with # hash", "with: colon", "'quoted'", "null", "12", "", "ä € 好", "- a"]
)
def test_annotated_yaml_says_what_each_line_means_and_loads_again(
    tmp_path: Path, name: str
) -> None:
    cake = Cake(name=name, layers=[3, 1], oven=Oven(shelf_="top"))
    text = config.annotated_yaml(cake)
    assert yaml.safe_load(text) == config.dump(cake)
    assert all("  # " in line for line in text.splitlines())
    assert load(tmp_path, text) == cake


def test_differences_name_each_changed_setting_with_both_values() -> None:
    old = {"a": 1, "b": {"c": 2, "d": [1]}, "gone": 5}
    new = {"a": 1, "b": {"c": 3, "d": [1]}, "fresh": 6}
    found = sorted(config.differences(old, new))
    assert found == [("b.c", 2, 3), ("fresh", None, 6), ("gone", 5, None)]


def test_settings_from_before_others_existed_are_filled_with_defaults() -> None:
    filled = config.with_defaults({"name": "a", "oven": {"degrees": 5}, "gone": 1}, Cake)
    assert filled == {
        "name": "a",
        "layers": [],
        "sugar": 0.25,
        "gone": 1,
        "oven": {"degrees": 5, "fan": False, "shelf": None},
    }


def test_a_fixed_group_fixes_everything_in_it() -> None:
    fixed = set(config.fixed_names(Cake))
    assert fixed == {"name", "oven.degrees", "oven.fan", "oven.shelf"}


def test_setting_names_are_those_of_the_yaml() -> None:
    names = list(config.setting_names(Cake))
    assert "oven.shelf" in names and "oven.shelf_" not in names
