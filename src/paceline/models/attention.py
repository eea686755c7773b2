"""Multi-head attention for batches whose tokens are packed without padding.

Everything that works on single tokens (projections, feed-forward, norms) sees one long row of real
tokens. Attention alone needs sentences: it gathers heads of tokens into padded blocks by an index
and gathers the result back. The same copy would be needed to bring heads together anyway, so
packing is free, and padding costs only attention.

Here live the indices (`Packing`, `AttentionPlan`) and the attention itself. No parameters.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.models.dropout import draw_mask

# torch's CPU softmax is 10 times slower when a row is shorter than one AVX-512 register, and up to
# twice slower when its length is no multiple of one, so keys are padded further.
KEY_MULTIPLE = 16
# Finite, so that a sentence without any token gives numbers and not NaN.
MASKED_SCORE = -1e9


@dataclass(frozen=True)
class Packing:
    """Which places of a padded (sentences, length) batch hold real tokens."""

    is_real: Tensor

    @property
    def num_sentences(self) -> int:
        return self.is_real.shape[0]

    @property
    def length(self) -> int:
        return self.is_real.shape[1]

    @cached_property
    def places(self) -> Tensor:
        """Of each packed token, its place in the flattened padded batch."""
        return self.is_real.flatten().nonzero().squeeze(1)

    @cached_property
    def positions(self) -> Tensor:
        """Of each packed token, its position in its sentence."""
        return self.places % self.length

    @cached_property
    def numbers(self) -> Tensor:
        """Of each place, the number of its packed token; padding points at token 0."""
        numbers = self.is_real.flatten().cumsum(0) - 1
        return numbers.mul_(self.is_real.flatten()).view_as(self.is_real)

    def pack(self, padded: Tensor) -> Tensor:
        return padded.flatten(0, 1).index_select(0, self.places)


@dataclass(frozen=True)
class AttentionPlan:
    """Indices and mask for one kind of attention in one batch; all layers share it.

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


def plan_attention(
    queries: Packing, keys: Packing, num_heads: int, is_causal: bool = False
) -> AttentionPlan:
    """Plan for queries of one packing that look at keys of another (or the same)."""
    num_before, num_parts = (1, 3) if queries is keys else (0, 2)
    key_length = _key_length(keys)
    num_blocks = keys.num_sentences * num_heads
    key_numbers = F.pad(keys.numbers, (0, key_length - keys.length))
    key_rows = _head_rows(key_numbers, num_heads, num_parts) + num_before * num_heads
    query_back = _block_rows(queries, num_heads, queries.length)
    key_back = _block_rows(keys, num_heads, key_length) + num_blocks * queries.length
    backs = [query_back, key_back, key_back + len(key_rows)]
    return AttentionPlan(
        num_heads=num_heads,
        query_length=queries.length,
        num_blocks=num_blocks,
        mask=_score_mask(queries, keys, num_heads, is_causal),
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


def attend(
    projected: Tensor, key_value: Tensor | None, plan: AttentionPlan, dropout_rate: float
) -> Tensor:
    """Attention over packed tokens, (tokens, width).

    `projected` holds queries, or queries, keys and values side by side when `key_value` is None.
    """
    if projected.device.type == "cpu" and projected.dtype == torch.float32:
        return _Attend.apply(projected, key_value, plan, dropout_rate)  # type: ignore[no-any-return, no-untyped-call]
    return attend_plainly(projected, key_value, plan, dropout_rate)


def attend_plainly(
    projected: Tensor, key_value: Tensor | None, plan: AttentionPlan, dropout_rate: float
) -> Tensor:
    """The same in terms of torch's own attention: for other devices and types, and for tests."""
    parts = _gather(projected, key_value, plan)
    num_groups = plan.num_heads if len(plan.mask) > 1 else 1
    query, key, value = (part.view(-1, plan.num_heads, *part.shape[1:]) for part in parts)
    mask = plan.mask.to(query.dtype).view(-1, num_groups, *plan.mask.shape[1:])
    context = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout_rate
    )
    return _back_to_tokens(context.flatten(0, 2), plan)


