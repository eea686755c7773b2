"""Kernels as operations of torch: compiled, counted, faked and differentiated like any other."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from paceline.kernels import attention, build, operation, tokens
from paceline.models.attention import attend
from paceline.models.norm import take_statistics
from paceline.models.packing import AttentionPlan, PackedPairs, Packing, pack_padded
from paceline.models.shapes import named_shape
from paceline.models.transformer import Transformer
from paceline.tasks.batch_values import to_device
from paceline.tasks.cifar10.fastnet import FastNet
from paceline.tasks.cifar10.resnet import CifarResNet
from paceline.tasks.imagenet.resnet import ImagenetResNet
from paceline.train.measure.flops import count_flops

NAMES = ("attention", "conv", "norm", "tokens")
needs_kernels = pytest.mark.skipif(
    any(build.library(name) is None for name in NAMES), reason="there is no C compiler here"
)
OPERATIONS = torch.ops.paceline


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def pictures(num: int, channels: int, side: int, device: str = "cpu") -> Tensor:
    values = torch.randn(num, channels, side, side, device=device)
    return values.contiguous(memory_format=torch.channels_last)


def arguments() -> dict[str, tuple[Any, ...]]:
    """A call of every operation."""
    torch.manual_seed(1)
    x, filters, row = pictures(7, 32, 16), torch.randn(32, 32, 3, 3), torch.rand(32)
    values, seeds = torch.randn(12, 32), tokens.draw_seeds()
    starts, extent = torch.tensor([[0, 6, 12], [0, 6, 12]]), [2, 6, 6, True]
    plan = (starts, extent, seeds, 0.1)
    heads, weights = torch.randn(12, 192), torch.rand(4, 6, 16)
    choices = torch.zeros(7, 32, 8, 8, dtype=torch.uint8)
    choices = choices.contiguous(memory_format=torch.channels_last)
    none = torch.zeros(0, dtype=torch.uint8)
    return {
        "conv3x3": (x, filters, False),
        "conv3x3_backward": (pictures(7, 32, 16), x, filters, none, False, True),
        "norm_activate": (x, pictures(7, 32, 16), row, row.clone(), 1e-5, True),
        "norm_activate_backward": (pictures(7, 32, 16), x, None, torch.rand(5, 32), False),
        "dropout": (values, seeds, 0.3),
        "add_dropout": (values, torch.randn(12, 32), seeds, 0.3),
        "bias_relu_dropout": (values, row, seeds, 0.3),
        "bias_relu_dropout_backward": (values, torch.rand(12, 32), 0.3),
        "smoothed_rows": (values.clone(), torch.randint(32, (12,)), 0.1, True),
        "attention": (heads, None, *plan),
        "attention_backward": (torch.randn(12, 64), weights, heads, None, *plan),
    }


def calls() -> dict[str, tuple[Any, ...]]:
    """With gradients wanted of what has any, and the forms that the networks use besides."""
    found = arguments()
    for name in ("conv3x3", "norm_activate", "dropout", "add_dropout", "bias_relu_dropout"):
        found[name] = tuple(wanting(value) for value in found[name])
    x, filters, _ = found["conv3x3"]
    found["conv3x3 halved"] = (x, filters, True)
    _, _, weight, bias, *how = found["norm_activate"]
    found["norm_activate alone"] = (x, None, weight, bias, *how)
    heads, _, *plan = found["attention"]
    found["attention"] = (wanting(heads), None, *plan)
    found["attention across"] = (wanting(torch.randn(12, 64)), wanting(torch.randn(12, 128)), *plan)
    return found


def wanting(value: Any) -> Any:
    is_real = isinstance(value, Tensor) and value.dtype is torch.float32
    return value.detach().requires_grad_() if is_real else value


@needs_kernels
@pytest.mark.parametrize("call", calls())
def test_torch_finds_nothing_wrong_with_an_operation(call: str) -> None:
    """Schema, fake, gradient, and all of them under a tracer with known and unknown shapes."""
    overload = getattr(OPERATIONS, call.split(maxsplit=1)[0]).default
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    if not call.endswith("backward") and call != "smoothed_rows":
        checks += ("test_autograd_registration",)  # type: ignore[assignment]
    torch.library.opcheck(overload, calls()[call], test_utils=checks)


@needs_kernels
@pytest.mark.parametrize("call", [name for name in arguments() if name != "smoothed_rows"])
def test_what_an_operation_is_not_made_for_is_refused_before_any_pointer_is_used(
    call: str,
) -> None:
    values = [v.double() if isinstance(v, Tensor) else v for v in arguments()[call]]
    with pytest.raises(ValueError, match="float32"):
        getattr(OPERATIONS, call)(*values)


@needs_kernels
def test_shapes_that_would_leave_memory_are_refused() -> None:
    found = arguments()
    x, filters, _ = found["conv3x3"]
    with pytest.raises(ValueError, match=r"is not for \(.+\) with \(.+, 3, 3\)$"):
        OPERATIONS.conv3x3(x[:, :16], filters, False)
    logits, targets, *rest = found["smoothed_rows"]
    with pytest.raises(ValueError, match="columns"):
        OPERATIONS.smoothed_rows(logits, targets + 32, *rest)
    heads, _, starts, *rest = found["attention"]
    with pytest.raises(ValueError, match="tokens"):
        OPERATIONS.attention(heads[:4], None, starts, *rest)
    with pytest.raises(ValueError, match="shape"):
        OPERATIONS.add_dropout(heads, heads[:4], rest[1], 0.1)


def test_addresses_of_rows_are_those_of_its_rows() -> None:
    matrix = torch.empty(5, 7)
    assert list(operation.addresses_of_rows(matrix)) == [row.data_ptr() for row in matrix]


def test_a_complaint_without_shapes_ends_with_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"takes float32 only$"):
        operation.require(False, "it takes float32 only")


@needs_kernels
def test_second_derivatives_are_an_error_and_not_zero() -> None:
    x = torch.randn(4, 8, requires_grad=True)
    found = OPERATIONS.dropout(x, tokens.draw_seeds(), 0.1)
    g = torch.ones_like(found, requires_grad=True)
    (gradient,) = torch.autograd.grad(found, x, g, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        torch.autograd.backward(gradient.sum())


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "resnet18": (lambda: ImagenetResNet(18, 10, width=32), 6, 64),
    "resnet20": (lambda: CifarResNet(20), 16, 32),
    "fastnet": (lambda: FastNet((32, 48, 64)), 16, 32),
}


def made(name: str, device: str = "cpu") -> tuple[nn.Module, Tensor]:
    torch.manual_seed(1)
    make, num, side = NETWORKS[name]
    network = make().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network.to(device), pictures(num, 3, side, device)


class Graphs:
    """A compiler that keeps what it is given and runs it as it is."""

    def __init__(self) -> None:
        self.found: list[torch.fx.GraphModule] = []

    def __call__(self, graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> torch.fx.GraphModule:
        self.found.append(graph)
        return graph

    def operations(self) -> set[str]:
        nodes = [str(node.target) for graph in self.found for node in graph.graph.nodes]
        return {name.split(".")[1] for name in nodes if name.startswith("paceline.")}


@pytest.fixture
def graphs() -> Iterator[Graphs]:
    torch._dynamo.reset()
    yield Graphs()
    torch._dynamo.reset()


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_compiled_network_is_one_graph(name: str, device: str, graphs: Graphs) -> None:
    network, x = made(name, device)
    network.compile(backend=graphs)
    network(x)
    assert len(graphs.found) == 1
    is_used = device == "cpu" and build.library("conv") is not None
    assert graphs.operations() == ({"conv3x3", "norm_activate"} if is_used else set())


def text_of(num_sentences: int, length: int, device: str) -> PackedPairs:
    source, before, after = torch.randint(4, 64, (3, num_sentences, length)).unbind(0)
    source[0, length // 2 :] = 0
    packed: PackedPairs = to_device(pack_padded(source, before, after, 0), torch.device(device))
    return packed


def translator(device: str) -> Transformer:
    rates = dict.fromkeys(("attention_dropout", "relu_dropout", "residual_dropout"), 0.1)
    return Transformer(named_shape("tiny", 64, **rates)).to(device)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_compiled_transformer_is_one_graph(device: str, graphs: Graphs) -> None:
    network = translator(device)
    network.compile(backend=graphs, fullgraph=True)
    torch.autograd.backward(network(text_of(4, 11, device)).loss_sum)
    assert len(graphs.found) == 1


def test_on_a_device_one_more_graph_is_for_batches_of_all_other_sizes(graphs: Graphs) -> None:
    network = translator("meta")
    network.compile(backend=graphs, fullgraph=True)
    for num_sentences, length in [(4, 11), (5, 9), (7, 23), (3, 100), (12, 6)]:
        network(text_of(num_sentences, length, "meta"))
    assert len(graphs.found) == 2


@needs_kernels
def test_a_compiled_network_has_the_gradients_of_the_plain_one(graphs: Graphs) -> None:
    found = []
    for is_compiled in (False, True):
        network, x = made("fastnet")
        if is_compiled:
            network.compile(backend="aot_eager", fullgraph=True)
        torch.autograd.backward(network(x).square().sum())
        gradients = [p.grad for p in network.parameters() if p.grad is not None]
        found.append([take_statistics(network), *gradients])
    for plain, compiled in zip(*found, strict=True):
        torch.testing.assert_close(compiled, plain)


class OnLooker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation, and changes none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(func.name())
        return func(*args, **(kwargs or {}))


@needs_kernels
@pytest.mark.parametrize("name", NETWORKS)
def test_whether_somebody_looks_on_changes_no_bit(name: str) -> None:
    """Where nobody does, kernels are called past torch's dispatcher."""
    found, looker = [], OnLooker()
    for looks_on in (nullcontext(), looker):
        network, x = made(name)
        with looks_on:
            torch.autograd.backward(network(x).square().sum())
        found.append([p.grad for p in network.parameters() if p.grad is not None])
    assert {"paceline::conv3x3", "paceline::norm_activate_backward"} <= looker.seen
    assert found[0]
    for alone, seen in zip(*found, strict=True):
        assert torch.equal(alone, seen)


