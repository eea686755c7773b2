"""Everything that is known of a run, whoever trained it. Pure data: no words, no layout.

A run directory fills it (`own.run`), and so does another tool's log as far as it goes
(`foreign.as_facts`). What is not known is None, empty, 0 seconds or NaN; answers say what that
leaves open.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.pace.predict import Range
from paceline.record.columns import StepColumns
from paceline.record.story import Attempt
from paceline.report.facts.trend import Points
from paceline.report.facts.verdict import UNCLEAR, Verdict
from paceline.report.facts.world_times import WorldTimes
from paceline.report.roles.use import RolesUse
from paceline.schedule import ScheduleSettings

Numbers = NDArray[np.float64]

PACELINE = "Paceline"


@dataclass(frozen=True)
class Options:
    """What a user adds to what the run knows of itself."""

    link_bits_per_second: float | None = None
    price_per_hour: float | None = None
    """Of one host."""
    price_source: str = ""
    """Where that is known from, where the user has not said it."""


@dataclass(frozen=True)
class Slowest:
    """The slowest step, or the slowest mean where only means were logged."""

    step: int
    seconds: float
    phase: str | None = None
    """In which it lost most against the usual, where that is known."""
    extra_seconds: float = 0.0
    is_by_neighbours: bool = False
    """The phase is that of the steps around it."""


@dataclass(frozen=True)
class StepTimes:
    num_steps: int
    median_seconds: float
    mean_seconds: float
    low_seconds: float | None
    """5 % of steps are faster"""
    high_seconds: float | None
    """5 % of steps are slower"""
    timings: NDArray[Any]
    """Of every step, or means of so many; of very many some."""
    steps_per_timing: int = 1
    num_timings: int = 0
    is_sample: bool = False
    """The timings are of some single steps, and the mean is over all."""
    units_per_second: float | None = None
    """of the whole world, over training proper"""
    slowest: Slowest | None = None
    how: str = ""

    @property
    def typical_seconds(self) -> float:
        """A slow first step, or an evaluation between two lines, does not move the median; but the
        median of a sample is that of the steps that happened to be printed."""
        return self.mean_seconds if self.is_sample else self.median_seconds


@dataclass(frozen=True)
class Score:
    step: int
    split: str
    values: dict[str, float]
    signature: str = ""


@dataclass(frozen=True)
class Learning:
    loss: Points = field(default_factory=Points)
    """Of training, as it trains: means over the steps of a line."""
    loss_by_step: Points = field(default_factory=Points)
    """Of every single step, where that was recorded."""
    not_finite_from: int | None = None
    """The step from which on the loss is not a number."""
    not_finite_at: int | None = None
    """The first step at which it was not, even if it went on."""
    scores: list[Score] = field(default_factory=list)
    """On validation data, while training."""
    train_scores: list[Score] = field(default_factory=list)
    """The same measure on a part of the training data."""
    progress_scores: list[Score] = field(default_factory=list)
    """Of training batches as they train: another measure than that of validation."""
    evaluations: list[Score] = field(default_factory=list)
    best_by: str = ""
    lower_is_better: bool = False
    """Of the measure that `best_by` names: an error rate, a perplexity."""
    stopped_because: str = ""
    """What the guard that watches the loss said when it stopped the run."""


@dataclass(frozen=True)
class Seam:
    """Where a run went on with another schedule."""

    last_step: int
    next_step: int
    """The next of which the rate is known."""
    rate_before: float
    rate_after: float
    steps_before: int | None = None
    steps_after: int | None = None
    """How many steps each part of the run was to have, where that was recorded."""


@dataclass(frozen=True)
class Rate:
    schedule: ScheduleSettings | None = None
    scale: float = 1.0
    logged: Points = field(default_factory=Points)
    """What training used, of every step or of the last one of each line."""
    seams: tuple[Seam, ...] = ()
    odd_steps: tuple[int, int] | None = None
    """The first and the last step whose rate is not the formula's, though no seam explains it."""
    policy: str = ""
    """What is said of the policy where `schedule` has no such form."""
    how: str = "the recipe's formula, which training follows step by step"


@dataclass(frozen=True)
class CheckpointContents:
    path: Path
    step: int
    bytes_by_part: dict[str, int]
    bytes_by_file: dict[str, int]
    weights_sha256: str
    num_weights: int

    @property
    def total_bytes(self) -> int:
        return sum(self.bytes_by_part.values())


