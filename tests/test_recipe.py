"""Recipes: those shipped, what may be set in them, and what a run may not change."""

from pathlib import Path

import pytest
import yaml

from paceline import config, recipe
from paceline.errors import UserError
from paceline.tasks.cifar10.settings import Cifar10Recipe

NAMES = sorted(recipe.shipped())


def tiny(*overrides: str) -> Cifar10Recipe:
    loaded = recipe.load("cifar10-tiny", list(overrides))
    assert isinstance(loaded, Cifar10Recipe)
    return loaded


def mistakes(*overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        tiny(*overrides)
    return caught.value.what


def test_the_promised_recipes_are_shipped() -> None:
    promised = {"cifar10-resnet20", "cifar10-resnet44", "cifar10-fast", "cifar10-tiny"}
    assert promised <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_recipe_loads_and_says_what_it_is_in_one_line(name: str) -> None:
    loaded = recipe.load(name)
    assert loaded.about and "\n" not in loaded.about
    assert loaded.steps > 0


@pytest.mark.parametrize("name", NAMES)
def test_what_is_shown_of_a_recipe_loads_again_as_the_same(name: str, tmp_path: Path) -> None:
    loaded = recipe.load(name)
    text = config.annotated_yaml(loaded)
    assert yaml.safe_load(text) == config.dump(loaded)
    shown = tmp_path / "shown.yaml"
    shown.write_text(text, encoding="utf-8")
    assert recipe.load(str(shown)) == loaded


@pytest.mark.parametrize("name", NAMES)
def test_what_a_run_stores_loads_again_as_the_same_recipe(name: str, tmp_path: Path) -> None:
    loaded = recipe.load(name)
    stored = tmp_path / "recipe.yaml"
    stored.write_text(config.to_yaml(config.dump(loaded)), encoding="utf-8")
    assert recipe.from_run(stored) == loaded
    assert recipe.read_settings(stored) == config.dump(loaded)
    assert recipe.refuse_meaningless_change(config.dump(loaded), loaded, tmp_path) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_says_what_it_means(name: str) -> None:
    for line in config.annotated_yaml(recipe.load(name)).splitlines():
        assert "  # " in line, line


def test_an_unknown_recipe_gets_a_suggestion() -> None:
    with pytest.raises(UserError, match="no recipe 'cifar10-resnet4'") as caught:
        recipe.load("cifar10-resnet4")
    assert "did you mean 'cifar10-resnet44'?" in caught.value.fix


def test_a_recipe_that_resembles_none_is_sent_to_the_list() -> None:
    with pytest.raises(UserError) as caught:
        recipe.load("zzz")
    assert caught.value.fix == "`paceline recipes` lists what there is"


def test_a_recipe_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match=r"no recipe file some/where\.yaml"):
        recipe.load("some/where.yaml")


def test_a_workload_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(UserError, match="'cifar11'") as caught:
        tiny("workload=cifar11")
    assert "cifar10" in caught.value.fix