@needs_kernels
def test_a_compiled_network_follows_when_kernels_are_turned_off(graphs: Graphs) -> None:
    network, x = made("fastnet")
    network.compile(backend=graphs)
    network(x)
    with operation.turned_off():
        network(x)
    assert len(graphs.found) == 2 and "paceline" not in str(graphs.found[1].graph)


@needs_kernels
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_runs_with_fake_tensors(name: str) -> None:
    make, num, side = NETWORKS[name]
    with FakeTensorMode():
        network, x = make(), pictures(num, 3, side)
        loss = F.cross_entropy(network(x), torch.zeros(len(x), dtype=torch.long))
        torch.autograd.backward(loss)
    for parameter in network.parameters():
        assert parameter.grad is None or parameter.grad.shape == parameter.shape


@needs_kernels
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_as_many_operations_are_counted_with_kernels_as_without(rate: float) -> None:
    rates = dict.fromkeys(("attention_dropout", "relu_dropout", "residual_dropout"), rate)
    text = Transformer(named_shape("tiny", 64, **rates))
    ids = [F.pad(torch.randint(4, 64, (4, 11)), (0, n)) for n in (6, 0, 0)]
    network, x = made("fastnet")

    def work() -> None:
        torch.autograd.backward(text(*ids).loss_sum + network(x).sum())

    with operation.turned_off():
        wanted = count_flops(work)
    assert wanted is not None and count_flops(work) == wanted


