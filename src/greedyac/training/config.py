"""What a run is, and what names it: one agent setting, one environment, one seed, a number of steps."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from greedyac.agents import Agent, make_agent
from greedyac.core.errors import InputError
from greedyac.core.fields import check_int, hashed_values
from greedyac.core.hashing import canonical, short_hash
from greedyac.core.streams import MAX_SEED
from greedyac.envs import World, env_label, make_world
from greedyac.training.program import Program, static_part

MAX_SEEDS = 1_000_000


MAX_STEPS = 2**31 - 1


@dataclass(frozen=True)
class RunConfig:
    """What runs of different seeds share, as plain data; `hypers` are all of the agent's."""

    agent: str
    env: str
    steps: int
    hypers: Mapping[str, Any] = field(default_factory=dict)
    env_options: Mapping[str, Any] = field(default_factory=dict)
    eval_every: int = 0
    """Steps between offline evaluations; 0 means that there are none."""
    eval_episodes: int = 0

    @cached_property
    def learner(self) -> Agent:
        """The agent with its hyperparameters."""
        return make_agent(self.agent, self.hypers)

    @cached_property
    def world(self) -> World:
        """The environment with its options."""
        return make_world(self.env, self.env_options)

    @cached_property
    def program(self) -> Program:
        """What has to be compiled for it."""
        return Program(static_part(self.learner), self.world)

    @cached_property
    def env_label(self) -> str:
        """The environment's name, with the options that differ from its defaults."""
        return env_label(self.env, self.world)

    @cached_property
    def setting_id(self) -> str:
        """A hash of the agent and its hyperparameters."""
        return short_hash(canonical({"agent": self.agent, "hypers": hashed_values(self.learner)}))

    def run_id(self, seed: int) -> str:
        """A hash of all that determines the run's numbers, software and processor aside."""
        return short_hash(f'{self._determinants},"seed":{seed},"steps":{self.steps}}}')

    @cached_property
    def _determinants(self) -> str:
        """Canonical JSON of all but seed and steps, which come last in the alphabet, without the closing brace."""
        determinants: dict[str, Any] = {
            "agent": self.agent,
            "hypers": hashed_values(self.learner),
            "env": self.env,
            "env_options": self.world.options_hashed,
            "numerics": {"agent": self.learner.numerics, "env": self.world.numerics},
        }
        if self.eval_every:
            determinants["evaluation"] = {"every": self.eval_every, "episodes": self.eval_episodes}
        return canonical(determinants).removesuffix("}")


@dataclass(frozen=True, slots=True)
class Run:
    """One run: a configuration and a seed."""

    config: RunConfig
    seed: int

    @property
    def run_id(self) -> str:
        """The name of this run in every store."""
        return self.config.run_id(self.seed)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, all on one level."""
        return {**asdict(self.config), "seed": self.seed}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Run":
        """The inverse of `to_json`."""
        return cls(RunConfig(**{name: value for name, value in values.items() if name != "seed"}), values["seed"])


def check_seeds(seeds: Iterable[Any]) -> list[int]:
    """The same seeds, if there are any, all in range and none twice."""
    checked = [check_int("seed", seed, 0, MAX_SEED) for seed in seeds]
    if not checked:
        raise InputError("no seeds were given; allowed: one or more whole numbers ≥ 0")
    [(seed, times)] = Counter(checked).most_common(1)
    if times > 1:
        raise InputError(f"seed {seed} was given twice; allowed: each seed once")
    return checked


def check_steps(steps: object) -> int:
    """A number of steps that can be run."""
    return check_int("steps", steps, 1, MAX_STEPS)


def check_evaluation(every: object, episodes: object, steps: int) -> tuple[int, int]:
    """How often a run is evaluated offline, and in how many episodes; 0 of 0 means never."""
    if every is None:
        return 0, 0
    return check_int("eval_every", every, 1, steps), check_int("eval_episodes", episodes, 1, 1_000_000)
