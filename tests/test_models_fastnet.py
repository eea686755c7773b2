"""The fast network: what its shapes, its first layer and its start promise."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.models.conv import Conv3x3
from paceline.tasks.cifar10.fastnet import FastNet


def smooth_pictures(num_pictures: int = 40) -> Tensor:
    """Pictures whose neighbouring pixels resemble each other, as in photographs."""
    generator = torch.Generator().manual_seed(5)
    coarse = torch.randn(num_pictures, 3, 8, 8, generator=generator)
    fine = torch.randn(num_pictures, 3, 32, 32, generator=generator)
    return F.interpolate(coarse, size=(32, 32), mode="bilinear") + 0.1 * fine


def small_net() -> FastNet:
    torch.manual_seed(1)
    return FastNet(widths=(32, 48, 64))


@pytest.mark.parametrize("size", [20, 24, 28, 32])
def test_pictures_of_every_training_size_get_one_logit_per_class(size: int) -> None:
    pictures = torch.randn(4, 3, size, size).contiguous(memory_format=torch.channels_last)
    assert small_net()(pictures).shape == (4, 10)


@pytest.mark.parametrize("depths", [(1, 1, 1), (2, 3, 3), (2, 5, 4)])
def test_a_stage_has_as_many_convolutions_as_asked_for(depths: tuple[int, int, int]) -> None:
    net = FastNet((32, 32, 32), depths)
    for stage, depth in zip(net.stages, depths, strict=True):
        assert sum(isinstance(part, Conv3x3) for part in stage.modules()) == depth
    assert net(torch.randn(2, 3, 32, 32)).shape == (2, 10)


def test_no_edge_of_a_picture_is_lost() -> None:
    net, sizes = small_net(), []
    for stage in net.stages:
        stage.register_forward_hook(lambda _stage, _in, out: sizes.append(tuple(out.shape[2:])))
    net(smooth_pictures(2))
    assert sizes == [(16, 16), (8, 8), (4, 4)]


def test_the_first_layer_sends_out_uncorrelated_values_of_equal_spread() -> None:
    net, pictures = small_net(), smooth_pictures()
    net.init_from_pictures(pictures, eps=0.0)
    responses = net.whiten(pictures).transpose(0, 1).flatten(1)[:12].double()
    moments = responses @ responses.T / responses.shape[1]
    assert torch.allclose(moments, torch.eye(12, dtype=torch.double), atol=1e-3)


def test_the_first_layer_is_the_same_whenever_the_pictures_are() -> None:
    nets = [small_net(), FastNet(widths=(16, 16, 16))]
    for net in nets:
        net.init_from_pictures(smooth_pictures())
    assert torch.equal(nets[0].whiten.weight, nets[1].whiten.weight)


def test_training_moves_everything_but_the_first_layer_and_the_scales() -> None:
    net = small_net()
    net.init_from_pictures(smooth_pictures())
    net(smooth_pictures(8)).logsumexp(1).sum().backward()
    untouched = {name for name, value in net.named_parameters() if value.grad is None}
    scales = {name for name, _ in net.named_parameters() if "norm" in name and "weight" in name}
    assert untouched == {"whiten.weight"} | scales


def test_a_few_steps_learn_a_handful_of_pictures() -> None:
    net = small_net()
    pictures, labels = smooth_pictures(20), torch.arange(20) % 10
    net.init_from_pictures(pictures)
    weights = [value for value in net.parameters() if value.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=0.2, momentum=0.85, nesterov=True)
    for _ in range(20):
        optimizer.zero_grad()
        loss: Tensor = F.cross_entropy(net(pictures), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert (net(pictures).argmax(1) == labels).float().mean() > 0.95


def test_the_weights_survive_saving_and_loading() -> None:
    net, other = small_net(), FastNet(widths=(32, 48, 64))
    net.init_from_pictures(smooth_pictures())
    other.load_state_dict(net.state_dict())
    pictures = smooth_pictures(4)
    assert torch.equal(net.eval()(pictures), other.eval()(pictures))
