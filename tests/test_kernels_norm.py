"""Norm, addition and activation in one operation: right, and the same for any number of threads."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

from paceline.kernels import build
from paceline.models.norm import StepBatchNorm2d
from tests.scripts import run_python

Tensors = list[torch.Tensor]

pytestmark = pytest.mark.skipif(build.library("norm") is None, reason="there is no C compiler here")


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def activations(num: int, channels: int, side: int, offset: float = 0.0) -> torch.Tensor:
    values = torch.randn(num, channels, side, side) * 2 + offset
    return values.contiguous(memory_format=torch.channels_last)


def by_kernel(
    x: torch.Tensor, before: torch.Tensor | None, g: torch.Tensor, is_smooth: bool = False
) -> Tensors:
    norm = StepBatchNorm2d(x.shape[1])
    torch.manual_seed(3)
    torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    torch.nn.init.normal_(norm.bias)
    inputs = [x.clone().requires_grad_()] + (
        [before.clone().requires_grad_()] if before is not None else []
    )
    out = norm.then_silu(*inputs) if is_smooth else norm.then_relu(*inputs)
    assert "norm_activate" in str(out.grad_fn)
    torch.autograd.backward(out, g)
    gradients = [i.grad for i in inputs] + [norm.weight.grad, norm.bias.grad]
    return [out.detach(), norm.pending.clone(), *[grad for grad in gradients if grad is not None]]


def by_definition(
    x: torch.Tensor, before: torch.Tensor | None, g: torch.Tensor, is_smooth: bool = False
) -> Tensors:
    norm = StepBatchNorm2d(x.shape[1])
    torch.manual_seed(3)
    torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    torch.nn.init.normal_(norm.bias)
    norm = norm.double()
    inputs = [x.double().requires_grad_()] + (
        [before.double().requires_grad_()] if before is not None else []
    )
    y = F.batch_norm(inputs[0], None, None, norm.weight, norm.bias, training=True, eps=norm.eps)
    y = y + inputs[1] if before is not None else y
    out = F.silu(y) if is_smooth else F.relu(y)
    torch.autograd.backward(out, g.double())
    statistics = torch.stack([inputs[0].mean((0, 2, 3)), inputs[0].var((0, 2, 3))]).detach()
    gradients = [i.grad for i in inputs] + [norm.weight.grad, norm.bias.grad]
    return [out.detach(), statistics, *[grad for grad in gradients if grad is not None]]


@pytest.mark.parametrize(
    ("num", "channels", "side"), [(8, 16, 32), (3, 64, 8), (5, 7, 3), (1, 512, 7), (2, 2048, 2)]
)
@pytest.mark.parametrize("is_residual", [False, True])
@pytest.mark.parametrize("is_smooth", [False, True])
def test_the_kernel_computes_what_the_definition_says(
    num: int, channels: int, side: int, is_smooth: bool, is_residual: bool
) -> None:
    torch.manual_seed(1)
    x, g = activations(num, channels, side), activations(num, channels, side)
    before = activations(num, channels, side) if is_residual else None
    results = by_kernel(x, before, g, is_smooth), by_definition(x, before, g, is_smooth)
    for found, wanted in zip(*results, strict=True):
        error = (found.double() - wanted).abs().max() / wanted.abs().max().clamp_min(1e-30)
        assert float(error) < 2e-5


def test_a_mean_far_from_zero_does_not_cost_the_variance_its_digits() -> None:
    torch.manual_seed(1)
    x, g = activations(16, 16, 16, offset=1000.0), activations(16, 16, 16)
    found, wanted = by_kernel(x, None, g), by_definition(x, None, g)
    assert torch.allclose(found[1].double(), wanted[1], rtol=1e-5)
    assert torch.allclose(found[0].double(), wanted[0], atol=1e-3)


@pytest.mark.parametrize("is_residual", [False, True])
def test_the_number_of_threads_changes_no_bit(is_residual: bool) -> None:
    torch.manual_seed(1)
    x, g = activations(9, 32, 12), activations(9, 32, 12)
    before = activations(9, 32, 12) if is_residual else None
    results = []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        results.append(by_kernel(x, before, g))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_gradients_that_came_in_are_left_as_they_were() -> None:
    x, g = activations(4, 16, 8), activations(4, 16, 8)
    kept = g.clone()
    by_kernel(x, None, g)
    assert torch.equal(g, kept)


def test_a_spoilt_value_is_not_hidden() -> None:
    """Neither activation makes a number of NaN, or a spoilt network would train on unnoticed."""
    x = activations(4, 16, 8)
    x[0, 3, 0, 0] = float("nan")
    norm = StepBatchNorm2d(16)
    for out in (norm.then_relu(x), norm.then_silu(x)):
        assert bool(out[:, 3].isnan().all())
        assert not bool(out[:, :3].isnan().any())


def test_without_a_compiler_torch_does_the_same() -> None:
    script = (
        "import torch; from paceline.kernels import build\n"
        "from paceline.tasks.cifar10.resnet import CifarResNet\n"
        "torch.manual_seed(0); torch.set_num_threads(1)\n"
        "model = CifarResNet(8).to(memory_format=torch.channels_last)\n"
        "x = torch.randn(8, 3, 32, 32).contiguous(memory_format=torch.channels_last)\n"
        "loss = (model(x) ** 2).sum(); loss.backward()\n"
        "gradient = float(model.conv.weight.grad.norm())\n"
        "print(build.library('norm') is not None, float(loss), gradient)\n"
    )
    with_it, without = (run_python(script, kernel) for kernel in ("", "off"))
    assert (with_it[0], without[0]) == ("True", "False")
    assert float(with_it[1]) == pytest.approx(float(without[1]), rel=1e-5)
    assert float(with_it[2]) == pytest.approx(float(without[2]), rel=1e-4)
