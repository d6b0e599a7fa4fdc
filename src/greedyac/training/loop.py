"""The compiled training loop: several runs (lanes) of one program at once, driven from Python in blocks of steps.

Time is outside, the vmapped step inside; time and the replay's write index are shared by all lanes. A run's numbers
depend on its agent, environment, seed and steps, never on its neighbours, its lane, the width or the blocks. (Some
networks are rounded differently at different widths; `plan` keeps them to few: see its `widest`.)
"""

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greedyac import replay
from greedyac.agents import Agent, Metrics
from greedyac.envs import Env
from greedyac.hypers import stack, swept_names
from greedyac.replay import Batch
from greedyac.training import curve
from greedyac.training.streams import Stream, seed_keys, stream_key

MIN_WIDTH = 2
"""A lone run is padded to two lanes: XLA drops a batch axis of one, and then rounds differently."""


INSPECTION = 64
"""Steps between two looks at all of an agent's numbers. What is looked at in every step can stay finite although Adam's
moments have overflowed and the network no longer learns; but infinite moments stay infinite."""


class Lane(NamedTuple):
    """All that changes while one run trains."""

    agent: Any
    env: Any
    observation: Array
    replay: Array | None
    curve: curve.Curve
    diverged_at: Array
    """The first step at which something was NaN or inf, else −1."""


class Outcome(NamedTuple):
    """What one run came to."""

    summary: curve.Summary
    diverged_at: int | None
    actor: Any
    """The weights that act, on the host."""


@dataclasses.dataclass(frozen=True)
class Program:
    """One agent (its static fields) and one environment, compiled once per width."""

    agent: Agent
    env: Env

    def lane(self, key: Array, hypers: dict[str, Array]) -> Lane:
        """A run before its first step."""
        agent = dataclasses.replace(self.agent, **hypers)  # type: ignore[type-var]
        env, observation = self.env.reset(stream_key(key, Stream.START, 0))
        return Lane(
            agent=agent.init(stream_key(key, Stream.WEIGHTS, 0), self.env.spaces),
            env=env,
            observation=observation,
            replay=replay.empty(agent.replay_capacity, self.env.spaces) if agent.batch_size else None,
            curve=curve.empty(),
            diverged_at=jnp.int32(-1),
        )

    def step(self, lane: Lane, key: Array, hypers: dict[str, Array], time: Array, edges: Array, learn: bool) -> Lane:
        """One step of one run: act, move, store, learn, and start anew where the episode ended."""
        agent = dataclasses.replace(self.agent, **hypers)  # type: ignore[type-var]
        action = agent.act(lane.agent, lane.observation, stream_key(key, Stream.ACT, time), greedy=False)
        env, moved = self.env.step(lane.env, action, stream_key(key, Stream.MOVE, time))

        memory, learner = lane.replay, lane.agent
        metrics: Metrics = {}
        if memory is not None:
            continues = 1.0 - moved.terminated.astype(jnp.float32)
            seen = Batch(lane.observation, action, moved.reward, moved.observation, continues)
            memory = replay.write(memory, seen, time)
            if learn:
                replay_key = stream_key(key, Stream.REPLAY, time)
                batch = replay.sample(memory, self.env.spaces, replay_key, agent.batch_size, time)
                learner, metrics = agent.update(learner, batch, stream_key(key, Stream.UPDATE, time))

        watched = [lane.curve.running + moved.reward, moved.observation.sum(), *metrics.values()]
        finite = jnp.isfinite(jnp.stack(watched)).all()
        if learn:
            finite &= jax.lax.cond(time % INSPECTION == 0, all_finite, lambda _: jnp.bool_(True), learner)
        diverged_at = jnp.where((lane.diverged_at < 0) & ~finite, time, lane.diverged_at)
        ended = moved.terminated | moved.truncated
        recorded = curve.record(lane.curve, edges, time, moved.reward, ended, diverged_at < 0)
        fresh = self.env.reset(stream_key(key, Stream.START, recorded.episodes))
        env, observation = jax.tree.map(partial(jnp.where, ended), fresh, (env, moved.observation))
        return Lane(learner, env, observation, memory, recorded, diverged_at)

    def block(
        self, lanes: Lane, keys: Array, hypers: dict[str, Array], edges: Array, start: Array, stop: Array, learn: bool
    ) -> Lane:
        """All lanes from the step `start` up to `stop`."""
        step = jax.vmap(partial(self.step, learn=learn), in_axes=(0, 0, 0, None, None))
        return jax.lax.fori_loop(start, stop, lambda time, lanes: step(lanes, keys, hypers, time, edges), lanes)


