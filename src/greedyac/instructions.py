"""Which of a processor's instructions XLA may use. It reads this only once, when JAX starts; nothing here imports JAX.

With AVX-512 the bits of a run depend on the lanes beside it, as they don't with AVX2. So we do without. With jaxlib
0.12 they do with AVX2, too: LLVM fuses one of the products of a·b + c·d with the sum, which is then rounded only once,
and which of them depends on how it has vectorized and unrolled the loop. AVX has no such instruction.
"""

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version

_FLAG = "--xla_cpu_max_isa="


def cap() -> None:
    """Have XLA use no more than is good for a run's bits, unless the user says what it may use."""
    given = os.environ.get("XLA_FLAGS", "")
    if platform.machine().lower() in ("x86_64", "amd64") and _FLAG not in given:
        os.environ["XLA_FLAGS"] = f"{given} {flag()}".lstrip()


def flag() -> str:
    """What is said to the XLA that is installed."""
    major, minor, *_ = version("jaxlib").split(".")
    return _FLAG + ("AVX2" if (int(major), int(minor)) < (0, 12) else "AVX")


def without_cap(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for programs that are not ours."""
    return {**environment, "XLA_FLAGS": environment.get("XLA_FLAGS", "").removesuffix(flag()).rstrip()}
