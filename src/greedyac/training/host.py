"""The training loop for environments on the host: a plain list of them, and one compiled call per step for all lanes.

A step is: every environment moves, then one call stores, learns and chooses the next actions. Inside that call lanes
learn one after another, so that a run's numbers don't depend on how many there are. (Beside a lone one there is room
for another, which does nothing: XLA would drop an axis of one, and round differently.)
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greedyac.agents import Agent
from greedyac.envs import HostEnv, Transition
from greedyac.envs.host import words_of
from greedyac.hypers import stack
from greedyac.training import curve
from greedyac.training.episodes import host_returns
from greedyac.training.loop import MIN_WIDTH, Lane, Lanes, Outcome, Program, Snapshot
from greedyac.training.streams import Stream, host_seed, seed_keys

Numbers = np.ndarray[Any, Any]


class _Seen(NamedTuple):
    """One row per lane of what the host tells the device, packed into one array: a transfer costs more than its size.

    The columns are those of a `Transition`, and the observation to act on next.
    """

    moved: Transition
    observation: Array

    @classmethod
    def unpack(cls, rows: Array, features: int) -> "_Seen":
        after, rest = rows[:, :features], rows[:, features:]
        moved = Transition(after, rest[:, 0], rest[:, 1] > 0, rest[:, 2] > 0)
        return cls(moved, rest[:, 3:])


def first_actions(
    program: Program, lanes: Lane, keys: Array, hypers: dict[str, Array], observation: Array, begun: Array, time: Array
) -> Lane:
    """The lanes that have `begun` an episode with its first observation, and the actions that these lead to."""
    lanes = lanes._replace(observation=jnp.where(begun[:, None], observation, lanes.observation))
    action = jax.vmap(program.act, in_axes=(0, 0, 0, None))(lanes, keys, hypers, time)
    return lanes._replace(env=jnp.where(begun.reshape(-1, *[1] * (action.ndim - 1)), action, lanes.env))


def host_step(
    program: Program,
    lanes: Lane,
    keys: Array,
    hypers: dict[str, Array],
    edges: Array,
    rows: Array,
    time: Array,
    live: Array,
    count: Array,
    learn: bool,
) -> Lane:
    """All lanes after their environments have moved: the step `time` stored and learned from, the next action chosen.

    Only the first `count` of the lanes `live` learn and act.
    """
    moved, observation = _Seen.unpack(rows, program.spaces.observation.size)
    remember = jax.vmap(partial(program.remember, learn=learn), in_axes=(0, 0, 0, 0, None))
    memory, batch = remember(lanes, lanes.env, moved, keys, time)
    told = (moved, batch, keys, hypers, observation)

    def one(lane: Lane, moved: Transition, batch: Any, key: Array, hypers: Any, observation: Array) -> Lane:
        lane, _ = program.take_in(lane, moved, batch, key, hypers, time, edges)
        lane = lane._replace(observation=observation)
        return lane._replace(env=program.act(lane, key, hypers, time + 1))

    def nth(index: Array, lanes: Lane) -> Lane:
        place = live[index]
        lane, *rest = jax.tree.map(lambda part: part[place], (lanes, *told))
        return jax.tree.map(lambda all_lanes, new: all_lanes.at[place].set(new), lanes, one(lane, *rest))

    return jax.lax.fori_loop(0, count, nth, lanes._replace(replay=None))._replace(replay=memory)


class Stepped(NamedTuple):
    """A program's entry points for so many lanes; the last three take and give the leaves of a `Lane`."""

    begin: Any
    structure: Any
    first: Any
    act: Any
    learn: Any


