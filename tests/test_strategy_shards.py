"""Weights are cut over servers by bytes, and nothing is lost on the way there and back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from paceline.errors import UserError
from paceline.settings import OptimizerSettings
from paceline.strategies.flat_rows import FlatRows, rows_of, tensors_of, trained_weights
from paceline.strategies.servers.shard_state import ShardState
from paceline.strategies.shards import Weight, cut, read_shard, shard_size
from paceline.train.optimizer import build_optimizer, set_rate


@given(st.lists(st.integers(1, 5000), min_size=4, max_size=30), st.integers(1, 4))
def test_every_value_has_exactly_one_place_and_shards_are_of_one_size(
    sizes: list[int], num_servers: int
) -> None:
    weights = [Weight(f"w{n}", size, n % 2) for n, size in enumerate(sizes)]
    shards = cut(weights, num_servers)
    seen = {weight.name: [0] * weight.num_values for weight in weights}
    for piece in (piece for shard in shards for piece in shard):
        for place in range(piece.start, piece.stop):
            seen[piece.name][place] += 1
    assert all(set(counts) == {1} for counts in seen.values())
    fair = sum(sizes) / num_servers
    assert max(map(shard_size, shards)) <= 1.25 * fair + num_servers
    assert min(map(shard_size, shards)) > 0


def test_a_large_tensor_is_split_and_a_matrix_of_muon_is_not() -> None:
    large, small = Weight("large", 1000, 0), Weight("small", 10, 1)
    assert [shard_size(shard) for shard in cut([large, small], 2)] == [510, 500]
    kernel = Weight("kernel", 1000, 0, num_rows=10)
    assert [[p.name for p in shard] for shard in cut([kernel, small], 2)] == [["kernel"], ["small"]]


def test_more_servers_than_tensors_are_refused() -> None:
    with pytest.raises(UserError, match="3 servers, and the network has only 2") as refused:
        cut([Weight("a", 10, 0), Weight("b", 10, 0)], 3)
    assert "server=2" in refused.value.fix


def test_a_shard_survives_the_way_through_a_message() -> None:
    shards = cut([Weight("a", 100, 0), Weight("b", 7, 1, num_rows=7)], 2)
    assert tuple(read_shard([piece.as_list() for piece in shard]) for shard in shards) == shards


def small_network() -> nn.Module:
    torch.manual_seed(1)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5)
    )
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw", "muon"])
@pytest.mark.parametrize("num_servers", [1, 3])
def test_servers_update_as_the_optimizer_of_one_process_does(kind: str, num_servers: int) -> None:
    settings = OptimizerSettings.model_validate({"kind": kind, "weight_decay": 0.01})
    network, alone = small_network(), small_network()
    shards = cut(trained_weights(network, settings), num_servers)
    named = {name: p.detach() for name, p in network.named_parameters()}
    states = [
        ShardState(shard, settings, row)
        for shard, row in zip(shards, rows_of(named, shards), strict=True)
    ]
    flat_rows = FlatRows(network, shards, torch.float32)
    optimizer = build_optimizer(settings, alone)
    for step in range(4):
        for each in (network, alone):
            pictures = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(step))
            each(pictures).square().sum().backward()
        set_rate(optimizer, 0.01)
        optimizer.step()
        optimizer.zero_grad()
        for state, row in zip(states, flat_rows.pack_gradients(), strict=True):
            state.add_up([row])
            state.update(0.01, 1.0)
        network.zero_grad()
        flat_rows.put_weights([state.weights for state in states])
    for ours, theirs in zip(network.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


def test_rows_become_the_tensors_that_they_were() -> None:
    network, settings = small_network(), OptimizerSettings()
    shards = cut(trained_weights(network, settings), 2)
    named = {name: p.detach() for name, p in network.named_parameters()}
    shapes = {name: value.shape for name, value in named.items()}
    back = tensors_of(rows_of(named, shards), shards, shapes)
    for name, value in named.items():
        torch.testing.assert_close(back[name], value, rtol=0, atol=0)


def test_what_a_server_saved_goes_on_as_if_nothing_had_happened() -> None:
    settings = OptimizerSettings.model_validate({"kind": "adamw", "average": 0.9})
    (shard,) = cut([Weight("a", 6, 0), Weight("b", 3, 1)], 1)
    gradients = [torch.randn(9, generator=torch.Generator().manual_seed(n)) for n in range(6)]
    whole = ShardState(shard, settings, torch.ones(9))
    for gradient in gradients:
        whole.add_up([gradient])
        whole.update(0.1, 1.0)
    parts = ShardState(shard, settings, torch.ones(9))
    for gradient in gradients[:3]:
        parts.add_up([gradient])
        parts.update(0.1, 1.0)
    again = ShardState(shard, settings, parts.weights.clone())
    rows = {name: row.clone() for name, row in parts.rows(with_states=True).items()}
    again.load(rows, parts.num_updates())
    for gradient in gradients[3:]:
        again.add_up([gradient])
        again.update(0.1, 1.0)
    assert torch.equal(again.weights, whole.weights)
    assert again.average is not None
    assert whole.average is not None
    assert torch.equal(again.average, whole.average)
