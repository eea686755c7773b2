"""ResNets as published, and batch norm that does not care how many processes there are."""

import copy

import pytest
import torch
from torch import nn

from paceline.models.norm import (
    StepBatchNorm2d,
    absorb_statistics,
    norm_layers,
    take_statistics,
)
from paceline.tasks.cifar10.resnet import CifarResNet


@pytest.mark.parametrize(
    ("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7)]
)
def test_the_number_of_parameters_is_the_published_one(depth: int, millions: float) -> None:
    with torch.device("meta"):
        model = CifarResNet(depth)
    count = sum(p.numel() for p in model.parameters()) / 1e6
    digits = 1 if depth == 110 else 2
    assert round(count, digits) == millions


@pytest.mark.parametrize("depth", [20, 44])
def test_depth_counts_convolutions_and_the_last_layer(depth: int) -> None:
    with torch.device("meta"):
        model = CifarResNet(depth)
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == depth


@pytest.mark.parametrize("depth", [2, 10, 21, 51])
def test_a_depth_that_is_not_6n_plus_2_is_refused(depth: int) -> None:
    with pytest.raises(ValueError, match=f"{depth} is not 6n"):
        CifarResNet(depth)


def test_pictures_become_ten_scores_and_every_weight_gets_a_gradient() -> None:
    torch.manual_seed(0)
    model = CifarResNet(8)
    # A block starts as the identity, which keeps gradients from its inside: leave that start.
    for layer in norm_layers(model):
        nn.init.ones_(layer.weight)
    scores = model(torch.randn(4, 3, 32, 32))
    assert scores.shape == (4, 10)
    scores.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_every_block_starts_as_the_identity() -> None:
    torch.manual_seed(0)
    model = CifarResNet(14)
    for block in model.blocks:
        if isinstance(block, nn.Module) and getattr(block, "stride", 2) == 1:
            width = getattr(block, "conv1", None)
            assert isinstance(width, nn.Conv2d)
            x = torch.rand(2, width.in_channels, 8, 8)
            assert torch.equal(block(x), x)


def test_the_shortcut_keeps_every_other_pixel_and_adds_silent_channels() -> None:
    torch.manual_seed(0)
    from paceline.tasks.cifar10.resnet import BasicBlock

    block = BasicBlock(4, 8, 2)
    nn.init.zeros_(block.norm2.weight)
    x = torch.rand(2, 4, 8, 8)
    y = block(x)
    assert torch.equal(y[:, :4], x[:, :, ::2, ::2]) and not y[:, 4:].any()


def test_the_same_seed_gives_the_same_network() -> None:
    def build(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.cat([p.detach().flatten() for p in CifarResNet(8).parameters()])

    assert torch.equal(build(3), build(3)) and not torch.equal(build(3), build(4))


def test_what_is_stored_is_weights_and_running_averages_only() -> None:
    names = CifarResNet(8).state_dict().keys()
    assert not [name for name in names if "pending" in name or "scratch" in name]
    assert any(name.endswith("running_var") for name in names)


def twins(num_features: int = 5) -> tuple[StepBatchNorm2d, nn.BatchNorm2d]:
    torch.manual_seed(1)
    ours, theirs = StepBatchNorm2d(num_features), nn.BatchNorm2d(num_features)
    for layer in (ours, theirs):
        torch.manual_seed(2)
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
    return ours, theirs


def finish_step(model: nn.Module, num_micro: int) -> None:
    absorb_statistics(model, take_statistics(model) / num_micro)


def test_outputs_and_gradients_are_those_of_torch_in_training() -> None:
    ours, theirs = twins()
    mine = torch.randn(6, 5, 4, 4, requires_grad=True)
    other = mine.detach().clone().requires_grad_()
    weighing = torch.randn(6, 5, 4, 4)
    out_mine, out_other = ours(mine), theirs(other)
    (out_mine * weighing).sum().backward()
    (out_other * weighing).sum().backward()
    torch.testing.assert_close(out_mine, out_other)
    torch.testing.assert_close(mine.grad, other.grad)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    torch.testing.assert_close(ours.bias.grad, theirs.bias.grad)


def test_outputs_in_evaluation_are_those_of_torch_after_the_same_steps() -> None:
    ours, theirs = twins()
    for _ in range(5):
        x = 3 + 2 * torch.randn(6, 5, 4, 4)
        ours(x)
        theirs(x)
        finish_step(ours, 1)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    x = torch.randn(6, 5, 4, 4)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_evaluation_collects_no_statistics() -> None:
    ours, _ = twins()
    ours.eval()(torch.randn(6, 5, 4, 4))
    assert not take_statistics(ours).any()


def test_running_averages_move_once_per_step_and_not_per_micro_batch() -> None:
    ours, _ = twins()
    x = 10 + torch.randn(6, 5, 4, 4)
    assert ours.running_mean is not None
    for _ in range(4):
        ours(x)
    assert not ours.running_mean.any()
    finish_step(ours, 4)
    torch.testing.assert_close(ours.running_mean, 0.1 * x.mean((0, 2, 3)))


def test_two_forward_passes_may_come_before_their_backward_passes() -> None:
    ours, _ = twins()
    a, b = (torch.randn(6, 5, 4, 4, requires_grad=True) for _ in range(2))
    (ours(a).square().sum() + ours(b).pow(3).sum()).backward()
    alone = a.detach().clone().requires_grad_()
    ours(alone).square().sum().backward()
    torch.testing.assert_close(a.grad, alone.grad)


def perturbed_network() -> CifarResNet:
    """A network whose blocks all take part."""
    torch.manual_seed(5)
    model = CifarResNet(8)
    for layer in norm_layers(model):
        nn.init.uniform_(layer.weight, 0.5, 1.5)
    return model


def test_one_process_with_four_micro_batches_ends_like_four_with_one_each() -> None:
    one = perturbed_network()
    four = [copy.deepcopy(one) for _ in range(4)]
    for _ in range(2):
        micro_batches = torch.randn(4, 4, 3, 16, 16)
        for micro_batch in micro_batches:
            one(micro_batch)
        finish_step(one, 4)
        for model, micro_batch in zip(four, micro_batches, strict=True):
            model(micro_batch)
        summed = torch.stack([take_statistics(model) for model in four]).sum(0)
        for model in four:
            absorb_statistics(model, summed / 4)
    for model in four:
        for name, value in model.state_dict().items():
            torch.testing.assert_close(value, one.state_dict()[name], rtol=1e-6, atol=1e-7)
    x = torch.randn(4, 3, 32, 32)
    torch.testing.assert_close(one.eval()(x), four[3].eval()(x))


def test_statistics_are_taken_once() -> None:
    model = perturbed_network()
    model(torch.randn(4, 3, 32, 32))
    assert take_statistics(model).any() and not take_statistics(model).any()


def test_a_model_without_batch_norm_has_no_statistics_to_combine() -> None:
    model = nn.Linear(3, 3)
    statistics = take_statistics(model)
    assert statistics.numel() == 0
    absorb_statistics(model, statistics)
