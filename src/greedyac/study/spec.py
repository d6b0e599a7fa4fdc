"""A study as TOML: what is to be run, typed and checked before anything starts."""

import itertools
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from greedyac.agents.presets import PRESETS
from greedyac.core.errors import InputError, unknown_name
from greedyac.execution.plan import expand_configs
from greedyac.execution.seeds import seed_list
from greedyac.training.config import Run, RunConfig, check_steps

MAX_RUNS = 1_000_000
_REQUIRED, _OPTIONAL = ("name", "steps", "seeds", "cells"), ("tuning_seeds", "eval_every", "eval_episodes")
_CELL_REQUIRED, _CELL_OPTIONAL = ("agents", "envs"), ("sweep", "fixed", "preset", "env_options")


@dataclass(frozen=True)
class Study:
    """Configurations × seeds, and which of the seeds a selection may see."""

    name: str
    configs: tuple[RunConfig, ...]
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    text: str
    """The file, as it was written."""

    def runs(self) -> dict[str, Run]:
        """All runs by their ids, in order; one that two cells name is there once."""
        return {config.run_id(seed): Run(config, seed) for config in self.configs for seed in self.seeds}


def shipped_studies() -> dict[str, Traversable]:
    """The studies that come with the package, by name."""
    return dict(sorted(_toml_files("", resources.files("greedyac") / "studies")))


def _toml_files(prefix: str, folder: Traversable) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _toml_files(f"{prefix}{entry.name}/", entry)
        elif entry.name.endswith(".toml"):
            yield prefix + entry.name.removesuffix(".toml"), entry


def load_study(which: str) -> Study:
    """The study in a TOML file, or the shipped one of that name."""
    shipped = shipped_studies()
    if "\0" in which or (not which.endswith(".toml") and which not in shipped):
        raise unknown_name("study", which, [*shipped, "or the path of a .toml file"])
    file: Traversable | Path = Path(which) if which.endswith(".toml") else shipped[which]
    with _named(f"study {which!r}"):
        try:
            return parse_study(file.read_bytes().decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise InputError("it is not UTF-8 text") from None
        except OSError as error:
            hint = f" (did you mean {which[:-5]!r}?)" if which[:-5] in shipped else ""
            raise InputError(f"it can't be read: {error.strerror}{hint}") from None


def parse_study(text: str) -> Study:
    """The study that a TOML text describes, every value of it checked."""
    try:
        given = tomllib.loads(text)
        _check_sizes(given)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"it is not valid TOML: {error}") from None
    _check_keys(given, _REQUIRED, _OPTIONAL)
    name, cells = given["name"], given["cells"]
    if not (isinstance(name, str) and name.strip() and name.isprintable()):
        raise InputError(f"name = {name!r} is not allowed; allowed: one line of text")
    steps, seeds = check_steps(given["steps"]), _seeds("seeds", given["seeds"])
    tuning = _seeds("tuning_seeds", given["tuning_seeds"]) if "tuning_seeds" in given else ()
    if outside := sorted(set(tuning) - set(seeds)):
        raise InputError(f"tuning seed {outside[0]} is not among the seeds; allowed: some of {given['seeds']!r}")
    if not (isinstance(cells, list) and cells and all(isinstance(cell, dict) for cell in cells)):
        raise InputError(f"cells = {cells!r} is not allowed; allowed: one or more tables [[cells]]")
    evaluation = given.get("eval_every"), given.get("eval_episodes", 10)
    if "eval_episodes" in given and "eval_every" not in given:
        raise InputError("eval_episodes without eval_every is not allowed; allowed: both, or eval_every alone")
    configs: list[RunConfig] = []
    for number, cell in enumerate(cells, 1):
        with _named(f"cell {number}"):
            configs += _cell_cases(cell, steps, evaluation, MAX_RUNS // len(seeds) - len(configs))
    return Study(name, tuple(configs), seeds, tuning, text)


def _cell_cases(cell: Mapping[str, Any], steps: int, evaluation: tuple[object, object], room: int) -> list[RunConfig]:
    """The configurations of agents × envs × sweep, if there is room for so many."""
    _check_keys(cell, _CELL_REQUIRED, _CELL_OPTIONAL)
    agents, envs = _names("agents", cell["agents"]), _names("envs", cell["envs"])
    sweep, fixed, env_options = (_table(name, cell.get(name, {})) for name in ("sweep", "fixed", "env_options"))
    preset = cell.get("preset")
    if preset is not None and not isinstance(preset, str):
        raise InputError(f"preset = {preset!r} is not allowed; allowed: {', '.join(PRESETS)}")
    sizes = [len(values) for values in sweep.values() if isinstance(values, list)]
    if len(agents) * len(envs) * math.prod(sizes) > room:
        raise InputError(f"these are too many runs; allowed: up to {MAX_RUNS:,} in a study")
    configs: list[RunConfig] = []
    for agent, env in itertools.product(agents, envs):
        planned = expand_configs(agent, env, steps, preset, env_options, sweep, fixed, evaluation)
        vain = frozenset.intersection(*(config.learner.without_effect(config.world.spaces) for config in planned))
        if named := sorted(vain & fixed.keys()):
            raise InputError(
                f"fixing {named[0]} is not allowed: it has no effect for {agent} on {env}; allowed: in cells without it"
            )
        configs += planned
    return configs


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Say in errors where they are."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{where}: {error}") from None


def _check_keys(given: Mapping[str, Any], required: Sequence[str], optional: Sequence[str]) -> None:
    known = [*required, *optional]
    for name in given:
        if name not in known:
            raise unknown_name("key", name, known)
    for name in required:
        if name not in given:
            raise InputError(f"the key {name!r} is missing; needed: {', '.join(required)}")


def _check_sizes(given: object) -> None:
    """Refuse whole numbers beyond TOML's 64 bits, which Python's parser lets pass."""
    if isinstance(given, int) and given.bit_length() > 63:
        raise InputError("a whole number beyond 64 bits is not allowed; allowed: those of TOML")
    for value in given.values() if isinstance(given, dict) else given if isinstance(given, list) else ():
        _check_sizes(value)


def _seeds(name: str, given: object) -> tuple[int, ...]:
    if not isinstance(given, (str, int, list)):
        raise InputError(f'{name} = {given!r} is not allowed; allowed: a text such as "0-9", or a list of numbers')
    if isinstance(given, str) and name == "seeds":
        return tuple(seed_list(given))  # says itself what it is about
    with _named(name):
        return tuple(seed_list(given))


def _names(kind: str, given: object) -> list[str]:
    if not (isinstance(given, list) and given and all(isinstance(name, str) for name in given)):
        raise InputError(f"{kind} = {given!r} is not allowed; allowed: a list of one or more names")
    if twice := sorted({name for name in given if given.count(name) > 1}):
        raise InputError(f"{twice[0]!r} is twice among the {kind}; allowed: each once")
    return given


def _table(name: str, given: object) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        value = "[values]" if name == "sweep" else "value"
        raise InputError(f"{name} = {given!r} is not allowed; allowed: a table, {{ name = {value} }}")
    return given
