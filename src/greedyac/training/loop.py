"""The compiled training loop: several runs (lanes) of one program at once, driven from Python in blocks of steps.

Time is outside, the vmapped step inside; time and the replay's write index are shared by all lanes. A run's numbers
depend on its agent, environment, seed and steps, never on its neighbours, its lane, the width or the blocks. (Some
networks are rounded differently at different widths; `plan` keeps them to few: see its `widest`.)
"""

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greedyac.agents import NETWORKS, Agent, Metrics
from greedyac.agents.base import Batch
from greedyac.agents.random import uniform_action
from greedyac.core.fields import stack, traced_names
from greedyac.core.spaces import Box, Spaces
from greedyac.core.streams import Stream, seed_keys, stream_key
from greedyac.core.xla import configured
from greedyac.envs import Env, Transition, World
from greedyac.envs.gym.statistics import NO_STATISTICS, Statistics
from greedyac.training import curve, replay
from greedyac.training.episodes import compiled_returns
from greedyac.training.normalise import Scales, normal_observation, normal_reward, seen, unknown_scales

MIN_WIDTH = 2
"""A lone run is padded to two lanes: XLA drops a batch axis of one, and then rounds differently. (Runs with
a convolution are always alone: see `Program.narrowest`.)"""


INSPECTION = 64
"""Steps between two looks at all of an agent's numbers. What is looked at in every step can stay finite although Adam's
moments have overflowed and the network no longer learns; but infinite moments stay infinite."""


class LaneState(NamedTuple):
    """All that changes while one run trains."""

    agent: Any
    env: Any
    """The state of a compiled environment; the next action for one on the host."""
    observation: Array
    replay: Array | None
    curve: curve.Curve
    diverged_at: Array
    """The first step at which something was NaN or inf, else −1."""
    scales: Scales | None
    """What observations and rewards are normalised with."""


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


@dataclasses.dataclass(frozen=True)
class Program:
    """One agent (its static fields) and one environment, compiled once per width."""

    agent: Agent
    env: World | Spaces
    """A compiled environment; of one on the host the spaces are enough."""

    @property
    def spaces(self) -> Spaces:
        """What the agent sees and does."""
        return self.env if isinstance(self.env, Spaces) else self.env.spaces

    @property
    def narrowest(self) -> int:
        """How many lanes there are at least. One convolution keeps a core busy: `plan` puts none beside it."""
        return 1 if isinstance(self.env, Env) and self.spaces.observation.convolved else MIN_WIDTH

    def with_hypers(self, hypers: dict[str, Array]) -> Agent:
        """The agent of one lane."""
        return dataclasses.replace(self.agent, **hypers)  # type: ignore[type-var]

    def lane(self, key: Array, hypers: dict[str, Array]) -> LaneState:
        """A run before its first step."""
        agent, spaces = self.with_hypers(hypers), self.spaces
        env: Any = jnp.zeros(spaces.action.size, jnp.float32) if isinstance(spaces.action, Box) else jnp.int32(0)
        observation = jnp.zeros(spaces.observation.size, jnp.float32)
        if isinstance(self.env, Env):
            env, observation = self.env.reset(stream_key(key, Stream.START, 0))
        return LaneState(
            agent=agent.init(stream_key(key, Stream.WEIGHTS, 0), spaces),
            env=env,
            observation=observation,
            replay=replay.empty(agent.replay_capacity, spaces) if agent.batch_size else None,
            curve=curve.empty(),
            diverged_at=jnp.int32(-1),
            scales=unknown_scales(spaces.observation.size, agent.normalise_observations, agent.normalise_rewards),
        )

    def act(self, lane: LaneState, key: Array, hypers: dict[str, Array], time: Array) -> Array:
        """The action of the step at `time`."""
        agent, act_key = self.with_hypers(hypers), stream_key(key, Stream.ACT, time)
        action = agent.act(lane.agent, normal_observation(lane.scales, lane.observation), act_key, greedy=False)
        if not agent.warm_up_steps:
            return action
        return jnp.where(time < agent.warm_up_steps, uniform_action(self.spaces.action, act_key), action)

    def remember(
        self, lane: LaneState, action: Array, moved: Transition, key: Array, time: Array, learn: bool
    ) -> tuple[Array | None, Batch | None]:
        """The replay with this step in it, and what is to be learned from, `[updates × batch, ...]`."""
        if lane.replay is None:
            return None, None
        continues = 1.0 - moved.terminated.astype(jnp.float32)
        transition = Batch(lane.observation, action, moved.reward, moved.observation, continues)
        memory = replay.write(lane.replay, self.spaces, transition, time)
        if not learn:
            return memory, None
        size = self.agent.batch_size * self.agent.updates_per_step
        return memory, replay.sample(memory, self.spaces, stream_key(key, Stream.REPLAY, time), size, time)

    def learn_and_record(
        self,
        lane: LaneState,
        moved: Transition,
        batch: Batch | None,
        key: Array,
        hypers: dict[str, Array],
        time: Array,
        edges: Array,
    ) -> tuple[LaneState, Array]:
        """The lane after the step at `time`, when it has learned from a batch, and whether the episode ended."""
        agent, learner = self.with_hypers(hypers), lane.agent
        ended = moved.terminated | moved.truncated
        scales = lane.scales
        if scales is not None:
            scales = seen(scales, lane.observation, moved.reward, ended, agent.discount)
        metrics: Metrics = {}
        if batch is not None:
            learner, metrics = self._learn(agent, learner, scales, batch, stream_key(key, Stream.UPDATE, time))
        watched = [lane.curve.running + moved.reward, moved.observation.sum(), *metrics.values()]
        finite = jnp.isfinite(jnp.stack(watched)).all()
        if batch is not None:
            finite &= jax.lax.cond(time % INSPECTION == 0, all_finite, lambda _: jnp.bool_(True), learner)
        diverged_at = jnp.where((lane.diverged_at < 0) & ~finite, time, lane.diverged_at)
        recorded = curve.record(lane.curve, edges, time, moved.reward, ended, diverged_at < 0)
        return lane._replace(agent=learner, curve=recorded, diverged_at=diverged_at, scales=scales), ended

    def _learn(
        self, agent: Agent, learner: Any, scales: Scales | None, batch: Batch, key: Array
    ) -> tuple[Any, Metrics]:
        """One update from each of the batches, which follow each other in `batch`."""
        batch = batch._replace(
            observation=normal_observation(scales, batch.observation),
            reward=normal_reward(scales, batch.reward),
            next_observation=normal_observation(scales, batch.next_observation),
        )
        if agent.updates_per_step == 1:
            return agent.update(learner, batch, key)
        updates = agent.updates_per_step
        batches = jax.tree.map(lambda part: part.reshape(updates, -1, *part.shape[1:]), batch)
        learner, metrics = jax.lax.scan(
            lambda state, given: agent.update(state, *given), learner, (batches, jax.random.split(key, updates))
        )
        return learner, jax.tree.map(jnp.sum, metrics)

    def step(
        self, lane: LaneState, key: Array, hypers: dict[str, Array], time: Array, edges: Array, learn: bool
    ) -> LaneState:
        """One step of one run: act, move, store, learn, and start anew where the episode ended."""
        assert isinstance(self.env, Env)
        action = self.act(lane, key, hypers, time)
        env, moved = self.env.step(lane.env, action, stream_key(key, Stream.MOVE, time))
        memory, batch = self.remember(lane, action, moved, key, time, learn)
        lane, ended = self.learn_and_record(lane, moved, batch, key, hypers, time, edges)
        fresh = self.env.reset(stream_key(key, Stream.START, lane.curve.episodes))
        env, observation = jax.tree.map(partial(jnp.where, ended), fresh, (env, moved.observation))
        return lane._replace(env=env, observation=observation, replay=memory)

    def block(
        self,
        lanes: LaneState,
        keys: Array,
        hypers: dict[str, Array],
        edges: Array,
        start: Array,
        stop: Array,
        learn: bool,
    ) -> LaneState:
        """All lanes from the step `start` up to `stop`."""
        step = jax.vmap(partial(self.step, learn=learn), in_axes=(0, 0, 0, None, None))
        return jax.lax.fori_loop(start, stop, lambda time, lanes: step(lanes, keys, hypers, time, edges), lanes)


