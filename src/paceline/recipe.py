"""What can be set: the settings of every workload, with defaults and what they mean.

Values only. Loading and checking is `config.py`; what the values do is the business of training.
"""

import difflib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationInfo, field_validator

from paceline import config
from paceline.config import Section, setting
from paceline.errors import UserError
from paceline.schedule import ScheduleSettings


class BatchSettings(Section):
    global_: int | None = setting(
        None,
        "samples in one optimizer step over the whole world, whatever its size",
        alias="global",
        gt=0,
    )
    per_device: int | None = setting(
        None,
        "instead of global: samples per process, so the global batch grows with the world",
        gt=0,
        validate_default=True,
    )
    micro: int | None = setting(
        None,
        "samples in one forward pass: what fits a device, and what batch norm averages over; "
        "null takes per_device",
        gt=0,
        fixed=True,
        validate_default=True,
    )

    @field_validator("per_device")
    @classmethod
    def _one_of_two(cls, per_device: int | None, info: ValidationInfo) -> int | None:
        if "global_" in info.data and (info.data["global_"] is None) == (per_device is None):
            config.refuse_together(
                "set exactly one of batch.global and batch.per_device", "global", "per_device"
            )
        return per_device

    @field_validator("micro")
    @classmethod
    def _micro_fits(cls, micro: int | None, info: ValidationInfo) -> int | None:
        """A run that goes on must cut its data as before, so the size is written down."""
        if not {"global_", "per_device"} <= info.data.keys():
            return micro  # these have mistakes of their own
        whole: int = info.data["global_"] or info.data["per_device"]
        if micro is None and info.data["global_"]:
            config.refuse_together(
                "batch.global needs batch.micro, the size of one forward pass", "global", "micro"
            )
        if whole % (micro or whole):
            config.refuse_together(
                f"must divide the batch of {whole}", "global", "per_device", "micro"
            )
        return micro or whole


STATES_PER_WEIGHT = {"sgd": 1, "muon": 1, "adam": 2, "adamw": 2}
"""Numbers that an update rule remembers for each weight."""


class OptimizerSettings(Section):
    kind: Literal["sgd", "adam", "adamw", "muon"] = setting(
        "sgd",
        "update rule; muon is for networks of convolutions, each followed by a norm",
        fixed=True,
    )
    momentum: float = setting(0.9, "sgd, muon: momentum", ge=0, lt=1)
    nesterov: bool = setting(True, "sgd: Nesterov's form of momentum")
    beta1: float = setting(0.9, "adam, adamw: decay of the mean", ge=0, lt=1)
    beta2: float = setting(0.999, "adam, adamw: decay of the square", ge=0, lt=1)
    epsilon: float = setting(1e-8, "adam, adamw: floor of the denominator", gt=0)
    weight_decay: float = setting(0.0, "pulls weights to zero; never norms and biases", ge=0)
    clip_norm: float | None = setting(
        None, "largest allowed gradient norm; null does not clip", gt=0
    )
    matrix_rate: float = setting(
        1.0, "muon: rate of matrices, e.g. the last layer, as a multiple of the kernels'", gt=0
    )
    bias_rate: float = setting(1.0, "rate of norms and biases as a multiple of the others'", gt=0)
    average: float = setting(
        0.0,
        "decay per step of an exponential average of the weights, used to evaluate; 0 is none",
        ge=0,
        lt=1,
        fixed=True,
    )


class EvaluateSettings(Section):
    every_steps: int | None = setting(
        1000, "evaluate on validation data this often; null never", gt=0
    )
    batch: int = setting(500, "samples per forward pass in evaluation", gt=0)
    train_samples: int | None = setting(
        None,
        "training samples scored like validation beside it, which shows overfitting; "
        "null takes 1,000 pictures or 500 sentence pairs, 0 none",
        ge=0,
    )


class CheckpointSettings(Section):
    every_steps: int | None = setting(1000, "save this often; null does not go by steps", gt=0)
    every_minutes: float | None = setting(None, "save this often; null does not go by time", gt=0)
    keep_last: int = setting(3, "how many of the newest are kept (the best is kept besides)", ge=1)


class LogSettings(Section):
    every_steps: int = setting(10, "steps per line of the event log and TensorBoard", gt=0)
    show_seconds: float = setting(
        10.0, "seconds between progress lines when not on a terminal", gt=0
    )
    probe_seconds: float = setting(
        5.0, "seconds between looks at each host's processor, memory, disk and network", gt=0
    )


