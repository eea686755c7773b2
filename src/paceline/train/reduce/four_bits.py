"""Values in four bits each: one of fifteen levels between the smallest and the largest of a block.

What rounding takes away is not lost where the sender keeps it and sends it with the next values.
"""

from collections.abc import Iterator

import torch
from torch.nn import functional as F

_BLOCK = 128
"""Neighbours that share a scale, which takes another quarter of a bit of each."""
_HALF = _BLOCK // 2
_LARGEST_LEVEL = 7
_ZERO = 8
_BLOCKS_AT_ONCE = 2048
"""A megabyte of values, so that all passes but the first find them in the cache."""
_TINY = torch.finfo(torch.float32).tiny


def pack(values: torch.Tensor) -> torch.Tensor:
    """Bytes of a flat tensor: two values in each, then the scales of the blocks."""
    num_blocks = _num_blocks(len(values))
    pairs = torch.empty(num_blocks, _HALF, dtype=torch.uint8, device=values.device)
    scales = torch.empty(num_blocks, dtype=torch.float32, device=values.device)
    for some, blocks in _blocks_of(values):
        # On CPUs `aminmax`, and a conversion to unsigned bytes, take several times as long.
        scale = blocks.abs().amax(dim=1).div_(_LARGEST_LEVEL)
        levels = (blocks / scale.clamp_min(_TINY)[:, None]).round_().add_(_ZERO)
        levels = levels.to(torch.int8).view(torch.uint8)
        pairs[some] = levels[:, :_HALF] | (levels[:, _HALF:] << 4)
        scales[some] = scale
    return torch.cat([pairs.view(-1), scales.view(torch.uint8)])


def add_unpacked(sums: torch.Tensor, packed: torch.Tensor, factor: float) -> None:
    """So many times the packed values to flat ones."""
    num_blocks = _num_blocks(len(sums))
    pairs = packed[: num_blocks * _HALF].view(num_blocks, _HALF)
    scales = packed[num_blocks * _HALF :].clone().view(torch.float32) * factor
    for first in range(0, num_blocks, _BLOCKS_AT_ONCE):
        some = slice(first, first + _BLOCKS_AT_ONCE)
        levels = torch.cat([pairs[some] & 15, pairs[some] >> 4], dim=1)
        values = levels.float().sub_(_ZERO).mul_(scales[some, None]).view(-1)
        target = sums[first * _BLOCK : first * _BLOCK + len(values)]
        target.add_(values[: len(target)])


def _num_blocks(num_values: int) -> int:
    return -(-num_values // _BLOCK)


def _blocks_of(values: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
    for first, some in enumerate(torch.split(values, _BLOCKS_AT_ONCE * _BLOCK)):
        whole = F.pad(some, (0, -len(some) % _BLOCK)).view(-1, _BLOCK)
        begin = first * _BLOCKS_AT_ONCE
        yield slice(begin, begin + len(whole)), whole
