"""What a recipe sends and stores, as the doctor reckons it."""

import subprocess
import sys

from paceline import recipe
from paceline.tasks.sizes import sizes_of


def test_a_transformer_is_sized_without_torch() -> None:
    code = (
        "import sys; from paceline import recipe\n"
        "from paceline.tasks.sizes import sizes_of\n"
        "print(sizes_of(recipe.load('nmt-base')).gradient_bytes, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(4.0 * 60_880_896), "False"]


def test_a_picture_net_is_sized_by_torch_if_that_may_be_asked() -> None:
    from paceline.tasks.sizes import num_parameters

    loaded = recipe.load("cifar10-tiny")
    assert sizes_of(loaded, may_import_torch=False) is None
    sizes = sizes_of(loaded)
    assert sizes is not None and sizes.gradient_bytes == 4 * num_parameters(loaded)


def test_room_counts_the_kept_checkpoints_the_best_and_the_one_being_written() -> None:
    sizes = sizes_of(recipe.load("nmt-base", ["checkpoint.keep_last=2", "optimizer.kind=adam"]))
    assert sizes is not None
    assert sizes.kept_bytes == sizes.gradient_bytes * 3 * (2 + 2)
