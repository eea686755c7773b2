"""Augmentation of whole batches: every picture that comes out is one that may."""

import numpy as np
import pytest
import torch

from paceline.tasks.cifar10.augment import cutout, flip_choice, mirror, random_crop

FEW_SHAPES = [(1, 3, 32, 32), (5, 3, 32, 32), (4, 1, 9, 12)]


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize("shape", FEW_SHAPES)
@pytest.mark.parametrize("pad", [1, 4])
def test_a_crop_is_a_real_window_of_the_reflected_picture(shape: tuple[int, ...], pad: int) -> None:
    pictures = noise(*shape)
    _, _, height, width = shape
    cropped = random_crop(pictures, pad, rng())
    assert cropped.shape == shape and cropped.dtype == np.uint8
    for picture, crop in zip(pictures, cropped, strict=True):
        padded = np.pad(picture, ((0, 0), (pad, pad), (pad, pad)), mode="reflect")
        windows = [
            padded[:, r : r + height, c : c + width]
            for r in range(2 * pad + 1)
            for c in range(2 * pad + 1)
        ]
        assert any(np.array_equal(crop, window) for window in windows)


def test_the_picture_itself_is_the_middle_window() -> None:
    pictures = np.repeat(noise(1, 3, 8, 8), 300, axis=0)
    cropped = random_crop(pictures, 1, rng())
    assert sum(np.array_equal(crop, pictures[0]) for crop in cropped) > 10


def test_every_window_is_as_likely_as_any_other() -> None:
    # Every pixel says where it is, so a crop's corner says which window it is.
    side, pad, num = 16, 2, 25_000
    picture = np.arange(side * side, dtype=np.uint8).reshape(1, 1, side, side)
    padded = np.pad(picture[0, 0], pad, mode="reflect")
    windows = {
        padded[r : r + side, c : c + side].tobytes(): (r, c)
        for r in range(2 * pad + 1)
        for c in range(2 * pad + 1)
    }
    cropped = random_crop(np.repeat(picture, num, axis=0), pad, rng())
    counts = dict.fromkeys(windows.values(), 0)
    for crop in cropped:
        counts[windows[crop.tobytes()]] += 1
    expected = num / 25
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < 60  # 24 degrees of freedom: above 51 once in a thousand


def test_no_padding_changes_nothing_and_the_same_stream_crops_the_same() -> None:
    pictures = noise(6, 3, 8, 8)
    assert np.array_equal(random_crop(pictures, 0, rng()), pictures)
    assert np.array_equal(random_crop(pictures, 3, rng(5)), random_crop(pictures, 3, rng(5)))


def test_what_goes_in_is_never_changed() -> None:
    pictures = noise(6, 3, 8, 8)
    before = pictures.copy()
    cutout(mirror(random_crop(pictures, 2, rng()), np.ones(6, dtype=bool)), 4, rng())
    cutout(pictures, 4, rng())
    assert np.array_equal(pictures, before)


def test_mirroring_flips_left_and_right_of_the_chosen_only() -> None:
    pictures = noise(3, 3, 4, 5)
    flipped = mirror(pictures, np.array([True, False, True]))
    assert np.array_equal(flipped[0], pictures[0, :, :, ::-1])
    assert np.array_equal(flipped[1], pictures[1])
    assert np.array_equal(mirror(flipped, np.array([True, False, True])), pictures)


def choose(kind: str, samples: np.ndarray, epoch: int, seed: int = 1) -> np.ndarray:
    return flip_choice(kind, samples, np.full(len(samples), epoch), rng(seed))


def test_no_flip_is_no_flip() -> None:
    assert not choose("none", np.arange(100), 3).any()


def test_random_flips_half_of_the_pictures() -> None:
    assert 4_700 < choose("random", np.arange(10_000), 0).sum() < 5_300


