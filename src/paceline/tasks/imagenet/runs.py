"""What a training run must have before it can classify: the right workload, and names of classes.

No torch here, so that a wrong directory is refused before seconds of imports.
"""

from pathlib import Path

from paceline.data.places import data_directory
from paceline.errors import UserError
from paceline.recipe import from_run
from paceline.record.schema import RunDirectory
from paceline.tasks.imagenet.settings import ImagenetRecipe
from paceline.tasks.imagenet.shards import CLASSES_NAME


def require_picture_run(path: Path) -> ImagenetRecipe:
    """The recipe of a run that classifies photographs; anything else is refused."""
    run = RunDirectory(path)
    if not path.is_dir():
        raise UserError(f"there is no directory {path}", "give the --run of a `paceline train`")
    if not run.exists():
        raise UserError(f"{path} is not a run", "give the --run of a `paceline train`")
    recipe = from_run(run.recipe)
    if not isinstance(recipe, ImagenetRecipe):
        raise UserError(
            f"{path} is a run of the workload '{recipe.workload}', which cannot classify files",
            "give a run of the workload 'imagenet'",
        )
    return recipe


def class_names(run: Path, recipe: ImagenetRecipe) -> list[tuple[str, str]]:
    """(WNID, words) by label: the run's own copy, or else that of the data it was trained on."""
    places = [run / CLASSES_NAME, data_directory(recipe.data) / CLASSES_NAME]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise UserError(
            f"the names of the classes of {run} are in neither {places[0]} nor {places[1]}",
            f"copy the {CLASSES_NAME} of its training data into {run}",
        )
    pairs = [line.partition("\t") for line in found.read_text(encoding="utf-8").splitlines()]
    names = [(wnid, words or wnid) for wnid, _, words in pairs]
    if len(names) != recipe.model.num_classes:
        raise UserError(
            f"{found} names {len(names):,} classes, and {run} was trained with "
            f"{recipe.model.num_classes:,}",
            f"copy the {CLASSES_NAME} of its training data into {run}",
        )
    return names
