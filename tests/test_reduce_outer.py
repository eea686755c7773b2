"""Local SGD and DiLoCo: the same as others calculate, and exact to resume."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

from paceline.errors import UserError
from paceline.train.reduce.hierarchy import Hierarchy, hosts_of, is_useful, refuse_uneven
from paceline.train.reduce.outer import OuterExchange, OuterPlan
from paceline.world import World
from tests.small_worlds import in_world_of

STEPS = 24


def tiny_network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


def inner_steps(network: nn.Module, rank: int) -> Iterator[int]:
    """Steps on the data of one rank; whoever asks for the next has had his say about this one."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.02)
    source = torch.Generator().manual_seed(100 + rank)
    for step in range(1, STEPS + 1):
        inputs = torch.randn(16, 6, generator=source)
        wanted = inputs[:, :2] * inputs[:, 2:4]
        optimizer.zero_grad()
        ((network(inputs) - wanted) ** 2).mean().backward()
        optimizer.step()
        yield step


def weights(network: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in network.parameters()]


def trained_with(plan: OuterPlan, world: World) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    network = tiny_network()
    exchange = OuterExchange(network, world, plan)
    exchange.begin()
    for step in inner_steps(network, world.rank):
        exchange.after_update(step, is_last=False)
    return weights(network), weights(exchange.agreed)


def by_hand(plan: OuterPlan, size: int) -> list[torch.Tensor]:
    """DiLoCo as its authors write it, in one part and at once, with torch's SGD as outer step."""
    agreed = tiny_network()
    outer = torch.optim.SGD(
        agreed.parameters(), lr=plan.rate, momentum=plan.momentum, nesterov=True
    )
    networks = [tiny_network() for _ in range(size)]
    steps = [inner_steps(network, rank) for rank, network in enumerate(networks)]
    for step in range(1, STEPS + 1):
        for one in steps:
            next(one)
        if step % plan.every == 0:
            for number, weight in enumerate(agreed.parameters()):
                own = torch.stack([weights(network)[number] for network in networks])
                weight.grad = weight.detach() - own.mean(dim=0)
            outer.step()
            for network in networks:
                network.load_state_dict(agreed.state_dict())
    return weights(agreed)


def local_sgd(world: World) -> Any:
    return trained_with(OuterPlan(every=4), world)


def torchs_local_sgd(world: World) -> Any:
    network = tiny_network()
    averager = PeriodicModelAverager(period=4, warmup_steps=4)
    for step in inner_steps(network, world.rank):
        averager.step = step  # it counts from 0 itself
        averager.average_parameters(network.parameters())
    return weights(network)


DILOCO = OuterPlan(every=6, rate=0.7, momentum=0.9)


def diloco(world: World) -> Any:
    return trained_with(DILOCO, world)


def in_two_steps(world: World) -> Any:
    """Four processes that say they are two on each of two hosts."""
    placed = replace(world, host=f"host{world.rank // 2}")
    values = torch.arange(7.0) + world.rank
    plain = Hierarchy(placed, None)
    plain.average(values).wait()
    rounded = torch.arange(7.0) / 3 + world.rank
    Hierarchy(placed, torch.bfloat16).average(rounded).wait()
    return values, rounded, plain.ring_share()


def all_of_them(world: World) -> Any:
    """In one start of processes."""
    return [job(world) for job in (local_sgd, torchs_local_sgd, diloco, in_parts, late)]


PARTS = OuterPlan(every=6, parts=3, rate=0.7, momentum=0.9, number_type=torch.bfloat16)
LATE = OuterPlan(every=6, parts=3, delay=2, rate=0.7, momentum=0.9)


def in_parts(world: World) -> Any:
    return trained_with(PARTS, world)


def late(world: World) -> Any:
    return trained_with(LATE, world)


@pytest.fixture(scope="module")
def trained() -> Any:
    return in_world_of(2, all_of_them)


def test_local_sgd_is_what_torchs_periodic_averaging_gives(trained: Any) -> None:
    for rank in range(2):
        (own, agreed), torchs = trained[rank][0], trained[rank][1]
        torch.testing.assert_close(own, torchs, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(own, agreed, rtol=0, atol=0)


def test_diloco_is_what_its_authors_describe(trained: Any) -> None:
    expected = by_hand(DILOCO, 2)
    for rank in range(2):
        own, agreed = trained[rank][2]
        torch.testing.assert_close(agreed, expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(own, agreed, rtol=0, atol=0)


def test_all_processes_agree_on_every_part_however_late_it_comes(trained: Any) -> None:
    for case in (3, 4):
        (_, first), (_, second) = trained[0][case], trained[1][case]
        torch.testing.assert_close(first, second, rtol=0, atol=0)
        apart = [(a - b).abs().max() for a, b in zip(first, weights(tiny_network()), strict=True)]
        assert min(apart) > 1e-3, "every part has moved"


def test_adding_up_inside_of_hosts_first_gives_the_same_mean() -> None:
    for values, rounded, share in in_world_of(4, in_two_steps):
        torch.testing.assert_close(values, torch.arange(7.0) + 1.5, rtol=1e-6, atol=0)
        torch.testing.assert_close(rounded, torch.arange(7.0) / 3 + 1.5, rtol=1e-2, atol=0)
        assert share == pytest.approx((1 / 2) / (3 / 4))


def test_hosts_with_other_numbers_of_processes_are_refused() -> None:
    assert hosts_of(["a", "a", "b", "b"]) == [[0, 1], [2, 3]]
    assert is_useful(hosts_of(["a", "a", "b", "b"])) and not is_useful(hosts_of(["a", "b"]))
    with pytest.raises(UserError, match="as many processes on every host"):
        refuse_uneven(hosts_of(["a", "a", "b"]))


@pytest.mark.parametrize(("parts", "delay"), [(1, 0), (3, 0), (3, 2), (3, 1), (1, 6)])
def test_every_part_leaves_and_arrives_once_in_its_period(parts: int, delay: int) -> None:
    plan = OuterPlan(every=6, parts=parts, delay=delay)
    left: list[int] = []
    arrived: list[int] = []
    for step in range(1, 61):
        if (part := plan.arriving(step)) is not None and left:
            arrived.append(part)
        if (part := plan.leaving(step)) is not None:
            left.append(part)
    assert left[: len(arrived)] == arrived or delay == 0
    assert sorted(left[:parts]) == list(range(parts))
    assert len(left) == pytest.approx(10 * parts, abs=1)
