"""One picture from a stranger: is it one, and what does it take to make it a plain JPEG?

Plain means: an upright JPEG that decodes to RGB without a warning. ILSVRC has a PNG named JPEG,
JPEGs in CMYK, and phones' pictures that lie on their side; those are written anew, the others keep
their bytes. Where pictures come from and go to is not known here.
"""

import io
import warnings
from dataclasses import dataclass
from typing import Final

import numpy as np

from paceline.errors import UserError

try:
    import simplejpeg
    from PIL import Image, UnidentifiedImageError
except ModuleNotFoundError as error:
    raise UserError(
        f"pictures need the library {error.name}, which is not installed",
        "pip install Pillow simplejpeg",
    ) from error

_MOST_PIXELS: Final = 89_000_000  # a good deal more than ILSVRC's largest; Pillow warns beyond
# Pillow warns of EXIF that it cannot read; the picture is as good as without, and nobody can act.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
_FORMATS: Final = ("JPEG", "PNG", "GIF", "BMP", "WEBP")
_ORIENTATION: Final = 0x0112
_UPRIGHT: Final = 1
_TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_EXIF_MARK: Final = b"Exif\0\0"
_EXIF_WITHIN_BYTES: Final = 70_000  # a segment has 65,533 at most, and it comes first or second
# What is written anew should not look it: 95 without subsampling is 40 dB and more from the pixels.
_QUALITY: Final = 95
# A shrunk picture has lost its detail already; 90 is what FFCV and others store.
_SHRUNK_QUALITY: Final = 90


class BrokenPictureError(Exception):
    """The reason why bytes are no picture."""


@dataclass(frozen=True)
class Picture:
    """`content` is plain; `changes` says what was done to make it so, in a fixed order."""

    content: bytes
    width: int
    height: int
    changes: tuple[str, ...]


def plain_picture(content: bytes, max_side: int | None = None) -> Picture:
    """Decode all of it, and make it plain (and no larger than asked) where it is not."""
    header = _jpeg_header(content)
    if header is not None:
        height, width, colours = header
        _refuse_if_huge(width, height)
        if colours not in ("CMYK", "YCCK") and _orientation(content) == _UPRIGHT:
            pixels = _decoded(content)
            if pixels is not None:
                return _as_it_is(content, pixels, max_side)
    return _written_anew(content, header is not None, max_side)


def plain_jpeg(content: bytes) -> bytes:
    """The bytes alone, for pictures that were found to be good before."""
    return plain_picture(content).content


def _jpeg_header(content: bytes) -> tuple[int, int, str] | None:
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(content)
    except ValueError:
        return None
    return int(height), int(width), str(colours)


def _decoded(content: bytes) -> np.ndarray | None:
    """None if libjpeg has anything at all to complain of."""
    try:
        pixels: np.ndarray = simplejpeg.decode_jpeg(content)
    except ValueError:
        return None
    return pixels


def _as_it_is(content: bytes, pixels: np.ndarray, max_side: int | None) -> Picture:
    height, width = pixels.shape[:2]
    if max_side is None or max(width, height) <= max_side:
        return Picture(content, width, height, ())
    return _stored(Image.fromarray(pixels), [], max_side)


def _written_anew(content: bytes, is_jpeg: bool, max_side: int | None) -> Picture:
    """By Pillow, which knows CMYK, other formats, and what browsers forgive."""
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            _refuse_if_huge(*image.size)
            changes = _changes_needed(image, is_jpeg)
            turn = _TURNS.get(image.getexif().get(_ORIENTATION, _UPRIGHT))
            upright = image.convert("RGB")
    except BrokenPictureError:
        raise
    except Exception as error:  # damaged bytes meet decoders with errors of every kind
        raise BrokenPictureError(_reason(error)) from error
    return _stored(upright.transpose(turn) if turn is not None else upright, changes, max_side)


def _changes_needed(image: Image.Image, is_jpeg: bool) -> list[str]:
    changes = []
    if image.format != "JPEG":
        changes.append(f"{image.format} made JPEG")
    if image.mode == "CMYK":
        changes.append("CMYK made RGB")
    if image.getexif().get(_ORIENTATION, _UPRIGHT) in _TURNS:
        changes.append("turned upright")
    return changes or ["repaired" if is_jpeg else "made plain"]


def _stored(image: Image.Image, changes: list[str], max_side: int | None) -> Picture:
    quality = _QUALITY
    if max_side is not None and max(image.size) > max_side:
        image = image.resize(_fitting(image.size, max_side), Image.Resampling.LANCZOS)
        changes = [*changes, "shrunk"]
        quality = _SHRUNK_QUALITY
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality, subsampling=0 if quality == _QUALITY else 2)
    return Picture(file.getvalue(), image.width, image.height, tuple(changes))


def _fitting(size: tuple[int, int], max_side: int) -> tuple[int, int]:
    scale = max_side / max(size)
    width, height = (max(1, round(side * scale)) for side in size)
    return width, height


def _orientation(content: bytes) -> int:
    """Without EXIF, as most are, at the cost of one search."""
    if _EXIF_MARK not in content[:_EXIF_WITHIN_BYTES]:
        return _UPRIGHT
    try:
        with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
            turned = image.getexif().get(_ORIENTATION, _UPRIGHT)
    except Exception:  # EXIF that cannot be read says nothing
        return _UPRIGHT
    return turned if turned in _TURNS else _UPRIGHT


def _refuse_if_huge(width: int, height: int) -> None:
    if width * height > _MOST_PIXELS:
        raise BrokenPictureError(f"{width:,} x {height:,} pixels are more than a picture has")


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not a picture"
    return str(error) or type(error).__name__
