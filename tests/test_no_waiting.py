"""A step queues its work without waiting for the device, in every task: shown on torch's `meta`
device, which has no memory to read from (see `watched_device.py`)."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from paceline import recipe as recipes
from paceline.machine.arithmetic import Arithmetic
from paceline.models.beam import BeamOptions, translate
from paceline.models.device_attention import attend_on_device
from paceline.models.loss import smoothed_loss_on_device
from paceline.models.packing import AttentionPlan, Packing
from paceline.models.transformer import Transformer
from paceline.order import WorkerOrder
from paceline.record.events import read_events
from paceline.record.phases import PhaseClock
from paceline.record.schema import RunDirectory
from paceline.settings import OptimizerSettings
from paceline.task_finder import find_task
from paceline.tasks.contract import Task
from paceline.tasks.imagenet.preparation import prepare as imagenet
from paceline.tasks.imagenet.standin import archives
from paceline.tasks.network import build_network
from paceline.tasks.nmt.preparation import prepare as nmt
from paceline.train.attempt import Attempt
from paceline.train.optimizer import build_optimizer, set_rate
from paceline.train.precision import multiplying_in
from paceline.train.state import build_state, load_optimizer_tensors
from paceline.train.step import Stepper, plan_step
from paceline.world import World
from tests.watched_device import META, DeviceWatch, Passage, watching

EXAMPLES = Path(__file__).parents[1] / "examples"
WORLD = World(0, 1, META)
ANY_KIND = ("read", "copy", "mixed", "lacking")
AVERAGED = ["optimizer.average=0.9", "optimizer.clip_norm=1.0"]
DROPPING = [f"model.{kind}_dropout=0.1" for kind in ("attention", "relu", "residual")]


def ignore(_text: str) -> None:
    """For messages that a test does not look at."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("no-waiting")


@pytest.fixture(scope="module")
def sentences(folder: Path) -> Path:
    options = nmt.Options(num_pairs=300, vocab_size=500)
    return nmt.prepare("stand-in", folder / "sentences", options, ignore)


@pytest.fixture(scope="module")
def photos(folder: Path) -> Path:
    made = archives.write_archives(folder / "ilsvrc", 2, 1, ignore)
    return imagenet.prepare(str(made), folder / "photos", imagenet.Options(), ignore)


@pytest.fixture(scope="module", params=["digits", "gpt"])
def example(request: pytest.FixtureRequest, folder: Path) -> Iterator[Path]:
    """A task of a user's, in the directory it is written in."""
    home = folder / request.param
    shutil.copytree(EXAMPLES / request.param, home)
    sys.path.insert(0, str(home))
    sys.modules.pop("task", None)
    if request.param == "digits":
        import draw  # type: ignore[import-not-found]

        draw.main(home / "digits.npz", 100)
    else:
        (home / "book.txt").write_text("A book of few words. " * 100, encoding="utf-8")
    yield home
    sys.path.remove(str(home))
    sys.modules.pop("task", None)


def opened(name: str, *settings: str) -> Task:
    recipe = recipes.load(name, list(settings))
    return find_task(recipe.workload).open(recipe, META)


def stepper_of(task: Task) -> Stepper:
    arithmetic = Arithmetic("fp32")
    with watching():  # a network may look at its data while it is built
        network = build_network(task)
    state = build_state(task.recipe, network, WORLD, arithmetic)
    return Stepper(task.recipe, arithmetic, task, state, WORLD, PhaseClock())


def watched_steps(task: Task) -> DeviceWatch:
    """Two steps after the rehearsal, because the first makes the optimizer's state."""
    stepper, num_steps, seen = stepper_of(task), 2, DeviceWatch()
    first = plan_step(task, 0, WORLD)
    with watching():
        stepper.rehearse(first, [task.micro_batch(index) for index in first.mine])
        for position in range(num_steps):
            plan = plan_step(task, position * task.micro_batches_per_step(1), WORLD)
            batches = [task.micro_batch(index) for index in plan.mine]
            with watching() as inner:
                stepper.step(plan, batches, 0.1, want_norm=True)
            seen.passages.extend(inner.passages)
    return seen


