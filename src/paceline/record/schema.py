"""The schema of a run directory: files, kinds of events, fields, phases.

Files, all below the directory of the run:

- `recipe.yaml`: every setting that it was trained with. Its presence makes a directory a run.
- `script.json`: in its place, of a script that `paceline run` observed: `kind` "observed", `script`
  (its path), `arguments`, `command`, `directory` it was started in, `python`, `num_procs`.
- `environment.json`: versions, machine and threads of the newest attempt; `schema` is the number
  below, and a run without one was written by 0.1.0.
- `events/`: append-only lines; `rank-00000.jsonl` and on of each process, `host-NAME.jsonl` of each
  host, `server-00000.jsonl` and on of each parameter server, `launcher.jsonl`, and
  `evaluations.jsonl` of `paceline evaluate`.
- `checkpoints/step-0001000/`: complete or absent, see `record/checkpoints.py`; `best` links to one.
- `launch.json`: who trains this run, and how to reach it. `.lock` is held as long as it does, and
  `.stop` asks it to save and stop. `launcher.log` is the output of a run without a terminal.
- `tensorboard/`: the same curves for TensorBoard, and whatever a task keeps for its own use.

Every event is one JSON line with `kind`, `time` (seconds since 1970) and `attempt`, which counts
how often the run was started. Of a rank:

- `begin`: the attempt entered the loop at `step` and wants `steps_wanted`; `phases` holds its
  start-up. It also says where the rank runs: `host`, `interface`, `num_hosts`, and the `machine`
  and `cores` that it shares with other hosts where those are namespaces. `flops_per_unit` is of
  forward and backward, `peak_flops` what matrix multiplication reached in that process; for text
  also `left_out`: `num` of the training pairs, `of` so many, that are longer than allowed.
  `kernels` says of each that the network asks for whether it ran ("own") or torch's operations in
  its place ("torch"); `environment.json` says the same of the first process. `split_sizes`: how
  many samples of each split, where the data has no card. The `precision` that was chosen (`fp32`,
  `bf16`, `fp16`), whether `tf32` is on, and of a CUDA device its `compute_capability`, the lowest
  of the world. Of several processes `reduce`, the kind of exchange, and where weights are exchanged
  in place of gradients, every how many steps (`exchanged_every`).
- `steps`: since the last such line `num_steps` steps were done, up to `step`: their mean `loss` and
  the last `rate`, `step_seconds` of each, the `slowest_step`, `reduced_bytes` (what this rank gave
  to the all-reduce, as it goes on the wire; of another exchange, what an all-reduce of the same
  traffic would have). The first rank also writes `rates` and `losses` of each step. In
  fp16 also the `loss_scale` after the last of them.
- `score`: an evaluation at `step`. That of the split "train" is the measure of validation on a
  fixed part of the training data.
- `checkpoint`: a save. The loop stood still for `wait_seconds` (for the save before) and
  `copy_seconds`; a thread then wrote for `write_seconds`, until `until_step` was being done.
- `input`: how many threads read ahead (`loader_workers`) and why; `units_per_second_loader` and
  `units_per_second_model` are what they give and what the model could take, over the world.
- `gradients`: `ready_bytes` of gradients, and for each the share of a pass (forward and backward)
  after which it could be sent (`ready_shares`); the first rank, on a processor, once an attempt.
- `reduce`: with `reduce: auto`, the settings that were `chosen` before the first step, and seconds
  of a step by kind: `timed_seconds`, and `least_seconds` of kinds that were not worth timing.
- `start`: what a fine-tuning began with. `note`: what is worth knowing at `step`. `warning`: with
  `failed_save`, a checkpoint that could not be written.
- `end`: the attempt left the loop; `reason` says why.

An observed script's rank writes the same kinds of events, from `paceline/observe`. Its `begin` has
no `steps_wanted`, because nobody said; `unit` is "sample". It also says `optimizers` (their
classes), `loader` (`workers`, `batch_size`, `prefetch`, `pinned`, `num_batches`; without it the
script reads its data in another way, and that time counts as compute), `parallel` ("ddp", "fsdp" or
nothing), and `unmeasured`: what happened and was not timed, as texts. Its `steps` also hold
`num_micro_batches`, `num_collectives` and `collective_bytes` (of calls of torch.distributed;
DDP's own are `reduced_bytes`), and of several optimizers `optimizer_losses` by name. Its
`score` holds what the script logged, under the script's own names; its `checkpoint` a `path` and
`num_files`. `end` has `reason` "finished", "failed" or "stopped", and `seen`, how often each
boundary was passed. `habits`: what was counted of the script's habits so far (values that were
read, samplers, loaders, schedulers, names in what was saved), of which findings are made. A process
that never stepped leaves nothing but a line in `events/idle.jsonl`,
which the launcher reads and removes.

With parameter servers a chief and workers write the lines of ranks. `begin` then also has `roles`,
those of the process, and `all_roles`, of every rank. The chief's `steps` are those of the run:
out of step with `trainers` (the rank whose gradient made each), their `staleness` (updates between
the weights that it was computed with and its own) and `leases` (the first micro-batch of each);
`num_dropped` gradients of `dropped_units` came too late and were computed again. A worker's `steps`
are its own: `step` is the run's number of the last of them. `push_seconds`, `pull_seconds`,
`update_seconds` and `chief_seconds` split its network: sending gradients, fetching weights, waiting
for servers to update and for the chief's word. A `warning` with `lost_rank` says that a worker is
gone and the others go on. `server-00000.jsonl` is of a server, whatever else its process is:
`begin` with its `rank` and `shard_bytes`, `steps` (updates) with `received_bytes` of gradients,
`sent_bytes` of weights, `num_pushes` and `num_pulls`, `end`.

Of a host: `probe`, what it did in `seconds` (processor, memory, disk, the interface, devices), with
all counters as differences. `step` is the last step by then. Of the launcher: `launch` and `exit`.

`seconds` is the wall time since the same rank's last event with phases, and `phases` splits it
without overlap. `num_lost` in any event is how many before it could not be written, because the
disk was full.

Schema 1, of 0.1.0, also wrote `num_norm_layers` and `checkpoint_name` into `begin`; nobody reads
them. What a newer schema than this one means cannot be
known, so such a run is refused.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SCHEMA = 2
"""Raised when a reader of the number before would misread a run of this one."""

START_UP = "start-up"
INPUT = "input"
COMPUTE = "compute"
NETWORK = "network"
OPTIMIZER = "optimizer"
EVALUATE = "evaluate"
CHECKPOINT = "checkpoint"
IDLE = "idle"
RESTART = "restart"
SHUT_DOWN = "shut-down"
UNEXPLAINED = "unexplained"

PHASES = (
    START_UP,
    INPUT,
    COMPUTE,
    NETWORK,
    OPTIMIZER,
    EVALUATE,
    CHECKPOINT,
    IDLE,
    RESTART,
    SHUT_DOWN,
    UNEXPLAINED,
)

PHASE_MEANING = {
    START_UP: "processes, imports, data and model, until the first step",
    INPUT: "waiting for the next batch",
    COMPUTE: "forward and backward",
    NETWORK: "waiting for other processes: communication that did not overlap with compute",
    OPTIMIZER: "clipping and updating the weights",
    EVALUATE: "scores while training",
    CHECKPOINT: "the loop stands still while a checkpoint is copied",
    IDLE: "nothing to do: a server without requests, a chief that does not train",
    RESTART: "steps that were lost and had to be done again",
    SHUT_DOWN: "from the last step to the end of the process",
    UNEXPLAINED: "not measured, or not yet written when the run was killed",
}


Type = Literal[
    "count",
    "processes",
    "process",
    "code",
    "time",
    "seconds",
    "number",
    "above zero",
    "measure",
    "flag",
    "text",
    "texts",
    "numbers",
    "measures",
    "step seconds",
    "phases",
    "scores",
    "slow step",
    "devices",
    "texts by name",
    "priced hosts",
]
"""Of a field; `record/fields.py` says what each may be."""

FIELDS: dict[str, Type] = {
    "kind": "text",
    "time": "time",
    "attempt": "processes",
    "step": "count",
    "num_steps": "count",
    "position": "count",
    "seconds": "seconds",
    "phases": "phases",
    "cpu_seconds": "seconds",
    "num_lost": "count",
    "text": "text",
    "reason": "text",
    # begin
    "world_size": "processes",
    "num_hosts": "processes",
    "device": "text",
    "host": "text",
    "interface": "text",
    "machine": "text",
    "cores": "numbers",
    "steps_wanted": "count",
    "unit": "text",
    "best_by": "text",
    "num_parameters": "count",
    "gradient_bytes": "count",
    "micro_batches_per_step": "count",
    "reduce": "text",
    "exchanged_every": "count",
    "timed_seconds": "scores",
    "least_seconds": "scores",
    "flops_per_unit": "above zero",
    "peak_flops": "above zero",
    "precision": "text",
    "tf32": "flag",
    "compute_capability": "text",
    "loader_workers": "processes",
    "kernels": "texts by name",
    "optimizers": "texts",
    "parallel": "text",
    "unmeasured": "texts",
    "rank": "count",
    "roles": "texts",
    "all_roles": "texts",
    "shard_bytes": "number",
    # steps
    "num_micro_batches": "count",
    "num_collectives": "count",
    "collective_bytes": "number",
    "optimizer_losses": "scores",
    "loss": "measure",
    "rate": "number",
    "rates": "numbers",
    "losses": "measures",
    "num_units": "number",
    "step_seconds": "step seconds",
    "epochs": "number",
    "reduced_bytes": "number",
    "gradient_norm": "measure",
    "loss_scale": "measure",
    "slowest_step": "slow step",
    "trainers": "numbers",
    "staleness": "numbers",
    "leases": "numbers",
    "num_dropped": "count",
    "dropped_units": "number",
    "push_seconds": "seconds",
    "pull_seconds": "seconds",
    "update_seconds": "seconds",
    "chief_seconds": "seconds",
    "num_pushes": "count",
    "num_pulls": "count",
    # gradients
    "ready_bytes": "numbers",
    "ready_shares": "numbers",
    # score
    "split": "text",
    "scores": "scores",
    "signature": "text",
    "samples": "texts",
    "weights": "text",
    # checkpoint, warning, input
    "lost_rank": "count",
    "num_bytes": "number",
    "wait_seconds": "seconds",
    "copy_seconds": "seconds",
    "write_seconds": "seconds",
    "until_step": "count",
    "failed_save": "flag",
    "path": "text",
    "num_files": "count",
    "is_limit": "flag",
    "units_per_second_loader": "number",
    "units_per_second_model": "number",
    # probe
    "cpu_share": "number",
    "stolen_share": "number",
    "memory_bytes": "number",
    "memory_total_bytes": "number",
    "link_bits_per_second": "above zero",
    "disk_read_bytes": "number",
    "disk_written_bytes": "number",
    "sent_bytes": "number",
    "received_bytes": "number",
    "sent_packets": "number",
    "received_packets": "number",
    "devices": "devices",
    # launch, exit
    "started": "time",
    "code": "code",
    "command": "text",
    "num_procs": "processes",
    "num_cores": "processes",
    "settings": "texts by name",
    "hosts": "texts",
    "launcher": "text",
}
"""What a field of an event holds, whatever its kind. A reader counts only on fields named here."""

NEEDED: dict[str, tuple[str, ...]] = {
    "begin": ("step", "seconds"),
    "steps": ("step", "seconds", "phases"),
    "score": ("step", "scores"),
    "checkpoint": ("step",),
    "end": ("reason",),
    "warning": ("text",),
    "probe": ("seconds",),
    "launch": ("started",),
    "exit": ("code",),
}
"""What an event of a kind cannot do without, besides `kind`, `time` and `attempt`."""

ENVIRONMENT_FIELDS: dict[str, Type] = {
    "schema": "count",
    "time": "time",
    "paceline": "text",
    "python": "text",
    "libraries": "texts by name",
    "platform": "text",
    "host": "text",
    "num_cores": "processes",
    "num_machine_cores": "processes",
    "memory_bytes": "number",
    "device": "text",
    "device_name": "text",
    "precision": "text",
    "tf32": "flag",
    "compute_capability": "text",
    "world_size": "processes",
    "threads": "processes",
    "settings": "texts by name",
    "kernels": "texts by name",
    "hosts": "priced hosts",
    "machine_type": "text",
}
"""Of `environment.json`."""

SCRIPT_FIELDS: dict[str, Type] = {
    "kind": "text",
    "script": "text",
    "arguments": "texts",
    "command": "texts",
    "directory": "text",
    "python": "text",
    "num_procs": "processes",
}
"""Of `script.json`."""

LAUNCH_FIELDS: dict[str, Type] = {
    "pid": "process",
    "hostname": "text",
    "hosts_file": "text",
    "collect_from": "texts",
    "code": "code",
}
"""Of `launch.json`."""


@dataclass(frozen=True)
class RunDirectory:
    """Where things are in a run."""

    path: Path

    @property
    def recipe(self) -> Path:
        return self.path / "recipe.yaml"

    @property
    def script(self) -> Path:
        """In place of a recipe: what was run, where the training code is not Paceline's."""
        return self.path / "script.json"

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def events(self) -> Path:
        return self.path / "events"

    @property
    def launcher_events(self) -> Path:
        return self.events / "launcher.jsonl"

    @property
    def evaluation_events(self) -> Path:
        return self.events / "evaluations.jsonl"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        return self.path / "best"

    @property
    def lock(self) -> Path:
        """Held by the launcher as long as it lives."""
        return self.path / ".lock"

    @property
    def stop_request(self) -> Path:
        """Its appearance asks a launcher, wherever it runs, to save and stop."""
        return self.path / ".stop"

    @property
    def launch(self) -> Path:
        """Who trains this run, and how to reach it."""
        return self.path / "launch.json"

    @property
    def launcher_log(self) -> Path:
        return self.path / "launcher.log"

    def rank_events(self, rank: int) -> Path:
        return self.events / f"rank-{rank:05d}.jsonl"

    def server_events(self, number: int) -> Path:
        """Of a parameter server."""
        return self.events / f"server-{number:05d}.jsonl"

    def host_events(self, host: str) -> Path:
        return self.events / f"host-{host}.jsonl"

    @property
    def idle_events(self) -> Path:
        """What observed processes that never stepped did instead."""
        return self.events / "idle.jsonl"

    @property
    def is_observed(self) -> bool:
        return self.script.is_file() and not self.recipe.is_file()

    def exists(self) -> bool:
        return self.recipe.is_file() or self.script.is_file()
