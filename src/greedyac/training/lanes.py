"""Runs of one program side by side, driven from Python in blocks of steps: what they start from and come to."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from greedyac.agents import NETWORKS, Agent
from greedyac.core.fields import stack
from greedyac.core.streams import seed_keys
from greedyac.envs import Env, World
from greedyac.envs.gym.statistics import NO_STATISTICS, Statistics
from greedyac.training import curve
from greedyac.training.episodes import compiled_returns
from greedyac.training.normalize import Scales
from greedyac.training.program import LaneState, Program, compiled, static_part


class Outcome(NamedTuple):
    """What one run came to."""

    summary: curve.Summary
    diverged_at: int | None
    agent: Any
    """The agent's state, on the host."""
    scales: Scales | None
    evaluations: list[float]
    error: str | None = None
    """Why an environment on the host gave up."""
    restarted: bool = False
    """Whether an environment on the host could not be brought back after an interruption."""
    statistics: Statistics = NO_STATISTICS
    """Of the wrappers of an environment on the host."""


class Snapshot(NamedTuple):
    """A run in the middle: all that it takes to go on as if nothing had happened."""

    time: int
    lane: LaneState
    """On the host."""
    evaluations: list[float]
    episode: list[Any]
    """The actions since the last reset of an environment on the host; how it is brought back."""
    error: str | None = None
    restarted: bool = False
    statistics: Statistics = NO_STATISTICS
    """As in an `Outcome`."""