def watched_evaluation(task: Task, split: str = "validation", final: bool = False) -> DeviceWatch:
    with watching():
        model = build_network(task)
    with watching() as watch:
        task.score(model, split, WORLD, final)
    return watch


def texts(watch: DeviceWatch, *kinds: str) -> list[str]:
    return [str(passage) for passage in watch.of(*kinds)]


def small(data: Path, *settings: Any) -> list[str]:
    return [f"data={data}", *AVERAGED, *settings]


def own_data(example: Path) -> list[str]:
    (data,) = [path for name in ("digits.npz", "book.txt") for path in example.glob(name)]
    return [f"data={data}"]


SENTENCES = ["model.vocab_size=500", "batch.global=256", "batch.micro=128", *DROPPING]
PHOTOS = ["model.width=8", "augment.size=32", "batch.global=8", "batch.micro=4"]
PICTURES = ["batch.global=16", "batch.micro=8"]


def test_a_step_of_translation_waits_for_nothing(sentences: Path) -> None:
    watch = watched_steps(opened("nmt-tiny", *small(sentences, *SENTENCES)))
    assert texts(watch, *ANY_KIND) == []


@pytest.mark.parametrize("recipe", ["cifar10-tiny", "cifar10-fast"])
def test_a_step_on_pictures_waits_for_nothing(recipe: str, pictures: Path) -> None:
    watch = watched_steps(opened(recipe, *small(pictures, *PICTURES)))
    assert texts(watch, *ANY_KIND) == []


def test_a_step_on_photographs_waits_for_nothing(photos: Path) -> None:
    watch = watched_steps(opened("imagenet-tiny", *small(photos, *PHOTOS)))
    assert texts(watch, *ANY_KIND) == []


def test_a_step_of_a_users_task_waits_for_nothing(example: Path) -> None:
    (recipe,) = example.glob("*.yaml")
    watch = watched_steps(opened(str(recipe), *own_data(example), *AVERAGED))
    assert texts(watch, *ANY_KIND) == []


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """How many rows the first operand of each operation has, by its name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows: dict[str, set[int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = next((a for a in args if isinstance(a, torch.Tensor) and a.ndim), None)
        rows = self.rows.setdefault(func.overloadpacket.__name__, set())
        rows.add(len(first) if first is not None else 0)
        return func(*args, **(kwargs or {}))


def test_attention_on_a_device_goes_over_packed_tokens_and_the_loss_in_chunks(
    sentences: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.models.loss.DEVICE_CHUNK_BYTES", 0)
    monkeypatch.setattr("paceline.models.loss.MIN_CHUNK_TOKENS", 32)
    task = opened("nmt-tiny", *small(sentences, *SENTENCES))
    stepper, plan = stepper_of(task), plan_step(task, 0, WORLD)
    batches = [task.micro_batch(index) for index in plan.mine]
    with Operations() as seen:
        stepper.step(plan, batches, 0.1, want_norm=False)
    assert {"_efficient_attention_forward", "_efficient_attention_backward"} <= seen.rows.keys()
    assert not any("scaled_dot_product" in name for name in seen.rows)
    assert max(seen.rows["_log_softmax"]) == 32, "so many tokens at once"


@pytest.mark.parametrize(("lengths", "is_causal"), [((3, 1, 7), True), ((5, 5), False)])
def test_padded_attention_makes_no_mask_where_none_is_needed(
    lengths: tuple[int, ...], is_causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks: list[Any] = []
    really_attend = F.scaled_dot_product_attention

    def attend(*heads: Any, **options: Any) -> torch.Tensor:
        masks.append(options["attn_mask"])
        return really_attend(*heads, **options)

    monkeypatch.setattr("paceline.models.device_attention.F.scaled_dot_product_attention", attend)
    packing = Packing.of_lengths(np.array(lengths))
    plan = AttentionPlan(packing, packing, num_heads=2, is_causal=is_causal)
    attend_on_device(torch.randn(packing.num_tokens, 3 * 16), None, plan, 0.0)
    assert masks == [None]


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw"])
def test_updates_on_cuda_are_fused(kind: str) -> None:
    settings = OptimizerSettings.model_validate({"kind": kind})
    with FakeTensorMode():
        network = nn.ParameterList([nn.Parameter(torch.empty(4, 3, device="cuda"))])
        optimizer = build_optimizer(settings, network)
    assert all(group["fused"] for group in optimizer.param_groups)


def test_a_stored_state_of_the_optimizer_goes_to_the_device_of_the_weights(pictures: Path) -> None:
    """Adam's count of steps too: fused updates look for it there."""
    kind = ["optimizer.kind=adam", "schedule.rate=0.01"]
    state = stepper_of(opened("cifar10-tiny", f"data={pictures}", *PICTURES, *kind)).state
    stored = {}
    for name, weight in state.network.named_parameters():
        moments = {key: torch.zeros(weight.shape) for key in ("exp_avg", "exp_avg_sq")}
        for key, value in {**moments, "step": torch.tensor(7.0)}.items():
            stored[f"{name}.{key}"] = value
    load_optimizer_tensors(state, stored)
    places = {
        (key, value.device.type)
        for of_weight in state.optimizer.state.values()
        for key, value in of_weight.items()
    }
    assert places == {("exp_avg", "meta"), ("exp_avg_sq", "meta"), ("step", "meta")}


class SmallOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what is done to the statistics of one norm at a time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        is_of_one = bool(args) and isinstance(args[0], torch.Tensor) and args[0].shape[:1] == (2,)
        self.count += is_of_one and name in ("add_", "zero_", "lerp_", "copy_")
        return func(*args, **(kwargs or {}))


def test_statistics_of_all_norms_are_one_buffer(pictures: Path) -> None:
    task = opened("cifar10-tiny", f"data={pictures}", *PICTURES)
    stepper, plan = stepper_of(task), plan_step(task, 0, WORLD)
    batches = [task.micro_batch(index) for index in plan.mine]
    with SmallOperations() as small_ones:
        stepper.step(plan, batches, 0.1, want_norm=False)
    assert small_ones.count == 0


def in_search(passage: Passage) -> bool:
    """Whether a sentence is over must be known before the next piece."""
    return "models/beam.py" in passage.where


def needless(watch: DeviceWatch) -> list[str]:
    """What evaluation does besides sending batches and reading the sums of all at its end."""
    reads = [str(passage) for passage in watch.of("read") if not in_search(passage)]
    constants = [p for p in watch.of("copy") if p.operation != "copy to the device"]
    return [*reads[1:], *texts(watch, "mixed", "lacking"), *map(str, constants)]


@pytest.mark.parametrize("final", [False, True])
def test_translation_is_scored_without_mixing_devices(sentences: Path, final: bool) -> None:
    task = opened("nmt-tiny", *small(sentences, *SENTENCES, "decode.extra_length=2"))
    watch = watched_evaluation(task, "validation", final)
    assert [text for text in needless(watch) if "models/beam.py" not in text] == []
    assert any(map(in_search, watch.of("read"))), "it did search"
    assert needless(watched_evaluation(task, "train")) == []


@pytest.mark.parametrize("recipe", ["cifar10-tiny", "cifar10-fast"])
def test_pictures_are_scored_with_one_read(recipe: str, pictures: Path) -> None:
    task = opened(recipe, *small(pictures, *PICTURES, "evaluate.batch=100"))
    assert needless(watched_evaluation(task)) == []


def test_photographs_are_scored_with_one_read(photos: Path) -> None:
    task = opened("imagenet-tiny", *small(photos, *PHOTOS, "evaluate.batch=7"))
    assert needless(watched_evaluation(task)) == []


def test_a_users_task_is_scored_without_mixing_devices(example: Path) -> None:
    (recipe,) = example.glob("*.yaml")
    watch = watched_evaluation(opened(str(recipe), *own_data(example), *AVERAGED))
    assert texts(watch, "mixed", "lacking") == []
    assert len(watch.of("read")) <= 3, "the sums at its end"


