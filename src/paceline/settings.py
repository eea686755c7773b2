"""What can be set for every task, with defaults and what each value means.

Values only. Reading and checking YAML is `config.py`, finding a recipe is `recipe.py`, what a task
adds is its own `settings.py`; what the values do is the business of training.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from paceline import config
from paceline.config import Section, setting
from paceline.schedule import ScheduleSettings

Share = Annotated[float, Field(ge=0, lt=1)]
"""Of a run: from 0 up to, but not including, 1."""


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

    def whole(self, world_size: int) -> int:
        """Samples of one batch over the whole world; see `Recipe.whole_batch` for a step's."""
        return self.global_ or (self.per_device or 0) * world_size

    def num_micro_batches(self, world_size: int) -> int:
        """Forward passes of one batch over the whole world."""
        return self.whole(world_size) // self.micro_size

    @property
    def micro_size(self) -> int:
        """Samples of one forward pass; loading has made sure that it is set."""
        return self.micro or self.global_ or self.per_device or 0


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


def default_staleness(num_trainers: int) -> int:
    """Of mode=bounded: all may fetch weights ahead while the others make an update each."""
    return max(2 * (num_trainers - 1), 1)


class StrategySettings(Section):
    kind: Literal["all-reduce", "parameter-server"] = setting(
        "all-reduce",
        "who adds up gradients and updates weights: the processes among themselves, or servers "
        "(docs/strategies.md)",
        fixed=True,
    )
    mode: Literal["sync", "async", "bounded"] = setting(
        "sync",
        "parameter-server: sync waits for all workers in every step, async for none; bounded is "
        "async with a limit on staleness",
        fixed=True,
        validate_default=True,
    )
    backup: int = setting(
        0,
        "sync: the slowest so many workers of a step are not waited for; what they computed is "
        "done again later",
        ge=0,
        validate_default=True,
    )
    staleness: int | None = setting(
        None,
        "bounded: most updates between the weights that a gradient was computed with and its own; "
        "null is twice the number of other workers",
        ge=0,
        validate_default=True,
    )
    overlap: bool = setting(
        True,
        "async, bounded: fetch the next weights while the gradient is computed; they are one "
        "update of the worker older then",
    )
    chief_trains: bool = setting(
        True, "parameter-server: the chief computes gradients too; false only decides and evaluates"
    )

    @field_validator("mode", "backup", "staleness")
    @classmethod
    def _fits_its_kind(cls, value: Any, info: ValidationInfo) -> Any:
        name, told = info.field_name, info.data
        if name == "mode" and value != "sync" and told.get("kind") == "all-reduce":
            config.refuse_together(
                f"mode={value} is one of strategy=parameter-server; all-reduce is always in step",
                "kind",
                "mode",
            )
        if name == "backup" and value and told.get("mode", "sync") != "sync":
            config.refuse_together(
                "backup workers are for mode=sync; other modes wait for nobody", "mode", "backup"
            )
        if name == "staleness" and value is not None and told.get("mode") != "bounded":
            config.refuse_together("a limit on staleness is for mode=bounded", "mode", "staleness")
        return value

    @property
    def has_servers(self) -> bool:
        return self.kind == "parameter-server"

    @property
    def survives_lost_workers(self) -> bool:
        """Whether the others go on when a worker is gone."""
        return self.has_servers and (self.mode != "sync" or self.backup > 0)


class EvaluateSettings(Section):
    every_steps: int | None = setting(
        1000, "evaluate on validation data this often; null never", gt=0
    )
    batch: int = setting(500, "samples per forward pass in evaluation", gt=0)
    train_samples: int | None = setting(
        None,
        "training samples scored like validation beside it, which shows overfitting; "
        "null takes 1,000 samples (500 sentence pairs), 0 none",
        ge=0,
    )


class CheckpointSettings(Section):
    every_steps: int | None = setting(1000, "save this often; null does not go by steps", gt=0)
    every_minutes: float | None = setting(None, "save this often; null does not go by time", gt=0)
    keep_last: int = setting(3, "how many of the newest are kept (the best is kept besides)", ge=1)
    at_end: bool = setting(
        True, "save after the last step and when asked to stop; false is for trials of speed"
    )


class LogSettings(Section):
    every_steps: int = setting(10, "steps per line of the event log and TensorBoard", gt=0)
    show_seconds: float = setting(
        10.0, "seconds between progress lines when not on a terminal", gt=0
    )
    probe_seconds: float = setting(
        5.0, "seconds between looks at each host's processor, memory, disk and network", gt=0
    )
    tracker: Literal["wandb", "trackio", "mlflow"] | None = setting(
        None, "also send scalars to this tracker while training; its environment says where to"
    )


