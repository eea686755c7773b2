"""The watch over a device that is not there finds what it is for: code that waited, or failed."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from tests.watched_device import META, watching

IDS = torch.empty(4, 7, dtype=torch.int64, device=META)
PICTURES = torch.empty(2, 3, 8, 8, dtype=torch.uint8, device=META)


def add_sums_of_the_host() -> None:
    """As an evaluation did, which CUDA refuses and meta does not."""
    sums = torch.zeros(2, device=META)
    sums += torch.tensor([2.5, 7.0])


def normalise_by_new_constants() -> None:
    floats = PICTURES.float()
    (floats - floats.new_tensor((0.5, 0.5, 0.5)).view(3, 1, 1)).sum()


def pack_on_the_device() -> None:
    (IDS != 0).flatten().nonzero()


def ask_for_the_longest() -> None:
    int(IDS.max())


def pick_by_mask() -> None:
    IDS[IDS != 0].sum()


def resize_bytes() -> None:
    F.interpolate(PICTURES, size=(4, 4), mode="bilinear", antialias=True)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (add_sums_of_the_host, "mixed by aten.add_.Tensor"),
        (normalise_by_new_constants, "copy by new_tensor of Python's numbers"),
        (pack_on_the_device, "read by nonzero"),
        (ask_for_the_longest, "read by item"),
        (pick_by_mask, "read by indexing with a mask"),
        (resize_bytes, "lacking by aten._upsample_bilinear2d_aa"),
        (lambda: IDS.to("cpu"), "read by copy to the host"),
        (lambda: torch.ones(3).to(META), "copy by copy to the device"),
    ],
)
@pytest.mark.parametrize("infers", [False, True], ids=["training", "inference"])
def test_what_a_device_would_wait_for_or_refuse_is_found_with_its_line(
    code: Callable[[], object], found: str, infers: bool
) -> None:
    with torch.inference_mode(infers), watching() as watch:
        code()
    (passage,) = watch.passages
    assert str(passage).startswith(found)
    assert "tests/test_watched_device.py:" in passage.where


def test_what_stays_on_the_device_is_no_passage() -> None:
    """A single number of the host goes along as an argument of the operation."""
    with watching() as watch:
        (IDS.float() * torch.tensor(2.0) + 1).softmax(1).sum()
        IDS.index_select(0, torch.arange(2, device=META))
    assert watch.passages == []
