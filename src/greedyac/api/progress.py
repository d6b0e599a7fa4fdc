"""Progress: a bar on a terminal or in a notebook, plain lines elsewhere; on standard error, but for the notebook's."""

import html
import time
from collections.abc import Iterator
from importlib import import_module
from types import TracebackType
from typing import Any, NamedTuple

from rich import progress as bars
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_UPDATES = 0.25
NOTEBOOK_BAR = 30


class Progress(NamedTuple):
    """How far training has come: run-steps done of all, and run-steps per second since the first step."""

    done: int
    total: int
    rate: float | None


class _Bar(bars.Progress):
    """A bar with a line of words below it."""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        yield from (Text(task.fields["text"]) for task in self.tasks)


class _Notebook:
    """A bar below a notebook's cell, which changes in place. It needs no widgets."""

    def __init__(self, label: str):
        self._label, self._share, self._text = label, 0.0, ""
        self._started, self._shown_at = time.monotonic(), -SECONDS_BETWEEN_UPDATES
        self._display: Any = None

    def show(self, share: float, text: str) -> None:
        """Show this, unless something was shown a moment ago."""
        self._share, self._text = share, text
        if time.monotonic() - self._shown_at >= SECONDS_BETWEEN_UPDATES:
            self.refresh()

    def refresh(self) -> None:
        """Show the last that is known."""
        self._shown_at = time.monotonic()
        if self._display is None:
            self._display = import_module("IPython.display").display(self._bundle(), raw=True, display_id=True)
        else:
            self._display.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        """As text and, for those who see them, as a bar."""
        words = f"{100 * self._share:.0f} %  {duration(self._shown_at - self._started)}  {self._text}".rstrip()
        full = round(NOTEBOOK_BAR * self._share)
        plain = f"{self._label}  {'█' * full}{'░' * (NOTEBOOK_BAR - full)}  {words}"
        bar = f'<progress max="1" value="{self._share:.4f}" style="width: 18em"></progress>'
        return {"text/plain": plain, "text/html": f"<div>{html.escape(self._label)} {bar} {html.escape(words)}</div>"}


class ProgressReport:
    """Tells how far work has come; use it inside a `with`. Where there is no bar, in `lines`, or not at all."""

    def __init__(self, label: str, lines: bool = True):
        self._lines = lines
        self._console = Console(stderr=True, highlight=False)
        self._label = escape(label)
        self._bar: _Bar | None = None
        self._notebook = _Notebook(label) if self._console.is_jupyter else None
        self._line_at = time.monotonic()
        if self._console.is_terminal and not self._notebook:
            self._bar = _Bar(
                bars.TextColumn("{task.description}"),
                bars.BarColumn(bar_width=30),
                bars.TextColumn("{task.percentage:3.0f} %"),
                bars.TimeElapsedColumn(),
                console=self._console,
            )
            self._task = self._bar.add_task(self._label, total=None, text="")

    def __enter__(self) -> "ProgressReport":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()
        if self._notebook:
            self._notebook.refresh()

    def show(self, share: float, text: str) -> None:
        """Show that this share of the work is done, with some more words; nothing done yet is a moving bar."""
        if self._notebook:
            self._notebook.show(share, text)
        elif self._bar:
            self._bar.update(self._task, completed=share, total=1.0 if share else None, text=text)
        elif self._lines and (share == 1 or time.monotonic() - self._line_at > SECONDS_BETWEEN_LINES):
            self._line_at = time.monotonic()
            self._console.print(f"{self._label}  {100 * share:.0f} %  {text}", soft_wrap=True)

    def training(self, training: Progress) -> None:
        """Show how far `train` has come."""
        left = (training.total - training.done) / training.rate if training.rate else None
        self.show(training.done / training.total, speed(training.rate, left))

    def say(self, message: str) -> None:
        """Print a line of its own, unless there are none and no bar."""
        if not (self._lines or self._bar or self._notebook):
            return
        self._console.print(escape(message), soft_wrap=True)


def speed(rate: float | None, seconds_left: float | None) -> str:
    """Run-steps per second and the time that is left, or that nothing is known yet."""
    if rate is None or seconds_left is None:
        return "compiling …"
    return f"{rate:,.0f} run-steps/s" + (f", {duration(seconds_left)} left" if seconds_left >= 1 else "")


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    hours, days = minutes // 60, minutes // (24 * 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{days} d {hours % 24} h"
