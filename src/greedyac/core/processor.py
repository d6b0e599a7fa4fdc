"""The processor of this machine: what a result's last bits depend on, and what a compiled program was made for."""

import platform
import re
from functools import cache
from pathlib import Path

_NUMBERS = ("cpu family", "model", "CPU implementer", "CPU part")
"""The last two are those of ARM. Processors that differ in them were seen to differ in the last bits of a run."""


@cache
def processor() -> str:
    """Its type: its name, which in a virtual machine can stand for several, and its numbers."""
    return processor_of(_info())


def processor_of(info: str) -> str:
    """The same, of a machine whose /proc/cpuinfo is given."""
    fields = _fields(info)
    numbers = [f"{name} {fields[name]}" for name in _NUMBERS if name in fields]
    parts = [fields.get("model name", platform.processor()), *numbers]
    return f"{platform.machine()} {', '.join(filter(None, parts))}".strip()


@cache
def instructions() -> str:
    """The sets of instructions that it has, as the system names them; empty where it names none."""
    fields = _fields(_info())
    return " ".join(sorted(fields.get("flags", fields.get("Features", "")).split()))


def _info() -> str:
    info = Path("/proc/cpuinfo")
    return info.read_text() if info.exists() else ""


def _fields(info: str) -> dict[str, str]:
    """Those of the first core."""
    return dict(re.findall(r"^(.+?)\s*: (.+)$", info.partition("\n\n")[0], re.MULTILINE))