@dataclass(frozen=True)
class Save:
    """What one save took from the loop while training went on."""

    copy_seconds: float
    wait_seconds: float
    """For the save before, which was not written yet."""
    write_seconds: float
    slowed_seconds: float | None
    """What the steps beside the writing thread took longer than others; None if not known."""

    @property
    def cost_seconds(self) -> float:
        return self.copy_seconds + self.wait_seconds + (self.slowed_seconds or 0.0)


@dataclass(frozen=True)
class CheckpointCost:
    num_saves: int = 0
    num_failed: int = 0
    stall_seconds: float = 0.0
    background_seconds: float = 0.0
    end_seconds: float = 0.0
    """Of the stall: waiting, after the last step, until the last save was written."""
    saves: tuple[Save, ...] = ()
    """Those after which training went on, where the record tells them apart."""


@dataclass(frozen=True)
class SavedFiles:
    """What a script saved last, in a form of its own."""

    path: Path
    step: int
    num_bytes: int
    num_files: int


@dataclass(frozen=True)
class Saving:
    """Checkpoints: what one holds and what saving cost, or what is said of them beforehand."""

    newest: CheckpointContents | None = None
    cost: CheckpointCost = field(default_factory=CheckpointCost)
    every_steps: int | None = None
    predicted_bytes: int | None = None
    files: SavedFiles | None = None


@dataclass(frozen=True)
class GivenData:
    """The training split in the form in which the user gave it."""

    num_bytes: float
    form: str
    """What the bytes are, e.g. 'text'."""
    num_lines: int | None = None
    """Of text, on each side."""
    bytes_by_part: dict[str, int] = field(default_factory=dict)
    """E.g. of each language."""


@dataclass(frozen=True)
class DataCard:
    """The prepared data as it is now, which may not be what the run was trained on."""

    directory: Path
    noun: str
    """What is counted, e.g. 'pictures'."""
    num_by_split: dict[str, int]
    total_bytes: float
    """All splits as they are stored."""
    is_stand_in: bool
    is_other: bool
    """Its fingerprint is not the one that the run was trained with."""
    fingerprint: str = ""
    train_counts: dict[str, int] = field(default_factory=dict)
    """Everything that is counted of the training split, e.g. 'target tokens'."""
    train_bytes: float | None = None
    """Of the training split alone, as it is stored."""
    given: GivenData | None = None


@dataclass(frozen=True)
class TrainingSet:
    card: DataCard | None = None
    named: tuple[str, ...] = ()
    """The files or the place that the settings name."""
    epochs: float | None = None
    steps_per_epoch: int | None = None
    num_known_samples: int | None = None
    """Of the data set that an epoch of so many batches fits."""
    global_batch: int | None = None
    batch_how: str = ""


@dataclass(frozen=True)
class HostSeries:
    """For plots: one value per stretch of time."""

    hours: Numbers
    cpu_share: Numbers
    device_share: Numbers
    sent_bytes_per_second: Numbers
    received_bytes_per_second: Numbers


@dataclass(frozen=True)
class HostUse:
    """Means are weighted by time; NaN is what no probe told."""

    host: str
    interface: str
    link_bits_per_second: float | None
    seconds: float
    cpu_share: float
    stolen_share: float
    memory_bytes: float
    memory_total_bytes: float
    device_share: float
    device_names: tuple[str, ...]
    power_watts: float
    """Of all devices together."""
    sent_bytes_per_second: float
    received_bytes_per_second: float
    sent_bytes_per_step: float
    received_bytes_per_step: float
    num_steps: int
    """Steps that the figures per step stand for."""
    series: HostSeries


@dataclass(frozen=True)
class RankInput:
    """How long one process of another tool waited for its batches, by its own lines."""

    name: str
    input_share: float


@dataclass(frozen=True)
class Failed:
    """What ended a run that did not end by itself."""

    line: str
    kind: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class World:
    """The processes and machines."""

    size: int | None = None
    how: str = ""
    """Where the number is from, if it was not recorded."""
    num_hosts: int | None = None
    host_names: tuple[str, ...] = ()
    machines: frozenset[str] = frozenset()
    """What tells machines apart, also where several hosts are namespaces of one."""
    device_names: tuple[str, ...] = ()
    hosts: list[HostUse] = field(default_factory=list)
    """What each did, by its probes."""
    counters_how: str = ""
    """Of a foreign run: which tools watched its hosts, and what their values stand for."""
    traffic_how: str = ""
    """The same of those that counted what was sent."""
    rank_inputs: tuple[RankInput, ...] = ()
    """Of processes that printed their own waits."""
    times: WorldTimes | None = None
    """How the ranks spent their steps, side by side."""
    cpu_seconds: float = 0.0
    """Of all processes."""
    step_cpu_seconds: float = 0.0
    """Of all processes, without start-up."""
    own_cpu_share: float | None = None
    """Of the time of all cores of the machines, what the run's processes took while it stepped;
    None where that is not known, e.g. which hosts share a machine."""
    main_cpu_seconds: float = 0.0
    """Of the first process alone, where that is all that is known."""
    peak_flops: float | None = None
    """Of all processes together."""
    gradient_bytes: float | None = None
    """That each process gives to the all-reduce of a step."""
    gradient_parts: str = ""
    gradients_ready: tuple[tuple[float, float], ...] = ()
    """Bytes, and the share of a pass (forward and backward) after which they could be sent."""
    gradient_how: str = ""


