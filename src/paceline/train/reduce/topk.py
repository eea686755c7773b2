"""The largest gradients only: of every 1,024 neighbours those few that are largest.

Sent as their values and their places among the 1,024, two bytes each; every process gets those of
all others. Which ones are the largest differs from process to process, so what is added up has more
places than one process sends.
"""

import torch
import torch.distributed as dist
from torch import nn

from paceline.train.reduce.exchange import Tensors
from paceline.train.reduce.feedback import FeedbackExchange, flat, like
from paceline.world import World

_BLOCK = 1024
_PLACE = torch.int16


class TopKExchange(FeedbackExchange):
    def __init__(self, network: nn.Module, world: World, share: float) -> None:
        super().__init__(network, world)
        self._per_block = max(1, round(share * _BLOCK))

    def exchange(self, gradients: Tensors) -> tuple[Tensors, Tensors]:
        names, tensors = list(gradients), list(gradients.values())
        rest = flat(tensors)
        num = len(rest)
        blocks = nn.functional.pad(rest, (0, -num % _BLOCK)).view(-1, _BLOCK)
        places = blocks.abs().topk(self._per_block, dim=1, sorted=False).indices
        values = blocks.gather(1, places)
        blocks.scatter_(1, places, 0.0)
        sums = torch.zeros_like(blocks)
        for own_values, own_places in zip(*self._gather(values, places), strict=True):
            sums.scatter_add_(1, own_places.to(torch.int64), own_values)
        sums.div_(self.world.size)
        sent = like(tensors, sums.view(-1)[:num])
        kept = like(tensors, blocks.view(-1)[:num])
        return dict(zip(names, sent, strict=True)), dict(zip(names, kept, strict=True))

    def _gather(
        self, values: torch.Tensor, places: torch.Tensor
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Of all processes, in the order of their ranks, so that sums are the same everywhere."""
        short = places.to(_PLACE)
        all_values = [torch.empty_like(values) for _ in range(self.world.size)]
        all_places = [torch.empty_like(short) for _ in range(self.world.size)]
        for all_of_them, own in ((all_values, values), (all_places, short)):
            # Gloo knows no 16-bit integers, but bytes are bytes.
            dist.all_gather(
                [each.view(torch.uint8) for each in all_of_them], own.contiguous().view(torch.uint8)
            )
            # Counted as an all-reduce that would send as much: it sends 2 (N-1)/N of its bytes.
            num_bytes = own.numel() * own.element_size()
            self.watch.reduced_bytes += num_bytes * self.world.size // 2
        return all_values, all_places
