"""`reduce: overlap` with embeddings: fewer bytes, or earlier; the very same bits as `plain`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paceline.errors import UserError
from paceline.record.phases import PhaseClock
from paceline.settings import ReduceSettings
from paceline.train.reduce.buckets import BackwardSeen, Message, Sending, order_of_sending
from paceline.train.reduce.exchange import Exchange, Updating
from paceline.train.reduce.gradients import SENDERS, GradientExchange
from paceline.train.reduce.overlap import OverlapExchange
from paceline.world import World
from tests.small_worlds import in_world_of

ROWS, WIDTH, STEPS = 512, 16, 4
TABLE_BYTES = 4 * ROWS * WIDTH
BUCKET_BYTES = TABLE_BYTES // 8


class Words(nn.Module):
    """Rows of a table that are looked up once or twice, and an output layer: the same table if
    `is_tied`, used with or without a bias."""

    def __init__(self, is_tied: bool, lookups: int = 1, has_bias: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH)
        self.middle = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, ROWS, bias=has_bias)
        self.lookups = lookups
        if is_tied:
            self.output.weight = self.table.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.table(words)
        for shift in range(1, self.lookups):
            hidden = hidden + self.table((words + shift) % ROWS)
        logits: torch.Tensor = self.output(torch.tanh(self.middle(hidden)))
        return F.cross_entropy(logits.flatten(0, 1), words.flatten(), reduction="sum")


class TwiceTied(Words):
    """Its table is read by an operation that is neither a lookup nor a linear layer, too."""

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return super().forward(words) + (self.table.weight * 0.01).square().sum()


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "only looked up": lambda: Words(is_tied=False),
    "looked up twice": lambda: Words(is_tied=False, lookups=2),
    "tied": lambda: Words(is_tied=True),
    "tied, with a bias": lambda: Words(is_tied=True, has_bias=True),
    "tied, looked up twice": lambda: Words(is_tied=True, lookups=2),
    "tied, and read otherwise": lambda: TwiceTied(is_tied=True),
}


def train(world: World, exchange: Exchange, num_passes: int, clip: float | None) -> list[Any]:
    network = exchange.network
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    needs_all = clip is not None
    exchange.attach(Updating(optimizer, scaler, PhaseClock(), lambda: None, needs_all, False))
    for step in range(-1, STEPS):
        source = torch.Generator().manual_seed(1000 * step + world.rank + 1000)
        for number in range(num_passes):
            words = torch.randint(0, ROWS, (2, 8), generator=source)
            with exchange.micro_batch(number == num_passes - 1):
                with exchange.forward():
                    loss = exchange.model(words)
                loss.backward()
        if step < 0:
            exchange.lay_out()
            optimizer.zero_grad()
            continue
        exchange.reduce_gradients()
        if exchange.updates_late:
            exchange.update_late(False)
        else:
            if clip is not None:
                nn.utils.clip_grad_norm_(network.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
        if step == 1:
            exchange.agree()
    exchange.finish()
    return [weight.detach().clone() for weight in network.parameters()]


def both_ways(world: World) -> Any:
    """By name: weights with plain and with overlap, and the bytes that overlap sends in a step."""
    found: dict[str, Any] = {}
    for name, build in NETWORKS.items():
        for num_passes, clip in ((1, None), (3, None), (1, 0.5)):
            results = []
            for kind in ("plain", "overlap"):
                torch.manual_seed(7)
                exchange = exchange_of(kind, build(), world)
                exchange.watch.reduced_bytes = 0
                results.append(train(world, exchange, num_passes, clip))
            sent = exchange.watch.reduced_bytes / STEPS
            found[f"{name}, {num_passes} passes, clipped at {clip}"] = (*results, sent)
    return found


def exchange_of(kind: str, network: nn.Module, world: World) -> Exchange:
    if kind == "overlap":
        return OverlapExchange(network, world, BUCKET_BYTES)
    return GradientExchange(network, world, ReduceSettings(), SENDERS["plain"])


@pytest.fixture(scope="module")
def trained() -> Any:
    return in_world_of(2, both_ways)


def test_embeddings_get_the_same_bits_as_with_ddp(trained: Any) -> None:
    for rank in range(2):
        for name, (plain, overlap, _) in trained[rank].items():
            for one, other in zip(plain, overlap, strict=True):
                assert torch.equal(one, other), f"rank {rank}: {name}"


def test_of_a_table_that_is_only_looked_up_those_rows_are_sent(trained: Any) -> None:
    sent = {name: found[2] for name, found in trained[0].items()}
    others = TABLE_BYTES + 4 * (WIDTH * WIDTH + WIDTH)
    most_rows = 4 * WIDTH * (2 * 2 * 8)
    for num_passes in (1, 3):
        bytes_of_rows = sent[f"only looked up, {num_passes} passes, clipped at None"] - others
        assert 0 < bytes_of_rows <= num_passes * most_rows < TABLE_BYTES
    bytes_of_rows = sent["tied, 3 passes, clipped at None"] - others
    assert 0 < bytes_of_rows <= most_rows, "only the last pass changes rows again"
    bytes_of_rows = sent["tied, looked up twice, 1 passes, clipped at None"] - others
    assert bytes_of_rows == 0, "autograd adds two lookups up in an order of its own"


def with_another_use(world: World) -> Any:
    network = Words(is_tied=True)
    exchange = exchange_of("overlap", network, world)
    train(world, exchange, 1, None)
    words = torch.randint(0, ROWS, (2, 8))
    try:
        with exchange.micro_batch(True):
            with exchange.forward():
                loss = network(words) + network(words)
            loss.backward()
    except UserError as error:
        return str(error)
    return None


def test_a_table_that_is_suddenly_used_twice_is_refused() -> None:
    for told in in_world_of(2, with_another_use):
        assert "used otherwise than in the first step" in told and "reduce=plain" in told


def messages(*given_at: float) -> list[Message]:
    """Of one byte each; forward needs the last one first."""
    return [Message(at, 1, len(given_at) - n) for n, at in enumerate(given_at)]


def test_while_backward_goes_on_the_newest_leaves_and_then_what_is_needed_first() -> None:
    evenly = messages(*range(12))
    order = order_of_sending(evenly, end=12, speed=0.5)
    assert order == [0, 1, 2, 4, 6, 8, 11, 10, 9, 7, 5, 3]
    evenly = messages(*range(6))
    assert order_of_sending(evenly, end=6, speed=0.01) == [0, 5, 4, 3, 2, 1]
    assert order_of_sending(evenly, end=6, speed=100) == [0, 1, 2, 3, 4, 5], "a fast line"
    assert order_of_sending([], end=0, speed=1) == []


def test_an_output_layer_that_is_an_embedding_too_is_needed_first_and_leaves_first() -> None:
    tied = [Message(0, 1, 0), Message(0, 1, 0), *messages(1, 2, 3), Message(4, 1, 0)]
    assert order_of_sending(tied, end=4, speed=0.5) == [0, 1, 5, 4, 3, 2]


class Arrived:
    """A message that is through, or still on the line."""

    def __init__(self, is_through: bool) -> None:
        self._is_through = is_through

    def is_completed(self) -> bool:
        return self._is_through


def test_an_idle_line_is_thought_to_be_twice_as_fast_and_a_busy_one_as_fast_as_it_was() -> None:
    sendings = [Sending() for _ in range(4)]
    for sending in sendings:
        sending.give(torch.zeros(1000))
        sending.work = Arrived(is_through=sending is not sendings[-1])
    busy, idle = (BackwardSeen(sendings, num_sent) for num_sent in (4, 3))
    assert busy.arrived_bytes == 3 * 4000
    for seen, times in ((busy, 1), (idle, 2)):
        with_spare = (1 + 2 / 3) * seen.arrived_bytes / seen.seconds
        assert seen.bytes_per_second == pytest.approx(times * with_spare)


def orders(world: World) -> Any:
    """How early each message is needed, and the order in which they leave once it is agreed on."""
    network = Words(is_tied=True)
    exchange = OverlapExchange(network, world, BUCKET_BYTES)
    train(world, exchange, 1, None)
    return exchange._needed, [exchange._backward_order.index(s) for s in exchange._order]


def test_all_processes_agree_on_one_order_and_need_all_of_a_tied_table_first() -> None:
    (needed, order), other = in_world_of(2, orders)
    assert (needed, order) == other
    assert sorted(order) == list(range(len(needed)))
    assert needed[:8] == [0] * 8 and needed[-1] == 0 and all(needed[8:-1])
