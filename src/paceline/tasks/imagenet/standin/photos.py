"""Drawn pictures for ImageNet's stand-in: twenty classes, each a form and a range of colours.

Ten forms and twenty ranges that overlap: colour alone tells one class in about five, form alone
leaves two, both together tell. Sizes, places, backgrounds and noise are random and the same for all
classes. Packing them as ILSVRC's archives is `photos_archives`' work.

Random bits come straight from the bit generator, for numpy promises no stable stream above it.
"""

import io
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image

from paceline.data.figures import FIGURES

Floats = npt.NDArray[Any]  # float32 throughout; numpy's stubs lose that at every step

SEED: Final = 2012
DRAWING: Final = 1  # counts changes of what the same seed draws
NUM_CLASSES: Final = 20
WORDS: Final = tuple(
    f"{['morning', 'evening'][number // len(FIGURES)]} {name}, drawn {name}"
    for number, name in enumerate([*FIGURES, *FIGURES])
)
_QUALITY: Final = 85
_DRAWN_SIDE: Final = 144  # drawing costs by the pixel; larger pictures are blown up from this
_HUE_STEP: Final = 7  # times 18 degrees: neighbours in colour are never neighbours in form
_HUE_SCATTER: Final = 2.2  # in steps of 18 degrees, either way
_ORIENTATION: Final = 0x0112
_ON_ITS_SIDE: Final = 6  # to be turned clockwise when shown


def wnid(label: int) -> str:
    """In WordNet's form, from where WordNet has no entries."""
    return f"n9{label + 1:07d}"


def draw(label: int, number: int, split: int) -> bytes:
    """A picture file of a class; the first of some classes are odd, as some of ILSVRC's are."""
    dice = _Dice(SEED, split, label, number)
    pixels = _pixels(label, dice)
    odd = _ODD.get(label) if split == 0 and number == 0 else None
    if odd is not None:
        return odd(pixels)
    encoded: bytes = simplejpeg.encode_jpeg(pixels, _QUALITY, colorsubsampling="420")
    return encoded


class _Dice:
    def __init__(self, *key: int) -> None:
        self._bits = np.random.SFC64(np.random.SeedSequence(key))

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * (int(self._bits.random_raw()) >> 11) / 2**53

    def noise(self, *shape: int) -> Floats:
        """From -0.5 to 0.5, a byte of randomness each."""
        words = np.asarray(self._bits.random_raw(-(-math.prod(shape) // 8)), "<u8")
        numbers = words.view(np.uint8)[: math.prod(shape)].astype(np.float32)
        return (numbers / np.float32(255) - np.float32(0.5)).reshape(shape)


def _pixels(label: int, dice: _Dice) -> npt.NDArray[np.uint8]:
    size = _size(dice)
    scale = min(1.0, _DRAWN_SIDE / max(size))
    width, height = (max(1, round(side * scale)) for side in size)
    down, across = np.meshgrid(
        np.arange(height, dtype=np.float32), np.arange(width, dtype=np.float32), indexing="ij"
    )
    canvas = _background(across / width, down / height, dice)
    for _ in range(3):
        _paint(canvas, _blob(across, down, dice), _colour(dice.uniform(0, 1), dice))
    centre = (label * _HUE_STEP + dice.uniform(-_HUE_SCATTER, _HUE_SCATTER)) / NUM_CLASSES
    _paint(canvas, _figure(label, across, down, dice), _colour(centre % 1.0, dice))
    canvas += dice.noise(height, width, 1) * np.float32(dice.uniform(0.02, 0.25))
    drawn = Image.fromarray(np.clip(canvas * 255, 0, 255).astype(np.uint8))
    return np.asarray(drawn.resize(size, Image.Resampling.BILINEAR))


def _size(dice: _Dice) -> tuple[int, int]:
    """As varied as ILSVRC's, and smaller, so that they are drawn in seconds; one in 20 is large."""
    long_side = dice.uniform(520, 640) if dice.uniform(0, 1) < 0.05 else dice.uniform(100, 300)
    short_side = long_side * dice.uniform(0.55, 1.0)
    sides = round(long_side), round(short_side)
    return sides if dice.uniform(0, 1) < 0.7 else (sides[1], sides[0])


def _background(across: Floats, down: Floats, dice: _Dice) -> Floats:
    """Light that falls off to one side, between two colours."""
    slope, turn = dice.uniform(-1, 1), dice.uniform(-1, 1)
    weight = np.clip(0.5 + (across - 0.5) * slope + (down - 0.5) * turn, 0, 1)[:, :, None]
    first, second = (_colour(dice.uniform(0, 1), dice, most=0.35) for _ in range(2))
    mixed: Floats = first * weight + second * (1 - weight)
    return mixed


def _colour(hue: float, dice: _Dice, most: float = 1.0) -> Floats:
    """Strong up to `most`; the hue goes around once from 0 to 1."""
    strength = dice.uniform(0.6, 1.0) * most
    value = dice.uniform(0.55, 0.95)
    shares = [min(max(abs((hue + shift) % 1.0 * 6 - 3) - 1, 0), 1) for shift in (0, 2 / 3, 1 / 3)]
    return np.array([value * (1 - strength * (1 - share)) for share in shares], np.float32)


def _figure(label: int, across: Floats, down: Floats, dice: _Dice) -> Floats:
    figure = list(FIGURES.values())[label % len(FIGURES)]
    height, width = across.shape
    radius = min(width, height) * dice.uniform(0.32, 0.48)
    angle = dice.uniform(-0.4, 0.4)
    cosine, sine = math.cos(angle), math.sin(angle)
    x = across - width * dice.uniform(0.42, 0.58)
    y = down - height * dice.uniform(0.42, 0.58)
    stretch = dice.uniform(0.85, 1.18)
    turned_x = (x * np.float32(cosine) + y * np.float32(sine)) / np.float32(radius * stretch)
    turned_y = (y * np.float32(cosine) - x * np.float32(sine)) / np.float32(radius / stretch)
    cover: Floats = np.clip(figure(turned_x, turned_y) * np.float32(radius) + 0.5, 0, 1)
    return cover


def _blob(across: Floats, down: Floats, dice: _Dice) -> Floats:
    height, width = across.shape
    radius = min(width, height) * dice.uniform(0.03, 0.14)
    x, y = across - width * dice.uniform(0, 1), down - height * dice.uniform(0, 1)
    cover: Floats = np.clip(np.float32(radius) - np.sqrt(x * x + y * y) + 0.5, 0, 1)
    return cover


def _paint(canvas: Floats, cover: Floats, colour: Floats) -> None:
    """Where cover is 1 the colour is seen, in between a mixture: edges are smooth."""
    layer = colour - canvas
    layer *= cover[:, :, None]
    canvas += layer


def _saved(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _on_its_side(pixels: npt.NDArray[np.uint8]) -> bytes:
    exif = Image.Exif()
    exif[_ORIENTATION] = _ON_ITS_SIDE
    turned = Image.fromarray(pixels).transpose(Image.Transpose.ROTATE_90)
    return _saved(turned, quality=_QUALITY, exif=exif)


_ODD: Final[dict[int, Callable[[npt.NDArray[np.uint8]], bytes]]] = {
    1: lambda pixels: _saved(Image.fromarray(pixels).convert("CMYK"), quality=_QUALITY),
    2: lambda pixels: _saved(Image.fromarray(pixels).convert("L"), quality=_QUALITY),
    3: lambda pixels: _saved(Image.fromarray(pixels), "PNG"),
    4: _on_its_side,
    5: lambda pixels: _saved(Image.fromarray(pixels[:1, :1]), quality=_QUALITY),
}