class GuardSettings(Section):
    diverged_factor: float = setting(
        3.0, "stop when the smoothed loss is this many times the first loss; 0 never stops", ge=0
    )
    group_seconds: float = setting(
        600.0, "longest wait for another process before the run is given up", gt=0
    )
    hang_seconds: float = setting(
        25.0, "on many hosts: how long a host or a process may give no sign of life", ge=3
    )
    join_seconds: float = setting(
        60.0,
        "on many hosts: from when on it is said which hosts have not joined and what they do; one "
        "without progress is waited for 5 times, one with progress 20 times as long",
        gt=0,
    )
    return_seconds: float = setting(
        120.0, "on many hosts: how long a lost host is waited for before the run ends", ge=0
    )
    max_restarts: int = setting(
        5, "on many hosts: restarts in a row without a new checkpoint before the run ends", ge=0
    )


class HostsSettings(Section):
    min: int | None = setting(
        None, "the run goes on with this many hosts when others are lost; null needs all", gt=0
    )


class TargetSettings(Section):
    score: float | None = setting(
        None, "published score for this recipe on test data; the report says how far it is"
    )
    source: str = setting("", "who published it, and where")


class Recipe(Section):
    """What every workload has."""

    workload: str = setting(..., "the task", fixed=True)
    about: str = setting("", "one line for `paceline recipes`")
    steps: int = setting(..., "optimizer steps in all", gt=0)
    seed: int = setting(
        1, "seed of initial weights, sample order and all randomness", ge=0, fixed=True
    )
    data: str = setting(
        ..., "prepared data: a directory, or a name under the data cache", path="or name"
    )
    device: Literal["auto", "cpu", "cuda"] = setting("auto", "auto takes CUDA where there is one")
    precision: Literal["fp32", "bf16", "fp16"] = setting(
        "fp32", "arithmetic of forward and backward; weights stay fp32 (fp16 needs CUDA)"
    )
    compile: bool = setting(
        False, "torch.compile; off because on a CPU it costs more than it gains"
    )
    batch: BatchSettings = setting(..., "how many samples make a step")
    optimizer: OptimizerSettings = setting(OptimizerSettings(), "how weights are updated")
    schedule: ScheduleSettings = setting(ScheduleSettings(), "the learning rate over the run")
    evaluate: EvaluateSettings = setting(EvaluateSettings(), "scores while training")
    checkpoint: CheckpointSettings = setting(CheckpointSettings(), "what is saved and when")
    log: LogSettings = setting(LogSettings(), "what is recorded and shown")
    guard: GuardSettings = setting(GuardSettings(), "when a run stops itself")
    target: TargetSettings = setting(TargetSettings(), "what others reached with it")
    hosts: HostsSettings = setting(HostsSettings(), "training on many hosts")


class Cifar10Model(Section):
    kind: Literal["resnet", "fast"] = setting("resnet", "ResNet-6n+2 or the fast modern net")
    depth: int = setting(20, "resnet: number of layers, 6n+2 (20, 32, 44, 56, 110)", ge=8)
    widths: list[PositiveInt] = setting(
        [], "channels of the three stages; empty takes the kind's own"
    )
    depths: list[PositiveInt] = setting(
        [], "fast: convolutions of the three stages; empty takes [2, 3, 3]"
    )

    @field_validator("depth")
    @classmethod
    def _is_6n_plus_2(cls, depth: int, info: ValidationInfo) -> int:
        if info.data.get("kind") == "resnet" and (depth - 2) % 6:
            config.refuse_together("must be 6n+2: 20, 32, 44, 56, 110, ...", "kind", "depth")
        return depth

    @field_validator("widths", "depths")
    @classmethod
    def _three_stages(cls, stages: list[int]) -> list[int]:
        if stages and len(stages) != 3:
            raise ValueError("must name three stages, a number for each")
        return stages

    @field_validator("depths")
    @classmethod
    def _is_not_ignored(cls, depths: list[int], info: ValidationInfo) -> list[int]:
        if depths and info.data.get("kind") == "resnet":
            config.refuse_together("is for kind fast; a resnet takes depth", "kind", "depths")
        return depths


Share = Annotated[float, Field(ge=0, lt=1)]
SmallSide = Annotated[int, Field(ge=16, le=32)]


class AugmentSettings(Section):
    pad: int = setting(
        4, "pixels of reflection padding before a random crop of the full size", ge=0
    )
    flip: Literal["none", "random", "alternating"] = setting(
        "random", "mirror pictures at random, or every other epoch"
    )
    sizes: list[tuple[Share, SmallSide]] = setting(
        [], "train on smaller pictures first: pairs of (share of the run from which on, pixels)"
    )
    cutout: int = setting(0, "side of a square that is blanked out; 0 is off", ge=0)