class Compiled(NamedTuple):
    """A program's entry points, compiled. An agent without replay only acts, in `learn`, too."""

    begin: jax.stages.Compiled
    act: jax.stages.Compiled
    learn: jax.stages.Compiled


@lru_cache(maxsize=8)
@configured
def compiled(program: Program, width: int) -> Compiled:
    """The program for so many lanes, compiled once; its parts at the same time where there are cores for it.

    LLVM's higher levels compile a fifth longer and run no faster; what runs only once needs none.
    """
    keys, hypers = seed_keys([0] * width), stack([program.agent] * width)
    begin = jax.jit(jax.vmap(program.lane), compiler_options={"xla_backend_optimization_level": 0})
    block = jax.jit(
        program.block,
        static_argnames="learn",
        donate_argnums=0,
        compiler_options={"xla_backend_optimization_level": 1},
    )
    state = jax.eval_shape(begin, keys, hypers)
    arguments = state, keys, hypers, curve.bin_edges(0), np.int32(0), np.int32(0)
    with ThreadPoolExecutor() as threads:
        beginning = threads.submit(begin.lower(keys, hypers).compile)
        acting = threads.submit(block.lower(*arguments, learn=False).compile)
        learn = block.lower(*arguments, learn=True).compile() if program.agent.batch_size else acting.result()
        return Compiled(beginning.result(), acting.result(), learn)


@cache
@configured
def lane_bytes(program: Program) -> int:
    """Memory that one lane of the program takes: mostly its replay."""
    hypers = {name: value[0] for name, value in stack([program.agent]).items()}
    lane = jax.eval_shape(program.lane, jax.eval_shape(lambda: seed_keys([0])[0]), hypers)
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(lane))


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


def all_finite(state: Any) -> Array:
    """Whether no number of an agent's state is NaN or infinite."""
    leaves = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.isfinite(jnp.array([leaf.sum() for leaf in leaves])).all()


def _is_finite(state: Any) -> bool:
    """The same on the host, where no program has to be compiled for it."""
    leaves = [leaf for leaf in map(np.asarray, jax.tree.leaves(state)) if leaf.dtype.kind == "f"]
    with np.errstate(over="ignore", invalid="ignore"):
        return all(np.isfinite(leaf.sum()) for leaf in leaves)


def static_part(agent: Agent) -> Agent:
    """The agent with its traced fields emptied: equal for all lanes of one program."""
    return dataclasses.replace(agent, **dict.fromkeys(traced_names(agent), 0.0))  # type: ignore[type-var]