@needs_kernels
@pytest.mark.parametrize("name", ["fastnet", "resnet20"])
def test_pictures_under_autocast_are_left_to_torch(name: str) -> None:
    network, x = made(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = network(x)
    torch.autograd.backward(out.float().square().sum())
    assert out.isfinite().all()


def test_text_under_autocast_has_about_the_same_loss() -> None:
    """The product is bfloat16 there, while what goes into it is not."""
    torch.manual_seed(1)
    rates = {"attention_dropout": 0.0, "relu_dropout": 1e-6, "residual_dropout": 0.0}
    network = Transformer(named_shape("tiny", 64, **rates))
    ids = [torch.randint(4, 64, (4, 11)) for _ in range(3)]
    exact = float(network(*ids).loss_sum.detach())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = network(*ids).loss_sum
    torch.autograd.backward(rounded)
    assert float(rounded.detach()) == pytest.approx(exact, rel=0.02)


@needs_kernels
def test_attention_takes_keys_of_any_layout_of_memory() -> None:
    torch.manual_seed(1)
    packing = Packing.of(torch.tensor([[True, True, False], [True, True, True]]))
    plan = AttentionPlan(packing, packing, num_heads=2)
    values = torch.randn(192, 5).t()
    assert not attention.can_take(values, None, attention.Extent(2, 3, 3, False))
    given = (plan.starts, [2, 3, 3, False], tokens.draw_seeds(), 0.0)
    found, _ = OPERATIONS.attention(values, None, *given)
    torch.testing.assert_close(found, attend(values.contiguous(), None, plan, 0.0))
