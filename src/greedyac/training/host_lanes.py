"""The training loop for environments on the host: a plain list of them, and one compiled call per step for all lanes.

A step is: every environment moves, then one call stores, learns and chooses the next actions.
"""

import contextlib
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greedyac.agents import Agent
from greedyac.core.streams import Stream, host_seed
from greedyac.envs import HostEnv
from greedyac.envs.gym.calls import reset_env, step_env
from greedyac.envs.gym.host import words_of
from greedyac.envs.gym.memory_check import MemoryCheck
from greedyac.envs.gym.statistics import NO_STATISTICS, Statistics, get_statistics, kept, prepare, set_statistics
from greedyac.training import curve
from greedyac.training.episodes import host_returns
from greedyac.training.host_program import Given, Told, compiled_for_host
from greedyac.training.lanes import LaneBatch, Outcome, Snapshot
from greedyac.training.program import LaneState, Program

BEFORE_STARTING = FIRST_RESET, SET_STATISTICS = "in its first reset: ", "in set_statistics: "
"""How the error of an environment begins that has not even started."""
Numbers = np.ndarray[Any, Any]


class HostLaneBatch(LaneBatch):
    """Runs under way, each on an environment of its own. One whose environment raises has failed; the others go on."""

    def __init__(
        self,
        agents: Sequence[Agent],
        env: HostEnv,
        seeds: Sequence[int],
        steps: int,
        width: int = 0,
        snapshots: Sequence[Snapshot] = (),
    ):
        super().__init__(agents, env, seeds, steps, width, snapshots)
        self._world, self._adapter = env, env.adapter
        self._apart: dict[int, Any] = {}
        """Environments for evaluations."""
        self._features = env.spaces.observation.size
        self._actions: list[list[Any]] = [[] for _ in seeds]
        self._errors: list[str | None] = [None for _ in seeds]
        self.causes: dict[int, Exception | None] = {}
        """What the environments of failed lanes raised."""
        self._stopped: list[int | None] = [None for _ in seeds]
        self._restarted = [snapshot.restarted for snapshot in snapshots] or [False for _ in seeds]
        self._told = Told.of(len(self._keys), self._features)
        self._live = list(range(self.count))
        self._episode = np.asarray(self.state.curve.episodes).tolist()
        self._envs = [env.make_for_training() for _ in seeds]
        self._memory = MemoryCheck()
        self._begin(snapshots)

    def _width(self, width: int) -> int:
        return max(self.count, self.program.narrowest)

    def _compile(self) -> None:
        self._compiled: Any = compiled_for_host(Program(self.program.agent, self.program.spaces), len(self._keys))

    def _begin(self, snapshots: Sequence[Snapshot]) -> None:
        """Reset the environments, or bring them back to where they were; where that fails a new episode begins."""
        begun = np.ones(len(self._keys), np.bool_)
        for lane, snapshot in enumerate(snapshots):
            with contextlib.suppress(Exception):  # of a lane that goes on it is heard below
                set_statistics(self._envs[lane], snapshot.statistics)
            if snapshot.error is not None:
                self._fail(lane, snapshot.error)
            elif not np.isfinite(snapshot.lane.env).all():
                self._stop(lane, snapshot.time - 1)
            else:
                begun[lane] = not self._bring_back(lane, snapshot)
        observation = np.zeros((len(self._keys), self._features), np.float32)
        for lane in [lane for lane in self._live if begun[lane]]:
            if snapshots:
                self._restarted[lane] = True
                self._episode[lane] += 1
            self._start(lane, snapshots[lane].statistics if snapshots else None, observation)
        if snapshots:
            self.state = jax.vmap(_anew, in_axes=(0, 0, None))(self.state, jnp.asarray(begun), jnp.int32(self.time))
        told = self._keys, self._hypers, observation, begun, np.int32(self.time)
        self.state = self._compiled.first(self.state, *told)

    def _start(self, lane: int, statistics: Statistics | None, observations: Numbers) -> None:
        """Put the first observation of the lane, as it looks with these statistics, among all lanes'."""
        where = SET_STATISTICS
        try:
            if statistics is not None:
                set_statistics(self._envs[lane], statistics)
            where = FIRST_RESET
            observations[lane] = self._reset(lane)
        except Exception as error:  # theirs: of any kind
            self._fail(lane, where + words_of(error), error)

    def _bring_back(self, lane: int, snapshot: Snapshot) -> bool:
        """Repeat the actions of the episode under way; whether that led to the same observation."""
        try:
            with kept(self._envs[lane], snapshot.statistics):
                observation = self._reset(lane)
                for action in snapshot.episode:
                    observation, _, terminated, truncated = step_env(self._envs[lane], self._adapter, action)
                    if terminated or truncated:
                        return False
        except Exception:  # theirs: of any kind
            return False
        self._actions[lane] = list(snapshot.episode)
        return observation.tobytes() == np.asarray(snapshot.lane.observation).tobytes()

    def _reset(self, lane: int) -> Numbers:
        """Begin the lane's episode; its first observation."""
        self._actions[lane] = []
        seed = host_seed(self.seeds[lane], Stream.START, self._episode[lane])
        observation = reset_env(self._envs[lane], self._adapter, seed)
        if lane == 0:
            self._memory.look(self._envs[0])
        return observation

    def _stop(self, lane: int, diverged_at: int) -> None:
        """It has diverged: an action that is no number is not for an environment."""
        self._stopped[lane] = max(diverged_at, 0)
        self._live.remove(lane)

    def _fail(self, lane: int, error: str, cause: Exception | None = None) -> None:
        self._errors[lane] = error
        self.causes[lane] = cause
        self._live = [other for other in self._live if other != lane]

    def _run(self, learn: bool, stop: int) -> None:
        if self.time >= stop:
            return
        part = self._compiled.learn if learn else self._compiled.act
        given = Given.of(self._keys, self._hypers, self._edges)
        actions = np.asarray(self.state.env)
        memory, packed = self.state.replay, self._compiled.pack(self.state._replace(replay=None))
        numbers = self._told.numbers
        try:
            while self.time < stop:
                self._move(np.asarray(actions))
                if not self._live:
                    break
                numbers[:2] = self.time, len(self._live)
                numbers[2 : 2 + len(self._live)] = self._live
                memory, packed, actions = part(memory, packed, given, self._told)
                self.time += 1
        finally:
            self.state = self._compiled.unpack(packed)._replace(replay=memory)

    def _move(self, actions: Numbers) -> None:
        """One step of every environment that is still there, into the rows."""
        features, rows = self._features, self._told.rows
        for lane in list(self._live):
            action, row = actions[lane], rows[lane]
            if not math.isfinite(action.sum()):
                self._stop(lane, self.time - 1)  # with the last update
                continue
            try:
                observation, *signals = step_env(self._envs[lane], self._adapter, action)
                row[:features], row[features : features + 3] = observation, signals
                self._actions[lane].append(action.copy())  # and not with all that it is a part of
                if any(signals[1:]):  # terminated or truncated
                    self._episode[lane] += 1
                    observation = self._reset(lane)
                row[features + 3 :] = observation
            except Exception as error:  # theirs: of any kind
                self._fail(lane, words_of(error), error)

    @property
    def live(self) -> bool:
        """Whether there is anything left to train."""
        return bool(self._live)

    def start_from(self, agent: Any, scales: Any, statistics: Statistics) -> None:
        """Before the first step: what a trained agent and its environment know, in place of nothing, for every lane."""
        super().start_from(agent, scales, statistics)
        begun, observation = np.ones(len(self._keys), np.bool_), np.array(self.state.observation)
        if statistics:
            self._memory = MemoryCheck()  # as they are all reset again
            for lane in list(self._live):
                self._start(lane, statistics, observation)
        told = self._keys, self._hypers, observation, begun, np.int32(self.time)
        self.state = self._compiled.first(self.state, *told)

    def _mean_return(self, lane: int, agent: Any, scales: Any, first: int, episodes: int) -> float:
        """NaN of a lane that has stopped; one whose environment for evaluations raises has failed, too."""
        if lane not in self._live:
            return float("nan")
        self._memory.warn()
        try:
            if lane not in self._apart:
                self._apart[lane] = self._world.make()
            self._apart[lane] = env = prepare(self._apart[lane], get_statistics(self._envs[lane]))
            trained = agent, scales, self._keys[lane], self.seeds[lane]
            told = self.program.agent, env, self._adapter, *trained
            return float(np.mean(host_returns(*told, first, episodes, greedy=True)))
        except Exception as error:  # theirs: of any kind
            self._fail(lane, f"in an evaluation: {words_of(error)}", error)
            return float("nan")

    def _statistics(self) -> list[Statistics]:
        """What the wrappers of each lane's environment know."""
        self._memory.warn()
        known = [NO_STATISTICS for _ in self._envs]
        for lane, env in enumerate(self._envs):
            try:
                known[lane] = get_statistics(env)
            except Exception as error:  # theirs: of any kind
                if self._errors[lane] is None:
                    self._fail(lane, f"in get_statistics: {words_of(error)}", error)
        return known

    def _episodes(self) -> list[list[Any]]:
        return [list(actions) for actions in self._actions]

    def snapshots(self) -> list[Snapshot]:
        """Each run as it is now, in the order in which they were given."""
        told = zip(super().snapshots(), self._statistics(), strict=True)
        return [self._snapshot(lane, *known) for lane, known in enumerate(told)]

    def _snapshot(self, number: int, snapshot: Snapshot, statistics: Statistics) -> Snapshot:
        lane = snapshot.lane._replace(diverged_at=self._diverged_at(number, snapshot.lane.diverged_at))
        error, restarted = self._errors[number], self._restarted[number]
        return snapshot._replace(lane=lane, error=error, restarted=restarted, statistics=statistics)

    def so_far(self) -> list[Outcome]:
        """What each run has come to until now, without what it has learned."""
        return [outcome._replace(error=error) for outcome, error in zip(super().so_far(), self._errors, strict=True)]

    def outcomes(self) -> list[Outcome]:
        """What each run came to, in the order in which they were given."""
        statistics = self._statistics()
        told = zip(super().outcomes(), self._errors, self._restarted, statistics, strict=True)
        return [
            outcome._replace(error=error, restarted=restarted, statistics=known)
            for outcome, error, restarted, known in told
        ]

    def _outcome(self, number: int, agent: Any, scales: Any, ran: curve.Curve, diverged_at: Any) -> Outcome:
        return super()._outcome(number, agent, scales, ran, self._diverged_at(number, diverged_at))

    def _diverged_at(self, lane: int, known: Any) -> Any:
        """Also of a lane that was stopped before its numbers were looked at."""
        stopped = self._stopped[lane]
        return np.int32(stopped) if known < 0 and stopped is not None else known

    def close(self) -> None:
        """Close the environments."""
        for env in (*self._envs, *self._apart.values()):
            self._world.close(env)


def _anew(lane: LaneState, begun: Array, time: Array) -> LaneState:
    """A lane whose episode could not be brought back forgets it."""
    ran = lane.curve
    anew = ran._replace(episodes=ran.episodes + 1, start=time, running=jnp.float32(0))
    scales = (
        None if lane.scales is None else lane.scales._replace(discounted=jnp.where(begun, 0.0, lane.scales.discounted))
    )
    return lane._replace(curve=jax.tree.map(partial(jnp.where, begun), anew, ran), scales=scales)
