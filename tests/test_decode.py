"""From JPEG bytes to pixels: what part is cut out, and how close the pixels are to Pillow's."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paceline.data.order import generator
from paceline.tasks.imagenet import decode
from paceline.tasks.imagenet.standin import photos

TOLERANCE = {"decoded whole": (50.0, 0.5), "shrunk by the decoder": (38.0, 2.5)}
"""For every picture: decibels (PSNR) reached against the reference transform, and the grey levels
of 255 by which pixels differ on average, at most."""


def jpeg_of(pixels: np.ndarray, **options: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95, **options)
    return file.getvalue()


def noise(height: int, width: int) -> np.ndarray:
    """Smooth enough to be like a photograph, with detail at every place."""
    rng = np.random.default_rng(height * 10_000 + width)
    coarse = rng.integers(0, 256, (max(height // 8, 1), max(width // 8, 1), 3), np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    return np.array(image)


def reference(jpeg: bytes, box: np.ndarray, size: int) -> np.ndarray:
    """What torchvision's transforms do, with Pillow."""
    top, left, height, width = map(int, box)
    picture = Image.open(io.BytesIO(jpeg)).convert("RGB")
    part = picture.crop((left, top, left + width, top + height))
    return np.array(part.resize((size, size), Image.Resampling.BILINEAR))


def assert_close(ours: np.ndarray, theirs: np.ndarray, factor: int = 1) -> None:
    psnr, mean = TOLERANCE["decoded whole" if factor == 1 else "shrunk by the decoder"]
    difference = ours.astype(float) - theirs
    assert np.abs(difference).mean() <= mean
    assert 10 * np.log10(255**2 / max((difference**2).mean(), 1e-9)) >= psnr


def assert_cut_like_pillow(jpegs: list[bytes], size: int) -> None:
    for jpeg, box in zip(
        jpegs, decode.random_boxes(sizes_of(jpegs), 0.08, size, generator(1)), strict=True
    ):
        factor = decode.shrink_factor(int(box[2]), int(box[3]), size)
        assert_close(decode.cut_out(jpeg, box, size), reference(jpeg, box, size), factor)


def real_photos() -> list[bytes]:
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("PACELINE_REAL_DATA", beside)) / "imagenet-sample"
    return [path.read_bytes() for path in sorted(folder.glob("*.JPEG"))]


def sizes_of(jpegs: list[bytes]) -> np.ndarray:
    return np.array([Image.open(io.BytesIO(jpeg)).size[::-1] for jpeg in jpegs])


# ---- pixels


@pytest.mark.parametrize("size", [64, 224])
def test_pixels_are_within_the_stated_tolerance_of_pillow_on_drawn_pictures(size: int) -> None:
    assert_cut_like_pillow([photos.draw(label, 3, 0) for label in range(20)], size)


@pytest.mark.parametrize("size", [64, 224])
def test_pixels_are_within_the_stated_tolerance_of_pillow_on_real_photographs(size: int) -> None:
    jpegs = real_photos()[:60]
    if not jpegs:
        pytest.skip("no photographs: PACELINE_REAL_DATA names no folder with imagenet-sample")
    assert_cut_like_pillow(jpegs, size)


@pytest.mark.parametrize("side", [1100, 2300])
def test_a_large_photograph_may_be_shrunk_by_the_decoder_and_stays_within_tolerance(
    side: int,
) -> None:
    jpeg = jpeg_of(noise(side, side + 123))
    size = 128
    boxes = decode.random_boxes(np.array([[side, side + 123]]), 0.9, size, generator(3))
    factor = decode.shrink_factor(int(boxes[0][2]), int(boxes[0][3]), size)
    assert factor > 1
    assert_close(decode.cut_out(jpeg, boxes[0], size), reference(jpeg, boxes[0], size), factor)


def test_the_centre_is_what_resize_and_centre_crop_of_the_usual_recipe_give() -> None:
    for height, width in ((375, 500), (500, 375), (224, 224), (120, 600)):
        jpeg = jpeg_of(noise(height, width))
        picture = Image.open(io.BytesIO(jpeg))
        short = min(height, width)
        new = (int(256 * width / short), int(256 * height / short))
        whole = np.array(picture.resize(new, Image.Resampling.BILINEAR))
        top, left = round((new[1] - 224) / 2), round((new[0] - 224) / 2)
        expected = whole[top : top + 224, left : left + 224]
        assert_close(decode.centre(jpeg, 224, 0.875), expected)


@pytest.mark.parametrize("shape", [(1, 1), (1, 700), (700, 1), (3, 5), (4000, 40)])
def test_pictures_of_odd_shapes_become_squares(shape: tuple[int, int]) -> None:
    jpeg = jpeg_of(noise(*shape))
    box = decode.random_boxes(np.array([shape]), 0.08, 64, generator(4))[0]
    assert decode.cut_out(jpeg, box, 64).shape == (64, 64, 3)
    assert decode.centre(jpeg, 64, 0.875).shape == (64, 64, 3)


def test_a_grey_picture_gets_three_equal_channels() -> None:
    jpeg = jpeg_of(noise(90, 120)[:, :, 0])
    pixels = decode.cut_out(jpeg, np.array([0, 0, 90, 120]), 64)
    assert (pixels[:, :, 0] == pixels[:, :, 1]).all()
    assert (pixels[:, :, 0] == pixels[:, :, 2]).all()


def test_a_mirrored_picture_is_the_same_from_right_to_left() -> None:
    pixels = noise(50, 70)
    assert (decode.mirrored(pixels) == pixels[:, ::-1]).all()


def test_a_picture_smaller_than_it_was_when_prepared_is_an_error() -> None:
    with pytest.raises(ValueError, match="100 x 80"):
        decode.cut_out(jpeg_of(noise(80, 100)), np.array([0, 0, 90, 100]), 64)


# ---- parts


def test_parts_lie_in_the_picture_and_have_the_promised_area_and_shape() -> None:
    sizes = np.tile([[375, 500], [500, 333], [64, 64]], (500, 1))
    boxes = decode.random_boxes(sizes, 0.25, 224, generator(5))
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, :2] + boxes[:, 2:] <= sizes).all()
    shares = boxes[:, 2:].prod(axis=1) / sizes.prod(axis=1)
    assert shares.min() > 0.23
    assert 0.95 < shares.max() <= 1
    assert 0.5 < shares.mean() < 0.65
    ratios = boxes[:, 3] / boxes[:, 2]
    assert ratios.min() > 0.72
    assert ratios.max() < 1.37


def test_parts_reach_every_edge() -> None:
    sizes = np.tile([[300, 400]], (2000, 1))
    boxes = decode.random_boxes(sizes, 0.08, 224, generator(6))
    assert boxes[:, 0].min() == boxes[:, 1].min() == 0
    assert (boxes[:, 0] + boxes[:, 2]).max() == 300
    assert (boxes[:, 1] + boxes[:, 3]).max() == 400


def test_a_strip_that_no_part_fits_gets_its_central_part() -> None:
    box = decode.random_boxes(np.array([[20, 900]]), 1.0, 64, generator(7))[0]
    assert list(box) == [0, 436, 20, 27]


def test_parts_depend_on_the_generator_alone() -> None:
    sizes = np.tile([[375, 500]], (40, 1))
    one, same, other = (decode.random_boxes(sizes, 0.08, 224, generator(s)) for s in (8, 8, 9))
    assert (one == same).all()
    assert (one != other).any()
