"""What a checkpoint holds, for a terminal."""

from pathlib import Path

from paceline.errors import UserError
from paceline.record import checkpoints as stored
from paceline.report.own.checkpoint import contents
from paceline.terminal import printable
from paceline.units import format_bytes


def render(checkpoint: Path) -> str:
    problem = stored.damage(checkpoint)
    if problem:
        raise UserError(f"damaged checkpoint: {problem}", "name another with --checkpoint")
    held = contents(checkpoint)
    lines = [f"{checkpoint}: step {held.step:,}, {format_bytes(held.total_bytes)}"]
    for name, size in held.bytes_by_part.items():
        per_weight = size / max(held.num_weights, 1)
        lines.append(f"  {name:<17} {size:>13,} bytes  {per_weight:6.2f} per weight")
    lines.append(f"  {held.num_weights:,} weights and running averages")
    lines.append(f"  sha256 over all weights: {stored.weights_sha256(checkpoint / stored.WEIGHTS)}")
    return printable("\n".join(lines))
