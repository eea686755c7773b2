"""ResNet-18, -34 and -50: published sizes, published names, and blocks that start as nothing."""

import pytest
import torch

from paceline.models.norm import StepBatchNorm2d
from paceline.tasks.imagenet.resnet import BasicBlock, Bottleneck, ImagenetResNet
from paceline.tasks.pictures import lay_out_pointwise


@pytest.mark.parametrize(
    ("depth", "num_parameters"), [(18, 11_689_512), (34, 21_797_672), (50, 25_557_032)]
)
def test_parameters_are_as_many_as_published(depth: int, num_parameters: int) -> None:
    with torch.device("meta"):
        network = ImagenetResNet(depth)
    assert sum(p.numel() for p in network.parameters()) == num_parameters


def test_names_are_those_of_published_weights() -> None:
    with torch.device("meta"):
        names = set(ImagenetResNet(50).state_dict())
    assert {
        "conv1.weight",
        "bn1.running_var",
        "layer1.0.downsample.0.weight",
        "layer1.0.downsample.1.bias",
        "layer3.5.conv3.weight",
        "layer4.2.bn3.weight",
        "fc.bias",
    } <= names
    assert len(names) == 53 + 53 * 4 + 2


def test_the_stride_of_a_bottleneck_is_in_its_3x3() -> None:
    block = Bottleneck(64, 32, stride=2)
    assert [conv.stride for conv in (block.conv1, block.conv2, block.conv3)] == [
        (1, 1),
        (2, 2),
        (1, 1),
    ]


@pytest.mark.parametrize("depth", [18, 50])
def test_every_block_starts_as_its_shortcut(depth: int) -> None:
    torch.manual_seed(0)
    network = ImagenetResNet(depth, num_classes=5, width=8)
    blocks = [m for m in network.modules() if isinstance(m, BasicBlock | Bottleneck)]
    assert all((block.last_norm.weight == 0).all() for block in blocks)
    inner = blocks[1]  # the second of a stage: its shortcut is nothing at all
    x = torch.rand(2, 8 * type(inner).expansion, 8, 8)
    assert torch.equal(inner(x), x)


def test_a_network_learns_and_keeps_channels_last() -> None:
    torch.manual_seed(0)
    network = ImagenetResNet(18, num_classes=3, width=8)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    pictures = torch.rand(6, 3, 48, 48).contiguous(memory_format=torch.channels_last)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(12):
        loss = torch.nn.functional.cross_entropy(network(pictures), labels)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2
    kernel = dict(network.named_parameters())["layer4.0.conv2.weight"]
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    assert all(isinstance(m, StepBatchNorm2d) for n, m in network.named_modules() if "bn" in n)


def test_kernels_of_one_pixel_are_laid_out_as_cudnn_lays_out_their_gradients() -> None:
    torch.manual_seed(0)
    network = ImagenetResNet(50, num_classes=4, width=8)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    pictures = torch.rand(2, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    before = network.eval()(pictures)
    lay_out_pointwise(network)
    kernel = network.get_parameter("layer1.0.conv1.weight")
    num_in = kernel.shape[1]
    assert kernel.stride() == (num_in, 1, num_in, num_in)
    assert torch.equal(network(pictures), before)
    assert torch.empty_like(kernel).stride() == kernel.stride(), "as its momentum will be"
