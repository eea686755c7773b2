"""The Transformer against torch's own layers, its own slow paths and the published sizes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from paceline.errors import UserError
from paceline.kernels import build, operation
from paceline.models.attention import MASKED_SCORE, attend, attend_plainly, mask_as
from paceline.models.device_attention import (
    TOLERANCE,
    Heads,
    attend_on_device,
    attend_padded,
    try_by_starts,
)
from paceline.models.dropout import add_dropout, dropout, linear_relu_dropout, relu_dropout
from paceline.models.loss import (
    LossSums,
    smoothed_loss,
    smoothed_loss_on_device,
    smoothed_loss_plainly,
)
from paceline.models.packing import AttentionPlan, Packing, pack_padded, pack_pairs
from paceline.models.shapes import (
    SIZES,
    TransformerShape,
    count_parameters,
    gradient_bytes,
    named_shape,
    state_bytes,
)
from paceline.models.transformer import Transformer

VOCAB_SIZE = 37
NO_DROPOUT = {"attention_dropout": 0.0, "relu_dropout": 0.0, "residual_dropout": 0.0}


@pytest.fixture(params=["kernel", "torch"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the compiled kernel, and as it is done where there is no compiler."""
    if request.param == "torch":
        monkeypatch.setattr(operation, "_is_off", True)
    elif build.library("tokens") is None:
        pytest.skip("there is no C compiler here")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny operations on a busy machine wait for each other's threads more than they compute."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def small_shape(**changes: object) -> TransformerShape:
    values: dict[str, object] = {"width": 16, "inner_width": 32, "num_heads": 2}
    values |= {"num_encoder_layers": 2, "num_decoder_layers": 2, **changes}
    return TransformerShape(vocab_size=VOCAB_SIZE, **values)  # type: ignore[arg-type]


def padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])


def a_batch(
    seed: int = 0, lengths: tuple[int, ...] = (5, 2, 9, 7)
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def sentence(length: int) -> list[int]:
        return torch.randint(4, VOCAB_SIZE, (length,), generator=generator).tolist()

    sources = [[*sentence(length), 1] for length in lengths]
    targets = [sentence(length + index) for index, length in enumerate(reversed(lengths))]
    return (
        padded(sources),
        padded([[2, *target] for target in targets]),
        padded([[*target, 1] for target in targets]),
    )


def gradients(model: Transformer, batch: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
    model.zero_grad()
    model(*batch).loss_sum.backward()
    return [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("size", SIZES)
def test_the_number_of_parameters_is_known_before_the_model_is_built(size: str, norm: str) -> None:
    shape = named_shape(size, 1001, norm=norm)
    with torch.device("meta"):
        model = Transformer(shape)
    assert sum(weight.numel() for weight in model.parameters()) == count_parameters(shape)


def test_base_weighs_what_openseq2seq_printed_for_it() -> None:
    shape = named_shape("base", 32_768)
    assert count_parameters(shape) == 60_880_896
    assert round(gradient_bytes(shape) / 1e6) == 244
    assert round(state_bytes(shape) / 1e6) == 731


def test_the_vocabulary_is_padded_to_a_multiple_of_eight() -> None:
    assert Transformer(small_shape()).embedding.weight.shape == (40, 16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 3}, "3 heads"),
        ({"norm": "middle"}, "middle"),
        ({"eos_id": 99}, "eos_id"),
        ({"relu_dropout": 1.0}, "relu_dropout"),
    ],
)
def test_an_impossible_shape_is_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        small_shape(**changes)


def test_an_unknown_size_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="tiny, small, base, big"):
        named_shape("huge", 100)


