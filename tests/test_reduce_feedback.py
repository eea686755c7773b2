"""Exchanges that send a part of the gradients: what they send, what they remember."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from paceline.record.phases import PhaseClock
from paceline.train.reduce.exchange import Updating
from paceline.train.reduce.feedback import FeedbackExchange
from paceline.train.reduce.powersgd import PowerSgdExchange
from paceline.train.reduce.topk import TopKExchange
from paceline.world import World
from tests.small_worlds import in_world_of

STEPS, SIZE = 5, 2


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(24, 40), nn.Tanh(), nn.Linear(40, 32))


def backward(model: nn.Module, rank: int, step: int) -> None:
    source = torch.Generator().manual_seed(100 * step + rank)
    inputs = torch.randn(16, 24, generator=source)
    model.zero_grad()
    model(inputs).square().mean().backward()


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def attached(exchange: FeedbackExchange, scale: float | None = None) -> FeedbackExchange:
    """With a loss scale where one is given."""
    enabled = scale is not None
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=enabled)
    optimizer = torch.optim.SGD(exchange.network.parameters(), lr=0.1)
    updating = Updating(optimizer, scaler, PhaseClock(), lambda: None, True, False)
    exchange.attach(updating)
    return exchange


@dataclass
class Started:
    """Where torch's hook has got after its first compressed step."""

    shapes: list[torch.Size]
    """Of the weights, in the order in which its flat memory has them."""
    rights: torch.Tensor
    errors: torch.Tensor


def torchs_power_sgd(world: World) -> tuple[list[Any], Started]:
    """In one bucket, where it works under Gloo; the first two steps are plain ones there."""
    model = DistributedDataParallel(network(), bucket_cap_mb=1000)
    state = PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    shapes: list[torch.Size] = []

    def hook(
        state: PowerSGDState,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[torch.Tensor]:
        shapes[:] = [weight.shape for weight in bucket.parameters()]
        return powerSGD_hook(state, bucket)

    model.register_comm_hook(state, hook)
    found = []
    for step in range(STEPS):
        backward(model, world.rank, step)
        found.append(gradients(model))
        if step == 2:
            memory = state.q_memory_dict[0].clone(), state.error_dict[0].clone()
            started = Started(shapes, *memory)
    return found, started


def own_power_sgd(world: World, started: Started) -> list[Any]:
    model = network()
    exchange = attached(PowerSgdExchange(model, world, 2, seed=1))
    assert isinstance(exchange, PowerSgdExchange)
    begin_like(exchange, started)
    found = []
    for step in range(3, STEPS):
        backward(model, world.rank, step)
        exchange.reduce_gradients()
        found.append(gradients(model))
    return found


def begin_like(exchange: PowerSgdExchange, started: Started) -> None:
    by_shape = {weight.shape: name for name, weight in exchange.network.named_parameters()}
    order = [by_shape[shape] for shape in started.shapes]
    matrices = [name for name in order if name in exchange.right]
    for memory, flat, names in (
        (exchange.right, started.rights, matrices),
        (exchange.rest, started.errors, order),
    ):
        parts = torch.split(flat, [memory[name].numel() for name in names])
        for name, part in zip(names, parts, strict=True):
            memory[name] = part.view_as(memory[name]).clone()


def power_sgd(world: World) -> Any:
    theirs, started = torchs_power_sgd(world)
    return theirs[3:], own_power_sgd(world, started)


def top_k(world: World) -> Any:
    """What was sent and what is kept, against what backward gave."""
    model, given, sent = network(), [], []
    exchange = attached(TopKExchange(model, world, share=0.05))
    for step in range(STEPS):
        backward(model, world.rank, step)
        given.append(gradients(model))
        exchange.reduce_gradients()
        sent.append(gradients(model))
    return given, sent, list(exchange.rest.values()), exchange.watch.reduced_bytes


def overflowing(world: World) -> Any:
    """The first process's gradients overflow in the second step."""
    model = network()
    exchange = attached(TopKExchange(model, world, share=0.05), scale=8.0)
    backward(model, world.rank, 0)
    exchange.reduce_gradients()
    before = [rest.clone() for rest in exchange.rest.values()]
    backward(model, world.rank, 1)
    if world.is_first:
        model[0].weight.grad[0, 0] = torch.inf  # type: ignore[index]
    exchange.reduce_gradients()
    after = [rest.clone() for rest in exchange.rest.values()]
    return before, after, gradients(model)


def everything(world: World) -> Any:
    return power_sgd(world), top_k(world), overflowing(world)


@pytest.fixture(scope="module")
def found() -> Any:
    """In one start of processes."""
    return in_world_of(SIZE, everything)


def test_power_sgd_is_what_torchs_hook_calculates(found: Any) -> None:
    for rank in range(SIZE):
        theirs, ours = found[rank][0]
        assert len(theirs) == len(ours) == STEPS - 3
        for torchs, own in zip(theirs, ours, strict=True):
            torch.testing.assert_close(own, torchs, rtol=1e-4, atol=1e-6)


def test_the_largest_are_sent_to_all_alike_and_nothing_is_ever_lost(found: Any) -> None:
    (given, sent, rest, num_bytes), (other_given, other_sent, other_rest, _) = (
        found[rank][1] for rank in range(SIZE)
    )
    torch.testing.assert_close(sent, other_sent, rtol=0, atol=0)
    for place in range(len(rest)):
        came = sum(step[place] for step in (*given, *other_given)) / SIZE
        left = sum(step[place] for step in sent) + (rest[place] + other_rest[place]) / SIZE
        torch.testing.assert_close(left, came, rtol=1e-4, atol=1e-6)
    num_values = sum(tensor.numel() for tensor in rest)
    assert num_bytes / STEPS == pytest.approx(0.05 * 6 * num_values, rel=0.5)


def test_a_step_whose_gradients_overflow_anywhere_sends_nothing(found: Any) -> None:
    for rank in range(SIZE):
        before, after, got = found[rank][2]
        torch.testing.assert_close(before, after, rtol=0, atol=0)
        assert all(torch.isinf(gradient).all() for gradient in got)
