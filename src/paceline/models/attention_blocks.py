"""Attention by torch's own operations: heads of tokens are gathered into padded blocks.

`attend_by_blocks` is for CPUs without a compiler, `attend_plainly` for other devices and types, and
for tests. The copy would be needed to bring heads together anyway, so packing is free.
"""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.models.dropout import draw
from paceline.models.packing import AttentionPlan, Packing

# torch's CPU softmax is 10 times slower when a row is shorter than one AVX-512 register, and up to
# twice slower when its length is no multiple of one, so keys are padded further.
KEY_MULTIPLE = 16
# Finite, so that a sentence without any token gives numbers and not NaN.
MASKED_SCORE = -1e9


@dataclass(frozen=True)
class Blocks:
    """Indices and mask for one kind of attention in one batch.

    Rows are single heads of single tokens. `*_rows` gather them from packed tensors into
    (sentence, head, position) blocks; `*_back` gather them back.
    """

    num_heads: int
    query_length: int
    num_blocks: int
    mask: Tensor
    query_rows: Tensor
    key_value_rows: Tensor
    context_rows: Tensor
    padded_context_rows: Tensor
    context_back: Tensor
    gradient_backs: tuple[Tensor, ...]


_known: WeakKeyDictionary[AttentionPlan, Blocks] = WeakKeyDictionary()


def blocks_of(plan: AttentionPlan) -> Blocks:
    """Made once for a plan, because all layers want the same."""
    if plan not in _known:
        _known[plan] = _make_blocks(plan)
    return _known[plan]


def _make_blocks(plan: AttentionPlan) -> Blocks:
    queries, keys, num_heads = plan.queries, plan.keys, plan.num_heads
    num_before, num_parts = (1, 3) if queries is keys else (0, 2)
    key_length = _key_length(keys)
    num_blocks = keys.num_sentences * num_heads
    key_numbers = F.pad(keys.numbers, (0, key_length - keys.length))
    key_rows = _head_rows(key_numbers, num_heads, num_parts) + num_before * num_heads
    query_back = _block_rows(queries, num_heads, queries.length)
    key_back = _block_rows(keys, num_heads, key_length) + num_blocks * queries.length
    backs = [query_back, key_back, key_back + len(key_rows)]
    return Blocks(
        num_heads=num_heads,
        query_length=queries.length,
        num_blocks=num_blocks,
        mask=_score_mask(queries, keys, num_heads, plan.is_causal),
        query_rows=_head_rows(queries.numbers, num_heads, num_before * num_parts or 1),
        key_value_rows=torch.cat([key_rows, key_rows + num_heads]),
        context_rows=_head_rows(queries.numbers, num_heads, 1),
        padded_context_rows=_padded_rows(queries, num_heads),
        context_back=query_back.flatten(),
        gradient_backs=_side_by_side(backs) if num_before else _side_by_side(backs[:1], backs[1:]),
    )


def _side_by_side(*groups: list[Tensor]) -> tuple[Tensor, ...]:
    return tuple(torch.cat(group, dim=1).flatten() for group in groups)


def _key_length(keys: Packing) -> int:
    return -(-keys.length // KEY_MULTIPLE) * KEY_MULTIPLE


def _head_rows(numbers: Tensor, num_heads: int, num_parts: int) -> Tensor:
    """Row numbers, in (sentence, head, position) order, of the first part of each token's heads."""
    heads = torch.arange(num_heads, device=numbers.device).view(1, -1, 1)
    return (numbers.unsqueeze(1) * (num_parts * num_heads) + heads).flatten()


def _block_rows(packing: Packing, num_heads: int, length: int) -> Tensor:
    """(tokens, heads): where a (sentence, head, position) block holds each packed token's heads."""
    sentences = packing.places // packing.length
    heads = torch.arange(num_heads, device=sentences.device)
    blocks = sentences.unsqueeze(1) * num_heads + heads
    return blocks * length + packing.positions.unsqueeze(1)


def _padded_rows(packing: Packing, num_heads: int) -> Tensor:
    """Rows of a (sentence, head, position) block that hold no token."""
    is_padded = ~packing.is_real.unsqueeze(1).expand(-1, num_heads, -1)
    return is_padded.flatten().nonzero().squeeze(1)


def _score_mask(queries: Packing, keys: Packing, num_heads: int, is_causal: bool) -> Tensor:
    """What is added to the scores: broadcasts to (sentences * heads, queries, keys)."""
    key_length, device = _key_length(keys), keys.is_real.device
    if is_causal:  # padding comes after every real query, so the triangle hides it too
        hidden = torch.full((queries.length, key_length), MASKED_SCORE, device=device)
        return hidden.triu_(1).unsqueeze(0)
    is_hidden = ~F.pad(keys.is_real, (0, key_length - keys.length))
    mask = torch.zeros(is_hidden.shape, device=device).masked_fill_(is_hidden, MASKED_SCORE)
    return mask.repeat_interleave(num_heads, dim=0).unsqueeze(1)


def attend_by_blocks(
    projected: Tensor, key_value: Tensor | None, blocks: Blocks, dropout_rate: float
) -> Tensor:
    return _Attend.apply(projected, key_value, blocks, dropout_rate)  # type: ignore[no-any-return, no-untyped-call]


def attend_plainly(
    projected: Tensor, key_value: Tensor | None, blocks: Blocks, dropout_rate: float
) -> Tensor:
    """The same in terms of torch's own attention: for other devices and types, and for tests."""
    parts = _gather(projected, key_value, blocks)
    num_groups = blocks.num_heads if len(blocks.mask) > 1 else 1
    query, key, value = (part.view(-1, blocks.num_heads, *part.shape[1:]) for part in parts)
    mask = blocks.mask.to(query.dtype).view(-1, num_groups, *blocks.mask.shape[1:])
    context = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout_rate
    )
    return _back_to_tokens(context.flatten(0, 2), blocks)


