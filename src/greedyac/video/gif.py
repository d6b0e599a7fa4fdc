"""GIF films, frame by frame: Pillow chooses colours and compresses, this file puts the pieces together.

A frame is the rectangle that changed since the one before, with colours of its own, and transparent where nothing
changed. Only two frames are in memory at a time, beside the film itself.
"""

import io
import itertools
import struct
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from greedyac.video.frame import Frame

FASTEST = 50
"""Frames per second that viewers show at the right speed; most slow down what is faster."""
_CLEAR = 255
"""The transparent colour's number; the others are 0 … 254."""


def encode(frames: Iterable[Frame], fps: float) -> bytes:
    """A GIF that loops for ever: `frames: [height, width, 3]`, all of one size, at least one.

    GIF counts time in hundredths of a second: each frame lasts until the hundredth nearest to the next one's time,
    and of more than 50 frames per second every second, or third, …, is kept.
    """
    step = max(1, int(np.ceil(fps / FASTEST)))
    film, before = io.BytesIO(), None
    for frame, delay in zip(itertools.islice(frames, 0, None, step), _delays(fps / step), strict=False):
        if before is None:
            film.write(_header(frame.shape[1], frame.shape[0]))
        film.write(_block(frame, before, delay))
        before = frame
    if before is None:
        raise ValueError("a film needs at least one frame")
    film.write(b";")
    return film.getvalue()


def _delays(fps: float) -> Iterator[int]:
    """Hundredths of a second that each frame lasts, the rounding never adding up."""
    times = (round(100 * number / fps) for number in itertools.count())
    return (later - earlier for earlier, later in itertools.pairwise(times))


def _header(width: int, height: int) -> bytes:
    """Of a film without colours of its own that is repeated for ever."""
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0x70, 0, 0) + b"!\xff\x0bNETSCAPE2.0\x03\x01\0\0\0"


def _block(frame: Frame, before: Frame | None, delay: int) -> bytes:
    """One frame: its time, its place, its colours and its pixels."""
    changed = np.ones(frame.shape[:2], bool) if before is None else (frame != before).any(-1)
    changed[0, 0] |= not changed.any()  # a frame has at least one pixel
    top, bottom = np.flatnonzero(changed.any(1))[[0, -1]]
    left, right = np.flatnonzero(changed.any(0))[[0, -1]]
    box = slice(top, bottom + 1), slice(left, right + 1)
    numbers, palette = _indexed(frame[changed])
    whole = np.full(changed.shape, _CLEAR, np.uint8)
    whole[changed] = numbers
    pixels = whole[box]
    height, width = pixels.shape
    control = b"!\xf9\x04" + struct.pack("<BHBB", 0b00000101, delay, _CLEAR, 0)  # drawn over the frame before
    place = b"," + struct.pack("<HHHHB", left, top, width, height, 0x87)
    return control + place + palette + _compressed(pixels)


def _indexed(colours: Frame) -> tuple[NDArray[np.uint8], bytes]:
    """`colours: [n, 3]` as numbers `[n]` into at most 255 of them, and these in 256 · 3 bytes."""
    picture = Image.fromarray(colours[None]).quantize(_CLEAR, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    palette = bytes(picture.getpalette() or ())[: 3 * _CLEAR]
    return np.asarray(picture)[0], palette.ljust(3 * 256, b"\0")


def _compressed(pixels: NDArray[np.uint8]) -> bytes:
    """The pixels as GIF's image data, cut out of a film of one frame that Pillow wrote."""
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "GIF", optimize=False, interlace=0)
    film = written.getvalue()
    size_of_header = 13 + 3 * 2 ** ((film[10] & 7) + 1)
    start = film.index(b",", size_of_header)
    return film[start + 10 : -1]