@lru_cache(maxsize=8)
def compiled_for_host(program: Program, width: int) -> Stepped:
    """The program for so many lanes, compiled once."""
    keys, hypers = seed_keys([0] * width), stack([program.agent] * width)
    spaces = program.spaces
    begun = jax.jit(jax.vmap(program.lane), compiler_options={"xla_backend_optimization_level": 0})
    shapes = jax.eval_shape(begun, keys, hypers)
    leaves, structure = jax.tree.flatten(shapes)

    def on_leaves(function: Any) -> Any:
        def flat(leaves: list[Array], *arguments: Any) -> list[Array]:
            return jax.tree.leaves(function(jax.tree.unflatten(structure, leaves), *arguments))

        return jax.jit(flat, donate_argnums=0, compiler_options={"xla_backend_optimization_level": 1})

    features = spaces.observation.size
    rows, number = np.zeros((width, 2 * features + 3), np.float32), np.int32(0)
    told = keys, hypers, curve.bin_edges(0), rows, number, np.zeros(width, np.int32), number

    def step(learn: bool) -> Any:
        return on_leaves(partial(host_step, program, learn=learn)).lower(leaves, *told).compile()

    beginning = keys, hypers, rows[:, :features], np.zeros(width, np.bool_), number
    first = on_leaves(partial(first_actions, program)).lower(leaves, *beginning).compile()
    act = step(False)
    return Stepped(begun, structure, first, act, step(True) if program.agent.batch_size else act)


