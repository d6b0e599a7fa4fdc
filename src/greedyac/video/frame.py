"""Frames of a film as arrays: with a caption, and side by side."""

from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Frame = NDArray[np.uint8]
"""A picture, `[height, width, 3]`."""
HEIGHT = 400
"""Of frames and panels, in pixels, unless told."""
CAPTION, GAP = 24, 12
"""Pixels below a frame for its caption, and between a frame and its panel."""


def captioned(frame: Frame, caption: str, height: int = HEIGHT) -> Frame:
    """The frame, scaled so that it and a line of text below it are `height` pixels high."""
    inner = height - CAPTION
    width = max(1, round(frame.shape[1] * inner / frame.shape[0]))
    way = Image.Resampling.NEAREST if inner >= 2 * frame.shape[0] else Image.Resampling.LANCZOS  # few pixels stay sharp
    page = Image.new("RGB", (width, height), "white")
    page.paste(Image.fromarray(frame).resize((width, inner), way))
    ImageDraw.Draw(page).text((4, height - CAPTION / 2), caption, "#262626", _font(), anchor="lm")
    return np.asarray(page)


@lru_cache(maxsize=1)
def _font() -> ImageFont.FreeTypeFont:
    """Matplotlib's, as in the panel."""
    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), 13)


def beside(frame: Frame, panel: Frame) -> Frame:
    """Two pictures side by side with a white gap; white below the lower one."""
    height = max(len(frame), len(panel))
    both = np.full((height, frame.shape[1] + GAP + panel.shape[1], 3), 255, np.uint8)
    both[: len(frame), : frame.shape[1]] = frame
    both[: len(panel), -panel.shape[1] :] = panel
    return both