def reference_loss(model: Transformer, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """The same weights in torch's own layers, fed with padding and masks."""
    source, target_in, target_out = batch
    shape = model.shape
    is_pre = shape.norm == "pre"
    reference = torch.nn.Transformer(
        shape.width,
        shape.num_heads,
        shape.num_encoder_layers,
        shape.num_decoder_layers,
        shape.inner_width,
        dropout=0.0,
        batch_first=True,
        norm_first=is_pre,
        bias=True,
    )
    if not is_pre:
        reference.encoder.norm = reference.decoder.norm = None
    reference.load_state_dict(as_torch_names(model), strict=False)
    positions = [torch.arange(ids.numel()) % ids.shape[1] for ids in (source, target_in)]
    embedded = [
        model.embed(ids.flatten(), places, ids.shape[1]).view(*ids.shape, -1)
        for ids, places in zip((source, target_in), positions, strict=True)
    ]
    mask = torch.nn.Transformer.generate_square_subsequent_mask(target_in.shape[1])
    hidden = reference(
        *embedded,
        tgt_mask=mask < 0,
        src_key_padding_mask=source == 0,
        tgt_key_padding_mask=target_out == 0,
        memory_key_padding_mask=source == 0,
    )
    logits = F.linear(hidden, model.embedding.weight)
    return F.cross_entropy(
        logits.flatten(0, 1),
        target_out.flatten(),
        ignore_index=0,
        reduction="sum",
        label_smoothing=shape.label_smoothing,
    )


def as_torch_names(model: Transformer) -> dict[str, Tensor]:
    """torch.nn.Transformer's names; its attention biases, which ours lacks, become zero."""
    names: dict[str, Tensor] = {}
    for side, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(layers):
            prefix = f"{side}.layers.{number}."
            weights = dict(layer.named_parameters())
            names[prefix + "self_attn.in_proj_weight"] = weights["attention.projection.weight"]
            names[prefix + "self_attn.out_proj.weight"] = weights["attention.output.weight"]
            parts = ["around_attention", "around_feed_forward"]
            if side == "decoder":
                parts.insert(1, "around_cross")
                names[prefix + "multihead_attn.in_proj_weight"] = torch.cat(
                    [weights["cross.query.weight"], weights["cross.key_value.weight"]]
                )
                names[prefix + "multihead_attn.out_proj.weight"] = weights["cross.output.weight"]
            for index, part in enumerate(parts, start=1):
                for kind in ("weight", "bias"):
                    names[f"{prefix}norm{index}.{kind}"] = weights[f"{part}.norm.{kind}"]
            for index, part in enumerate(("inner", "outer"), start=1):
                for kind in ("weight", "bias"):
                    names[f"{prefix}linear{index}.{kind}"] = weights[f"feed_forward.{part}.{kind}"]
    for side in ("encoder", "decoder") if model.shape.norm == "pre" else ():
        for kind in ("weight", "bias"):
            names[f"{side}.norm.{kind}"] = model.get_parameter(f"{side}_norm.{kind}")
    return names


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_loss_is_that_of_torchs_own_layers(norm: str) -> None:
    torch.manual_seed(1)
    model = Transformer(small_shape(norm=norm)).eval()
    batch = a_batch()
    with torch.no_grad():
        sums = model(*batch)
        assert sums.num_tokens == (batch[2] != 0).sum()
        torch.testing.assert_close(
            sums.loss_sum, reference_loss(model, batch), rtol=1e-5, atol=1e-4
        )


def test_padding_changes_nothing() -> None:
    torch.manual_seed(1)
    model = Transformer(small_shape(**NO_DROPOUT))
    batch = a_batch()
    wider = tuple(F.pad(side, (0, 3)) for side in batch)
    for first, second in zip(gradients(model, batch), gradients(model, wider), strict=True):  # type: ignore[arg-type]
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


def test_sums_of_parts_of_a_batch_add_up_to_the_batch() -> None:
    torch.manual_seed(1)
    model = Transformer(small_shape()).eval()
    batch = a_batch()
    with torch.no_grad():
        whole = model(*batch)
        parts = [model(*(side[rows] for side in batch)) for rows in ([0, 2], [1], [3])]
    assert whole.num_tokens == sum(part.num_tokens for part in parts)
    torch.testing.assert_close(whole.loss_sum, torch.stack([part.loss_sum for part in parts]).sum())
    torch.testing.assert_close(whole.nll_sum, torch.stack([part.nll_sum for part in parts]).sum())


def test_a_token_does_not_see_what_follows_it() -> None:
    torch.manual_seed(1)
    model = Transformer(small_shape()).eval()
    source, target_in, target_out = a_batch(lengths=(6,))
    with torch.no_grad():
        whole = model(source, target_in, target_out).nll_sum
        pieces = [
            model(source, target_in[:, :end], target_out[:, :end]).nll_sum
            for end in range(1, target_in.shape[1] + 1)
        ]
        changed = target_in.clone()
        changed[0, -1] = 5
        before_change = model(source, changed[:, :-1], target_out[:, :-1]).nll_sum
    torch.testing.assert_close(pieces[-1], whole)
    torch.testing.assert_close(pieces[-2], before_change)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("is_causal", [False, True])
def test_the_fast_attention_is_the_plain_one_with_its_gradients(is_causal: bool) -> None:
    torch.manual_seed(2)
    source, _, target = a_batch()
    keys, queries = Packing.of(source != 0), Packing.of(target != 0)
    if is_causal:
        keys = queries
    plan = AttentionPlan(queries, keys, num_heads=2, is_causal=is_causal)
    inputs = [torch.randn(len(queries.places), 192 if is_causal else 64, requires_grad=True)]
    if not is_causal:
        inputs.append(torch.randn(len(keys.places), 128, requires_grad=True))
    other = None if is_causal else inputs[1]
    fast, plain = (
        attend(inputs[0], other, plan, 0.0),
        attend_plainly(inputs[0], other, plan, 0.0),
    )
    torch.testing.assert_close(fast, plain)
    weight = torch.randn_like(fast)
    for one, two in zip(
        torch.autograd.grad(fast, inputs, weight),
        torch.autograd.grad(plain, inputs, weight),
        strict=True,
    ):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_of_other_devices_is_the_plain_one_with_its_gradients(is_causal: bool) -> None:
    torch.manual_seed(2)
    source, _, target = a_batch()
    queries = Packing.of(target != 0)
    keys = queries if is_causal else Packing.of(source != 0)
    plan = AttentionPlan(queries, keys, num_heads=2, is_causal=is_causal)
    inputs = [torch.randn(queries.num_tokens, 192 if is_causal else 64, requires_grad=True)]
    if not is_causal:
        inputs.append(torch.randn(keys.num_tokens, 128, requires_grad=True))
    other = None if is_causal else inputs[1]
    weight = torch.randn(queries.num_tokens, 64)
    found = []
    for way in (attend_on_device, attend_plainly):
        context = way(inputs[0], other, plan, 0.0)
        found.append([context, *torch.autograd.grad(context, inputs, weight)])
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize(("error", "is_right"), [(0.0, True), (0.5, False)])
def test_a_kernel_without_a_public_name_is_compared_with_the_padded_way(
    error: float, is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the trial that CUDA's kernel goes through, with a stand-in for the kernel."""

    def stand_in(heads: Heads, plan: AttentionPlan, rate: float) -> Tensor:
        return attend_padded(heads, plan, rate) * (1 + error)

    monkeypatch.setattr("paceline.models.device_attention.attend_by_starts", stand_in)
    found = try_by_starts(torch.device("cpu"), torch.float32, head_width=16)
    assert (found < TOLERANCE[torch.float32]) == is_right


@pytest.mark.usefixtures("both_ways")
def test_attention_with_dropout_has_the_gradient_of_what_it_computed() -> None:
    torch.manual_seed(3)
    keys = Packing.of(a_batch()[0] != 0)
    plan = AttentionPlan(keys, keys, num_heads=2)
    values = torch.randn(len(keys.places), 192, requires_grad=True)
    direction, weight = torch.randn_like(values), torch.randn(len(keys.places), 64)

    def output(shift: float) -> Tensor:
        torch.manual_seed(4)
        return (attend(values + shift * direction, None, plan, 0.3) * weight).sum()

    (gradient,) = torch.autograd.grad(output(0.0), values)
    with torch.no_grad():
        slope = (output(1e-2) - output(-1e-2)) / 2e-2
    torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-2, atol=1e-3)


@pytest.mark.skipif(build.library("tokens") is None, reason="no C compiler here")
def test_the_number_of_threads_changes_no_bit_of_attention() -> None:
    torch.manual_seed(11)
    keys = Packing.of(a_batch()[0] != 0)
    values = torch.randn(len(keys.places), 192, requires_grad=True)
    weight, before, results = torch.randn(len(keys.places), 64), torch.get_num_threads(), []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        torch.manual_seed(4)
        found = attend(values, None, AttentionPlan(keys, keys, num_heads=2), 0.3)
        results.append([found, *torch.autograd.grad(found, values, weight)])
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


@pytest.mark.usefixtures("both_ways")
def test_a_spoilt_value_spoils_the_loss() -> None:
    layer, hidden = torch.nn.Linear(16, 16), torch.randn(5, 16)
    hidden[3] = float("nan")
    assert bool(linear_relu_dropout(hidden, layer, 0.1)[3].isnan().any())
    assert smoothed_loss(hidden, torch.randn(40, 16), torch.randint(40, (5,)), 0.1)[0].isnan()
    model = Transformer(small_shape(width=64))
    with torch.no_grad():
        model.get_parameter("encoder.0.attention.projection.weight")[:, :1] = float("nan")
        assert model(*a_batch()).loss_sum.isnan()


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_chunked_loss_is_the_plain_one_with_its_gradients(
    smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.models.loss.CHUNK_BYTES", 0)
    monkeypatch.setattr("paceline.models.loss.MIN_CHUNK_TOKENS", 7)
    torch.manual_seed(5)
    hidden = torch.randn(23, 8, requires_grad=True)
    weight = torch.randn(40, 8, requires_grad=True)
    targets = torch.randint(40, (23,))
    results = []
    for function in (smoothed_loss, smoothed_loss_plainly):
        sums: LossSums = function(hidden, weight, targets, smoothing)
        results.append((sums, torch.autograd.grad(sums.loss_sum / 3, (hidden, weight))))
    (fast, fast_gradients), (plain, plain_gradients) = results
    torch.testing.assert_close(fast, plain)
    torch.testing.assert_close(fast_gradients, plain_gradients)


@pytest.mark.parametrize("chunk_tokens", [7, 100])
def test_the_loss_of_other_devices_is_the_plain_one_with_its_gradients(
    chunk_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.models.loss.DEVICE_CHUNK_BYTES", 0)
    monkeypatch.setattr("paceline.models.loss.MIN_CHUNK_TOKENS", chunk_tokens)
    torch.manual_seed(5)
    hidden = torch.randn(23, 8, requires_grad=True)
    weight = torch.randn(40, 8, requires_grad=True)
    targets = torch.randint(40, (23,))
    results = []
    for function in (smoothed_loss_on_device, smoothed_loss_plainly):
        loss = function(hidden, weight, targets, 0.1).loss_sum
        results.append((loss, *torch.autograd.grad(loss / 3, (hidden, weight))))
    torch.testing.assert_close(results[0], results[1])
    with torch.no_grad():
        scored = smoothed_loss_on_device(hidden, weight, targets, 0.1)
        torch.testing.assert_close(scored, smoothed_loss_plainly(hidden, weight, targets, 0.1))


def test_packing_from_lengths_is_packing_from_a_padded_batch() -> None:
    source, target_in, target_out = a_batch()
    padded_pairs = pack_padded(source, target_in, target_out, 0)
    rows = [[row[: int((row != 0).sum())].numpy() for row in s] for s in (source, target_out)]
    before = [row[: len(other)].numpy() for row, other in zip(target_in, rows[1], strict=True)]
    pairs = pack_pairs(rows[0], before, rows[1])
    for name in ("ids", "positions", "labels"):
        assert torch.equal(getattr(pairs, name), getattr(padded_pairs, name)), name
    for one, other in (
        (pairs.sources, padded_pairs.sources),
        (pairs.targets, padded_pairs.targets),
    ):
        assert (one.num_sentences, one.length) == (other.num_sentences, other.length)
        assert torch.equal(one.places, other.places) and torch.equal(one.starts, other.starts)
    assert torch.equal(pairs.sources.is_real, source != 0)


def test_other_devices_and_types_get_the_same_gradients_by_the_plain_path() -> None:
    torch.manual_seed(12)
    model = Transformer(small_shape(**NO_DROPOUT))
    fast = gradients(model, a_batch())
    plain = gradients(model.double(), a_batch())
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


def test_the_plain_path_drops_too() -> None:
    model = Transformer(small_shape()).double()
    with torch.no_grad():
        losses = [model(*a_batch()).loss_sum.item() for _ in range(2)]
    assert losses[0] != losses[1]


def test_taking_the_loss_backward_twice_is_refused_rather_than_wrong() -> None:
    model = Transformer(small_shape())
    loss = model(*a_batch()).loss_sum
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="already taken backward"):
        loss.backward()


def functions_of_dropout(rate: float) -> dict[str, Tensor]:
    ones = torch.ones(500, 399)
    layer = torch.nn.Linear(399, 399)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.fill_(1.0)
    return {
        "linear_relu_dropout": linear_relu_dropout(ones, layer, rate).detach(),
        "dropout": dropout(ones.clone(), rate),
        "add_dropout": add_dropout(torch.zeros_like(ones), ones.clone(), rate),
        "relu_dropout": relu_dropout(ones.clone(), rate),
    }


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
@pytest.mark.usefixtures("both_ways")
def test_dropout_drops_its_share_and_keeps_the_mean(rate: float) -> None:
    torch.manual_seed(6)
    totals: dict[str, list[float]] = {}
    for _ in range(40):
        for name, values in functions_of_dropout(rate).items():
            assert set(torch.unique(values).tolist()) == {0.0, values.max().item()}
            assert values.max().item() == pytest.approx(1 / (1 - rate))
            totals.setdefault(name, []).append((values == 0).double().mean().item())
    for shares in totals.values():  # the threshold moves by 1/256 from mask to mask
        assert sum(shares) / len(shares) == pytest.approx(rate, abs=1.5e-3)
        assert all(share == pytest.approx(rate, abs=6e-3) for share in shares)


@pytest.mark.usefixtures("both_ways")
def test_masks_show_no_pattern_along_rows_columns_or_between_calls() -> None:
    torch.manual_seed(7)
    first, second = (dropout(torch.ones(2000, 512), 0.5) - 1 for _ in range(2))
    pairs = [(first, second), (first[1:], first[:-1]), (first[:, 8:], first[:, :-8])]
    pairs.append((first[:, 1:], first[:, :-1]))
    for one, other in pairs:
        assert abs((one * other).mean().item()) < 5e-3


@pytest.mark.usefixtures("both_ways")
def test_dropout_passes_gradients_where_it_passed_values() -> None:
    torch.manual_seed(8)
    values = torch.randn(64, 65, requires_grad=True)
    for function in (dropout, relu_dropout):
        output = function(values.clone(), 0.4)
        (gradient,) = torch.autograd.grad(output.sum(), values)
        torch.testing.assert_close(gradient * values.detach(), output.detach())
    check_gradients_of_the_layer()
    base = torch.randn(64, 65, requires_grad=True)
    output = add_dropout(base, values.clone(), 0.4)
    to_base, to_values = torch.autograd.grad(output.sum(), (base, values))
    assert torch.equal(to_base, torch.ones_like(base))
    torch.testing.assert_close(base + to_values * values.detach(), output)


def check_gradients_of_the_layer() -> None:
    layer = torch.nn.Linear(65, 48)
    inputs = torch.randn(200, 65, requires_grad=True)
    output = linear_relu_dropout(inputs, layer, 0.4)
    g = torch.randn_like(output)
    found = torch.autograd.grad(output, [inputs, layer.weight, layer.bias], g)
    passed = g * (output > 0) / (1 - 0.4)
    wanted = [passed @ layer.weight, passed.T @ inputs, passed.sum(0)]
    kept = output[output > 0]
    torch.testing.assert_close(kept, (layer(inputs) / (1 - 0.4))[output > 0])
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("both_ways")
def test_the_same_generator_state_gives_the_same_bits() -> None:
    torch.manual_seed(9)
    model = Transformer(small_shape())
    state = torch.get_rng_state()
    first = gradients(model, a_batch())
    second = gradients(model, a_batch())
    torch.set_rng_state(state)
    again = gradients(model, a_batch())
    assert all(map(torch.equal, first, again))
    assert not all(map(torch.equal, first, second))


def test_a_model_learns_to_copy() -> None:
    torch.manual_seed(10)
    model = Transformer(small_shape(width=32, inner_width=64, residual_dropout=0.0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(300):
        source = torch.randint(
            4, VOCAB_SIZE, (32, 6), generator=torch.Generator().manual_seed(step)
        )
        ends = torch.ones(32, 1, dtype=torch.long)
        sums = model(source, torch.cat([2 * ends, source], 1), torch.cat([source, ends], 1))
        optimizer.zero_grad()
        (sums.loss_sum / sums.num_tokens).backward()
        optimizer.step()
    assert sums.nll_sum.item() / sums.num_tokens < 0.3


def test_two_processes_with_ddp_get_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    spawn(_ddp_worker, args=(str(tmp_path / "store"),), nprocs=2)  # type: ignore[no-untyped-call]


def _ddp_worker(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(11)
    model = Transformer(small_shape(**NO_DROPOUT))
    batch = a_batch()
    expected = gradients(model, batch)
    model.zero_grad()
    wrapped = DistributedDataParallel(model)
    (wrapped(*(side[rank::2] for side in batch)).loss_sum * 2).backward()
    for weight, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(weight.grad, gradient, rtol=1e-4, atol=1e-5)
    dist.destroy_process_group()


def test_sizes_are_known_without_torch() -> None:
    code = "import sys, paceline.models.shapes; sys.exit('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False).returncode
        == 0
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_sentence_of_padding_alone_gives_numbers_in_every_precision(dtype: torch.dtype) -> None:
    mask = mask_as(dtype, torch.full((1, 8), MASKED_SCORE))
    assert mask.dtype is dtype and bool(mask.isfinite().all())
    assert bool(torch.softmax(mask.float(), 1).isfinite().all())
