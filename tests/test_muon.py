"""The update rule for convolution kernels: what it computes, what it leaves to plain SGD."""

import pytest
import torch
from torch import nn

from paceline import recipe
from paceline.errors import UserError
from paceline.models.norm import StepBatchNorm2d
from paceline.settings import OptimizerSettings
from paceline.train.optimizer import build_optimizer
from paceline.train.optimizer.muon import Muon, orthogonalised


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), StepBatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 4)
    )


def settings(weight_decay: float = 0.0) -> OptimizerSettings:
    return OptimizerSettings(
        kind="muon", momentum=0.6, matrix_rate=2.0, bias_rate=0.5, weight_decay=weight_decay
    )


@pytest.mark.parametrize("shape", [(16, 8, 3, 3), (64, 3, 2, 2), (12, 40, 1, 1)])
def test_a_direction_becomes_nearly_orthogonal_and_keeps_its_sense(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    kernel = torch.randn(shape).contiguous(memory_format=torch.channels_last)
    found = orthogonalised(kernel)
    values = torch.linalg.svdvals(found.flatten(1))
    assert found.shape == kernel.shape
    assert values.min() > 0.3 and values.max() < 1.4
    assert (found * kernel).sum() > 0


def test_it_is_what_the_published_rounds_give() -> None:
    torch.manual_seed(2)
    kernel = torch.randn(24, 10, 3, 3)
    wanted = kernel.flatten(1).double()
    wanted = wanted / wanted.norm()
    for _ in range(3):
        gram = wanted @ wanted.T
        wanted = 3.4445 * wanted + (-4.7750 * gram + 2.0315 * gram @ gram) @ wanted
    assert torch.allclose(orthogonalised(kernel).flatten(1).double(), wanted, atol=1e-5)


def test_kernels_keep_their_length_and_the_rest_follows_torch_sgd() -> None:
    ours, plain = network(), network()
    optimizer = build_optimizer(settings(weight_decay=0.01), ours)
    linear = dict(plain.named_parameters())
    reference = torch.optim.SGD(
        [
            {"params": [linear["3.weight"]], "lr": 0.2, "weight_decay": 0.01},
            {"params": [linear["3.bias"], linear["1.weight"], linear["1.bias"]], "lr": 0.05},
        ],
        lr=1.0,
        momentum=0.6,
        nesterov=True,
    )
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * group["rate_multiple"]
    for _ in range(3):
        for net, step in ((ours, optimizer), (plain, reference)):
            torch.manual_seed(7)
            for weight in net.parameters():
                weight.grad = torch.randn_like(weight)
            step.step()
    assert torch.allclose(ours.get_parameter("3.weight"), linear["3.weight"], atol=1e-6)
    assert torch.allclose(ours.get_parameter("3.bias"), linear["3.bias"], atol=1e-6)
    length = ours.get_parameter("0.weight").detach().norm()
    assert length == pytest.approx(8**0.5, rel=0.1)


def test_it_learns_where_steps_of_equal_length_lead_down() -> None:
    net = network()
    optimizer = build_optimizer(settings(), net)
    assert isinstance(optimizer, Muon)
    pictures, labels = torch.randn(16, 3, 8, 8), torch.arange(16) % 4
    losses = []
    for _ in range(25):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * group["rate_multiple"]
        loss = nn.functional.cross_entropy(net(pictures), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_a_transformer_recipe_refuses_it() -> None:
    with pytest.raises(UserError, match="muon is for networks of convolutions"):
        recipe.load("nmt-tiny", ["optimizer.kind=muon"])
