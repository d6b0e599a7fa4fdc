"""The compiled training loop: one agent and one environment, several runs (lanes) at once.

Time is outside, the vmapped step inside; time and the replay's write index are shared by all lanes. A run's numbers
depend on its agent, environment, seed and steps, never on its neighbours, its lane, the width or the blocks. (Some
networks are rounded differently at different widths; `plan` keeps them to few: see its `widest`.)
"""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greedyac.agents import Agent, Metrics
from greedyac.agents.base import Batch
from greedyac.agents.random import uniform_action
from greedyac.core.fields import stack, traced_names
from greedyac.core.spaces import Box, Spaces
from greedyac.core.streams import Stream, key_shape, seed_keys, stream_key
from greedyac.core.xla import configured, in_float32
from greedyac.envs import Env, Transition, World
from greedyac.training import curve, replay
from greedyac.training.normalize import Scales, normal_observation, normal_reward, seen, unknown_scales

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
        beginning = threads.submit(configured(begin.lower(keys, hypers).compile))
        acting = threads.submit(configured(block.lower(*arguments, learn=False).compile))
        learn = block.lower(*arguments, learn=True).compile() if program.agent.batch_size else acting.result()
        return Compiled(beginning.result(), acting.result(), learn)


@in_float32
def lane_shape(program: Program) -> LaneState:
    """The shapes of a lane's arrays. JAX need not have started: processes that only plan leave accelerators alone."""
    hypers = {name: value[0] for name, value in stack([program.agent]).items()}
    return jax.eval_shape(program.lane, key_shape(), hypers)


@cache
def lane_bytes(program: Program) -> int:
    """Memory that one lane of the program takes: mostly its replay."""
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(lane_shape(program)))


def all_finite(state: Any) -> Array:
    """Whether no number of an agent's state is NaN or infinite."""
    leaves = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.isfinite(jnp.array([leaf.sum() for leaf in leaves])).all()


def static_part(agent: Agent) -> Agent:
    """The agent with its traced fields emptied: equal for all lanes of one program."""
    return dataclasses.replace(agent, **dict.fromkeys(traced_names(agent), 0.0))  # type: ignore[type-var]