class LaneBatch:
    """Runs of one program under way: `advance` them in blocks, then take their `outcomes`.

    `state` is the `Lane` of all runs, each array with a leading axis `[lanes]`, padding included. Runs that go on from
    a snapshot must all be of one time. After `steps` they can be trained for `more`.
    """

    def __init__(
        self,
        agents: Sequence[Agent],
        env: World,
        seeds: Sequence[int],
        steps: int,
        width: int = 0,
        snapshots: Sequence[Snapshot] = (),
    ):
        self.count, self.steps, self.time = len(agents), steps, 0
        self.program = Program(static_part(agents[0]), env)
        if any(static_part(agent) != self.program.agent for agent in agents):
            raise ValueError("lanes of one program must have equal static hyperparameters")
        self.agents, self.seeds = list(agents), list(seeds)
        self.evaluations: list[list[float]] = [[] for _ in agents]
        """Of each run: the mean returns of its evaluations so far."""
        self._edges = curve.bin_edges(steps)
        self._ready = max(self.program.agent.batch_size - 1, self.program.agent.warm_up_steps)
        padding = self._width(width) - self.count
        self._keys = seed_keys([*seeds, *[seeds[-1]] * padding])
        self._hypers = stack([*agents, *[agents[-1]] * padding])
        self._compile()
        if snapshots:
            [self.time] = {snapshot.time for snapshot in snapshots}
            self.evaluations = [list(snapshot.evaluations) for snapshot in snapshots]
            saved = [*(snapshot.lane for snapshot in snapshots), *[snapshots[-1].lane] * padding]
            self.state = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *saved)
        else:
            self.state = self._compiled.begin(self._keys, self._hypers)

    def _width(self, width: int) -> int:
        return max(width, self.count, self.program.narrowest)

    def _compile(self) -> None:
        self._compiled = compiled(self.program, len(self._keys))

    def advance(self, steps: int) -> None:
        """Train all lanes for a block of steps, or to the end if that is nearer; returns when it is done.

        Learning begins when the replay holds a batch, and the warm-up is over.
        """
        stop = min(self.time + steps, self.steps)
        self._run(False, min(stop, self._ready))
        self._run(True, stop)
        self.state.diverged_at.block_until_ready()

    def _run(self, learn: bool, stop: int) -> None:
        if self.time < stop:
            part = self._compiled.learn if learn else self._compiled.act
            times = np.int32(self.time), np.int32(stop)
            self.state, self.time = part(self.state, self._keys, self._hypers, self._edges, *times), stop

    def more(self, steps: int) -> None:
        """Let the runs go on for so many steps, with a curve of their own."""
        begun, self.steps = self.steps, self.steps + steps
        self._edges = curve.bin_edges(steps) + np.int32(begun)
        self.state = self.state._replace(curve=jax.vmap(curve.renewed)(self.state.curve))

    def evaluate(self, episodes: int) -> None:
        """Add one more to the evaluations: the mean return of so many episodes of the most likely action.

        They have starts of their own stream, and touch neither training nor its environments.
        """
        agents, scales = jax.device_get((self.state.agent, self.state.scales))
        for lane, told in enumerate(self.evaluations):
            agent, known = jax.tree.map(lambda leaf, lane=lane: leaf[lane], (agents, scales))
            told.append(self._mean_return(lane, agent, known, len(told) * episodes, episodes))

    def _mean_return(self, lane: int, agent: Any, scales: Any, first: int, episodes: int) -> float:
        assert isinstance(self.program.env, Env)
        trained = self.program.agent, self.program.env, agent, scales, self._keys[lane]
        return float(np.mean(compiled_returns(*trained, first, episodes, greedy=True)))

    @property
    def live(self) -> bool:
        """Whether there is anything left to train."""
        return True

    def close(self) -> None:
        """There is nothing to close."""

    def start_from(self, agent: Any, scales: Scales | None, statistics: Statistics) -> None:
        """Before the first step: what a trained agent and its environment know, in place of nothing, for every lane."""
        fresh = self.state.agent
        parts = {name: part for name in NETWORKS if (part := getattr(agent, name, None))}
        if "critic" in parts:
            parts["target"] = parts["critic"]

        def everywhere(tree: Any) -> Any:
            return jax.tree.map(lambda leaf: jnp.stack([leaf] * len(self._keys)), tree)

        self.state = self.state._replace(agent=fresh._replace(**everywhere(parts)), scales=everywhere(scales))

    def text(self) -> str:
        """The compiled program of a block of steps with learning, in XLA's words."""
        return str(self._compiled.learn.as_text())

    def snapshots(self) -> list[Snapshot]:
        """Each run as it is now, in the order in which they were given."""
        state = jax.device_get(self.state)
        lanes = [jax.tree.map(lambda leaf, lane=lane: leaf[lane], state) for lane in range(self.count)]
        return [
            Snapshot(self.time, lane, list(told), episode)
            for lane, told, episode in zip(lanes, self.evaluations, self._episodes(), strict=True)
        ]

    def _episodes(self) -> list[list[Any]]:
        return [[] for _ in range(self.count)]

    def so_far(self) -> list[Outcome]:
        """What each run has come to until now, without what it has learned."""
        curves, diverged_at = jax.device_get((self.state.curve, self.state.diverged_at))
        lanes = [jax.tree.map(lambda leaf, lane=lane: leaf[lane], curves) for lane in range(self.count)]
        return [self._outcome(number, None, None, ran, diverged_at[number]) for number, ran in enumerate(lanes)]

    def outcomes(self) -> list[Outcome]:
        """What each run came to, in the order in which they were given."""
        state = self.state
        told = jax.device_get((state.agent, state.scales, state.curve, state.diverged_at))
        lanes = [jax.tree.map(lambda leaf, lane=lane: leaf[lane], told) for lane in range(self.count)]
        return [self._outcome(number, *lane) for number, lane in enumerate(lanes)]

    def _outcome(self, number: int, agent: Any, scales: Any, ran: curve.Curve, diverged_at: Any) -> Outcome:
        summary = curve.summarise(ran)
        if diverged_at < 0 and not _is_finite(agent):
            diverged_at = self.time - 1  # since the last inspection
        outcome = Outcome(summary, None, agent, scales, self.evaluations[number])
        if diverged_at < 0:
            return outcome
        summary = summary._replace(average_return=None, final_return=None, best_return=None)
        return outcome._replace(summary=summary, diverged_at=int(diverged_at))


def _is_finite(state: Any) -> bool:
    """The same on the host, where no program has to be compiled for it."""
    leaves = [leaf for leaf in map(np.asarray, jax.tree.leaves(state)) if leaf.dtype.kind == "f"]
    with np.errstate(over="ignore", invalid="ignore"):
        return all(np.isfinite(leaf.sum()) for leaf in leaves)
