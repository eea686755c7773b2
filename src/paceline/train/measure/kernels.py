"""Which kernels a run uses: agreed by all processes before the first step, and recorded.

A kernel rounds otherwise than torch's operations and is up to twice as fast, so one host that
cannot build them makes all do without, and says so. What is recorded is what ran.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from paceline.kernels import build, operation
from paceline.terminal import say_on_stderr
from paceline.units import count_of
from paceline.world import World

OWN, TORCHS = "own", "torch"


@dataclass(frozen=True)
class KernelUse:
    """The kernels that a network asks for, and why they are not used, where a user should know."""

    names: tuple[str, ...]
    warning: str | None = None

    def ran(self) -> dict[str, str]:
        """Of each kernel, whether this process has run it or torch's operations in its place."""
        return {name: OWN if operation.has_run(name) else TORCHS for name in self.names}


def agree(network: nn.Module, world: World) -> KernelUse:
    """All processes use kernels, or none does: their results would differ in rounding."""
    names = kernels_of(network) if world.device.type == "cpu" else ()
    if not names:
        return KernelUse(())
    if world.rank == 0 and any(map(build.is_to_be_compiled, names)):
        say_on_stderr("compiling kernels for this processor; that takes some seconds, once")
    found = next((why for name in names if (why := build.problem(name))), "")
    problems = world.gather_values({"host": world.host, "why": found})
    if any(problem["why"] for problem in problems):
        operation.turn_off()
    return KernelUse(names, explain(problems, names))


def kernels_of(network: nn.Module) -> tuple[str, ...]:
    """Modules that may use a kernel name it in `kernels`."""
    asked = {name for module in network.modules() for name in _kernels_of_module(module)}
    return tuple(sorted(asked))


def _kernels_of_module(module: nn.Module) -> Sequence[str]:
    names = getattr(type(module), "kernels", ())
    return names if isinstance(names, tuple) else ()


def explain(problems: Sequence[Mapping[str, str]], names: Sequence[str]) -> str | None:
    """What to say aloud, given each process's host and problem ("" for none)."""
    reasons = {problem["why"] for problem in problems}
    if reasons <= {""} or reasons == {build.SWITCHED_OFF}:
        return None  # all is well, or as the user has asked for
    hosts: dict[str, list[str]] = {}
    for problem in problems:
        known = hosts.setdefault(problem["why"], [])
        if problem["host"] not in known:
            known.append(problem["host"])
    told = "; ".join(f"{why} on {', '.join(where)}" for why, where in hosts.items() if why)
    num_procs = len(problems)
    who = "this process uses" if num_procs == 1 else f"all {count_of(num_procs, 'process')} use"
    return (
        f"{who} torch's operations in place of the kernels {', '.join(names)}, which is slower and "
        f"rounds differently: {told}"
    )
