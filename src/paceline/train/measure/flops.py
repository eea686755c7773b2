"""How much arithmetic a unit takes, counted, and how much this process could do, measured.

"Busy" says little: a processor that spins while it waits is busy too. Operations done per second,
against what a plain matrix multiplication reaches on the same threads, cannot be faked.
"""

import math
import time
from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode

_PEAK_SECONDS = 0.15
_LEAST_TRIALS = 3
_SIDE = {"cpu": 1024, "cuda": 4096}
_TOGETHER = {"cpu": 1, "cuda": 10}
"""Products per time: a device takes a fifth of a millisecond for one, a host a tenth of that to
wait for it."""


def _added_product(
    _old: torch.Size, left: torch.Size, right: torch.Size, *_more: object, **_names: object
) -> int:
    return 2 * math.prod(left) * right[-1]


def _attention(query: torch.Size, key: torch.Size, *_more: object, **_names: object) -> int:
    """Scores, and the mean of values; keys and values are equally wide."""
    return 4 * math.prod(query) * key[-2]


def _attention_backward(
    _gradient: torch.Size, query: torch.Size, key: torch.Size, *_more: object, **_names: object
) -> int:
    return 2 * _attention(query, key)


_aten = torch.ops.aten
# torch's counter knows products that make a new matrix, but not those that add to an old one, and
# the attention of GPUs, but not that of CPUs.
_NOT_KNOWN = {
    _aten.addmm_: _added_product,
    _aten.baddbmm_: _added_product,
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}


def count_flops(work: Callable[[], None]) -> int | None:
    """Operations (a multiplication and an addition are two) of matrix multiplications and
    convolutions in `work`; None where they cannot be counted.

    Counted as the definition has them: an operation of ours that gets by with fewer has registered
    what the definition takes, so it is not given less credit.
    """
    try:
        counter = FlopCounterMode(display=False, custom_mapping=_NOT_KNOWN)
        with counter:
            work()
    except Exception:
        return None  # a fact less in the report is better than a run that does not start
    return int(counter.get_total_flops()) or None


def measure_peak(device: torch.device, number_type: torch.dtype) -> float | None:
    """Operations per second of a matrix multiplication in the run's arithmetic (with TF32 where
    the run has it on): the best of a few, because the first finds cold caches and sleeping
    threads."""
    side, together = (table.get(device.type, table["cpu"]) for table in (_SIDE, _TOGETHER))
    # Not random, which would move the generators; not constant, which GPUs multiply faster.
    left = torch.linspace(-1, 1, side * side, device=device).view(side, side)
    left = left.to(number_type)
    tried, began = [_seconds_of_products(left, 1)], time.perf_counter()
    while len(tried) < _LEAST_TRIALS or time.perf_counter() - began < _PEAK_SECONDS:
        tried.append(_seconds_of_products(left, together) / together)
    return 2.0 * side**3 / min(tried)


def _seconds_of_products(left: torch.Tensor, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        torch.mm(left, left)
    if left.device.type == "cuda":
        torch.cuda.synchronize(left.device)
    return time.perf_counter() - began
