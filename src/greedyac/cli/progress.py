"""Progress of training: a bar on a terminal, plain lines elsewhere."""

import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from greedyac.training.train import Progress as Training

SECONDS_BETWEEN_LINES = 10.0


class ProgressReport:
    """Call it with each `Training` progress, inside a `with`."""

    def __init__(self, label: str):
        self._console = Console(stderr=True)
        self._label = label = escape(label)
        self._bar: Progress | None = None
        self._line_at = time.monotonic()
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                TextColumn("{task.percentage:3.0f} %"),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._task = self._bar.add_task(label, total=None, rate="compiling …")

    def __enter__(self) -> "ProgressReport":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, training: Training) -> None:
        """Show how far training has come."""
        rate = "compiling …" if training.rate is None else f"{training.rate:,.0f} run-steps/s"
        if self._bar:
            total = training.total if training.done else None
            self._bar.update(self._task, completed=training.done, total=total, rate=rate)
        elif training.done == training.total or time.monotonic() - self._line_at > SECONDS_BETWEEN_LINES:
            self._line_at = time.monotonic()
            share = 100 * training.done / training.total
            self._console.print(f"{self._label}  {share:.0f} %  {rate}", soft_wrap=True)
