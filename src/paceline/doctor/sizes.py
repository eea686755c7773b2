"""What a recipe sends and stores, in bytes, from its settings; without torch where possible."""

from dataclasses import dataclass

from paceline.models import sizes
from paceline.recipe import STATES_PER_WEIGHT, NmtRecipe, Recipe

_BEING_WRITTEN_AND_BEST = 2


@dataclass(frozen=True)
class Sizes:
    gradient_bytes: float
    checkpoints_bytes: float
    """All that are kept at one time, with the best and the one being written."""


def sizes_of(recipe: Recipe, may_import_torch: bool = True) -> Sizes | None:
    """None where only torch knows, and it may not be asked."""
    if isinstance(recipe, NmtRecipe):
        shape = sizes.named_shape(recipe.model.size, recipe.model.vocab_size)
        gradient_bytes = float(sizes.gradient_bytes(shape))
    elif may_import_torch:
        from paceline.train.size import num_parameters  # noqa: PLC0415  (takes seconds)

        gradient_bytes = 4.0 * num_parameters(recipe)
    else:
        return None
    copies = 1 + STATES_PER_WEIGHT[recipe.optimizer.kind] + (recipe.optimizer.average > 0)
    num_kept = recipe.checkpoint.keep_last + _BEING_WRITTEN_AND_BEST
    return Sizes(gradient_bytes, gradient_bytes * copies * num_kept)
