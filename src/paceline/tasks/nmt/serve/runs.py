"""What a training run must have before it can translate: the right workload, and a vocabulary.

No torch here, so that a wrong directory is refused before seconds of imports.
"""

from pathlib import Path

from paceline.data.places import data_directory
from paceline.errors import UserError
from paceline.recipe import from_run
from paceline.record.schema import RunDirectory
from paceline.tasks.nmt.serve.lines import Search
from paceline.tasks.nmt.settings import NmtRecipe
from paceline.tasks.nmt.vocabulary import MODEL_NAME, Vocabulary


def require_translation_run(path: Path) -> NmtRecipe:
    """The recipe of a run that translates; anything else is refused."""
    run = RunDirectory(path)
    if not path.is_dir():
        raise UserError(f"there is no directory {path}", "give a run or an exported model")
    if not run.exists():
        raise UserError(
            f"{path} is neither a run nor an exported model",
            "give the --run of a `paceline train`, or a directory that `paceline export` wrote",
        )
    recipe = from_run(run.recipe)
    if not isinstance(recipe, NmtRecipe):
        raise UserError(
            f"{path} is a run of the workload '{recipe.workload}', which cannot translate",
            "give a run of the workload 'nmt'",
        )
    return recipe


def vocabulary_file(run: Path, recipe: NmtRecipe) -> Path:
    """The run's own copy, or else the one of the data it was trained on."""
    places = [run / MODEL_NAME, data_directory(recipe.data) / MODEL_NAME]
    for place in places:
        if place.is_file():
            return place
    raise UserError(
        f"the SentencePiece model of {run} is in neither {places[0]} nor {places[1]}",
        f"copy the {MODEL_NAME} of its training data into {run}",
    )


def open_vocabulary(run: Path, recipe: NmtRecipe) -> Vocabulary:
    file = vocabulary_file(run, recipe)
    vocabulary = Vocabulary.load(file)
    if vocabulary.size != recipe.model.vocab_size:
        raise UserError(
            f"{file} has {vocabulary.size:,} pieces, but {run} was trained with "
            f"{recipe.model.vocab_size:,}",
            f"copy the {MODEL_NAME} of its training data into {run}",
        )
    return vocabulary


def search_of(recipe: NmtRecipe) -> Search:
    decode = recipe.decode
    return Search(decode.beam, decode.length_penalty, decode.extra_length)
