"""Episodes as frames, and frames as a film or in a window.

Frames are made when they are asked for, so that a long episode needs little memory and a window shows it at once.
"""

import importlib
import itertools
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from greedyac.core.atomic import write_atomically
from greedyac.core.errors import InputError
from greedyac.video import gif
from greedyac.video.frame import HEIGHT, Frame, beside, captioned

SUFFIXES = (".gif", ".mp4")


def episode_frames(
    env: gymnasium.Env[Any, Any],
    act: Callable[[Any], Any],
    seed: int,
    max_steps: int,
    panel: Callable[[Any, Any], Frame] | None = None,
    height: int = HEIGHT,
) -> Iterator[Frame]:
    """An episode of an environment that renders `rgb_array`: the start, and then a frame after every step.

    `act` takes an observation to an action; `panel` takes both to a picture of why, shown beside the frame in which
    that action is chosen. The last frame, in which none is, keeps the panel of the one before.
    """
    observation, _ = env.reset(seed=seed)
    step, total, ended, why = 0, 0.0, False, None
    while not ended and step < max_steps:
        action = act(observation)
        why = panel(observation, action) if panel else None
        yield _frame(env, step, total, why, height)
        observation, reward, terminated, truncated, _ = env.step(action)
        step, total, ended = step + 1, total + float(reward), terminated or truncated
    yield _frame(env, step, total, why, height)


def _frame(env: gymnasium.Env[Any, Any], step: int, total: float, why: Frame | None, height: int) -> Frame:
    caption = f"step {step}, return {total:.1f}".replace("-", "−")
    frame = captioned(_rendered(env), caption, height)
    return frame if why is None else beside(frame, why)


def _rendered(env: gymnasium.Env[Any, Any]) -> Frame:
    frame = env.render()
    if not isinstance(frame, np.ndarray):
        raise InputError(
            f'the environment renders no pictures; make it with render_mode="rgb_array", not {env.render_mode!r}'
        )
    if frame.dtype.kind == "f" and frame.max() <= 1:  # MinAtar's colours
        frame = 255 * frame
    return np.asarray(frame, np.uint8)


def write_film(frames: Iterable[Frame], path: Path, fps: float) -> None:
    """Write `frames: [height, width, 3]`, all of one size, as a GIF or MP4; the file is there whole or not at all."""
    check_film(path)
    write_atomically(path, gif.encode(frames, fps) if path.suffix.lower() == ".gif" else _mp4(frames, fps))


def check_film(path: Path) -> None:
    """Raise an `InputError` if no film can be written there, before anything is drawn."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"a film {str(path)!r} can't be written; allowed: names that end in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise InputError(f"the folder {str(path.parent)!r} of the film does not exist")
    if path.is_dir():
        raise InputError(f"a film can't be written to {str(path)!r}: it is a folder")
    if path.suffix.lower() == ".mp4":
        _from_extra("imageio_ffmpeg", "an .mp4 film")


def _mp4(frames: Iterable[Frame], fps: float) -> bytes:
    """The film as H.264, which wants even widths and heights: odd ones get a white line."""
    even = (
        np.pad(frame, [(0, len(frame) % 2), (0, frame.shape[1] % 2), (0, 0)], constant_values=255) for frame in frames
    )
    first = next(even, None)
    if first is None:
        raise ValueError("a film needs at least one frame")
    with tempfile.TemporaryDirectory() as folder:
        film, words = Path(folder, "film.mp4"), Path(folder, "errors.txt")
        with words.open("wb") as errors:
            ffmpeg = subprocess.Popen(
                [*_ffmpeg(first.shape[1], first.shape[0], fps), film],
                stdin=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for us
            )
        assert ffmpeg.stdin is not None
        try:
            with suppress(BrokenPipeError), ffmpeg.stdin as pipe:  # its exit code tells
                for frame in itertools.chain([first], even):
                    pipe.write(frame.tobytes())
            if ffmpeg.wait():
                raise OSError(f"ffmpeg failed: {words.read_text(errors='replace').strip()}")
        finally:
            ffmpeg.kill()
            ffmpeg.wait()
        return film.read_bytes()


def _ffmpeg(width: int, height: int, fps: float) -> list[str]:
    """The command that takes frames and, as its last argument, a file."""
    program = _from_extra("imageio_ffmpeg", "an .mp4 film").get_ffmpeg_exe()
    given = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {fps:g} -i -"
    wanted = "-c:v libx264 -pix_fmt yuv420p -crf 18 -movflags +faststart"
    return [program, "-y", "-loglevel", "error", *given.split(), *wanted.split()]


def show_window(frames: Iterable[Frame], fps: float, title: str) -> None:
    """Show frames in a window until they end, it is closed, or Esc is pressed."""
    pygame = _open_display()
    try:
        screen, clock = None, pygame.time.Clock()
        for frame in frames:
            size = frame.shape[1], frame.shape[0]
            if screen is None:
                screen = pygame.display.set_mode(size)
                pygame.display.set_caption(title)
            screen.blit(pygame.image.frombuffer(frame.tobytes(), size, "RGB"), (0, 0))
            clock.tick(fps)
            pygame.display.flip()
            if any(_ends(pygame, event) for event in pygame.event.get()):
                return
    finally:
        pygame.display.quit()


def _ends(pygame: Any, event: Any) -> bool:
    return event.type == pygame.QUIT or (event.type == pygame.KEYDOWN and event.key == pygame.K_ESCAPE)


def _open_display() -> Any:
    """Pygame with a display; where there is none SDL may draw into memory, which nobody sees."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    pygame = _from_extra("pygame", "a window")
    try:
        pygame.display.init()
        if pygame.display.get_driver() == "offscreen" and not os.environ.get("SDL_VIDEODRIVER"):
            pygame.display.quit()
            raise pygame.error("no screen")
    except pygame.error as error:
        raise InputError(f"there is no display for a window ({error}); write a film instead: --out film.gif") from None
    return pygame


def _from_extra(module: str, what: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f"{what} needs {module.replace('_', '-')}: pip install 'greedyac[play]'") from None
