"""Mistakes in a task of the user's own: each is refused with what is wrong and what to write."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from paceline import recipe as recipes
from paceline.errors import UserError
from paceline.project import find_project
from paceline.task_finder import find_task
from paceline.tasks.network import build_network
from paceline.tasks.samples import SampleTask
from paceline.tasks.trials import try_out
from paceline.world import World
from tests.conftest import CommandLine
from tests.own_tasks import write_project

CPU = torch.device("cpu")
WORLD = World(0, 1, CPU)
Open = Callable[..., SampleTask]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory whose modules no other test has imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    find_task.cache_clear()
    yield tmp_path
    find_task.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "blobs"]:
        del sys.modules[name]


@pytest.fixture
def opened(project: Path) -> Open:
    """The task after some changes of its text."""

    def opens(*changes: tuple[str, str], recipe: str = "") -> SampleTask:
        loaded = recipes.load(str(write_project(project, *changes, recipe=recipe)))
        task = find_task(loaded.workload).open(loaded, CPU)
        assert isinstance(task, SampleTask)
        return task

    return opens


def attempt(task: SampleTask) -> None:
    """What a worker does before the first step, and the first evaluation."""
    network = build_network(task)
    try_out(task, network, 0)
    assert network.training
    task.score(network, "validation", WORLD)


def refused(text: str, *changes: tuple[str, str], opened: Open) -> str:
    with pytest.raises(UserError) as caught:
        attempt(opened(*changes))
    assert text in caught.value.what
    assert caught.value.fix
    return caught.value.fix


def load_workload(project: Path, workload: str) -> str:
    write_project(project)
    with pytest.raises(UserError) as caught:
        recipes.load("blobs.yaml", [f"workload={workload}"])
    return str(caught.value)


def test_the_task_as_it_is_passes(opened: Open) -> None:
    attempt(opened())


# ---- finding it


@pytest.mark.parametrize(
    ("workload", "what", "fix"),
    [
        ("nowhere.task:Blobs", "there is no module 'nowhere.task'", "holds nowhere/task.py"),
        ("blobs.nothing:Blobs", "there is no module 'blobs.nothing'", "blobs/nothing.py"),
        ("blobs.task:Blob", "has no class 'Blob'", "did you mean 'Blobs'?"),
        ("blobs.task:np", "not a class", "paceline.SampleTask"),
        ("pathlib:Path", "is not a task", "paceline.SampleTask"),
        ("blobs.task:", "does not name a class", "package.module:Class"),
        ("bolbs", "'bolbs', which does not exist", "package.module:Class"),
    ],
)
def test_a_workload_that_names_no_task(project: Path, workload: str, what: str, fix: str) -> None:
    said = load_workload(project, workload)
    assert what in said and fix in said


def test_a_module_that_needs_what_is_not_installed(opened: Open) -> None:
    fix = refused("needs 'unheard_of'", ("import paceline\n", "import unheard_of\n"), opened=opened)
    assert "pip install unheard_of" in fix


def test_a_module_that_cannot_be_imported_is_named_with_the_line(opened: Open) -> None:
    with pytest.raises(UserError, match=r"importing 'blobs\.task' failed .*line 7.*boom"):
        opened(("import paceline\n", "raise ValueError('boom')\n"))


def test_a_member_that_is_missing(opened: Open) -> None:
    fix = refused(
        "blobs.task:Blobs has no evaluate, loss, best_by",
        ("def evaluate(", "def evaluated("),
        ("def loss(", "def lost("),
        ('unit, best_by = "point", "top1"', 'unit = "point"'),
        opened=opened,
    )
    assert "docs/own-task.md" in fix


def test_a_setting_that_hides_one_of_the_recipe(opened: Open) -> None:
    refused("Settings.steps hides the recipe's own", ("width: int", "steps: int"), opened=opened)


def test_a_wrong_value_of_an_own_setting_is_shown_with_its_line(project: Path) -> None:
    path = write_project(project, recipe="noise: -1\nwidht: 3\n")
    with pytest.raises(UserError) as caught:
        recipes.load(str(path))
    assert "line 8: noise: input should be greater than or equal to 0" in str(caught.value)
    assert "line 9: there is no setting 'widht'; did you mean 'width'?" in str(caught.value)


# ---- data


def test_data_that_is_not_there(opened: Open) -> None:
    with pytest.raises(UserError, match=r"there is no data at .*/points/here"):
        opened(recipe="data: points/here\n")


def test_a_file_that_open_does_not_find(opened: Open) -> None:
    fix = refused(
        "open: there is no file points.npy",
        ("rng = np.random.default_rng(0)", 'np.load("points.npy")'),
        opened=opened,
    )
    assert "data" in fix


def test_a_file_beside_the_recipe_is_meant_before_a_name_in_the_cache(project: Path) -> None:
    (project / "points.txt").touch()
    path = write_project(project, recipe="data: points.txt\n")
    assert recipes.load(str(path)).data == str(project / "points.txt")
    assert recipes.load(str(path), ["data=elsewhere"]).data == "elsewhere"


@pytest.mark.parametrize("returned", ["None", "{'validation': 3}", "{'train': 'all'}", "[1, 2]"])
def test_open_that_does_not_say_which_samples_there_are(opened: Open, returned: str) -> None:
    what = '{"train": range(30, 330), "validation": range(30)}'
    refused("Blobs.open", (what, returned), opened=opened)


def test_a_number_of_samples_alone_keeps_a_tenth_for_validation(opened: Open) -> None:
    task = opened(('{"train": range(30, 330), "validation": range(30)}', "330"))
    train, validation = task.split_numbers("train"), task.split_numbers("validation")
    assert len(validation) == 33
    assert sorted([*train, *validation]) == list(range(330))


# ---- traps


@pytest.mark.parametrize(
    "drawn",
    [
        "np.random.random(points.shape)",
        "torch.rand(points.shape).numpy()",
        "(setattr(self, 'n', getattr(self, 'n', 0) + 1) or self.n)",
    ],
)
def test_a_batch_that_is_no_pure_function(opened: Open, drawn: str) -> None:
    change = ("self.changed(points, rng)", f"(points + {drawn})")
    fix = refused("['points'] differs", change, opened=opened)
    assert "`rng` only" in fix


def test_a_loss_that_is_a_mean(opened: Open) -> None:
    before = 'return F.cross_entropy(model(batch["points"]), batch["labels"], reduction="sum")'
    after = 'return F.cross_entropy(model(batch["points"]), batch["labels"])'
    assert 'reduction="sum"' in refused("Blobs.loss is a mean", (before, after), opened=opened)


def test_a_loss_of_many_numbers(opened: Open) -> None:
    before = 'batch["labels"], reduction="sum")\n\n    def evaluate'
    after = 'batch["labels"], reduction="none")\n\n    def evaluate'
    refused("a tensor of shape (8,)", (before, after), opened=opened)


def test_a_model_that_is_not_on_the_device(opened: Open) -> None:
    task = opened(("nn.Linear(w, 3))", "nn.Linear(w, 3)).to('meta')"))
    with pytest.raises(UserError, match="cannot be moved to cpu"):
        build_network(task)


def test_layers_that_torch_does_not_see(opened: Open) -> None:
    change = (
        "return nn.Sequential(",
        "m = nn.Sequential(nn.Linear(2, 3)); m.more = [nn.ReLU()]; m2 = (",
    )
    fix = refused(
        "'more' is a plain list of modules",
        change,
        ("nn.Linear(w, 3))", "nn.Linear(w, 3)); return m"),
        opened=opened,
    )
    assert "nn.ModuleList" in fix


def test_norms_whose_averages_cannot_be_combined(opened: Open) -> None:
    refused("'1' is a SyncBatchNorm", ("nn.BatchNorm1d(w)", "nn.SyncBatchNorm(w)"), opened=opened)


def test_weights_that_the_loss_does_not_use(opened: Open) -> None:
    change = ("return nn.Sequential(", "net = nn.Sequential(")
    more = ("nn.Linear(w, 3))", "nn.Linear(w, 3)); net[3].extra = nn.Linear(1, 1); return net")
    refused(
        "does not depend on 2 weights of the network: 3.extra.weight", change, more, opened=opened
    )


def test_a_buffer_that_every_process_would_have_of_its_own(opened: Open) -> None:
    layer = (
        "class Blobs(",
        "class Count(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.register_buffer('seen', torch.zeros(1))\n"
        "    def forward(self, x):\n"
        "        self.seen += len(x)\n"
        "        return x\n\n\n"
        "class Blobs(",
    )
    refused("the buffer '2.seen'", layer, ("nn.ReLU()", "Count()"), opened=opened)


def test_samples_with_lengths_make_batches_of_at_most_so_many_units(opened: Open) -> None:
    lengths = "\n    def lengths(self, samples):\n        return 1 + samples % 5\n\n    def loss("
    task = opened(("\n    def loss(", lengths))
    seen: list[int] = []
    index = 0
    while len(seen) < 300:
        samples = task.samples(index)
        assert task.num_units(index) == sum(1 + samples % 5) <= 8
        seen += samples.tolist()
        index += 1
    assert sorted(seen) == list(range(30, 330))
    assert task.epochs_at(index) == 1.0


# ---- scores


def test_scores_of_one_process_alone(opened: Open) -> None:
    before = "paceline.Scores.of_sums(num, top1=right, loss=loss)"
    after = "paceline.Scores({'top1': float(right / num), 'loss': float(loss / num)})"
    assert "of_sums" in refused("one process's samples alone", (before, after), opened=opened)


def test_scores_of_a_part_of_the_samples(opened: Open) -> None:
    change = ("num += len(logits)", "num += len(logits)\n            break")
    refused("looked at 1 of 2 batches", change, opened=opened)


def test_nothing_to_validate_on_is_told_before_hours_of_training(opened: Open) -> None:
    change = ('{"train": range(30, 330), "validation": range(30)}', '{"train": range(30, 330)}')
    fix = refused("there is nothing to validate on", change, opened=opened)
    assert "evaluate.every_steps=null" in fix


@pytest.mark.parametrize("name", ["top1", "loss"])
def test_a_score_that_is_missing(opened: Open, name: str) -> None:
    value = {"top1": "right", "loss": "loss"}[name]
    change = (f"{name}={value}", f"other={value}")
    refused(f"no score '{name}'", change, opened=opened)


# ---- on the way to the user


def test_a_mistake_in_a_worker_is_one_message_with_exit_code_2(project: Path) -> None:
    write_project(project, ('batch["labels"], reduction="sum")\n\n', 'batch["labels"])\n\n'))
    result = CommandLine(project, project)("train", "blobs.yaml", "--procs", "2")
    assert result.returncode == 2
    assert "error: Blobs.loss is a mean" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_fingerprint_is_of_the_users_files_alone(opened: Open, project: Path) -> None:
    (project / "unused.py").write_text("x = 1\n", encoding="ascii")
    opened()
    found = find_project("blobs.task:Blobs")
    assert found is not None and found.root == project
    assert sorted(found.files) == ["blobs/__init__.py", "blobs/task.py"]