def _gather(
    projected: Tensor, key_value: Tensor | None, plan: AttentionPlan
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as (sentences * heads, positions, head width)."""
    head_width = projected.shape[1] // (plan.num_heads * (3 if key_value is None else 1))
    rows = projected.view(-1, head_width)
    other_rows = rows if key_value is None else key_value.view(-1, head_width)
    query = rows.index_select(0, plan.query_rows).view(plan.num_blocks, -1, head_width)
    both = other_rows.index_select(0, plan.key_value_rows)
    key, value = both.view(2, plan.num_blocks, -1, head_width).unbind(0)
    return query, key, value


def _back_to_tokens(rows: Tensor, plan: AttentionPlan) -> Tensor:
    return rows.index_select(0, plan.context_back).view(-1, plan.num_heads * rows.shape[1])


class _Attend(torch.autograd.Function):
    """By hand, because torch's fused CPU kernel knows no dropout and its unfused path copies and
    masks so much that it takes three times as long at the length of sentences."""

    @staticmethod
    def forward(
        ctx: Any, projected: Tensor, key_value: Tensor | None, plan: AttentionPlan, rate: float
    ) -> Tensor:
        query, key, value = _gather(projected, key_value, plan)
        ctx.plan, ctx.mask, ctx.scale = plan, None, query.shape[2] ** -0.5
        scores = torch.baddbmm(plan.mask, query, key.transpose(1, 2), alpha=ctx.scale)
        weights = torch.softmax(scores, dim=-1, out=scores)
        dropped = weights
        if rate:
            ctx.mask, ctx.kept_scale = draw_mask(weights, rate), 1 / (1 - rate)
            dropped = ctx.mask.apply_(weights * ctx.kept_scale)
        ctx.save_for_backward(query, key, value, weights, dropped)
        return _back_to_tokens(torch.bmm(dropped, value).flatten(0, 1), plan)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        query, key, value, weights, dropped = ctx.saved_tensors
        to_context = _spread(gradients[0], ctx.plan, query.shape[2])
        flat = query.new_empty(query.numel() + 2 * key.numel()).view(-1, query.shape[2])
        num_query_rows = ctx.plan.num_blocks * ctx.plan.query_length
        to_key, to_value = flat[num_query_rows:].view(2, *key.shape).unbind(0)
        torch.bmm(dropped.transpose(1, 2), to_context, out=to_value)
        to_weights = torch.bmm(to_context, value.transpose(1, 2))
        if ctx.mask is not None:
            ctx.mask.apply_(to_weights.mul_(ctx.kept_scale))
        to_scores = torch.ops.aten._softmax_backward_data(to_weights, weights, -1, weights.dtype)
        to_scores.mul_(ctx.scale)
        torch.bmm(to_scores, key, out=flat[:num_query_rows].view_as(query))
        torch.bmm(to_scores.transpose(1, 2), query, out=to_key)
        return _to_inputs(flat, ctx.plan)


def _spread(gradient: Tensor, plan: AttentionPlan, head_width: int) -> Tensor:
    """Packed gradients into (sentence, head, position) blocks; padded queries get none."""
    rows = gradient.reshape(-1, head_width).index_select(0, plan.context_rows)
    rows.index_fill_(0, plan.padded_context_rows, 0.0)
    return rows.view(plan.num_blocks, -1, head_width)


def _to_inputs(flat: Tensor, plan: AttentionPlan) -> tuple[Tensor, Tensor | None, None, None]:
    """Gradients in the layout of the projections: side by side, tokens packed."""
    width = plan.num_heads * flat.shape[1]
    first = flat.index_select(0, plan.gradient_backs[0])
    if len(plan.gradient_backs) == 1:
        return first.view(-1, 3 * width), None, None, None
    second = flat.index_select(0, plan.gradient_backs[1])
    return first.view(-1, width), second.view(-1, 2 * width), None, None
