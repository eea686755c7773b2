"""Names and places in a run directory, and the names of events and phases.

Every event is one JSON line with `kind`, `time` (seconds since 1970) and `attempt`:

- `begin`: an attempt of a rank entered the loop at `step`; `phases` holds its start-up.
- `steps`: since the last such line `num_steps` steps were done, up to `step`.
- `score`, `checkpoint`, `restored`, `warning`, `note`: something happened at `step`.
- `end`: the attempt left the loop; `reason` says why.
- `input`: how many threads read ahead (`loader_workers`) and why; `units_per_second_loader` and
  `units_per_second_model` are what they give and what the model could take, over the world.
- `probe`, in a host's own file: what the host did in `seconds` (processor, memory, disk, the
  interface, devices), with all counters as differences. `step` is the last step by then.

`begin` also says where the rank runs (`host`, `interface`, `num_hosts`), `flops_per_unit` of
forward and backward, and `peak_flops`, what a plain product of matrices reached in that process;
for text also `left_out`: `num` of the training pairs, `of` so many, that are longer than allowed.
`steps` also holds `reduced_bytes` (gradients this rank gave to the all-reduce),
`collective_bytes` (by kind of collective, gradients included), and its `slowest_step`.
A `score` of the split "train" is the measure of validation on a fixed part of training data.

A warning with `failed_save` is a checkpoint that could not be written. `num_lost` in any event is
how many before it could not be written, because the disk was full.

`seconds` is the wall time since the same rank's last event with phases, and `phases` splits it
without overlap. The launcher's own file has `launch` and `exit`.
"""

from dataclasses import dataclass
from pathlib import Path

START_UP = "start-up"
INPUT = "input"
COMPUTE = "compute"
NETWORK = "network"
OPTIMIZER = "optimizer"
EVALUATE = "evaluate"
CHECKPOINT = "checkpoint"
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
    RESTART,
    SHUT_DOWN,
    UNEXPLAINED,
)

PHASE_MEANING = {
    START_UP: "processes, imports, data and model, until the first step",
    INPUT: "waiting for the next batch",
    COMPUTE: "forward and backward",
    NETWORK: "waiting for other processes: communication that compute did not hide",
    OPTIMIZER: "clipping and updating the weights",
    EVALUATE: "scores while training",
    CHECKPOINT: "the loop standing still for a save",
    RESTART: "steps done and lost, then done again",
    SHUT_DOWN: "from the last step to the end of the process",
    UNEXPLAINED: "not measured, or not yet written when the run was killed",
}


@dataclass(frozen=True)
class RunDirectory:
    """Where things are in a run."""

    path: Path

    @property
    def recipe(self) -> Path:
        return self.path / "recipe.yaml"

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

    def host_events(self, host: str) -> Path:
        return self.events / f"host-{host}.jsonl"

    def exists(self) -> bool:
        return self.recipe.is_file()
