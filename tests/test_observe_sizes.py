"""What the observer reads from a batch and from autograd's graph: work, targets, units."""

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import paceline.observe
from paceline.observe.measures.batches import num_samples, num_tokens
from paceline.observe.measures.graph import num_targets, work_of
from paceline.observe.measures.units import Units


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        heads = self.embedding(words).view(2, 7, 2, 8).transpose(1, 2)
        seen = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        flat = seen.transpose(1, 2).reshape(2, 7, 16)
        mixed = torch.bmm(flat, flat.transpose(1, 2)) @ flat
        return self.out(mixed).view(-1, 50)  # type: ignore[no-any-return]


WORDS = torch.randint(0, 50, (2, 7))
PICTURES = torch.randn(2, 3, 16, 16)
ATTENTION_FLOPS = 2 * 2 * 2 * 7 * 7 * (2 + 5) * 8
"""Of 2 rows, 2 heads, 7 positions and 8 wide heads, which torch does not count on a CPU."""
NETWORKS: dict[str, tuple[nn.Module, torch.Tensor]] = {
    "linear": (
        nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3, bias=False)),
        torch.randn(4, 8),
    ),
    "convolution": (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, stride=2)),
        PICTURES,
    ),
    "transposed": (nn.ConvTranspose2d(3, 4, 4, 2, 1), PICTURES),
    "attention": (Attending(), WORDS),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_work_of_a_graph_is_what_torch_counts(name: str) -> None:
    network, given = NETWORKS[name]
    work = work_of(network(given).square().mean())
    with FlopCounterMode(display=False) as counter:
        torch.autograd.backward(network(given).square().mean())
    beside = ATTENTION_FLOPS if name == "attention" else 0
    assert work.flops == pytest.approx(counter.get_total_flops() + beside)


def test_a_look_at_the_graph_changes_no_gradient() -> None:
    network, given = NETWORKS["attention"]
    gradients = []
    for looks in (False, True):
        network.zero_grad()
        loss = F.cross_entropy(network(given), WORDS.view(-1))
        if looks:
            work_of(loss)
            num_targets(loss)
        torch.autograd.backward(loss)
        gradients.append([p.grad.clone() for p in network.parameters() if p.grad is not None])
    assert all(torch.equal(one, two) for one, two in zip(*gradients, strict=True))


def test_targets_are_found_below_a_mean_and_a_division() -> None:
    network, given = NETWORKS["attention"]
    loss = F.cross_entropy(network(given), WORDS.view(-1))
    assert num_targets(loss / 4) == num_targets(loss) == 14
    assert num_targets(network(given).square().mean()) == 0
    assert num_targets(torch.ones(())) == 0


def settled(batches: list[Any], loss: torch.Tensor) -> tuple[dict[str, Any], float]:
    """What a first step with these batches tells, and the units of the step over two processes."""
    units = Units()
    for batch in batches:
        units.add_batch(num_samples(batch), num_tokens(batch))
    units.add_loss(loss, hides_tensors=False, has_loader=bool(batches))
    return units.settle(), units.take(1, world_size=2)


def test_throughput_is_counted_in_what_the_batches_are_made_of() -> None:
    network, given = NETWORKS["attention"]
    loss = F.cross_entropy(network(given), WORDS.view(-1))
    told, count = settled([{"input_ids": WORDS, "attention_mask": WORDS, "labels": WORDS}], loss)
    assert told["unit"] == "token" and count == 2 * 14
    assert told["flops_per_unit"] == pytest.approx((work_of(loss).flops or 0) / 14)
    told, count = settled([(WORDS, torch.tensor([0, 1]))], loss)
    assert told["unit"] == "sample" and count == 2 * 2
    told, count = settled([], loss)
    assert told["unit"] == "token" and count == 2 * 14
    told, count = settled([], network(given).mean())
    assert told["unit"] == "step" and count == 1


def test_tensors_that_a_script_keeps_in_its_own_way_are_not_looked_at() -> None:
    def refuse(_: Any) -> Any:
        raise AssertionError("looked at")

    network, given = NETWORKS["convolution"]
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, refuse):
        loss = network(given).mean()
    units = Units()
    units.add_batch(2, 0)
    units.add_loss(loss, hides_tensors=True, has_loader=True)
    assert units.settle() == {"unit": "sample"}


def test_what_is_loaded_into_a_script_is_python_3_10() -> None:
    folder = Path(paceline.observe.__file__).parent
    for path in folder.rglob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))