def test_a_recipe_without_a_workload_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("steps: 3\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"mine\.yaml"):
        recipe.load(str(path))


def test_overrides_of_a_shipped_recipe_are_typed() -> None:
    loaded = tiny(
        "steps=7",
        "schedule.policy=piecewise",
        "schedule.boundaries=[2,4]",
        "schedule.rate=1e-3",
        "checkpoint.every_steps=null",
        "model.widths=[8, 16, 32]",
    )
    assert (loaded.steps, loaded.schedule.boundaries, loaded.schedule.rate) == (7, [2, 4], 0.001)
    assert loaded.checkpoint.every_steps is None and loaded.model.widths == [8, 16, 32]


def test_all_mistakes_of_a_command_line_are_listed_at_once() -> None:
    found = mistakes(
        "step=3",
        "seed=-1",
        "augment.flip=both",
        "optimizer.momentm=1",
        "batch.global=many",
        "label_smoothing=1",
        "device=tpu",
    )
    assert found.startswith("the command line has 7 mistakes\n")
    assert found.count("command line: ") == 7
    assert "no setting 'step'; did you mean 'steps'?" in found
    assert "no setting 'optimizer.momentm'; did you mean 'optimizer.momentum'?" in found
    assert "'none', 'random' or 'alternating' (given: 'both')" in found


@pytest.mark.parametrize(
    "override",
    [
        "steps=0",
        "steps=1.5",
        "steps=soon",
        "seed=1.5",
        "compile=maybe",
        "model=7",
        "optimizer=null",
        "schedule.boundaries=5",
        "checkpoint.keep_last=0",
        "evaluate.batch=0",
    ],
)
def test_a_wrong_type_or_size_is_named_with_what_was_given(override: str) -> None:
    name, _, given = override.partition("=")
    found = mistakes(override)
    assert f"command line: {name}: " in found
    assert "(given: " in found and given.strip("'").replace("null", "None") in found


def test_batch_needs_exactly_one_of_its_two_sizes() -> None:
    assert "exactly one of batch.global and batch.per_device" in mistakes("batch.per_device=4")
    assert "exactly one of batch.global and batch.per_device" in mistakes("batch.global=null")


def test_a_global_batch_needs_a_micro_batch_that_divides_it() -> None:
    assert "batch.global needs batch.micro" in mistakes("batch.micro=null")
    assert "batch.micro: must divide the batch of 128 (given: 48)" in mistakes("batch.micro=48")


def test_a_batch_per_device_is_one_micro_batch_unless_told_otherwise() -> None:
    alone = tiny("batch.global=null", "batch.per_device=24", "batch.micro=null").batch
    assert (alone.global_, alone.per_device, alone.micro) == (None, 24, 24)
    cut = tiny("batch.global=null", "batch.per_device=24", "batch.micro=8").batch
    assert cut.micro == 8


def test_one_wrong_value_is_one_mistake() -> None:
    found = mistakes("batch.global=null", "batch.micro=null", "batch.per_device=abc")
    assert "has 1 mistake\n" in found


@pytest.mark.parametrize("depth", [8, 20, 32, 44, 56, 110])
def test_depths_of_6n_plus_2_are_taken(depth: int) -> None:
    assert tiny(f"model.depth={depth}").model.depth == depth


def test_other_depths_and_counts_of_widths_are_refused() -> None:
    assert "6n+2" in mistakes("model.depth=21")
    assert "three stages" in mistakes("model.widths=[16, 32]")
    assert "three stages" in mistakes("model.depths=[2, 3]", "model.kind=fast")
    assert "is for kind fast" in mistakes("model.depths=[2, 3, 3]", "model.kind=resnet")


@pytest.mark.parametrize("widths", ["[0, 16, 32]", "[16, -1, 32]"])
def test_widths_below_one_are_refused(widths: str) -> None:
    mistakes(f"model.widths={widths}")


def test_boundaries_below_one_are_refused() -> None:
    mistakes("schedule.boundaries=[-5, 3]")


@pytest.mark.parametrize("boundaries", ["[5, 3]", "[3, 3]"])
def test_boundaries_must_rise(boundaries: str) -> None:
    assert "schedule.boundaries: must rise" in mistakes(f"schedule.boundaries={boundaries}")


def test_scaling_needs_the_batch_it_refers_to() -> None:
    assert "schedule.reference_batch" in mistakes("schedule.scaling=linear")
    assert tiny("schedule.scaling=linear", "schedule.reference_batch=128").schedule.scaling


def test_falling_boundaries_are_listed_beside_an_unknown_setting() -> None:
    found = mistakes("schedule.boundaries=[5, 3]", "nonsense=1")
    assert "must rise" in found and "nonsense" in found


def test_mistakes_between_settings_are_listed_beside_all_others() -> None:
    found = mistakes(
        "schedule.boundaries=[5, 3]",
        "schedule.scaling=linear",
        "schedule.rate=0",
        "model.depth=21",
        "model.widths=[1]",
        "batch.micro=48",
        "optimizer.momentum=2",
    )
    assert found.startswith("the command line has 7 mistakes\n")
    assert found.count("command line: ") == 7


def test_a_mistake_between_settings_of_a_file_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("workload: cifar10\nsteps: 3\nbatch:\n  global: 8\n  micro: 3\n")
    with pytest.raises(UserError, match=r"line 5: batch\.micro: must divide the batch of 8"):
        recipe.load(str(path), ["schedule.rate=1"])
    with pytest.raises(UserError, match=r"command line: batch\.micro: must divide the batch of 7"):
        recipe.load(str(path), ["batch.global=7"])


def test_a_setting_of_another_group_is_found_by_its_last_name() -> None:
    assert "did you mean 'schedule.warmup_steps'?" in mistakes("optimizer.warmup_steps=5")


def test_the_transformer_policy_needs_a_width() -> None:
    assert (
        "command line: schedule.width: the transformer policy needs the model's width, e.g. 512"
        in mistakes("schedule.policy=transformer")
    )
    assert tiny("schedule.policy=transformer", "schedule.width=64").schedule.width == 64


@pytest.mark.parametrize(
    "override", ["schedule.boundaries=[5, 3]", "model.depth=21", "batch.micro=48"]
)
def test_a_mistake_between_settings_is_said_to_be_on_the_command_line(override: str) -> None:
    assert "command line: " in mistakes(override)


@pytest.mark.parametrize("name", ["2024-01-01", "2024-13-45", "123"])
def test_data_may_have_a_name_that_looks_like_something_else(name: str) -> None:
    assert tiny(f"data={name}").data == name


@pytest.mark.parametrize(
    ("override", "shown"),
    [
        ("seed=2", "seed: 1 -> 2"),
        ("model.depth=14", "model.depth: 8 -> 14"),
        ("model.widths=[4, 8, 16]", "model.widths: [] -> [4, 8, 16]"),
        ("batch.micro=64", "batch.micro: 32 -> 64"),
        ("optimizer.kind=adam", "optimizer.kind: 'sgd' -> 'adam'"),
        ("optimizer.average=0.9", "optimizer.average: 0.0 -> 0.9"),
    ],
)
def test_a_change_that_makes_going_on_meaningless_is_refused_and_shown(
    override: str, shown: str
) -> None:
    with pytest.raises(UserError, match="runs/a cannot go on") as caught:
        recipe.refuse_meaningless_change(config.dump(tiny()), tiny(override), Path("runs/a"))
    assert shown in caught.value.what
    assert "--run" in caught.value.fix


def test_every_refused_difference_is_shown_and_nothing_else() -> None:
    changed = tiny("seed=2", "model.depth=14", "steps=5")
    with pytest.raises(UserError) as caught:
        recipe.refuse_meaningless_change(config.dump(tiny()), changed, Path("runs/a"))
    assert len(caught.value.what.splitlines()) == 3


def test_a_run_of_another_workload_is_refused() -> None:
    other = {**config.dump(tiny()), "workload": "nmt"}
    with pytest.raises(
        UserError, match="a run of another task: it trains nmt, and this recipe trains cifar10"
    ):
        recipe.refuse_meaningless_change(other, tiny(), Path("runs/a"))


def test_other_changes_are_allowed_and_listed() -> None:
    changed = tiny("steps=600", "checkpoint.every_steps=7", "log.every_steps=3", "about=new words")
    found = recipe.refuse_meaningless_change(config.dump(tiny()), changed, Path("runs/a"))
    assert found == [
        "steps: 400 -> 600",
        "checkpoint.every_steps: 200 -> 7",
        "log.every_steps: 10 -> 3",
    ]


def test_a_run_from_before_a_setting_existed_can_go_on() -> None:
    old = config.dump(tiny())
    del old["optimizer"]["average"]
    assert recipe.refuse_meaningless_change(old, tiny(), Path("runs/a")) == []
    with pytest.raises(UserError, match=r"optimizer\.average: 0\.0 -> 0\.9"):
        recipe.refuse_meaningless_change(old, tiny("optimizer.average=0.9"), Path("runs/a"))


@pytest.mark.parametrize("content", [b"", b"- 1\n", b"a: [1\n", b"\xff\x80", b"a: 0x_\n"])
def test_a_stored_recipe_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        recipe.read_settings(path)
    assert "recipe.yaml" in caught.value.what and "run directory" in caught.value.fix


@pytest.mark.parametrize("name", recipe.shipped())
def test_the_size_of_every_shipped_recipe_is_told_before_it_runs(name: str) -> None:
    from paceline.tasks.sizes import size_in_words

    assert "parameters" in size_in_words(recipe.load(name))
