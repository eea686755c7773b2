"""The input pipeline against the usual ones, on real photographs, in one run, as ratios.

Every way gets the same pictures, the same parts of them and the same flips, one after the other on
each picture (A B C, A B C, ...), on one thread. Rates are per second of processor time, so that
other tenants of the machine do not count; ratios are medians over rounds.

    python -m benchmarks.input [--pictures DIR] [--rounds N]
"""

import argparse
import ctypes
import io
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import simplejpeg
import torch
from PIL import Image

from paceline.data.order import generator
from paceline.data.readahead import ReadAhead
from paceline.machine import cores
from paceline.tasks.imagenet import decode

SIZE, SMALLEST_SHARE = 224, 0.08
SAMPLE = Path(__file__).parents[2] / "shared" / "data" / "imagenet-sample"
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

BARE_DECODER = """
#include <stddef.h>
#include <stdio.h>
#include <jpeglib.h>

int decode(const unsigned char *bytes, unsigned long num_bytes, unsigned char *pixels) {
    struct jpeg_decompress_struct picture;
    struct jpeg_error_mgr errors;
    picture.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&picture);
    jpeg_mem_src(&picture, bytes, num_bytes);
    jpeg_read_header(&picture, TRUE);
    picture.out_color_space = JCS_RGB;
    jpeg_start_decompress(&picture);
    while (picture.output_scanline < picture.output_height) {
        JSAMPROW row = pixels + (size_t)picture.output_scanline * picture.output_width * 3;
        jpeg_read_scanlines(&picture, &row, 1);
    }
    jpeg_finish_decompress(&picture);
    jpeg_destroy_decompress(&picture);
    return 0;
}
"""


@dataclass(frozen=True)
class Photo:
    jpeg: bytes
    box: np.ndarray
    flip: bool


Way = Callable[[Photo], object]


def load(directory: Path) -> list[bytes]:
    files = sorted(directory.glob("*.JPEG")) + sorted(directory.glob("*.jpg"))
    if not files:
        sys.exit(f"{directory} holds no photographs; name a directory with --pictures")
    return [file.read_bytes() for file in files]


def draw(jpegs: list[bytes], seed: int) -> list[Photo]:
    sizes = np.array([simplejpeg.decode_jpeg_header(jpeg)[:2] for jpeg in jpegs])
    rng = generator(seed)
    boxes = decode.random_boxes(sizes, SMALLEST_SHARE, SIZE, rng)
    flips = rng.random(len(jpegs)) < 0.5
    drawn = zip(jpegs, boxes, flips, strict=True)
    return [Photo(jpeg, box, bool(flip)) for jpeg, box, flip in drawn]


def ours(photo: Photo) -> np.ndarray:
    picture = decode.cut_out(photo.jpeg, photo.box, SIZE)
    return decode.mirrored(picture) if photo.flip else picture


def pillow(photo: Photo) -> np.ndarray:
    top, left, height, width = (int(value) for value in photo.box)
    picture = Image.open(io.BytesIO(photo.jpeg)).convert("RGB")
    picture = picture.crop((left, top, left + width, top + height))
    picture = picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    if photo.flip:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(picture)


def torchvision_style(photo: Photo) -> torch.Tensor:
    """ToTensor and Normalize picture by picture, as the usual recipe does."""
    pixels = torch.from_numpy(pillow(photo)).permute(2, 0, 1).contiguous()
    return pixels.to(torch.float32).div_(255).sub_(MEAN).div_(DEVIATION)


def bare_simplejpeg(photo: Photo) -> np.ndarray:
    pixels: np.ndarray = simplejpeg.decode_jpeg(photo.jpeg)
    return pixels


