"""Local SGD and DiLoCo: the same as others calculate, and exact to resume."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

from paceline.errors import UserError
from paceline.train.reduce.four_bits import add_unpacked, pack
from paceline.train.reduce.hierarchy import Hierarchy, hosts_of, is_useful, refuse_uneven
from paceline.train.reduce.outer import OuterExchange, OuterPlan, cut
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
    jobs = (local_sgd, torchs_local_sgd, diloco, in_parts, late, what_norms_have_seen, packed)
    return [job(world) for job in jobs]


def what_norms_have_seen(world: World) -> Any:
    """A norm whose inputs have a mean of 1 in one process and of 3 in the other; each part is on
    its way until the next one leaves, as it is by default."""
    network = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    exchange = OuterExchange(network, world, OuterPlan(every=4, parts=2, delay=2))
    exchange.begin()
    norm, agreed = network[1], exchange.agreed[1]  # type: ignore[index]
    for step in range(1, 61):
        norm(torch.randn(64, 4) + 1 + 2 * world.rank)
        exchange.after_update(step, is_last=step == 60)
    return norm.running_mean, agreed.running_mean, agreed.running_var


PARTS = OuterPlan(every=6, parts=3, rate=0.7, momentum=0.9, number_type=torch.bfloat16)
LATE = OuterPlan(every=6, parts=3, delay=2, rate=0.7, momentum=0.9)


def in_parts(world: World) -> Any:
    return trained_with(PARTS, world)


def late(world: World) -> Any:
    return trained_with(LATE, world)


def packed(world: World) -> Any:
    """In four bits; one weight moves so little in every step that they round it to nothing."""
    network = nn.Linear(200, 1, bias=False)
    nn.init.zeros_(network.weight)
    exchange = OuterExchange(network, world, OuterPlan(every=4, parts=1, delay=2, is_packed=True))
    exchange.begin()
    moves = torch.ones(1, 200) * (1 + world.rank)
    moves[0, 0] = 0.01
    for step in range(1, 41):
        network.weight.data += moves
        exchange.after_update(step, is_last=step == 40)
        if step == 38:
            halfway = exchange.agreed.weight.detach().clone()  # type: ignore[operator]
    return halfway, weights(network), weights(exchange.agreed), exchange.watch.reduced_bytes


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


def test_what_four_bits_leave_out_comes_with_a_later_exchange(trained: Any) -> None:
    for rank in range(2):
        halfway, (own,), (agreed,), sent = trained[rank][6]
        torch.testing.assert_close(halfway, trained[0][6][0], rtol=0, atol=0)
        torch.testing.assert_close(halfway[0, 1:], torch.full((199,), 51.0), rtol=0.03, atol=0)
        assert 0.1 < halfway[0, 0] < 0.7, "0.34 has been moved, in steps that round to nothing"
        torch.testing.assert_close(own, agreed, rtol=0, atol=0)
        torch.testing.assert_close(agreed[0, 1:], torch.full((199,), 60.0), rtol=0.01, atol=0)
        assert agreed[0, 0] == pytest.approx(0.4, abs=0.01)
        blocks, exchanges = 2, 10
        assert sent == exchanges * blocks * (64 + 4) + 200 * 4, "the last one is exact"


@pytest.mark.parametrize("num_values", [1, 127, 128, 129, 2048 * 128 + 5])
def test_four_bits_are_right_to_a_fourteenth_of_the_largest_neighbour(num_values: int) -> None:
    values = torch.randn(num_values, generator=torch.Generator().manual_seed(1)) * 1e-3
    values[::3] = 0
    back = torch.ones(num_values)
    add_unpacked(back, pack(values), 2.0)
    blocks = nn.functional.pad(values, (0, -num_values % 128)).view(-1, 128)
    allowed = 2 * blocks.abs().amax(dim=1, keepdim=True).expand(-1, 128).reshape(-1) / 13.9
    assert ((back - 1 - 2 * values).abs() <= allowed[:num_values] + 1e-6).all()
    assert len(pack(values)) == len(blocks) * 68


def test_what_norms_see_while_a_part_is_on_its_way_is_not_forgotten(trained: Any) -> None:
    for rank in range(2):
        own, mean, variance = trained[rank][5]
        torch.testing.assert_close(own, mean, rtol=0, atol=0)
        torch.testing.assert_close(mean, torch.full((4,), 2.0), rtol=0, atol=0.3)
        torch.testing.assert_close(variance, torch.ones(4), rtol=0, atol=0.3)


def test_a_weight_that_is_larger_than_a_part_is_in_several_of_about_one_size() -> None:
    one, other = (
        nn.Sequential(nn.Embedding(100, 4), nn.Linear(4, 4), nn.Linear(4, 4)) for _ in range(2)
    )
    parts = cut(one, other, 4)
    sizes = [sum(values.numel() for values in part.own.values()) for part in parts]
    assert sum(sizes) == 440 and max(sizes) <= 1.2 * min(sizes)
    for part in parts:
        for own, agreed in zip(part.own.values(), part.agreed.values(), strict=True):
            own.fill_(1.0)
            agreed.fill_(2.0)
    assert all(bool((weight == 1).all()) for weight in one.parameters())
    assert all(bool((weight == 2).all()) for weight in other.parameters())


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
