"""What a run is, and what names it: one agent setting, one environment, one seed, a number of steps."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from greedyac.agents import Agent, make_agent
from greedyac.envs import Env, make_env
from greedyac.errors import InputError
from greedyac.hypers import hashed_values, hypers_of, show, values_of, whole
from greedyac.training.streams import MAX_SEED

MAX_SEEDS = 1_000_000
MAX_STEPS = 2**31 - 1


@dataclass(frozen=True)
class Run:
    """A run as plain data, ready for JSON; `hypers` are all of the agent's."""

    agent: str
    env: str
    seed: int
    steps: int
    hypers: Mapping[str, Any] = field(default_factory=dict)
    env_options: Mapping[str, Any] = field(default_factory=dict)

    def make_agent(self) -> Agent:
        """The agent of this run."""
        return make_agent(self.agent, self.hypers)

    def make_env(self) -> Env:
        """The environment of this run."""
        return make_env(self.env, self.env_options)

    @property
    def env_label(self) -> str:
        """The environment's name, with the options that differ from its defaults: `Acrobot-CA[start=zero]`."""
        env = self.make_env()
        defaults = {name: hyper.default for name, hyper in hypers_of(type(env)).items()}
        changed = {name: value for name, value in values_of(env).items() if value != defaults[name]}
        options = ",".join(f"{name}={show(value)}" for name, value in sorted(changed.items()))
        return f"{self.env}[{options}]" if options else self.env

    @property
    def setting_id(self) -> str:
        """A hash of the agent and its hyperparameters."""
        return _hash({"agent": self.agent, "hypers": hashed_values(self.make_agent())})

    @property
    def run_id(self) -> str:
        """A hash of all that determines the run's numbers, software and processor aside."""
        agent, env = self.make_agent(), self.make_env()
        return _hash(
            {
                "agent": self.agent,
                "hypers": hashed_values(agent),
                "env": self.env,
                "env_options": hashed_values(env),
                "seed": self.seed,
                "steps": self.steps,
                "numerics": {"agent": agent.numerics, "env": env.numerics},
            }
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `Run(**values)` is the inverse."""
        return asdict(self)


def _hash(values: dict[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def parse_seeds(text: str) -> list[int]:
    """The seeds that a text such as `0-9` or `0,3,5-7` names."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (_is_whole(first) and (_is_whole(last) or not dash)):
            raise InputError(f"seeds {text!r} are not allowed; allowed: whole numbers and ranges, as in 0,3,5-7")
        if dash and int(last) < int(first):
            raise InputError(f"seeds {text!r} are not allowed; the range {part.strip()} runs backwards")
        if int(last or first) > MAX_SEED:
            raise InputError(f"seed = {last or first} is not allowed; allowed: whole number ≥ 0 and ≤ {MAX_SEED}")
        if int(last or first) - int(first) >= MAX_SEEDS:
            raise InputError(f"seeds {text!r} are too many; allowed: up to {MAX_SEEDS:,}")
        seeds += range(int(first), int(last or first) + 1)
    return check_seeds(seeds)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 100


def check_seeds(seeds: Iterable[Any]) -> list[int]:
    """The same seeds, if there are any, all in range and none twice."""
    checked = [whole("seed", seed, 0, MAX_SEED) for seed in seeds]
    if not checked:
        raise InputError("no seeds were given; allowed: one or more whole numbers ≥ 0")
    [(seed, times)] = Counter(checked).most_common(1)
    if times > 1:
        raise InputError(f"seed {seed} was given twice; allowed: each seed once")
    return checked


def check_steps(steps: object) -> int:
    """A number of steps that can be run."""
    return whole("steps", steps, 1, MAX_STEPS)