def bare_libjpeg(folder: Path, largest_bytes: int) -> Way | None:
    """libjpeg(-turbo) of this system, called from C; None without a compiler or its headers."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    (folder / "bare.c").write_text(BARE_DECODER)
    words = ["-O2", "-shared", "-fPIC", "-o", "bare.so", "bare.c", "-ljpeg"]
    if subprocess.run([compiler, *words], cwd=folder, capture_output=True, check=False).returncode:
        return None
    library = ctypes.CDLL(str(folder / "bare.so"))
    library.decode.argtypes = [ctypes.c_char_p, ctypes.c_ulong, ctypes.c_void_p]
    pixels = np.empty(largest_bytes, np.uint8)

    def decode_bare(photo: Photo) -> object:
        return library.decode(photo.jpeg, len(photo.jpeg), pixels.ctypes.data)

    return decode_bare


def measure(ways: dict[str, Way], jpegs: list[bytes], rounds: int) -> dict[str, list[float]]:
    """Pictures per second of processor time, by way and round."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-1, rounds):  # the first round only warms up
        photos = draw(jpegs, number + 1)
        seconds = dict.fromkeys(ways, 0.0)
        for place, photo in enumerate(photos):
            for name in rotated(list(ways), place):
                began = time.thread_time()
                ways[name](photo)
                seconds[name] += time.thread_time() - began
        if number >= 0:
            for name in ways:
                rates[name].append(len(photos) / seconds[name])
    return rates


def rotated(names: list[str], by: int) -> list[str]:
    """Whoever comes first brings the picture's bytes into the cache; so all take turns."""
    turn = by % len(names)
    return names[turn:] + names[:turn]


def show(rates: dict[str, list[float]]) -> None:
    print("| on one core, 224 px | images/s | ours against it (median) |")
    print("|---|---|---|")
    for name, values in rates.items():
        ratio = median(own / other for own, other in zip(rates["ours"], values, strict=True))
        print(f"| {name} | {median(values):.0f} | {ratio:.2f} |")


def show_agreement(jpegs: list[bytes]) -> None:
    """How far our pixels are from the reference transform's, picture by picture."""
    noises, means = [], []
    for photo in draw(jpegs, seed=0):
        difference = ours(photo).astype(np.float64) - pillow(photo)
        means.append(float(np.abs(difference).mean()))
        noises.append(float((difference**2).mean()))
    peaks = [10 * np.log10(255**2 / max(noise, 1e-6)) for noise in noises]
    print(
        f"\nPixels against Pillow's: PSNR at least {min(peaks):.1f} dB, median "
        f"{median(peaks):.1f} dB; mean difference of a picture at most {max(means):.2f} of 255."
    )


class Filling:
    units_per_place = 1

    def __init__(self, photos: list[Photo]) -> None:
        self.photos = photos
        self.pixels = np.empty((len(photos), SIZE, SIZE, 3), np.uint8)

    @property
    def num_samples(self) -> int:
        return len(self.photos)

    def fill(self, place: int) -> None:
        self.pixels[place] = ours(self.photos[place])

    def filled(self) -> np.ndarray:
        return self.pixels


def threads_rate(photos: list[Photo], num_threads: int) -> float:
    began = time.perf_counter()
    ahead = ReadAhead(lambda _index: Filling(photos), iter(range(2)), num_threads, num_ahead=2)
    for _ in range(2):
        ahead.take()
    ahead.close()
    return 2 * len(photos) / (time.perf_counter() - began)


def show_scaling(jpegs: list[bytes], rounds: int) -> None:
    num_cores = cores.num_cores()
    photos = draw(jpegs, seed=0)
    ratios = [threads_rate(photos, num_cores) / threads_rate(photos, 1) for _ in range(rounds)]
    print(f"{num_cores} threads give {median(ratios):.2f} times the pictures of one, by the clock.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=Path, default=SAMPLE)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    jpegs = load(options.pictures)
    largest = max(3 * h * w for h, w, *_ in map(simplejpeg.decode_jpeg_header, jpegs))
    ways: dict[str, Way] = {
        "ours": ours,
        "Pillow, torchvision style (floats)": torchvision_style,
        "Pillow (uint8)": pillow,
        "simplejpeg, decoding only": bare_simplejpeg,
    }
    with tempfile.TemporaryDirectory() as folder:
        bare = bare_libjpeg(Path(folder), largest)
        if bare is not None:
            ways["libjpeg of the system in C, decoding only"] = bare
        show(measure(ways, jpegs, options.rounds))
    show_agreement(jpegs)
    show_scaling(jpegs, options.rounds)


if __name__ == "__main__":
    main()
