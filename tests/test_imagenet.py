"""ImageNet from its three archives through training with two processes to scores and a report."""

import io
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from paceline import recipe as recipes
from paceline.errors import UserError
from paceline.models.weights import load_weights
from paceline.record.events import read_events
from paceline.record.phases import PhaseClock
from paceline.record.schema import INPUT, RunDirectory
from paceline.tasks.imagenet import shards
from paceline.tasks.imagenet.preparation import prepare as imagenet
from paceline.tasks.imagenet.resnet import ImagenetResNet
from paceline.tasks.imagenet.settings import ImagenetRecipe
from paceline.tasks.imagenet.standin import archives as photos_archives
from paceline.tasks.imagenet.standin import photos
from paceline.tasks.imagenet.task import Imagenet
from paceline.tasks.scoring import ScoreBatches
from paceline.tasks.stream import samples_of
from paceline.train.finetune import begin_with
from paceline.train.input import Input, coming_steps
from paceline.train.state import Progress
from paceline.train.step import plan_step
from paceline.world import World
from tests.conftest import CommandLine

CPU = torch.device("cpu")
TINY = [
    "model.width=8",
    "augment.size=32",
    "schedule.policy=fixed",
    "schedule.rate=0.02",
    "evaluate.batch=7",
    "evaluate.train_samples=0",
]
NUM_STEPS = 6


def ignore(_text: str) -> None:
    """For messages that a test does not look at."""