def test_the_whole_loop_sends_each_batch_once_and_reads_losses_an_interval_late(
    pictures: Path, tmp_path: Path
) -> None:
    """An attempt's whole life, with its input threads, its log, its scores and its checkpoint."""
    settings = ["steps=6", "log.every_steps=2", "evaluate.every_steps=6", "evaluate.batch=1000"]
    task = opened("cifar10-tiny", *small(pictures, *PICTURES, *settings))
    run, world = RunDirectory(tmp_path / "run"), World(0, 1, META, saves=True)
    with watching() as watch:
        attempt = Attempt(task.recipe, run, task, world)
        assert attempt.live(WorkerOrder(), lambda: False) == "finished"
    assert attempt.input.phases is attempt.recorder.settled, "the loader is judged by the device"
    passed = [f"{p.kind} {p.where.partition(':')[0]}" for p in watch.passages]
    loop = passed[passed.index("copy train/input.py") :]
    until_scores = loop[: loop.index("copy tasks/batch_values.py")]
    batch, losses = "copy train/input.py", "read measure/device_clock.py"
    assert until_scores.count(batch) == 12, "two micro-batches in each of six steps"
    first = until_scores.index(losses)
    assert until_scores[:first].count(batch) >= 8, "two intervals are queued before one is read"
    assert until_scores[-2:] == [losses, losses], "before scores all are read"
    assert set(until_scores) == {batch, losses}
    after = set(loop[len(until_scores) :])
    assert after == {"copy tasks/batch_values.py", "read cifar10/task.py", "read train/save.py"}
    assert [event["step"] for event in read_events(run.rank_events(0)) if "losses" in event] == [
        2,
        4,
        6,
    ]
    assert (run.checkpoints / "step-0000006").is_dir()


@pytest.mark.parametrize("kind", ["adam", "adamw", "muon"])
def test_overflows_of_fp16_are_looked_for_without_asking_the_device(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor, whose updates are fused as those of a device are."""
    settings = OptimizerSettings.model_validate({"kind": kind})
    network = nn.Conv2d(3, 4, 3)
    optimizer = build_optimizer(settings, network)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(gradient: float) -> list[torch.Tensor]:
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "item", lambda _self: pytest.fail("a read"))
            for weight in network.parameters():
                weight.grad = torch.full_like(weight, 1024.0 * gradient)
            scaler.scale(torch.ones(()))
            scaler.step(optimizer)
            scaler.update()
        return [weight.detach().clone() for weight in network.parameters()]

    set_rate(optimizer, 0.1)
    first, second = step(0.5), step(1.0)
    assert not torch.equal(first[0], second[0])
    state = [value.clone() for value in optimizer_values(optimizer)]
    skipped = step(float("inf"))
    assert all(map(torch.equal, skipped, second)), "no step"
    assert all(map(torch.equal, optimizer_values(optimizer), state))
    assert scaler.get_scale() == 512.0
    assert all(weight.isfinite().all() for weight in step(1.0))


def optimizer_values(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [value for state in optimizer.state.values() for value in state.values()]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_devices_way_through_a_transformer_gives_the_loss_of_a_processors(
    precision: str, sentences: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its attention and its loss, run on a processor."""
    recipe = recipes.load("nmt-tiny", [f"data={sentences}", *SENTENCES[:3]])
    cpu = torch.device("cpu")
    task = find_task(recipe.workload).open(recipe, cpu)
    network, batch = build_network(task), task.micro_batch(0)
    wanted = float(task.loss(network, batch).detach())
    monkeypatch.setattr("paceline.models.transformer.attend", attend_on_device)
    monkeypatch.setattr("paceline.models.transformer.smoothed_loss", smoothed_loss_on_device)
    with multiplying_in(Arithmetic(precision), cpu):
        loss = task.loss(network, batch)
        torch.autograd.backward(loss)
        assert float(loss.detach()) == pytest.approx(
            wanted, rel=1e-5 if precision == "fp32" else 0.01
        )
        network.eval()
        assert isinstance(network, Transformer)
        found = translate(network, [[5, 6, 7, 1]], BeamOptions(beam_size=2, extra_length=2))
        assert found[0][0].log_prob < 0, "decoding works in it, too"
