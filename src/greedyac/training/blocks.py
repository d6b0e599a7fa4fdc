"""Driving a training loop from Python in blocks of steps: progress, evaluations and checkpoints live between them."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from greedyac.agents import Agent
from greedyac.envs import HostEnv, World
from greedyac.training.host_lanes import HostLaneBatch
from greedyac.training.lanes import LaneBatch, Snapshot

BLOCK_SECONDS = 0.3
"""How often training comes back to Python. Long enough to cost nothing, short enough for a live progress bar."""


class Periodic(NamedTuple):
    """Something to do whenever so many more steps are done; training ends if it returns False."""

    steps: int
    do: Callable[[], bool | None]


def make_lanes(
    agents: Sequence[Agent],
    env: World,
    seeds: Sequence[int],
    steps: int,
    width: int = 0,
    snapshots: Sequence[Snapshot] = (),
) -> LaneBatch:
    """The runs in the loop that their environment needs."""
    if isinstance(env, HostEnv):
        return HostLaneBatch(agents, env, seeds, steps, width, snapshots)
    return LaneBatch(agents, env, seeds, steps, width, snapshots)


def run_blocks(lanes: LaneBatch, on_steps: Callable[[int], None], *every: Periodic) -> None:
    """Train to the end; `on_steps` hears how many steps a block had, and what is due is done in the given order."""
    block = 10
    while lanes.time < lanes.steps and lanes.live:
        before, begun = lanes.time, time.perf_counter()
        due = min([lanes.steps, *(before - before % one.steps + one.steps for one in every)])
        lanes.advance(min(block, due - before))
        done = lanes.time - before
        on_steps(done)
        rate = done / (time.perf_counter() - begun)
        block = max(1, min(int(rate * BLOCK_SECONDS), 10 * block))
        said = [one.do() for one in every if done and lanes.time % one.steps == 0]
        if False in said:
            return
    if not lanes.live:
        on_steps(lanes.steps - lanes.time)  # nothing is left of them
