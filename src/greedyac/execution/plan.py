"""From what was asked for to work: settings, checked before anything starts, and chunks of runs for the workers."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from greedyac.agents import Agent, check_hypers, find_agent, make_agent
from greedyac.agents.presets import preset as find_preset
from greedyac.core.errors import InputError
from greedyac.core.fields import hypers_of, show, values_of
from greedyac.core.machine import Machine, machine_bytes
from greedyac.core.spaces import Box, Discrete, Spaces
from greedyac.envs import Env, HostEnv, make_world
from greedyac.execution.chunk import Chunk
from greedyac.execution.cost import nominal_seconds, sampled_actions, summed_numbers
from greedyac.training.config import Run, RunConfig, check_evaluation, check_steps
from greedyac.training.program import MIN_WIDTH, Program, lane_bytes

MAX_WIDTH = 8
"""Lanes that one worker trains side by side: more of them bring no more."""
CACHE = 2**20
"""Bytes that the largest layer of all lanes should take, about a core's cache: with 30 sampled actions four lanes,
which are as fast as eight or a little faster."""
MAX_WIDE_LAYER = 64 * 64
"""Batch × units up to which products were found to have the same bits at every width. With larger layers XLA rounds
differently at different widths, so such runs are always trained at the narrowest."""
MANY_NUMBERS = 4096
"""Numbers, those of all lanes together, from which on XLA adds up an array in another order."""
MAX_RUNS_IN_CHUNK = 64
"""However short they are."""
WORKER_BYTES = 600e6
"""Memory of a worker process before it has any lanes."""


def expand_configs(
    agent: str,
    env: str | HostEnv,
    steps: int,
    preset: str | None,
    env_options: Mapping[str, object],
    sweep: Mapping[str, Sequence[object]],
    hypers: Mapping[str, object],
    evaluation: tuple[object, object] = (None, None),
) -> list[RunConfig]:
    """Every setting of a sweep on one environment, all checked; `evaluation`: every so many steps, so many episodes."""
    learner, world = find_agent(agent), env if isinstance(env, HostEnv) else make_world(env, env_options)
    if isinstance(env, HostEnv) and env_options:
        raise InputError("env_options are not allowed here; allowed: for environments that are given by name")
    env = env.name if isinstance(env, HostEnv) else env
    if not isinstance(world.spaces.action, learner.actions):
        kinds = " or ".join({Box: "continuous", Discrete: "discrete"}[kind] for kind in learner.actions)
        raise InputError(f"{agent} can't choose the actions of {env}, {world.spaces.action}; allowed: {kinds} actions")
    known = values_of(world) if isinstance(world, Env) else world.options
    options = {name: value for name, value in known.items() if name in env_options or isinstance(world, HostEnv)}
    fixed = {
        **suited(learner, world.spaces),
        **(find_preset(preset, agent, env) if preset is not None else {}),
        **hypers,
    }
    check_hypers(agent, fixed)  # complains about a wrong name or value before the sweep does
    if not isinstance(sweep, Mapping):
        raise InputError(
            f"sweep = {sweep!r} is not allowed; allowed: hyperparameters and their values, {{name: [values]}}"
        )
    sweep = {name: _sweep_values(learner, name, values, hypers) for name, values in sweep.items()}
    steps, configs = check_steps(steps), []
    evaluated = check_evaluation(*evaluation, steps)
    for values in itertools.product(*sweep.values()):
        setting = make_agent(agent, {**fixed, **dict(zip(sweep, values, strict=True))})
        if vain := sorted(setting.without_effect(world.spaces) & sweep.keys()):
            raise InputError(
                f"sweeping {vain[0]} is not allowed: it has no effect for {agent} on {env} with these values"
            )
        configs.append(config := RunConfig(agent, env, steps, values_of(setting), options, *evaluated))
        vars(config).update(learner=setting, world=world)  # made already: no need to make them again
    return configs


def suited(agent: type[Agent], spaces: Spaces) -> dict[str, Any]:
    """What is not as an agent's defaults say, unless it is given: after a convolution one layer, as in the paper."""
    return {"hidden": (128,)} if spaces.observation.convolved and "hidden" in hypers_of(agent) else {}


def _sweep_values(agent: type[Agent], name: str, values: object, hypers: Mapping[str, object]) -> list[object]:
    if name in hypers:
        raise InputError(f"{name} is given both as a value and in the sweep; allowed: one of them")
    listed = list(values) if isinstance(values, Iterable) and not isinstance(values, (str, Mapping)) else []
    if not listed:
        raise InputError(f"the sweep of {name} = {values!r} is not allowed; allowed: a list of one or more values")
    checked: list[object] = [check_hypers(agent.name, {name: value})[name] for value in listed]
    traced = hypers_of(agent)[name].kind == "traced"  # in float32, where close values may be one
    if len({np.float32(value) if traced else value for value in checked}) < len(checked):  # type: ignore[arg-type]
        raise InputError(f"the sweep of {name} = {show(checked)} is not allowed; allowed: each value once")
    return checked