class GuardSettings(Section):
    diverged_factor: float = setting(
        3.0, "stop when the smoothed loss is this many times the first loss; 0 never stops", ge=0
    )
    group_seconds: float = setting(
        600.0, "longest wait for another process before the run is given up", gt=0
    )
    hang_seconds: float = setting(
        25.0,
        "how long a host or a process may give no sign of life before it is named; on many hosts "
        "it is ended then",
        ge=3,
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


class InputSettings(Section):
    workers: int | None = setting(
        None,
        "threads per process that read and decode ahead; null finds the number in the first "
        "steps, 0 reads in the loop itself",
        ge=0,
        le=512,
    )


ReduceKind = Literal[
    "auto", "plain", "overlap", "fp16", "bf16", "powersgd", "topk", "local", "diloco"
]
_USUAL_EVERY = {"local": 8, "diloco": 8}
FEWEST_BITS = 4
_PACKED_SHARE = 4.25 / 32


class ReduceSettings(Section):
    kind: ReduceKind = setting(
        "plain",
        "how processes come to the same weights. plain: all gradients in fp32 (DDP); overlap: the "
        "same, in the order of need, beside the update and the next forward pass; fp16, bf16: "
        "in 16 bits on the wire, so with fewer digits; powersgd: matrices as two thin ones; topk: "
        "the largest only (both remember what they did not send); local: each process makes its "
        "steps alone, and weights are averaged now and then; diloco: like local, with a rate for "
        "what is averaged, and in parts that are sent while training goes on; auto: times plain "
        "and overlap before the first step and keeps the faster",
        fixed=True,
    )
    may_change_result: bool = setting(
        False, "auto: also time kinds that change what is learned, and keep the fastest of all"
    )
    accumulate: int = setting(
        1,
        "gradients of this many batches make one step and are exchanged once: the batch of a step "
        "is this many times `batch`",
        gt=0,
    )
    hierarchical: bool = setting(
        False,
        "plain, fp16, bf16: add up inside of each host first, and between hosts once; of use where "
        "hosts have several processes",
        fixed=True,
    )
    rank: int = setting(4, "powersgd: columns of the thin matrices", gt=0, fixed=True)
    share: float = setting(0.01, "topk: of the gradients, that is sent", gt=0, le=0.5, fixed=True)
    parts: int = setting(
        8, "diloco: parts of the model, sent one after the other", gt=0, fixed=True
    )
    every: int | None = setting(
        None,
        "local, diloco: steps from one exchange of a weight to the next; null is 8",
        gt=0,
        fixed=True,
        validate_default=True,
    )
    bits: Literal[4, 16] = setting(
        4,
        "diloco: of each weight on the wire; what 4 leave out is sent with the next exchange",
        fixed=True,
    )
    delay: int | None = setting(
        None,
        "diloco: steps that a part may be on its way; null is the time until the next part's turn",
        ge=0,
        fixed=True,
        validate_default=True,
    )
    inner_rate: float | None = setting(
        None,
        "local, diloco: times the learning rate for the steps that processes make alone; null is 1 "
        "with sgd, and with the others, whose steps are smaller the noisier gradients are, the "
        "root of the number of processes, 1.41 at most",
        gt=0,
    )
    outer_rate: float | None = setting(
        None, "diloco: learning rate of what is exchanged; null is 1", gt=0
    )
    outer_momentum: float = setting(0.0, "diloco: Nesterov's momentum of it", ge=0, lt=1)
    bucket_mb: float | None = setting(
        None,
        "MiB of gradients that are sent together, as DDP's bucket_cap_mb; null is 25 (DDP's), and "
        "4 for overlap",
        gt=0,
    )
    first_bucket_mb: float = setting(
        1, "plain, fp16, bf16: MiB of the first bucket, which is ready before all others", gt=0
    )

    @property
    def wire_share(self) -> float:
        """Of the bytes that plain sends in a step, about: that of two hosts where it grows with
        their number (topk), a guess where it depends on the network (powersgd)."""
        every = self.every or 1
        shares = {
            "fp16": 0.5,
            "bf16": 0.5,
            "powersgd": 0.01 * self.rank / 4,
            "topk": 1.5 * self.share,
            "local": 1 / every,
            "diloco": self.packed_share / every,
        }
        return shares.get(self.kind, 1.0)

    @property
    def packed_share(self) -> float:
        """Of the bytes of fp32 that DiLoCo sends of a weight: in blocks of 4 bits with a scale
        each (of two processes; it grows with their number), or in bf16."""
        return _PACKED_SHARE if self.bits == FEWEST_BITS else 0.5

    def stored_copies(self, states_per_weight: int) -> float:
        """How many times as large as the weights it makes a checkpoint, for one process a host."""
        copies = {
            "powersgd": 1.0,
            "topk": 1.0,
            "local": 1.0 + states_per_weight,
            "diloco": 2.0 + states_per_weight + 2 / self.parts,
        }
        return copies.get(self.kind, 0.0)

    @property
    def remembered_copies(self) -> float:
        """How many times as large as the weights is what it keeps in memory beside them."""
        copies = {"overlap": 1.0, "powersgd": 2.0, "topk": 2.0, "local": 2.0, "diloco": 3.0}
        return copies.get(self.kind, 0.0)

    @field_validator("hierarchical")
    @classmethod
    def _hierarchical_fits(cls, hierarchical: bool, info: ValidationInfo) -> bool:
        kind = info.data.get("kind", "plain")
        if hierarchical and kind not in ("plain", "fp16", "bf16"):
            config.refuse_together(
                f"reduce.hierarchical is for plain, fp16 and bf16, not for {kind}",
                "hierarchical",
                "kind",
            )
        return hierarchical

    @field_validator("every")
    @classmethod
    def _every_fits(cls, every: int | None, info: ValidationInfo) -> int | None:
        kind, parts = info.data.get("kind", ""), info.data.get("parts", 1)
        if every and kind not in (*_USUAL_EVERY, "auto"):
            config.refuse_together(
                f"reduce.every is for steps that processes make alone, and reduce={kind} exchanges "
                "the gradients of every step: set reduce=local or reduce=diloco",
                "every",
                "kind",
            )
        every = every or _USUAL_EVERY.get(kind)
        if kind == "diloco" and every and every % parts:
            config.refuse_together(
                f"reduce.every, {every}, must be a multiple of reduce.parts, {parts}: each part "
                "gets as many steps as the others",
                "every",
                "parts",
            )
        return every

    @field_validator("delay")
    @classmethod
    def _delay_fits(cls, delay: int | None, info: ValidationInfo) -> int | None:
        every, parts = info.data.get("every"), info.data.get("parts", 1)
        if info.data.get("kind") != "diloco" or not every:
            return delay
        turn: int = every // parts
        if delay is not None and delay > turn:
            config.refuse_together(
                f"reduce.delay can be {turn} at most, reduce.every / reduce.parts: then the next "
                "part leaves",
                "delay",
            )
        return turn if delay is None else delay


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
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto",
        "auto takes CUDA where there is one; cuda is also the name of AMD's devices (ROCm)",
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = setting(
        "auto",
        "arithmetic of forward and backward; weights stay fp32. auto is bf16 on CUDA devices of "
        "compute capability 8.0 or higher, fp16 from 7.0, else fp32",
    )
    tf32: bool = setting(
        True,
        "round the factors of fp32 products to TF32 on CUDA devices that have it: several times "
        "as fast, with the exponents of fp32 and the digits of fp16",
    )
    deterministic: bool = setting(
        False,
        "on CUDA, take operations that give the same bits every time, where there are such; "
        "slower, and on a CPU results are the same bits anyway",
    )
    compile: bool = setting(
        False, "torch.compile; off because on a CPU it costs more than it gains"
    )
    batch: BatchSettings = setting(..., "how many samples make a step")
    optimizer: OptimizerSettings = setting(OptimizerSettings(), "how weights are updated")
    schedule: ScheduleSettings = setting(ScheduleSettings(), "the learning rate over the run")
    reduce: ReduceSettings = setting(ReduceSettings(), "how processes exchange gradients")
    evaluate: EvaluateSettings = setting(EvaluateSettings(), "scores while training")
    checkpoint: CheckpointSettings = setting(CheckpointSettings(), "what is saved and when")
    log: LogSettings = setting(LogSettings(), "what is recorded and shown")
    guard: GuardSettings = setting(GuardSettings(), "when a run stops itself")
    target: TargetSettings = setting(TargetSettings(), "what others reached with it")
    hosts: HostsSettings = setting(HostsSettings(), "training on many hosts")
    strategy: StrategySettings = setting(
        StrategySettings(), "how processes share the work of a step"
    )

    def whole_batch(self, world_size: int) -> int:
        """Samples of one optimizer step over the whole world."""
        return self.reduce.accumulate * self.batch.whole(world_size)

    def num_micro_batches(self, world_size: int) -> int:
        """Forward passes of one optimizer step over the whole world."""
        return self.reduce.accumulate * self.batch.num_micro_batches(world_size)

    @field_validator("device", mode="before")
    @classmethod
    def _explain_other_devices(cls, device: object) -> object:
        if isinstance(device, str) and device.lower() in _OTHER_DEVICES:
            raise ValueError(_OTHER_DEVICES[device.lower()])
        return device


_AMD = "AMD's devices are called cuda, as in torch: device=cuda, or auto, which takes them"
_APPLE = (
    "Apple's GPUs are not used: scores are added up in float64, which they do not have; "
    "device=auto takes the processor there"
)
_OTHER_DEVICES = {"mps": _APPLE, "metal": _APPLE, "rocm": _AMD, "hip": _AMD, "amd": _AMD}
