"""The exception for a user's mistakes, how its message finds the nearest match, and the one for failed workers.

The command line prints an `InputError` as one line and exits with code 2; in Python it is a `ValueError`.
"""

import difflib
from collections.abc import Iterable
from typing import Any


class InputError(ValueError):
    """A value that a user gave and that can't be used; the message is one line and says what is allowed."""


class EnvError(InputError):
    """An environment that can't be made here: something that it needs is not installed, or it fails."""


class WorkerError(RuntimeError):
    """A worker process died, or could not train its runs; `result` holds the runs that had finished."""

    result: Any = None


def unknown_name(kind: str, value: str, allowed: Iterable[str], nearby: Iterable[str] = ()) -> InputError:
    """An error that names an unknown `value`, its nearest match if there is one, and all that is allowed.

    Names `nearby` are allowed, too, but too many to list.
    """
    value, allowed = str(value), list(allowed)
    folded = {name.casefold(): name for name in (*nearby, *allowed)}
    close = difflib.get_close_matches(value.casefold(), folded, n=1, cutoff=0.5)
    hint = f" (did you mean {folded[close[0]]!r}?)" if close else ""
    return InputError(f"unknown {kind} {value!r}{hint}; allowed: {', '.join(allowed) or 'none'}")
