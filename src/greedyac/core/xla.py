"""How everything here is compiled: for instructions that keep a run's bits, in float32, and not twice on one machine.

With AVX-512 the bits of a run depend on the lanes beside it, as they don't with AVX2. So we do without. With jaxlib
0.12 they do with AVX2, too: LLVM fuses one of the products of a·b + c·d with the sum, which is then rounded only once,
and which of them depends on how it has vectorized and unrolled the loop. AVX has no such instruction.

The modules of JAX that are private are used nowhere else: to ask whether JAX has started, and to give our programs our
cache in place of JAX's own, which neither checks what it reads nor keeps to a size without another package.
"""

import os
import platform
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, wraps
from importlib.metadata import version
from typing import Any, ParamSpec, TypeVar

import jax
from jax._src import compilation_cache, config, xla_bridge

from greedyac.core.program_cache import ProgramCache, cache_folder

P = ParamSpec("P")
T = TypeVar("T")

_CONFIG: Any = jax.config
_X64: Any = jax.enable_x64
_MIN_SECONDS: Any = config.persistent_cache_min_compile_time_secs
"""Of the thread that enters it, as `jax.enable_x64` is."""
_FLAG = "--xla_cpu_max_isa="
UNKNOWN = "unknown"
"""In place of a limit, where JAX had started before us, or takes its flags from a file."""
MIN_SECONDS = 0.2
"""Programs that compile faster are not worth a file."""


def configured(function: Callable[P, T]) -> Callable[P, T]:
    """The same function; what it compiles is held to our instructions, computed in float32, and cached.

    That holds for the thread that calls it: one that it starts needs to be configured, too.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        start()
        before = _THREAD.is_ours
        try:
            _THREAD.is_ours = True
            with _X64(False), nullcontext() if _has_user_cache() else _MIN_SECONDS(MIN_SECONDS):
                return function(*args, **kwargs)
        finally:
            _THREAD.is_ours = before

    return call


def in_float32(function: Callable[P, T]) -> Callable[P, T]:
    """The same function, without 64 bits whatever `jax_enable_x64` says. For shapes, which need no JAX that runs."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with _X64(False):
            return function(*args, **kwargs)

    return call


def our_limit() -> str:
    """The most that the installed XLA may use of a processor; empty where no limit is needed."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ""
    major, minor, *_ = version("jaxlib").split(".")
    return "AVX2" if (int(major), int(minor)) < (0, 12) else "AVX"


def deviation() -> dict[str, str]:
    """What XLA is held to if it is not our limit: then a run's bits may be others. For the `versions` of a row."""
    held = start()
    return {} if held == our_limit() else {"xla_cpu_max_isa": held}


_STARTING = threading.Lock()
_held: str | None = None


def start() -> str:
    """Start JAX, held to our limit unless the user named another or has started it; what it is held to."""
    global _held
    if _held is None:
        with _STARTING:
            _held = _start() if _held is None else _held
    return _held


def _start() -> str:
    """XLA reads the environment only now. Programs that are started from here get it as it was."""
    given, limit = os.environ.get("XLA_FLAGS"), our_limit()
    words = (given or "").split()
    if words and not words[0].startswith("-"):  # the name of a file
        return UNKNOWN
    if xla_bridge.backends_are_initialized():  # with flags that may have changed since
        return UNKNOWN if limit or _FLAG in (given or "") else ""
    if named := [word for word in words if word.startswith(_FLAG)]:
        return named[-1].removeprefix(_FLAG)
    if not limit:
        return ""
    os.environ["XLA_FLAGS"] = f"{given or ''} {_FLAG}{limit}".lstrip()
    try:
        jax.devices()
    finally:
        del os.environ["XLA_FLAGS"]
        if given is not None:
            os.environ["XLA_FLAGS"] = given
    return limit


class _Thread(threading.local):
    is_ours = False
    """Whether the thread is in a function of ours: only then its programs are for our cache."""


_THREAD = _Thread()
_cache_of_jax = compilation_cache._get_cache


def _cache(backend: Any) -> Any:
    """JAX asks for its cache here. Programs of ours are for our cache, unless the user has set one up."""
    ours = None if not _THREAD.is_ours or _has_user_cache() else _program_cache()
    return _cache_of_jax(backend) if ours is None else ours


compilation_cache._get_cache = _cache


def _has_user_cache() -> bool:
    return bool(_CONFIG.jax_compilation_cache_dir) or compilation_cache._cache is not None


@cache
def _program_cache() -> ProgramCache | None:
    """None where XLA is not held to our limit, too: with AVX-512 it complains of its own programs (JAX issue 38445)."""
    folder = cache_folder()
    return ProgramCache(folder, our_limit()) if folder is not None and start() == our_limit() else None