def test_alternating_shows_both_sides_of_every_picture_once_in_two_epochs() -> None:
    samples = np.arange(1_001)
    for epoch in range(4):
        now, then = (
            choose("alternating", samples, epoch, 1),
            choose("alternating", samples, epoch + 1, 2),
        )
        assert np.array_equal(now, ~then)


def test_alternating_does_not_depend_on_batch_or_chance() -> None:
    samples = np.arange(1_000)
    whole = choose("alternating", samples, 0, seed=1)
    shuffled = rng().permutation(samples)
    assert np.array_equal(choose("alternating", shuffled, 0, seed=9), whole[shuffled])


def test_alternating_begins_with_about_half_of_the_pictures_flipped() -> None:
    for samples in (np.arange(45_000), np.arange(0, 45_000, 2), np.arange(0, 45_000, 10)):
        share = choose("alternating", samples, 0).mean()
        assert 0.45 < share < 0.55


def test_alternating_handles_a_batch_across_two_epochs() -> None:
    samples = np.array([3, 4, 3, 4])
    found = flip_choice("alternating", samples, np.array([0, 0, 1, 1]), rng())
    assert np.array_equal(found[:2], ~found[2:])


def test_the_kind_of_flip_does_not_shift_the_random_numbers_that_follow() -> None:
    after = []
    for kind in ("none", "random", "alternating"):
        stream = rng(3)
        flip_choice(kind, np.arange(17), np.zeros(17, dtype=np.int64), stream)
        after.append(int(stream.integers(0, 2**62)))
    assert len(set(after)) == 1


def blank_area(side: int, num: int = 4_000, size: int = 32) -> np.ndarray:
    """How many pixels of each picture were blanked (a black and white frame shows them)."""
    pictures = np.zeros((num, 3, size, size), dtype=np.uint8)
    pictures[:, :, :, ::2] = 200  # the mean colour, 100, is in no picture
    changed = cutout(pictures, side, rng())
    blanked = changed == 100
    assert np.array_equal(blanked[:, 0], blanked[:, 2])
    assert np.array_equal(changed[~blanked], pictures[~blanked])
    return np.asarray(blanked[:, 0].sum(axis=(1, 2)))


@pytest.mark.parametrize("side", [1, 7, 8, 16])
def test_cutout_blanks_a_square_that_borders_may_cut(side: int) -> None:
    areas = blank_area(side)
    assert areas.max() == side * side
    assert areas.min() >= ((side + 1) // 2 if side % 2 else side // 2) ** 2
    whole = ((32 - side + 1) / 32) ** 2
    assert abs((areas == side * side).mean() - whole) < 0.04


def test_cutout_larger_than_the_picture_may_blank_all_of_it() -> None:
    assert blank_area(64, num=10).min() == 32 * 32


def test_cutout_reaches_every_pixel() -> None:
    pictures = np.zeros((3_000, 1, 8, 8), dtype=np.uint8)
    pictures[..., ::2] = 200
    assert (cutout(pictures, 3, rng()) == 100).any(axis=0).all()


def test_no_cutout_changes_nothing() -> None:
    pictures = noise(3, 3, 8, 8)
    assert np.array_equal(cutout(pictures, 0, rng()), pictures)


def test_the_blank_has_the_mean_colour_of_its_own_picture() -> None:
    pictures = np.stack([np.full((3, 8, 8), value, dtype=np.uint8) for value in (10, 200)])
    assert np.array_equal(cutout(pictures, 4, rng()), pictures)


def test_moved_views_hold_the_same_pixels_elsewhere() -> None:
    from paceline.tasks.cifar10.task import shifted

    pictures = torch.arange(2 * 3 * 8 * 8, dtype=torch.float32).view(2, 3, 8, 8)
    up_left, down_right = shifted(pictures, 1)
    assert torch.equal(up_left[:, :, 1:, 1:], pictures[:, :, :-1, :-1])
    assert torch.equal(down_right[:, :, :-1, :-1], pictures[:, :, 1:, 1:])
    assert up_left.shape == down_right.shape == pictures.shape
