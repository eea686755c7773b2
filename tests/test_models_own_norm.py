"""torch's batch norm in a user's network: as torch has it, but averaged over the whole step."""

import copy

import pytest
import torch
from torch import nn

from paceline.errors import UserError
from paceline.models.norm import (
    StepBatchNorm2d,
    StepStatistics,
    absorb_statistics,
    combine_norms,
    take_statistics,
)

KINDS = [
    (nn.BatchNorm1d, (6, 4)),
    (nn.BatchNorm2d, (6, 4, 3, 3)),
    (nn.BatchNorm3d, (6, 4, 2, 2, 2)),
]


def a_step(layer: nn.Module, batches: list[torch.Tensor]) -> None:
    for batch in batches:
        layer(batch)
    absorb_statistics(layer, take_statistics(layer) / len(batches))


@pytest.mark.parametrize(("kind", "shape"), KINDS)
@pytest.mark.parametrize("momentum", [0.1, None])
def test_one_micro_batch_a_step_gives_what_torch_gives(
    kind: type[nn.Module], shape: tuple[int, ...], momentum: float | None
) -> None:
    torch.manual_seed(0)
    plain, ours = kind(4, momentum=momentum), kind(4, momentum=momentum)
    combine_norms(ours)
    for _ in range(3):
        batch = torch.randn(shape)
        assert torch.equal(ours(batch), plain(batch))
        absorb_statistics(ours, take_statistics(ours))
    assert ours.state_dict().keys() == plain.state_dict().keys()
    for name, value in plain.state_dict().items():
        assert torch.allclose(ours.state_dict()[name], value, atol=1e-6), name
    assert torch.allclose(ours.eval()(batch), plain.eval()(batch), atol=1e-6)


def test_micro_batches_of_a_step_count_alike_wherever_they_ran() -> None:
    torch.manual_seed(0)
    batches = list(torch.randn(4, 8, 4))
    alone, first, second = (nn.BatchNorm1d(4) for _ in range(3))
    for layer in (alone, first, second):
        combine_norms(layer)
    a_step(alone, batches)
    for layer, share in ((first, batches[:2]), (second, batches[2:])):
        for batch in share:
            layer(batch)
    both = (take_statistics(first) + take_statistics(second)) / 4
    absorb_statistics(first, both)
    for name, value in alone.state_dict().items():
        assert torch.allclose(first.state_dict()[name], value, atol=1e-7), name


class Twice(nn.Module):
    """One layer that runs twice in a pass, one that runs in every other pass, one of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.often, self.seldom = StepBatchNorm2d(4), nn.BatchNorm2d(4)
        self.last, self.num_passes = nn.BatchNorm2d(4, momentum=None), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.often(2 * self.often(x) + 1)
        self.num_passes += 1
        if self.num_passes % 2:
            x = self.seldom(x)
        return self.last(x).square().sum()  # type: ignore[no-any-return]


def test_in_one_buffer_the_averages_are_the_same_bits() -> None:
    torch.manual_seed(0)
    apart = Twice()
    together = copy.deepcopy(apart)
    for network in (apart, together):
        combine_norms(network)
    one, other = StepStatistics(apart), StepStatistics(together, side_by_side=True)
    for _ in range(3):
        batches = torch.randn(3, 5, 4, 3, 3)
        for network, statistics in ((apart, one), (together, other)):
            for batch in batches:
                network(batch).backward()
                statistics.end_micro_batch()
            statistics.absorb(statistics.take() / 3)
    assert apart.state_dict().keys() == together.state_dict().keys()
    for name, value in apart.state_dict().items():
        assert torch.equal(together.state_dict()[name], value), name


def test_a_norm_without_averages_is_left_alone_and_others_are_refused() -> None:
    free = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.InstanceNorm1d(4))
    combine_norms(free)
    assert type(free[0]) is nn.BatchNorm1d
    for strange in (nn.SyncBatchNorm(4), nn.InstanceNorm1d(4, track_running_stats=True)):
        with pytest.raises(UserError, match="running averages would differ"):
            combine_norms(nn.Sequential(strange))
