"""Output projection and label-smoothed cross entropy in one piece, a few hundred tokens at a time.

The logits of a batch are its largest tensor by far (3,500 tokens x 32,768 pieces are 459 MB), and
each of the usual passes over them (log-softmax, its backward, smoothing) reads and writes all of
it. Here a chunk of logits stays in the cache: it becomes probabilities and then its own gradient in
place, and both products with that gradient are taken before the next chunk is made.

Nothing here knows about Transformers: hidden states, a matrix and targets come in.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from paceline.kernels import tokens

# Large enough for efficient matrix products, small beside weights. Each chunk reads and writes the
# whole gradient of the matrix, so with 32,768 rows 512 tokens at a time are 3 % slower than 1,024.
CHUNK_BYTES = 64 * 2**20
MIN_CHUNK_TOKENS = 1024
# Of fp32 logits on a device, where few large products are better than many small ones.
DEVICE_CHUNK_BYTES = 512 * 2**20


class LossSums(NamedTuple):
    """Sums over the target tokens of a batch; `loss_sum` is what training minimises.

    `nll_sum`, without smoothing and gradient, is what validation reports; on a device it is not
    computed while gradients are.
    """

    loss_sum: Tensor
    num_tokens: int
    nll_sum: Tensor | None


def smoothed_loss(hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> LossSums:
    """Cross entropy of `hidden @ weight.T` with `targets`, as `F.cross_entropy(label_smoothing)`.

    A share `smoothing` of the target is spread evenly over all rows of `weight`.
    """
    is_plain = hidden.device.type == "cpu" and hidden.dtype == torch.float32
    if is_plain and not torch.is_autocast_enabled("cpu"):
        loss, nll = _ChunkedLoss.apply(hidden, weight, targets, smoothing)  # type: ignore[no-untyped-call]
        return LossSums(loss, len(targets), nll)
    if hidden.device.type == "cpu":
        return smoothed_loss_plainly(hidden, weight, targets, smoothing)
    return smoothed_loss_on_device(hidden, weight, targets, smoothing)


def smoothed_loss_plainly(
    hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float
) -> LossSums:
    """The same in torch's own terms: for other devices and types, and for tests."""
    logits = F.linear(hidden, weight)
    log_probs = F.log_softmax(logits, dim=1, dtype=torch.promote_types(logits.dtype, torch.float32))
    nll = F.nll_loss(log_probs, targets, reduction="sum")
    loss = (1 - smoothing) * nll - smoothing / weight.shape[0] * log_probs.sum()
    return LossSums(loss, len(targets), nll.detach())


def smoothed_loss_on_device(
    hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float
) -> LossSums:
    """The same by one fused operation. Where that would be large it is done in chunks, whose logits
    are computed again in backward, so that never more than those of one are in memory."""
    if not torch.is_grad_enabled():
        return _device_sums(hidden, weight, targets, smoothing)
    chunk_tokens = max(MIN_CHUNK_TOKENS, DEVICE_CHUNK_BYTES // (4 * weight.shape[0]))
    if len(targets) <= chunk_tokens:
        return LossSums(_cross_entropy(hidden, weight, targets, smoothing), len(targets), None)
    parts = [
        checkpoint(
            _cross_entropy,
            *(some_hidden, weight, some_targets, smoothing),
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for some_hidden, some_targets in zip(
            torch.split(hidden, chunk_tokens), torch.split(targets, chunk_tokens), strict=True
        )
    ]
    return LossSums(torch.stack(parts).sum(), len(targets), None)


def _device_sums(hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> LossSums:
    chunk_tokens = max(MIN_CHUNK_TOKENS, DEVICE_CHUNK_BYTES // (4 * weight.shape[0]))
    loss, nll = (torch.zeros((), device=hidden.device) for _ in range(2))
    for start in range(0, len(targets), chunk_tokens):
        chunk = slice(start, start + chunk_tokens)
        logits, wanted = F.linear(hidden[chunk], weight).float(), targets[chunk]
        nll += F.cross_entropy(logits, wanted, reduction="sum")
        loss += F.cross_entropy(logits, wanted, reduction="sum", label_smoothing=smoothing)
    return LossSums(loss, len(targets), nll)


def _cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    logits = F.linear(hidden, weight).float()
    return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)


class _ChunkedLoss(torch.autograd.Function):
    """The gradient is made in the forward pass, up to the factor that `backward` brings."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        needs_gradient = any(ctx.needs_input_grad)
        to_hidden = torch.empty_like(hidden) if needs_gradient else None
        to_weight = torch.zeros_like(weight) if needs_gradient else None
        loss, nll = torch.zeros(()), torch.zeros(())
        chunk_tokens = max(MIN_CHUNK_TOKENS, CHUNK_BYTES // (4 * weight.shape[0]))
        for start in range(0, len(targets), chunk_tokens):
            chunk = slice(start, start + chunk_tokens)
            logits = torch.mm(hidden[chunk], weight.t())
            chunk_nll, chunk_loss = _losses_(logits, targets[chunk], smoothing, needs_gradient)
            nll += chunk_nll
            loss += chunk_loss
            if to_hidden is not None and to_weight is not None:
                gradient = logits
                torch.mm(gradient, weight, out=to_hidden[chunk])
                to_weight.addmm_(gradient.t(), hidden[chunk])
        loss = (1 - smoothing) * nll + smoothing / weight.shape[0] * loss
        ctx.gradients = to_hidden, to_weight
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        to_hidden, to_weight = ctx.gradients
        if to_hidden is None:
            raise RuntimeError("this loss was already taken backward; its gradients are gone")
        ctx.gradients = None, None
        return to_hidden.mul_(gradients[0]), to_weight.mul_(gradients[0]), None, None


def _losses_(
    logits: Tensor, targets: Tensor, smoothing: float, needs_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Sums over the targets and over all classes; the logits become their gradient in place."""
    if tokens.can_take(logits):
        return tokens.smoothed_rows_(logits, targets, smoothing, needs_gradient)
    log_probs, places = torch.log_softmax(logits, dim=1, out=logits), targets.unsqueeze(1)
    nll, all_classes = -log_probs.gather(1, places).sum(), -log_probs.sum()
    if needs_gradient:
        gradient = log_probs.exp_().sub_(smoothing / log_probs.shape[1])
        hit = torch.full_like(places, smoothing - 1, dtype=gradient.dtype)
        gradient.scatter_add_(1, places, hit)
    return nll, all_classes