class HostLanes(Lanes):
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
        self._world, self._translation = env, env.translation
        self._apart: dict[int, Any] = {}
        """Environments for evaluations."""
        self._features = env.spaces.observation.size
        self._actions: list[list[Any]] = [[] for _ in seeds]
        self._errors: list[str | None] = [None for _ in seeds]
        self._stopped: list[int | None] = [None for _ in seeds]
        self._restarted = [snapshot.restarted for snapshot in snapshots] or [False for _ in seeds]
        self._rows = np.zeros((len(self._keys), 2 * self._features + 3), np.float32)
        self._live = list(range(self.count))
        self._episode = np.asarray(self.state.curve.episodes).tolist()
        self._envs = [env.make_for_training() for _ in seeds]
        self._begin(snapshots)

    def _width(self, width: int) -> int:
        return max(self.count, MIN_WIDTH)

    def _compile(self) -> None:
        self._compiled: Any = compiled_for_host(Program(self.program.agent, self.program.spaces), len(self._keys))

    def _begin(self, snapshots: Sequence[Snapshot]) -> None:
        """Reset the environments, or bring them back to where they were; where that fails a new episode begins."""
        begun = np.ones(len(self._keys), np.bool_)
        for lane, snapshot in enumerate(snapshots):
            if snapshot.error is not None:
                self._fail(lane, snapshot.error)
            else:
                begun[lane] = not self._bring_back(lane, snapshot)
        observation = np.zeros((len(self._keys), self._features), np.float32)
        for lane in [lane for lane in self._live if begun[lane]]:
            if snapshots:
                self._restarted[lane] = True
                self._episode[lane] += 1
            try:
                observation[lane] = self._reset(lane)
            except Exception as error:  # theirs: of any kind
                self._fail(lane, words_of(error))
        if self.time:
            self.state = jax.vmap(_anew, in_axes=(0, 0, None))(self.state, jnp.asarray(begun), jnp.int32(self.time))
        leaves = jax.tree.leaves(self.state)
        told = self._keys, self._hypers, observation, begun, np.int32(self.time)
        self.state = jax.tree.unflatten(self._compiled.structure, self._compiled.first(leaves, *told))

    def _bring_back(self, lane: int, snapshot: Snapshot) -> bool:
        """Repeat the actions of the episode under way; whether that led to the same observation."""
        try:
            observation = self._reset(lane)
            for action in snapshot.episode:
                given, _, terminated, truncated, _ = self._envs[lane].step(self._translation.action(action))
                if terminated or truncated:
                    return False
                observation = self._translation.observation(given)
        except Exception:  # theirs: of any kind
            return False
        self._actions[lane] = list(snapshot.episode)
        return observation.tobytes() == np.asarray(snapshot.lane.observation).tobytes()

    def _reset(self, lane: int) -> Numbers:
        """Begin the lane's episode; its first observation."""
        self._actions[lane] = []
        seed = host_seed(self.seeds[lane], Stream.START, self._episode[lane])
        return self._translation.observation(self._envs[lane].reset(seed=seed)[0])

    def _fail(self, lane: int, error: str) -> None:
        self._errors[lane] = error
        self._live.remove(lane)

    def _run(self, learn: bool, stop: int) -> None:
        if self.time >= stop:
            return
        part = self._compiled.learn if learn else self._compiled.act
        leaves, structure = jax.tree.flatten(self.state)
        place = next(index for index, leaf in enumerate(leaves) if leaf is self.state.env)
        live, counted = np.zeros(len(self._keys), np.int32), -1
        try:
            while self.time < stop:
                self._move(np.asarray(leaves[place]))
                if counted != len(self._live):
                    counted = len(self._live)
                    live[:counted] = self._live
                if not counted:
                    self.time = stop
                    break
                told = self._rows, np.int32(self.time), live, np.int32(counted)
                leaves = part(leaves, self._keys, self._hypers, self._edges, *told)
                self.time += 1
        finally:
            self.state = jax.tree.unflatten(structure, leaves)

    def _move(self, actions: Numbers) -> None:
        """One step of every environment that is still there, into the rows."""
        features, rows = self._features, self._rows
        for lane in list(self._live):
            action, row = actions[lane], rows[lane]
            if not np.isfinite(action).all():
                self._stopped[lane] = self.time - 1  # it diverged with the last update
                self._live.remove(lane)
                continue
            try:
                given, reward, terminated, truncated, _ = self._envs[lane].step(self._translation.action(action))
                row[:features] = observation = self._translation.observation(given)
                row[features : features + 3] = reward, terminated, truncated
                self._actions[lane].append(action)
                if terminated or truncated:
                    self._episode[lane] += 1
                    observation = self._reset(lane)
                row[features + 3 :] = observation
            except Exception as error:  # theirs: of any kind
                self._fail(lane, words_of(error))

    def _mean_return(self, lane: int, agent: Any, scales: Any, first: int, episodes: int) -> float:
        """NaN of a lane that has stopped; one whose environment for evaluations raises has failed, too."""
        if lane not in self._live:
            return float("nan")
        try:
            if lane not in self._apart:
                self._apart[lane] = self._world.make()
            env, trained = self._apart[lane], (agent, scales, self._keys[lane], self.seeds[lane])
            told = self.program.agent, env, self._translation, *trained
            return float(np.mean(host_returns(*told, first, episodes, greedy=True)))
        except Exception as error:  # theirs: of any kind
            self._fail(lane, f"in an evaluation: {words_of(error)}")
            return float("nan")

    def _episodes(self) -> list[list[Any]]:
        return [list(actions) for actions in self._actions]

    def snapshots(self) -> list[Snapshot]:
        """Each run as it is now, in the order in which they were given."""
        return [
            snapshot._replace(error=error, restarted=restarted)
            for snapshot, error, restarted in zip(super().snapshots(), self._errors, self._restarted, strict=True)
        ]

    def outcomes(self) -> list[Outcome]:
        """What each run came to, in the order in which they were given."""
        return [
            outcome._replace(error=error, restarted=restarted)
            for outcome, error, restarted in zip(super().outcomes(), self._errors, self._restarted, strict=True)
        ]

    def _outcome(
        self, number: int, agent: Any, scales: Any, ran: curve.Curve, diverged_at: Any, healthy: Any
    ) -> Outcome:
        stopped = self._stopped[number]
        known = stopped if diverged_at < 0 and stopped is not None else diverged_at
        return super()._outcome(number, agent, scales, ran, known, healthy)

    def close(self) -> None:
        """Close the environments."""
        for env in (*self._envs, *self._apart.values()):
            env.close()


def _anew(lane: Lane, begun: Array, time: Array) -> Lane:
    """A lane whose episode could not be brought back forgets it."""
    ran = lane.curve
    anew = ran._replace(episodes=ran.episodes + 1, start=time, running=jnp.float32(0))
    scales = (
        None if lane.scales is None else lane.scales._replace(discounted=jnp.where(begun, 0.0, lane.scales.discounted))
    )
    return lane._replace(curve=jax.tree.map(partial(jnp.where, begun), anew, ran), scales=scales)
