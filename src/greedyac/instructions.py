"""Which of a processor's instructions XLA may use. It reads this only once, when JAX starts; nothing here imports JAX.

With AVX-512 the bits of a run depend on the lanes beside it, as they don't with AVX2. So we do without.
"""

import os
import platform
from collections.abc import Mapping

CAP = "--xla_cpu_max_isa=AVX2"


def cap() -> None:
    """Have XLA use no more than AVX2, unless the user says what it may use."""
    given = os.environ.get("XLA_FLAGS", "")
    if platform.machine().lower() in ("x86_64", "amd64") and "xla_cpu_max_isa" not in given:
        os.environ["XLA_FLAGS"] = f"{given} {CAP}".lstrip()


def without_cap(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for programs that are not ours."""
    return {**environment, "XLA_FLAGS": environment.get("XLA_FLAGS", "").removesuffix(CAP).rstrip()}