class Cifar10Recipe(Recipe):
    """Image classification on CIFAR-10 or its stand-in."""

    data: str = setting(
        "cifar10", "prepared data: a directory, or a name under the data cache", path="or name"
    )
    model: Cifar10Model = setting(Cifar10Model(), "the network", fixed=True)
    batch: BatchSettings = setting(..., "how many pictures make a step")
    augment: AugmentSettings = setting(AugmentSettings(), "changes to training pictures")
    label_smoothing: float = setting(
        0.0, "share of the target given to all classes alike", ge=0, lt=1
    )
    train_on: Literal["train", "all"] = setting(
        "train",
        "all: the validation pictures too, for a last run whose settings are settled",
        fixed=True,
    )
    mirror: bool = setting(False, "evaluate each picture and its mirror image, and average")
    shift: int = setting(
        0,
        "evaluate each picture also moved this many pixels up left and down right, and average",
        ge=0,
        le=8,
    )

    @field_validator("train_on")
    @classmethod
    def _nothing_left_to_validate_on(cls, train_on: str, info: ValidationInfo) -> str:
        evaluate = info.data.get("evaluate")
        if train_on == "all" and evaluate is not None and evaluate.every_steps is not None:
            raise ValueError(
                "all leaves nothing to validate on: set evaluate.every_steps=null as well"
            )
        return train_on


class TextBatchSettings(BatchSettings):
    by: Literal["tokens", "sentences"] = setting(
        "tokens",
        "what a batch is measured in: target tokens (at most so many) or sentences",
        fixed=True,
    )


class TransformerModel(Section):
    size: Literal["tiny", "small", "base", "big"] = setting("base", "width, layers and heads")
    vocab_size: int = setting(
        32768, "pieces of the vocabulary that the data was prepared with", gt=0
    )
    norm: Literal["pre", "post"] = setting("pre", "layer norm before or after each sublayer")
    attention_dropout: float = setting(0.1, "dropout of attention weights", ge=0, lt=1)
    relu_dropout: float = setting(0.1, "dropout inside the feed-forward layer", ge=0, lt=1)
    residual_dropout: float = setting(0.1, "dropout of every sublayer's output", ge=0, lt=1)


class DecodeSettings(Section):
    beam: int = setting(4, "beam size of `evaluate` and `translate`; 1 is greedy", gt=0)
    length_penalty: float = setting(0.6, "alpha in ((5 + length) / 6) ** alpha", ge=0)
    extra_length: int = setting(50, "pieces a translation may be longer than its source", gt=0)
    beam_while_training: int = setting(1, "beam size of evaluations while training", gt=0)
    samples: int = setting(3, "translations shown at each evaluation", ge=0)


class NmtRecipe(Recipe):
    """Translation with an encoder-decoder Transformer."""

    data: str = setting(
        "nmt", "prepared data: a directory, or a name under the data cache", path="or name"
    )
    model: TransformerModel = setting(TransformerModel(), "the network", fixed=True)
    batch: TextBatchSettings = setting(..., "how many target tokens or sentences make a step")
    max_length: int = setting(
        80, "pairs with a side of more pieces are left out of training (and counted)", gt=0
    )
    label_smoothing: float = setting(0.1, "share of the target given to all pieces", ge=0, lt=1)
    decode: DecodeSettings = setting(DecodeSettings(), "how translations are searched for")

    @field_validator("optimizer")
    @classmethod
    def _no_convolutions(cls, optimizer: OptimizerSettings) -> OptimizerSettings:
        if optimizer.kind == "muon":
            raise ValueError("muon is for networks of convolutions; choose adam or adamw")
        return optimizer


class ImagenetModel(Section):
    depth: Literal[18, 34, 50] = setting(50, "ResNet-18, -34 or -50 (v1.5)")
    num_classes: int = setting(1000, "classes of the prepared data", gt=1)
    width: int = setting(64, "channels of the first stage; 64 is the published network", gt=0)
    start_from: str | None = setting(
        None,
        "fine-tuning: begin with the weights of a run, a checkpoint or a .safetensors file; "
        "the last layer starts anew where the number of classes differs",
        path=True,
    )


PhotoSide = Annotated[int, Field(ge=32, le=1024)]


class PhotoAugmentSettings(Section):
    size: PhotoSide = setting(224, "side of a training picture in pixels")
    sizes: list[tuple[Share, PhotoSide]] = setting(
        [], "train on smaller pictures first: pairs of (share of the run from which on, pixels)"
    )
    smallest_share: float = setting(
        0.08, "random-resized crop: smallest share of a picture's area", gt=0, le=1
    )
    flip: bool = setting(True, "mirror every other picture, at random")


