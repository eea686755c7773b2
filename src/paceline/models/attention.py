"""Multi-head attention for batches whose tokens are packed without padding.

On a CPU a kernel goes over the packed tokens; without it, heads of tokens are gathered into padded
blocks for torch's own attention, a copy that would be needed to bring heads together anyway. Other
devices have their own way (`device_attention.py`). All give the same up to rounding, but for which
weights dropout drops.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.kernels import attention as kernel
from paceline.models.device_attention import attend_on_device
from paceline.models.packing import AttentionPlan, Packing

# torch's CPU softmax is 10 times slower when a row is shorter than one AVX-512 register, and up to
# twice slower when its length is no multiple of one, so keys are padded further.
KEY_MULTIPLE = 16
# Finite, so that a sentence without any token gives numbers and not NaN.
MASKED_SCORE = -1e9


def attend(
    projected: Tensor, key_value: Tensor | None, plan: AttentionPlan, dropout_rate: float
) -> Tensor:
    """Attention over packed tokens, (tokens, width).

    `projected` holds queries, or queries, keys and values side by side when `key_value` is None.
    """
    if projected.device.type == "cpu":
        lengths = plan.queries.length, plan.keys.length
        extent = kernel.Extent(plan.num_heads, *lengths, plan.is_causal)
        if kernel.can_take(projected, key_value, extent):
            return kernel.attend(projected, key_value, plan.starts, extent, dropout_rate)
        return attend_plainly(projected, key_value, plan, dropout_rate)
    return attend_on_device(projected, key_value, plan, dropout_rate)


def attend_plainly(
    projected: Tensor, key_value: Tensor | None, plan: AttentionPlan, dropout_rate: float
) -> Tensor:
    """The same by torch's own attention."""
    blocks = _blocks_of(plan)
    parts = _gather(projected, key_value, blocks)
    query, key, value = (part.view(-1, blocks.num_heads, *part.shape[1:]) for part in parts)
    context = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask_as(query.dtype, blocks.mask), dropout_p=dropout_rate
    )
    rows = context.flatten(0, 2).index_select(0, blocks.context_back)
    return rows.view(-1, blocks.num_heads * rows.shape[1])


def mask_as(dtype: torch.dtype, mask: Tensor) -> Tensor:
    """In 16 bits the lowest number there is stands for `MASKED_SCORE`, which would be infinite."""
    return mask.clamp(min=max(MASKED_SCORE, torch.finfo(dtype).min)).to(dtype)


@dataclass(frozen=True)
class _Blocks:
    """Indices and mask for one kind of attention in one batch.

    Rows are single heads of single tokens. `query_rows` and `key_value_rows` gather them from
    packed tensors into (sentence, head, position) blocks; `context_back` gathers them back.
    """

    num_heads: int
    num_blocks: int
    mask: Tensor
    query_rows: Tensor
    key_value_rows: Tensor
    context_back: Tensor


_known: WeakKeyDictionary[AttentionPlan, _Blocks] = WeakKeyDictionary()


def _blocks_of(plan: AttentionPlan) -> _Blocks:
    """Made once for a plan, because all layers want the same."""
    if plan not in _known:
        _known[plan] = _make_blocks(plan)
    return _known[plan]


def _make_blocks(plan: AttentionPlan) -> _Blocks:
    queries, keys, num_heads = plan.queries, plan.keys, plan.num_heads
    num_before, num_parts = (1, 3) if queries is keys else (0, 2)
    key_numbers = F.pad(keys.numbers, (0, _key_length(keys) - keys.length))
    key_rows = _head_rows(key_numbers, num_heads, num_parts) + num_before * num_heads
    return _Blocks(
        num_heads=num_heads,
        num_blocks=keys.num_sentences * num_heads,
        mask=_score_mask(queries, keys, plan.is_causal),
        query_rows=_head_rows(queries.numbers, num_heads, num_before * num_parts or 1),
        key_value_rows=torch.cat([key_rows, key_rows + num_heads]),
        context_back=_block_rows(queries, num_heads).flatten(),
    )


def _key_length(keys: Packing) -> int:
    return -(-keys.length // KEY_MULTIPLE) * KEY_MULTIPLE


def _head_rows(numbers: Tensor, num_heads: int, num_parts: int) -> Tensor:
    """Row numbers, in (sentence, head, position) order, of the first part of each token's heads."""
    heads = torch.arange(num_heads, device=numbers.device).view(1, -1, 1)
    return (numbers.unsqueeze(1) * (num_parts * num_heads) + heads).flatten()


def _block_rows(packing: Packing, num_heads: int) -> Tensor:
    """(tokens, heads): where a (sentence, head, position) block holds each packed token's heads."""
    sentences = packing.places // packing.length
    heads = torch.arange(num_heads, device=sentences.device)
    blocks = sentences.unsqueeze(1) * num_heads + heads
    return blocks * packing.length + packing.positions.unsqueeze(1)


def _score_mask(queries: Packing, keys: Packing, is_causal: bool) -> Tensor:
    """What is added to the scores: broadcasts to (sentences, heads, queries, keys)."""
    key_length, device = _key_length(keys), keys.is_real.device
    if is_causal:  # padding comes after every real query, so the triangle hides it too
        hidden = torch.full((queries.length, key_length), MASKED_SCORE, device=device)
        return hidden.triu_(1).view(1, 1, *hidden.shape)
    is_hidden = ~F.pad(keys.is_real, (0, key_length - keys.length))
    mask = torch.zeros(is_hidden.shape, device=device).masked_fill_(is_hidden, MASKED_SCORE)
    return mask[:, None, None]


def _gather(
    projected: Tensor, key_value: Tensor | None, blocks: _Blocks
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as (sentences * heads, positions, head width)."""
    head_width = projected.shape[1] // (blocks.num_heads * (3 if key_value is None else 1))
    rows = projected.view(-1, head_width)
    other_rows = rows if key_value is None else key_value.view(-1, head_width)
    query = rows.index_select(0, blocks.query_rows).view(blocks.num_blocks, -1, head_width)
    both = other_rows.index_select(0, blocks.key_value_rows)
    key, value = both.view(2, blocks.num_blocks, -1, head_width).unbind(0)
    return query, key, value
