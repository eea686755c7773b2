"""Attention over packed tokens on a device, by torch's fused kernels.

On CUDA a kernel is told where sentences begin and goes over the packed tokens: no padding and no
mask, on every card from the oldest that torch supports. It is the one that torch itself uses for
nested tensors, and has no public name; so it is tried once, against the way below, and left alone
where it is missing or differs. Nobody has timed it on a device yet.

Otherwise tokens are copied into padded blocks for `F.scaled_dot_product_attention`. A causal mask
hides the padding too and is not made as a tensor; nor is any mask where nothing is padded.
"""

from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.models.packing import AttentionPlan, Packing

Heads = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values, (tokens, heads, head width)."""
TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def attend_on_device(
    projected: Tensor, key_value: Tensor | None, plan: AttentionPlan, dropout_rate: float
) -> Tensor:
    """What each query finds, (tokens, width)."""
    heads = split_heads(projected, key_value, plan.num_heads)
    query = heads[0]
    if why_not_by_starts(query.device, query.dtype, query.shape[2]) is None:
        return attend_by_starts(heads, plan, dropout_rate).flatten(1)
    return attend_padded(heads, plan, dropout_rate).flatten(1)


def split_heads(projected: Tensor, key_value: Tensor | None, num_heads: int) -> Heads:
    if key_value is None:
        query, key, value = projected.view(len(projected), 3, num_heads, -1).unbind(1)
        return query, key, value
    key, value = key_value.view(len(key_value), 2, num_heads, -1).unbind(1)
    return projected.view(len(projected), num_heads, -1), key, value


def attend_by_starts(heads: Heads, plan: AttentionPlan, dropout_rate: float) -> Tensor:
    query, key, value = (part.unsqueeze(0) for part in heads)
    query_starts, key_starts = plan.small_starts
    found: Tensor = torch.ops.aten._efficient_attention_forward(
        query,
        key,
        value,
        None,
        query_starts,
        key_starts,
        plan.queries.length,
        plan.keys.length,
        dropout_rate,
        1 if plan.is_causal else 0,
        torch.is_grad_enabled(),  # keep what backward needs
    )[0]
    return found.squeeze(0)


def attend_padded(heads: Heads, plan: AttentionPlan, dropout_rate: float) -> Tensor:
    query = _padded(heads[0], plan.queries)
    key, value = (_padded(part, plan.keys) for part in heads[1:])
    needs_mask = not (plan.is_causal or plan.keys.is_full)
    found = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=plan.keys.is_real[:, None, None] if needs_mask else None,
        dropout_p=dropout_rate,
        is_causal=plan.is_causal,
    )
    return found.transpose(1, 2).flatten(0, 1).index_select(0, plan.queries.places)


def _padded(tokens: Tensor, packing: Packing) -> Tensor:
    """(sentences, heads, length, head width). Copied to their places rather than gathered from
    them: the backward of a gather would add the gradients of all padding to one token."""
    blank = tokens.new_zeros(packing.num_sentences * packing.length, *tokens.shape[1:])
    full = blank.index_copy(0, packing.places, tokens)
    return full.view(packing.num_sentences, packing.length, *tokens.shape[1:]).transpose(1, 2)


def why_not_by_starts(device: torch.device, dtype: torch.dtype, head_width: int) -> str | None:
    """None where the kernel is there and right."""
    return _found_out(device, dtype, head_width)


# A constant for `torch.compile`, which cannot look into a trial.
why_not_by_starts._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _found_out(device: torch.device, dtype: torch.dtype, head_width: int) -> str | None:
    if device.type == "meta":
        return None  # nothing can be compared there, and CUDA's way is to be taken
    if device.type != "cuda":
        return f"made for CUDA, not for {device.type}"
    try:
        error = try_by_starts(device, dtype, head_width)
    except (RuntimeError, NotImplementedError, TypeError, AttributeError) as problem:
        return f"it does not run here: {str(problem).splitlines()[0]}"
    if error <= TOLERANCE.get(dtype, 0.0):
        return None
    return f"its results are off by {error:.2g}"


def try_by_starts(device: torch.device, dtype: torch.dtype, head_width: int) -> float:
    """The largest difference between both ways, of results and gradients."""
    queries, keys = (
        Packing.of_lengths(np.array(lengths)).to(device) for lengths in ((3, 1, 7), (5, 9, 2))
    )
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cuda", enabled=False):
        return max(
            _difference(AttentionPlan(queries, keys, num_heads=2), dtype, head_width),
            _difference(AttentionPlan(queries, queries, 2, is_causal=True), dtype, head_width),
        )


def _difference(plan: AttentionPlan, dtype: torch.dtype, head_width: int) -> float:
    """With queries, keys and values side by side in memory, as projections give them."""
    generator, device = torch.Generator().manual_seed(0), plan.queries.places.device
    width, has_own_keys = plan.num_heads * head_width, plan.queries is not plan.keys
    shapes = [(plan.queries.num_tokens, width if has_own_keys else 3 * width)]
    if has_own_keys:
        shapes.append((plan.keys.num_tokens, 2 * width))
    inputs, weight = (
        [torch.randn(shape, generator=generator).to(device, dtype) for shape in some]
        for some in (shapes, [(plan.queries.num_tokens, plan.num_heads, head_width)])
    )
    ways = []
    for attend in (attend_by_starts, attend_padded):
        given = [part.detach().requires_grad_() for part in inputs]
        heads = split_heads(given[0], given[1] if has_own_keys else None, plan.num_heads)
        found = attend(heads, plan, 0.0)
        ways.append([found, *torch.autograd.grad(found, given, weight[0])])
    differences = [(one - other).detach().abs().max() for one, other in zip(*ways, strict=True)]
    return float(torch.stack(differences).max())