class Compiled(NamedTuple):
    """A program's entry points, compiled. An agent without replay only acts, in `learn`, too."""

    begin: jax.stages.Compiled
    act: jax.stages.Compiled
    learn: jax.stages.Compiled


@lru_cache(maxsize=8)
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


class Lanes:
    """Runs of one program under way: `advance` them in blocks, then take their `outcomes`.

    `state` is the `Lane` of all runs, each array with a leading axis `[lanes]`, padding included.
    """

    def __init__(self, agents: Sequence[Agent], env: Env, seeds: Sequence[int], steps: int, width: int = 0):
        self.count, self.steps, self.time = len(agents), steps, 0
        program = Program(static_part(agents[0]), env)
        if any(static_part(agent) != program.agent for agent in agents):
            raise ValueError("lanes of one program must have equal static hyperparameters")
        width = max(width, self.count, MIN_WIDTH)
        padding = width - self.count
        self._compiled = compiled(program, width)
        self._keys = seed_keys([*seeds, *[seeds[-1]] * padding])
        self._hypers = stack([*agents, *[agents[-1]] * padding])
        self._edges = curve.bin_edges(steps)
        self._ready = program.agent.batch_size - 1
        self.state = self._compiled.begin(self._keys, self._hypers)

    def advance(self, steps: int) -> None:
        """Train all lanes for a block of steps, or to the end if that is nearer; returns when it is done.

        Learning begins when the replay holds a batch.
        """
        stop = min(self.time + steps, self.steps)
        self._run(self._compiled.act, min(stop, self._ready))
        self._run(self._compiled.learn, stop)
        self.state.diverged_at.block_until_ready()

    def _run(self, part: jax.stages.Compiled, stop: int) -> None:
        if self.time < stop:
            times = np.int32(self.time), np.int32(stop)
            self.state, self.time = part(self.state, self._keys, self._hypers, self._edges, *times), stop

    def text(self) -> str:
        """The compiled program of a block of steps with learning, in XLA's words."""
        return str(self._compiled.learn.as_text())

    def outcomes(self) -> list[Outcome]:
        """What each run came to, in the order in which they were given."""
        state = self.state
        told = jax.device_get(
            (
                state.agent.actor,
                state.curve,
                state.diverged_at,
                jax.vmap(all_finite, axis_size=len(state.diverged_at))(state.agent),
            )
        )
        lanes = [jax.tree.map(lambda leaf, lane=lane: leaf[lane], told) for lane in range(self.count)]
        return [self._outcome(*lane) for lane in lanes]

    def _outcome(self, actor: Any, ran: curve.Curve, diverged_at: Any, healthy: Any) -> Outcome:
        summary = curve.summarise(ran)
        if diverged_at < 0 and not healthy:
            diverged_at = self.steps - 1  # since the last inspection
        if diverged_at < 0:
            return Outcome(summary, None, actor)
        summary = summary._replace(average_return=None, final_return=None, best_return=None)
        return Outcome(summary, int(diverged_at), actor)


def all_finite(state: Any) -> Array:
    """Whether no number of an agent's state is NaN or infinite."""
    leaves = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.isfinite(jnp.array([leaf.sum() for leaf in leaves])).all()


def static_part(agent: Agent) -> Agent:
    """The agent with its swept fields emptied: equal for all lanes of one program."""
    return dataclasses.replace(agent, **dict.fromkeys(swept_names(agent), 0.0))  # type: ignore[type-var]
