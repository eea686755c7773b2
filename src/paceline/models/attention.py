"""Multi-head attention for batches whose tokens are packed without padding.

Which of three ways is taken depends on where the tensors are: a compiled kernel, torch's operations
put together for CPUs, or torch's own attention. All give the same up to rounding.
"""

import torch
from torch import Tensor

from paceline.models import attention_kernel
from paceline.models.attention_blocks import attend_by_blocks, attend_plainly, blocks_of
from paceline.models.packing import AttentionPlan


def attend(
    projected: Tensor, key_value: Tensor | None, plan: AttentionPlan, dropout_rate: float
) -> Tensor:
    """Attention over packed tokens, (tokens, width).

    `projected` holds queries, or queries, keys and values side by side when `key_value` is None.
    """
    if attention_kernel.can_take(projected, key_value, plan):
        return attention_kernel.attend(projected, key_value, plan, dropout_rate)
    if projected.device.type == "cpu" and projected.dtype == torch.float32:
        return attend_by_blocks(projected, key_value, blocks_of(plan), dropout_rate)
    return attend_plainly(projected, key_value, blocks_of(plan), dropout_rate)
