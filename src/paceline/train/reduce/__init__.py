"""How the processes of a world come to the same weights: `reduce` in the recipe.

`exchange.py` says what the loop asks of every kind. `gradients.py`: the gradients of every step,
with DDP; `overlap.py`: the same, in the order of need, in `buckets.py` and, of embeddings,
`tables.py`. `powersgd.py` and `topk.py` send a part of them, with `feedback.py`. `outer.py`: steps
that processes make alone, and the exchange of what came of them, in `four_bits.py`. `own_state.py`:
what then differs between processes, in checkpoints. `watch.py` counts what is sent and what of it
was waited for. `hierarchy.py`: inside of hosts first, then between them; `choice.py`: which kind
`auto` takes.
"""

import torch
from torch import nn

from paceline.errors import UserError
from paceline.settings import FEWEST_BITS, Recipe
from paceline.train.reduce.exchange import Exchange, Tensors
from paceline.train.reduce.gradients import SENDERS, GradientExchange
from paceline.train.reduce.outer import OuterExchange, OuterPlan
from paceline.train.reduce.overlap import OverlapExchange
from paceline.train.reduce.powersgd import PowerSgdExchange
from paceline.train.reduce.topk import TopKExchange
from paceline.world import World

_OVERLAP_BUCKET_MB = 4

__all__ = ["Exchange", "Tensors", "build_exchange"]


def build_exchange(recipe: Recipe, network: nn.Module, world: World) -> Exchange:
    """One process alone exchanges nothing, whatever the recipe says."""
    settings = recipe.reduce
    if world.size == 1:
        return Exchange(network, world)
    if settings.kind in SENDERS:
        return GradientExchange(network, world, settings, SENDERS[settings.kind])
    if settings.kind == "overlap":
        if world.device.type != "cpu":
            raise UserError(
                f"reduce=overlap is written for processors, and this run is on {world.device.type}",
                "use reduce=plain, which overlaps with backward there, or device=cpu",
            )
        bucket_mb = settings.bucket_mb or _OVERLAP_BUCKET_MB
        return OverlapExchange(network, world, int(bucket_mb * 2**20))
    if settings.kind == "powersgd":
        return PowerSgdExchange(network, world, settings.rank, recipe.seed)
    if settings.kind == "topk":
        return TopKExchange(network, world, settings.share)
    return OuterExchange(network, world, outer_plan(recipe, world.size))


def outer_plan(recipe: Recipe, num_procs: int) -> OuterPlan:
    settings = recipe.reduce
    every = settings.every or 1
    inner_rate = settings.inner_rate or usual_inner_rate(recipe.optimizer.kind, num_procs)
    if settings.kind == "local":
        return OuterPlan(every, inner_rate=inner_rate)
    return OuterPlan(
        every,
        settings.parts,
        settings.delay or 0,
        inner_rate,
        settings.outer_rate or 1.0,
        settings.outer_momentum,
        torch.bfloat16,
        is_packed=settings.bits == FEWEST_BITS,
    )


def usual_inner_rate(optimizer: str, num_procs: int) -> float:
    """Adam and its like divide a gradient by its own size, which is mostly noise: from a batch that
    is N times as small a step has a root of N less of the signal, in each process and so in their
    mean. To make up for it in the outer step instead overshoots where weights had settled between
    two exchanges, and so does more than a root of two (docs/reduce.md has the curves)."""
    return 1.0 if optimizer == "sgd" else min(num_procs, 2) ** 0.5
