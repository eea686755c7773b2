"""3x3 convolutions with fewer multiplications: right, and the same for any number of threads."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

from paceline.kernels import build, conv
from paceline.models.conv import Conv3x3
from tests.scripts import run_python

needs_kernel = pytest.mark.skipif(
    build.library("conv") is None, reason="there is no C compiler here"
)

# (pictures, in, out, height, width): every size of tile, edges cut in both directions, halves of
# a panel, and channels that are no multiple of a vector.
SHAPES = [
    (9, 64, 32, 31, 31),
    (40, 32, 48, 7, 15),
    (100, 32, 32, 3, 3),
    (30, 48, 64, 6, 9),
    (110, 64, 32, 2, 2),
    (25, 24, 32, 12, 8),
    (100, 128, 160, 5, 4),
]


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def random_pictures(num: int, channels: int, height: int, width: int) -> torch.Tensor:
    values = torch.randn(num, channels, height, width)
    return values.contiguous(memory_format=torch.channels_last)


def made(shape: tuple[int, ...], is_halved: bool) -> tuple[Conv3x3, torch.Tensor, torch.Tensor]:
    num, num_in, num_out, height, width = shape
    torch.manual_seed(1)
    layer = Conv3x3(num_in, num_out)
    layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
    # Channels that are no multiple of a vector are only taken where no gradient goes back.
    x = random_pictures(num, num_in, height, width).requires_grad_(num_in % 16 == 0)
    divisor = 2 if is_halved else 1
    return layer, x, random_pictures(num, num_out, height // divisor, width // divisor)


def by_kernel(shape: tuple[int, ...], is_halved: bool) -> list[torch.Tensor]:
    layer, x, g = made(shape, is_halved)
    y = layer.then_max_pool(x) if is_halved else layer(x)
    assert "conv3x3" in str(y.grad_fn)
    torch.autograd.backward(y, g)
    return [found for found in (y.detach(), layer.weight.grad, x.grad) if found is not None]


def by_definition(shape: tuple[int, ...], is_halved: bool) -> list[torch.Tensor]:
    layer, x, g = made(shape, is_halved)
    weight = layer.weight.detach().double().requires_grad_()
    wide = x.detach().double().requires_grad_()
    y = F.conv2d(wide, weight, padding=1)
    y = F.max_pool2d(y, 2) if is_halved else y
    torch.autograd.backward(y, g.double())
    wanted = [y.detach(), weight.grad, wide.grad if x.requires_grad else None]
    return [tensor for tensor in wanted if tensor is not None]


@needs_kernel
@pytest.mark.parametrize("is_halved", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernel_computes_what_the_definition_says(
    shape: tuple[int, ...], is_halved: bool
) -> None:
    found, wanted = by_kernel(shape, is_halved), by_definition(shape, is_halved)
    assert [tensor.shape for tensor in found] == [tensor.shape for tensor in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert float((one - other).abs().max() / other.abs().max()) < 1e-4


@needs_kernel
@pytest.mark.parametrize("is_halved", [False, True])
def test_the_number_of_threads_changes_no_bit(is_halved: bool) -> None:
    results = []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        results.append(by_kernel((25, 32, 64, 14, 14), is_halved))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@needs_kernel
def test_nothing_that_came_in_is_changed() -> None:
    layer, x, g = made((25, 32, 32, 12, 12), is_halved=True)
    kept = [layer.weight.detach().clone(), x.detach().clone(), g.clone()]
    torch.autograd.backward(layer.then_max_pool(x), g)
    assert all(torch.equal(a, b) for a, b in zip(kept, (layer.weight, x, g), strict=True))


@needs_kernel
def test_a_spoilt_value_spoils_all_that_see_it() -> None:
    layer, x, _ = made((25, 32, 32, 12, 12), is_halved=False)
    with torch.no_grad():
        x[0, 0, 4, 4] = float("nan")
        assert bool(layer(x)[0, :, 3:6, 3:6].isnan().all())
        assert bool(layer.then_max_pool(x)[0, :, 1:3, 1:3].isnan().all())


@needs_kernel
def test_weights_in_another_layout_give_the_same() -> None:
    layer, x, _ = made((25, 32, 32, 12, 12), is_halved=False)
    wanted = layer(x)
    layer.weight.data = layer.weight.data.contiguous()
    assert torch.equal(layer(x), wanted)


@pytest.mark.parametrize(
    ("num_in", "num_out", "stride", "size"),
    [(3, 64, 1, 32), (16, 16, 1, 32), (64, 64, 2, 32), (32, 40, 1, 32), (64, 64, 1, 1)],
)
def test_what_the_kernel_is_not_made_for_goes_to_torch(
    num_in: int, num_out: int, stride: int, size: int
) -> None:
    layer = Conv3x3(num_in, num_out, stride)
    y = layer(random_pictures(8, num_in, size, size))
    assert "conv3x3" not in str(y.grad_fn)
    assert y.shape == (8, num_out, -(-size // stride), -(-size // stride))


def test_few_tiles_double_precision_and_other_layouts_go_to_torch() -> None:
    layer = Conv3x3(32, 32)
    pictures = random_pictures(25, 32, 12, 12)
    assert "conv3x3" not in str(layer(pictures[:1]).grad_fn)
    assert "conv3x3" not in str(layer(pictures.contiguous()).grad_fn)
    assert "conv3x3" not in str(layer.double()(pictures.double()).grad_fn)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer.float()(pictures).dtype is torch.bfloat16


def test_the_best_tile_leaves_the_fewest_multiplications() -> None:
    assert conv.best_side(32, 32, is_halved=False) == 4
    assert conv.best_side(3, 3, is_halved=False) == 3
    assert conv.best_side(2, 2, is_halved=False) == 2
    # Of nine rows halving needs eight: two tiles of four instead of three of three.
    assert (conv.best_side(9, 9, False), conv.best_side(9, 9, True)) == (3, 4)


def test_without_a_compiler_torch_does_the_same() -> None:
    script = (
        "import torch; from paceline.kernels import build\n"
        "from paceline.tasks.cifar10.fastnet import FastNet\n"
        "torch.manual_seed(0); torch.set_num_threads(1)\n"
        "model = FastNet((32, 48, 64)).to(memory_format=torch.channels_last)\n"
        "x = torch.randn(16, 3, 32, 32).contiguous(memory_format=torch.channels_last)\n"
        "loss = (model(x) ** 2).sum(); loss.backward()\n"
        "gradient = model.stages[0].conv1.weight.grad\n"
        "print(build.library('conv') is not None, float(loss), float(gradient.norm()))\n"
    )
    with_it, without = (run_python(script, kernel) for kernel in ("", "off"))
    assert without[0] == "False"
    assert float(with_it[1]) == pytest.approx(float(without[1]), rel=1e-4)
    assert float(with_it[2]) == pytest.approx(float(without[2]), rel=1e-3)
