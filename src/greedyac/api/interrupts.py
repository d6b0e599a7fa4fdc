"""Ctrl-C while a training loop is driven in this process: not in the middle of a step."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class DeferredInterrupt:
    """With Ctrl-C while steps are under way: in the middle of one it would cost all that was learned. Not twice."""

    def __init__(self) -> None:
        self._asked = self._lost = False

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Inside, Ctrl-C waits for `end`. Elsewhere than in the main thread, or where it is handled, nothing is new."""
        theirs = signal.getsignal(signal.SIGINT)
        if theirs is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
            yield
            return
        signal.signal(signal.SIGINT, self._ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, theirs)
        self.end()

    def _ask(self, *_: object) -> None:
        if self._asked or self._lost:
            raise KeyboardInterrupt
        self._asked = True

    @contextlib.contextmanager
    def lost(self) -> Iterator[None]:
        """Inside, no step is under way, and Ctrl-C interrupts at once."""
        self._lost = True
        try:
            self.end()
            yield
        finally:
            self._lost = False

    def end(self) -> None:
        """Interrupt now, if it was asked for."""
        if self._asked:
            raise KeyboardInterrupt