@pytest.fixture(scope="module")
def photo_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 drawn photographs, from the three archives that ILSVRC comes in."""
    archives = photos_archives.write_archives(tmp_path_factory.mktemp("ilsvrc"), 6, 2, ignore)
    to = tmp_path_factory.mktemp("data") / "photos"
    return imagenet.prepare(str(archives), to, imagenet.Options(), ignore)


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory, photo_data: Path) -> CommandLine:
    return CommandLine(tmp_path_factory.mktemp("cwd"), photo_data)


def train(command: CommandLine, run: str, *settings: str, procs: int = 2, **variables: str) -> Any:
    words = command.training(run, *TINY, *settings, procs=procs, recipe="imagenet-tiny")
    return command(*words, **variables)


@pytest.fixture(scope="module")
def whole(command: CommandLine) -> str:
    """A run of two processes from begin to end."""
    result = train(command, "runs/whole", f"steps={NUM_STEPS}")
    assert result.returncode == 0, result.stderr
    return "runs/whole"


def open_photos(photo_data: Path, *settings: str) -> Imagenet:
    words = [f"data={photo_data}", "batch.global=32", "batch.micro=8", *TINY, *settings]
    recipe = recipes.load("imagenet-tiny", words)
    assert isinstance(recipe, ImagenetRecipe)
    return Imagenet(recipe, CPU)


def events_of(command: CommandLine, run: str, kind: str, rank: int = 0) -> list[dict[str, Any]]:
    events = read_events(RunDirectory(command.cwd / run).rank_events(rank))
    return [event for event in events if event["kind"] == kind]


# ---- from the archives to a report


def test_two_processes_train_from_the_archives_to_top1_top5_and_a_report(
    command: CommandLine, whole: str
) -> None:
    score = events_of(command, whole, "score")[-1]
    assert 0 <= score["scores"]["top1"] <= score["scores"]["top5"] <= 1
    assert score["signature"] == "validation:20 pictures|centre:32 of 37 px"
    report = command("report", whole)
    assert report.returncode == 0, report.stderr
    assert "top1" in report.stdout


def test_the_number_of_loader_threads_is_found_logged_and_said(
    command: CommandLine, whole: str
) -> None:
    choice = events_of(command, whole, "input")[0]
    assert choice["loader_workers"] >= 1
    assert choice["units_per_second_loader"] > 0
    assert choice["units_per_second_model"] > 0
    assert "to read ahead; the model takes" in choice["text"]
    assert events_of(command, whole, "begin")[0]["loader_workers"] >= 1


def test_evaluating_the_stored_weights_again_gives_the_same_scores(
    command: CommandLine, whole: str
) -> None:
    result = command("evaluate", whole, "--checkpoint", "newest", "--json")
    assert result.returncode == 0, result.stderr
    again = json.loads(result.stdout)["scores"]
    during = events_of(command, whole, "score")[-1]["scores"]
    assert again["top5"] == during["top5"]
    assert again["loss"] == pytest.approx(during["loss"], rel=1e-5)


def test_a_split_without_labels_is_refused(command: CommandLine, whole: str) -> None:
    result = command("evaluate", whole, "--split", "test")
    assert result.returncode == 2
    assert "no split 'test'" in result.stderr


# ---- the same at any size, and after an interruption


def test_one_process_and_a_fixed_number_of_threads_train_like_two_processes(
    command: CommandLine, whole: str
) -> None:
    result = train(command, "runs/one", f"steps={NUM_STEPS}", "input.workers=3", procs=1)
    assert result.returncode == 0, result.stderr
    assert command.losses("runs/one") == pytest.approx(command.losses(whole), rel=1e-4)
    one, two = (events_of(command, run, "score")[-1] for run in ("runs/one", whole))
    assert one["signature"] == two["signature"]
    assert (
        "3 threads per process to read ahead" in events_of(command, "runs/one", "input")[0]["text"]
    )
    assert one["scores"]["loss"] == pytest.approx(two["scores"]["loss"], rel=1e-3)


def test_a_killed_run_goes_on_and_ends_with_the_very_same_weights(
    command: CommandLine, whole: str
) -> None:
    words = [f"steps={NUM_STEPS}", "checkpoint.every_steps=2"]
    training = command.training("runs/cut", *TINY, *words, recipe="imagenet-tiny")
    process = command.start(*training)
    saved = command.cwd / "runs/cut/checkpoints/step-0000002"
    while not saved.is_dir() and process.poll() is None:
        time.sleep(0.005)
    family = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive
    # Another number of threads, because that must not matter.
    more = train(command, "runs/cut", *words, "input.workers=2")
    assert more.returncode == 0, more.stderr
    assert "goes on from step" in more.stderr
    assert command.weights("runs/cut") == command.weights(whole)


@pytest.mark.parametrize("num_workers", [0, 1, 4])
def test_any_number_of_threads_gives_the_pixels_of_a_plain_loop(
    photo_data: Path, num_workers: int
) -> None:
    workload = open_photos(photo_data, f"input.workers={num_workers}", "steps=4")
    world = World(1, 2, CPU)
    source = Input(workload, world, PhaseClock(), lambda *_a, **_k: None)
    progress = Progress(step=1, position=4)
    source.start(coming_steps(workload, progress, 4, world))
    assert source.num_workers == num_workers
    position = progress.position
    for _ in range(3):
        plan = plan_step(workload, position, world)
        position = plan.indices.stop
        for index, batch in zip(plan.mine, source.take(plan), strict=True):
            alone = workload.micro_batch(index)
            assert torch.equal(batch.pictures, alone.pictures)
            assert torch.equal(batch.labels, alone.labels)
    source.close()


def test_an_epoch_has_every_picture_once(photo_data: Path) -> None:
    workload = open_photos(photo_data)
    num = len(workload.train)
    assert num == 120
    seen = np.concatenate([workload.samples(index) for index in range(num // 8)])
    assert sorted(seen.tolist()) == list(range(num))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_evaluation_meets_each_picture_once_in_a_world_of_any_size(
    photo_data: Path, size: int
) -> None:
    workload = open_photos(photo_data)
    every = samples_of(workload.split_numbers("validation"), "validation")
    seen = [
        batch.pictures.reshape(len(batch.labels), -1).double().sum(1)
        for rank in range(size)
        for batch in ScoreBatches(workload, every, World(rank, size, CPU), final=False)
    ]
    alone = [
        batch.pictures.reshape(len(batch.labels), -1).double().sum(1)
        for batch in ScoreBatches(workload, every, World(0, 1, CPU), final=False)
    ]
    assert torch.equal(torch.cat(seen).sort().values, torch.cat(alone).sort().values)
    assert len(torch.cat(seen)) == len(every) == 20


# ---- settings


def test_pictures_grow_during_the_run_where_the_recipe_says_so(photo_data: Path) -> None:
    sizes = "augment.sizes=[[0,32],[0.5,48],[0.75,64]]"
    workload = open_photos(photo_data, "steps=4", sizes)
    sides = [workload.micro_batch(index).pictures.shape[-1] for index in range(0, 16, 4)]
    assert sides == [32, 32, 48, 64]
    assert workload.largest_batch_bytes == 8 * 3 * 64 * 64


def test_pictures_are_mirrored_half_of_the_time_and_only_where_asked(photo_data: Path) -> None:
    asked, never = open_photos(photo_data), open_photos(photo_data, "augment.flip=false")
    same = [
        torch.equal(one, other)
        for index in range(10)
        for one, other in zip(
            asked.micro_batch(index).pictures, never.micro_batch(index).pictures, strict=True
        )
    ]
    assert 20 < sum(same) < 60


def test_other_classes_than_the_data_has_are_refused_before_anything_starts(
    command: CommandLine,
) -> None:
    result = train(command, "runs/bad", "model.num_classes=1000")
    assert result.returncode == 2
    assert "has 20 classes, and model.num_classes is 1,000" in result.stderr
    assert "model.num_classes=20" in result.stderr


def test_recipes_show_the_published_size(command: CommandLine) -> None:
    result = command.here("recipes", "show", "imagenet-resnet50")
    assert "25,557,032" in result.stdout


def test_a_picture_that_was_overwritten_is_named(photo_data: Path, tmp_path: Path) -> None:
    to = tmp_path / "copy"
    to.mkdir()
    for file in photo_data.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    for shard in to.glob("train-*.tar"):
        shard.write_bytes(bytes(shard.stat().st_size))
    with pytest.raises(UserError, match=r"picture \d+ of the split 'train' .* cannot be decoded"):
        open_photos(to).micro_batch(0)


# ---- input that is too slow


def test_a_slow_loader_is_said_while_the_run_goes_and_its_share_is_right(
    command: CommandLine,
) -> None:
    seconds, num_steps = 0.6, 8
    quick = [f"steps={num_steps}", "evaluate.every_steps=null", "batch.global=16"]
    words = [*quick, "input.workers=1"]  # a number of its own would first try more threads
    result = train(command, "runs/slow", *words, procs=1, PACELINE_PRACTICE=f"input={seconds}")
    assert result.returncode == 0, result.stderr
    assert "input is the limit: the model could take" in result.stderr
    limit = [event for event in events_of(command, "runs/slow", "input") if event["is_limit"]]
    assert limit[0]["units_per_second_model"] > 1.5 * limit[0]["units_per_second_loader"]
    steps = events_of(command, "runs/slow", "steps")
    wall = sum(event["seconds"] for event in steps)
    share = sum(event["phases"].get(INPUT, 0.0) for event in steps) / wall
    assert share == pytest.approx(num_steps * seconds / wall, abs=0.05)


# ---- fine-tuning


def stored(path: Path, network: ImagenetResNet, prefix: str = "") -> Path:
    tensors = {prefix + name: value for name, value in network.state_dict().items()}
    save_file({**tensors, f"{prefix}bn1.num_batches_tracked": torch.tensor(7)}, path)
    return path


def test_published_weights_are_taken_and_the_last_layer_starts_anew(tmp_path: Path) -> None:
    torch.manual_seed(1)
    other = ImagenetResNet(18, num_classes=7, width=8)
    path = stored(tmp_path / "weights.safetensors", other, "module.")
    torch.manual_seed(2)
    network = ImagenetResNet(18, num_classes=20, width=8)
    last = network.fc.weight.detach().clone()
    said = begin_with(network, str(path), "fc.")
    assert "the last layer starts anew" in said
    assert torch.equal(network.conv1.weight, other.conv1.weight)
    assert torch.equal(network.fc.weight, last)


def test_weights_of_the_same_task_are_taken_whole(tmp_path: Path) -> None:
    other = ImagenetResNet(18, num_classes=20, width=8)
    network = ImagenetResNet(18, num_classes=20, width=8)
    said = begin_with(network, str(stored(tmp_path / "weights.safetensors", other)), "fc.")
    assert "anew" not in said
    assert torch.equal(network.fc.weight, other.fc.weight)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    path = stored(tmp_path / "weights.safetensors", ImagenetResNet(34, 20, 8))
    with pytest.raises(UserError, match=r"another network: it has also layer1.2"):
        begin_with(ImagenetResNet(18, 20, 8), str(path), "fc.")


@pytest.mark.parametrize("kind", ["missing", "no weights", "an empty directory"])
def test_what_holds_no_weights_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "start"
    if kind == "no weights":
        path.write_text("hello")
    elif kind == "an empty directory":
        path.mkdir()
    with pytest.raises(UserError, match="start"):
        begin_with(ImagenetResNet(18, 20, 8), str(path), "fc.")


def test_a_run_begins_with_the_weights_of_another_run(command: CommandLine, whole: str) -> None:
    settings = [f"model.start_from={whole}", "schedule.rate=1e-9", "steps=1"]
    result = train(command, "runs/tuned", *settings, procs=1)
    assert result.returncode == 0, result.stderr
    assert f"begins with the weights of {command.cwd / whole}" in result.stderr
    before, after = (
        load_weights(command.cwd / run, which).tensors
        for run, which in ((whole, "best"), ("runs/tuned", "newest"))
    )
    for name in ("conv1.weight", "layer4.1.conv2.weight", "fc.weight"):
        assert torch.allclose(before[name], after[name], atol=1e-6)


# ---- classifying


def test_pictures_are_classified_and_what_is_none_is_named(
    command: CommandLine, whole: str
) -> None:
    folder = command.cwd / "pictures"
    folder.mkdir()
    (folder / "one.jpg").write_bytes(photos.draw(3, 0, 0))
    image = io.BytesIO()
    Image.fromarray(np.full((40, 60, 4), 90, np.uint8)).save(image, "PNG")
    (folder / "two.png").write_bytes(image.getvalue())
    (folder / "text.jpg").write_text("this is not a picture")
    names = ["one.jpg", "text.jpg", "absent.jpg", "two.png"]
    result = command("classify", whole, *(str(folder / name) for name in names))
    assert result.returncode == 2
    assert result.stderr.count("error:") == 2
    assert f"error: {folder / 'text.jpg'}: not a picture" in result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == str(folder / "one.jpg")
    assert lines[6] == str(folder / "two.png")
    assert len(lines) == 12
    shares = [float(line.split("%")[0]) for line in lines[1:6]]
    assert shares == sorted(shares, reverse=True)
    words = {words for _, words in shards.classes(command.data)}
    assert all(line.split("%")[1].strip().rpartition(" (")[0] in words for line in lines[1:6])


def test_classes_can_be_had_as_json(command: CommandLine, whole: str) -> None:
    picture = command.cwd / "json.jpg"
    picture.write_bytes(photos.draw(5, 1, 0))
    result = command("classify", whole, str(picture), "--json")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert len(answer["classes"]) == 5
    assert 0 < sum(one["probability"] for one in answer["classes"]) <= 1


def test_a_directory_that_is_no_run_cannot_classify(command: CommandLine, tmp_path: Path) -> None:
    result = command("classify", str(tmp_path), "x.jpg")
    assert result.returncode == 2
    assert "is not a run" in result.stderr