@dataclass(frozen=True)
class Doubt:
    """Two facts that cannot both be true."""

    text: str
    answers: tuple[str, ...]
    """The keys of the answers that rest on them."""


@dataclass(frozen=True)
class Finding:
    """A mistake of a script that was observed, with the evidence of this run."""

    what: str
    evidence: str
    place: str
    """`train.py:12`, or nothing where no line is to blame."""
    change: str
    gain: Range | None = None
    """Times as fast as it was, where that is known and worth a word."""


@dataclass(frozen=True)
class Facts:
    run: Path
    tool: str = PACELINE
    began: str = ""
    reason: str = ""
    """How it ended; empty where that is not known."""
    first_step: int | None = None
    """Where the record begins in the middle of a run."""
    failure: Failed | None = None
    step: int = 0
    steps_wanted: int | None = None
    steps_per_line: int = 1
    """So many steps may have been done beyond the last that was logged."""

    settings: dict[str, Any] = field(default_factory=dict)
    """The recipe."""
    printed: dict[str, Any] = field(default_factory=dict)
    """Settings that another tool printed."""
    environment: dict[str, Any] = field(default_factory=dict)
    begin: dict[str, Any] = field(default_factory=dict)
    """What the last attempt said of itself."""
    num_parameters: int | None = None
    loader_workers: int | None = None
    """Threads of each process that read ahead, as many as it had in the end."""
    loader_note: str = ""
    exchange_note: str = ""
    """What `reduce: auto` chose, and why."""
    warnings: list[str] = field(default_factory=list)
    findings: tuple[Finding, ...] = ()
    options: Options = field(default_factory=Options)

    wall_seconds: float = 0.0
    wall_how: str = ""
    is_wall_estimated: bool = False
    is_wall_whole: bool = False
    """Of a log: the time is that of all steps, also where the log begins in the middle."""
    booked: dict[str, float] = field(default_factory=dict)
    """Seconds by purpose, which add up to the wall time."""
    pause_seconds: float | None = None
    """Gaps between steps in which something else was done."""
    phases: dict[str, float] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    num_steps: int = 0
    """That are in the record, without what was lost and done again."""
    num_units: float = 0.0
    """In those steps, of the whole world."""
    step_times: StepTimes | None = None
    rows: StepColumns | None = None
    """Every recorded interval of the first process."""

    world: World = field(default_factory=World)
    learning: Learning = field(default_factory=Learning)
    rate: Rate = field(default_factory=Rate)
    data: TrainingSet = field(default_factory=TrainingSet)
    saving: Saving = field(default_factory=Saving)
    verdict: Verdict = field(default_factory=lambda: Verdict(UNCLEAR, 0.0))
    roles: RolesUse | None = None
    """What chief, workers and servers did, where processes have roles."""
    doubts: tuple["Doubt", ...] = ()
    """What of it does not fit together."""

    @property
    def is_own(self) -> bool:
        """Whether it is a run directory, which can be trained on and evaluated."""
        return self.tool == PACELINE

    @property
    def failed_at_start(self) -> bool:
        """Whether it ended before it trained; tools that count from 0 log a loss at step 0."""
        return self.failure is not None and not self.step and not len(self.learning.loss)

    @property
    def is_observed(self) -> bool:
        """Whether it is a run of a script that is not Paceline's."""
        return "script" in self.settings

    @property
    def how_far(self) -> str:
        """In words; how many steps a script wanted, nobody said."""
        wanted = f" of {self.steps_wanted:,}" if self.steps_wanted is not None else ""
        return f"at step {self.step:,}{wanted}"

    @property
    def unit(self) -> str:
        return str(self.begin.get("unit", "unit"))
