"""Everything is computed in float32, whatever the user's `jax_enable_x64` says."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
T = TypeVar("T")


def in_float32(function: Callable[P, T]) -> Callable[P, T]:
    """The same function, traced with numbers of 32 bits. Code of a user's environment must not run inside it."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with jax.enable_x64(False):
            return function(*args, **kwargs)

    return call
