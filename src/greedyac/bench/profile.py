"""Where the time of a training step goes: the kernels of the compiled program, by the function that they are for.

XLA's profiler tells how long each kernel takes, and the program's text which line of ours it came from.
"""

import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax

from greedyac.training.config import MAX_STEPS, RunConfig
from greedyac.training.lanes import LaneBatch

STEPS = 200
KINDS = ("products", "random", "optimizer", "other")
"""Matrix products, random numbers, Adam and moving averages, and all else."""
PACKAGE = Path(__file__).parents[1]
TOOLS = ("nn", "core")
"""Packages: what is done there is told of the function that asked for it."""
OUTSIDE = "(not known)"
"""What the compiler made up itself, such as copies."""


class Kernel(NamedTuple):
    """What the program's text says of one kernel."""

    function: str
    kind: str


class Part(NamedTuple):
    """What one function's kernels take; microseconds of one run's step, by `KINDS`. Fields of `--profile --json`."""

    function: str
    microseconds: dict[str, float]
    kernels: float
    """How many there are in a step of all lanes."""

    @property
    def total(self) -> float:
        """Of all kinds."""
        return sum(self.microseconds.values())


class Profile(NamedTuple):
    """All parts of a step, the longest first, and the time of a step when nobody is watching."""

    agent: str
    env: str
    lanes: int
    microseconds: float
    parts: list[Part]


def profile(config: RunConfig, lanes: int, steps: int = STEPS) -> Profile:
    """Train side by side on this process' cores, first unobserved, then under XLA's profiler."""
    with _of_this_code():
        ran = LaneBatch([config.learner] * lanes, config.world, range(lanes), MAX_STEPS)
    kernels = kernels_of(ran.text())
    ran.advance(2 * config.learner.batch_size + steps)
    began = time.perf_counter()
    ran.advance(steps)
    seconds = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            ran.advance(steps)
        (file,) = Path(folder).rglob("*.xplane.pb")
        observed = jax.profiler.ProfileData.from_file(str(file))
        events = [
            (event.name, event.duration_ns / 1e3)
            for plane in observed.planes
            for line in plane.lines
            for event in line.events
        ]
    parts = parts_of(events, kernels, steps, lanes)
    return Profile(config.agent, config.env, lanes, seconds * 1e6 / steps / lanes, parts)


@contextmanager
def _of_this_code() -> Iterator[None]:
    """Compiles anew what was kept by equal code elsewhere: its text has the files and lines from there."""
    config: Any = jax.config
    before = config.jax_compilation_cache_include_metadata_in_key
    config.update("jax_compilation_cache_include_metadata_in_key", True)
    try:
        yield
    finally:
        config.update("jax_compilation_cache_include_metadata_in_key", before)


def parts_of(events: Iterable[tuple[str, float]], kernels: dict[str, Kernel], steps: int, lanes: int) -> list[Part]:
    """The `(kernel, microseconds)` events of so many steps, by function; events that are no kernels don't count."""
    spent: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(KINDS, 0.0))
    count: dict[str, int] = defaultdict(int)
    for name, microseconds in events:
        if (kernel := kernels.get(name)) is not None:
            spent[kernel.function][kernel.kind] += microseconds / steps / lanes
            count[kernel.function] += 1
    parts = [Part(function, kinds, count[function] / steps) for function, kinds in spent.items()]
    return sorted(parts, key=lambda part: -part.total)


_INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%(?P<name>[\w.\-]+) = (?:\([^)]*\)|\S+) (?P<operation>[\w\-]+)\(", re.MULTILINE
)
_CONTAINERS = ("while", "conditional", "call", "parameter", "get-tuple-element", "tuple", "constant")
"""They take no time of their own."""


def kernels_of(text: str) -> dict[str, Kernel]:
    """Every instruction of a compiled program's text that may be a kernel."""
    stack, kernels = _Stack(text), {}
    for found in _INSTRUCTION.finditer(text):
        if found["operation"] in _CONTAINERS:
            continue
        line = text[found.start() : text.find("\n", found.start() + 1)]
        frames = stack.frames(int(frame[1])) if (frame := re.search(r"stack_frame_id=(\d+)", line)) else []
        asked = re.search(r'op_name="([^"]*)"', line)
        kernels[found["name"]] = Kernel(_function(frames), _kind(found["operation"], asked[1] if asked else "", frames))
    return kernels


def _function(frames: list[tuple[str, str]]) -> str:
    """The innermost function of ours that is not a tool; `Class.method`, nested functions without `<locals>`."""
    for package, name in frames:
        if package not in TOOLS:
            return name.replace(".<locals>", "")
    return frames[0][1] if frames else OUTSIDE


def _kind(operation: str, asked: str, frames: list[tuple[str, str]]) -> str:
    inside = [name.partition(".<locals>")[0] for package, name in frames if package in TOOLS]
    if any(name.endswith(".noise") or name == "computed_once" for name in inside) or re.search(
        "random|_randint", asked
    ):
        return "random"
    if operation == "dot" or asked.endswith("dot_general"):
        return "products"
    return "optimizer" if inside and inside[0] in ("adam_step", "polyak_update") else "other"


class _Stack:
    """The tables of stack frames with which a program's text begins; empty if it has none."""

    def __init__(self, text: str):
        self._files, self._functions, self._places, self._frames = (
            {int(line.split(" ", 1)[0]): line.split(" ", 1)[1] for line in _section(text, title)}
            for title in ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
        )

    def frames(self, number: int) -> list[tuple[str, str]]:
        """Package and function of our frames, the innermost first. (A parent's number is written one too high.)"""
        ours = []
        while number in self._frames:
            frame = _fields(self._frames[number])
            place = _fields(self._places[frame["file_location_id"]])
            file = Path(self._files[place["file_name_id"]].strip('"'))
            if PACKAGE in file.parents:
                ours.append((file.relative_to(PACKAGE).parts[0], self._functions[place["function_name_id"]].strip('"')))
            number = frame.get("parent_frame_id", 1) - 1
        return ours


def _section(text: str, title: str) -> list[str]:
    _, _, after = text.partition(f"\n{title}\n")
    return [line for line in after.partition("\n\n")[0].splitlines() if line]


def _fields(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", text)}