def plan_chunks(
    runs: Iterable[Run],
    workers: int,
    folder: Path,
    seconds: float = 0.0,
    checkpoints: bool = False,
    checkpoint_every: int = 0,
    machine: Machine | None = None,
    lanes: int = 0,
) -> list[Chunk]:
    """The runs by program, cut into chunks of about that many nominal seconds; those that take longest come first.

    The lanes that advance side by side are as few as keeps all workers busy and the memory free, and at least one such
    round makes a chunk. With as many programs as workers, or more, a worker need not compile what others do.
    `machine` is the one whose workers have the least memory; by default all of them are on this one. For accelerators
    chunks have at least so many `lanes`.
    """
    machine = machine or Machine(machine_bytes(), workers)
    programs: dict[tuple[Program, int], list[Run]] = defaultdict(list)
    for _, seeds in itertools.groupby(runs, key=lambda run: id(run.config)):
        same = list(seeds)
        programs[same[0].config.program, same[0].config.steps] += same
    costs = {key: nominal_seconds(members[0].config) for key, members in programs.items()}
    share = sum(costs[key] * len(members) for key, members in programs.items()) / workers
    sharing = math.ceil(workers / max(len(programs), 1))  # workers for each program
    chunks: list[tuple[float, Chunk]] = []
    for key, members in programs.items():
        config = members[0].config
        most = min(widest(config), lanes_in_memory(config, machine))
        if seconds:
            most = min(most, max(MAX_WIDTH // 2, int(seconds / costs[key])))
        width = max(_width(len(members), best_width(config), most, sharing), config.program.narrowest)
        size = width * _rounds(math.ceil(len(members) / width), width, costs[key] * width, min(seconds, share / 2))
        size = max(size, lanes)
        for first in range(0, len(members), size):
            part = members[first : first + size]
            chunks.append((costs[key] * len(part), Chunk(part, width, folder, checkpoints, checkpoint_every, lanes)))
    chunks.sort(key=lambda priced: -priced[0])
    return [chunk for _, chunk in chunks]


def _width(runs: int, best: int, most: int, workers: int) -> int:
    """How many lanes advance side by side: about the best number, so that no round is nearly empty."""
    rounds = max(round(runs / (workers * best)), math.ceil(runs / (workers * most)), 1)  # of each worker
    return math.ceil(runs / (workers * rounds))


def _rounds(rounds: int, width: int, cost: float, seconds: float) -> int:
    """How many of all rounds make a chunk."""
    fitting = max(1, min(int(seconds / cost), MAX_RUNS_IN_CHUNK // width))
    return math.ceil(rounds / math.ceil(rounds / fitting))


def widest(config: RunConfig) -> int:
    """How many lanes may advance side by side, so that a run's bits don't depend on it.

    Every array that is added up has `MANY_NUMBERS` at all of these widths, or at none.
    """
    if isinstance(config.world, HostEnv):
        return MAX_WIDTH  # where lanes learn one after another
    if config.world.spaces.observation.convolved or _layer(config.learner) > MAX_WIDE_LAYER:
        return config.program.narrowest
    sizes = summed_numbers(config.learner, config.world.spaces)
    limits = [(MANY_NUMBERS - 1) // size for size in sizes if MIN_WIDTH * size < MANY_NUMBERS]
    return min([MAX_WIDTH, *limits])


def best_width(config: RunConfig) -> int:
    """How many lanes side by side train fastest: those that fit into a core's cache."""
    if isinstance(config.world, HostEnv):
        return MAX_WIDTH
    layer = 4 * _layer(config.learner) * max(1, sampled_actions(config.learner, config.world.spaces))
    return max(config.program.narrowest, min(widest(config), CACHE // max(1, layer)))


def _layer(agent: Agent) -> int:
    """Numbers in the largest layer of one lane, when it values one action per state."""
    return agent.batch_size * max(getattr(agent, "hidden", (0,)))


def lanes_in_memory(config: RunConfig, machine: Machine) -> int:
    """How many lanes each worker can hold if half of the machine's memory is for them; at least the narrowest."""
    lane, narrowest = lane_bytes(config.program), config.program.narrowest
    if machine.bytes is None:
        return MAX_WIDTH
    if narrowest * lane > machine.bytes:
        raise InputError(
            f"replay_capacity = {show(config.learner.replay_capacity)} is not allowed here: a run of {config.agent} on "
            f"{config.env} would take {lane / 1e9:.1f} GB, and the machine has {machine.bytes / 1e9:.1f}"
        )
    return max(narrowest, int((machine.bytes / 2 / machine.workers - WORKER_BYTES) / lane))