def _gather(
    projected: Tensor, key_value: Tensor | None, blocks: Blocks
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as (sentences * heads, positions, head width)."""
    head_width = projected.shape[1] // (blocks.num_heads * (3 if key_value is None else 1))
    rows = projected.view(-1, head_width)
    other_rows = rows if key_value is None else key_value.view(-1, head_width)
    query = rows.index_select(0, blocks.query_rows).view(blocks.num_blocks, -1, head_width)
    both = other_rows.index_select(0, blocks.key_value_rows)
    key, value = both.view(2, blocks.num_blocks, -1, head_width).unbind(0)
    return query, key, value


def _back_to_tokens(rows: Tensor, blocks: Blocks) -> Tensor:
    return rows.index_select(0, blocks.context_back).view(-1, blocks.num_heads * rows.shape[1])


class _Attend(torch.autograd.Function):
    """By hand, because torch's fused CPU kernel knows no dropout and its unfused path copies and
    masks so much that it takes three times as long at the length of sentences."""

    @staticmethod
    def forward(
        ctx: Any, projected: Tensor, key_value: Tensor | None, blocks: Blocks, rate: float
    ) -> Tensor:
        query, key, value = _gather(projected, key_value, blocks)
        ctx.blocks, ctx.drawn, ctx.scale = blocks, None, query.shape[2] ** -0.5
        scores = torch.baddbmm(blocks.mask, query, key.transpose(1, 2), alpha=ctx.scale)
        weights = torch.softmax(scores, dim=-1, out=scores)
        dropped = weights
        if rate:
            ctx.drawn = draw(weights, rate)
            dropped = ctx.drawn.apply(weights)
        ctx.save_for_backward(query, key, value, weights, dropped)
        return _back_to_tokens(torch.bmm(dropped, value).flatten(0, 1), blocks)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        query, key, value, weights, dropped = ctx.saved_tensors
        to_context = _spread(gradients[0], ctx.blocks, query.shape[2])
        flat = query.new_empty(query.numel() + 2 * key.numel()).view(-1, query.shape[2])
        num_query_rows = ctx.blocks.num_blocks * ctx.blocks.query_length
        to_key, to_value = flat[num_query_rows:].view(2, *key.shape).unbind(0)
        torch.bmm(dropped.transpose(1, 2), to_context, out=to_value)
        to_weights = torch.bmm(to_context, value.transpose(1, 2))
        if ctx.drawn is not None:
            ctx.drawn.apply_(to_weights)
        to_scores = torch.ops.aten._softmax_backward_data(to_weights, weights, -1, weights.dtype)
        to_scores.mul_(ctx.scale)
        torch.bmm(to_scores, key, out=flat[:num_query_rows].view_as(query))
        torch.bmm(to_scores.transpose(1, 2), query, out=to_key)
        return _to_inputs(flat, ctx.blocks)


def _spread(gradient: Tensor, blocks: Blocks, head_width: int) -> Tensor:
    """Packed gradients into (sentence, head, position) blocks; padded queries get none."""
    rows = gradient.reshape(-1, head_width).index_select(0, blocks.context_rows)
    rows.index_fill_(0, blocks.padded_context_rows, 0.0)
    return rows.view(blocks.num_blocks, -1, head_width)


def _to_inputs(flat: Tensor, blocks: Blocks) -> tuple[Tensor, Tensor | None, None, None]:
    """Gradients in the layout of the projections: side by side, tokens packed."""
    width = blocks.num_heads * flat.shape[1]
    first = flat.index_select(0, blocks.gradient_backs[0])
    if len(blocks.gradient_backs) == 1:
        return first.view(-1, 3 * width), None, None, None
    second = flat.index_select(0, blocks.gradient_backs[1])
    return first.view(-1, width), second.view(-1, 2 * width), None, None