class PhotoEvaluateSettings(EvaluateSettings):
    batch: int = setting(100, "samples per forward pass in evaluation", gt=0)
    size: PhotoSide | None = setting(
        None, "side of the central square in pixels; null takes augment.size"
    )
    share: float = setting(
        0.875, "how much of the short side the central square takes (224 of 256)", gt=0, le=1
    )


class InputSettings(Section):
    workers: int | None = setting(
        None,
        "threads per process that read and decode ahead; null finds the number in the first "
        "steps, 0 reads in the loop itself",
        ge=0,
        le=512,
    )


class ImagenetRecipe(Recipe):
    """Image classification on ILSVRC 2012, its stand-in, or any tree of class folders."""

    data: str = setting(
        "imagenet", "prepared data: a directory, or a name under the data cache", path="or name"
    )
    model: ImagenetModel = setting(ImagenetModel(), "the network", fixed=True)
    batch: BatchSettings = setting(..., "how many pictures make a step")
    augment: PhotoAugmentSettings = setting(PhotoAugmentSettings(), "changes to training pictures")
    label_smoothing: float = setting(
        0.1, "share of the target given to all classes alike", ge=0, lt=1
    )
    evaluate: PhotoEvaluateSettings = setting(PhotoEvaluateSettings(), "scores while training")
    input: InputSettings = setting(InputSettings(), "how pictures reach the model")


KINDS: dict[str, type[Recipe]] = {
    "cifar10": Cifar10Recipe,
    "imagenet": ImagenetRecipe,
    "nmt": NmtRecipe,
}


def shipped() -> dict[str, Path]:
    folder = Path(str(resources.files("paceline") / "recipes"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def load(name_or_path: str, overrides: list[str] | None = None) -> Recipe:
    """A shipped recipe by name, or any YAML file by path, with `name=value` laid over it.

    Paths in it are absolute from here on, because hosts and later commands are elsewhere.
    """
    document = config.with_overrides(config.read_document(_find(name_or_path)), overrides or [])
    workload = document.settings.get("workload")
    kind = KINDS.get(str(workload))
    if kind is None:
        raise UserError(
            f"{document.name} names the workload {workload!r}, which does not exist",
            f"workload is one of: {', '.join(KINDS)}",
        )
    return _with_absolute_paths(config.validate(document, kind))


def _with_absolute_paths(recipe: Recipe) -> Recipe:
    settings = config.dump(recipe)
    resolved = config.resolve_paths(settings, type(recipe), Path.cwd())
    return recipe if resolved == settings else type(recipe).model_validate(resolved)


def _find(name_or_path: str) -> Path:
    recipes = shipped()
    if name_or_path in recipes:
        return recipes[name_or_path]
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or "/" in name_or_path:
        if path.is_file():
            return path
        raise UserError(f"there is no recipe file {path}", "check the path")
    close = difflib.get_close_matches(name_or_path, recipes, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    raise UserError(
        f"there is no recipe '{name_or_path}'", f"{hint}`paceline recipes` lists what there is"
    )


def from_run(recipe_file: Path) -> Recipe:
    """The recipe that a run directory holds."""
    return load(str(recipe_file))


def refuse_meaningless_change(old: dict[str, Any], new: Recipe, run: Path) -> list[str]:
    """Raise if going on with `new` makes no sense; otherwise say what changed, one line each.

    Version 0.1.0 stored paths as they were typed, so they are compared as seen from here.
    """
    known = config.resolve_paths(config.with_defaults(old, type(new)), type(new), Path.cwd())
    changes = list(config.differences(known, config.dump(new)))
    fixed = set(config.fixed_names(type(new)))
    refused = [change for change in changes if change[0] in fixed]
    if refused:
        shown = "\n".join(f"  {name}: {before!r} -> {after!r}" for name, before, after in refused)
        raise UserError(
            f"{run} cannot go on with a recipe that differs in\n{shown}",
            "give the old values to go on, or another --run to begin anew",
        )
    return [
        f"{name}: {before!r} -> {after!r}" for name, before, after in changes if name != "about"
    ]


def read_settings(recipe_file: Path) -> dict[str, Any]:
    """A stored recipe as plain values, for readers that do not care whether they are valid."""
    try:
        settings = config.parse_yaml(recipe_file.read_text(encoding="utf-8")).settings
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read {recipe_file}: {error}", "is this a run directory?"
        ) from error
    if not isinstance(settings, dict):
        raise UserError(f"{recipe_file} holds no settings", "is this a run directory?")
    return settings
