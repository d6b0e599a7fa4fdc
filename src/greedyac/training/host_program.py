"""What of the loop on the host is compiled: one call per step for all lanes, which stores, learns and acts.

Inside that call lanes learn one after another, so that a run's numbers don't depend on how many there are. (Beside a
lone one there is room for another, which does nothing: XLA would drop an axis of one, and round differently.)

Every array that a call takes and gives costs Python about a microsecond, and a lane has a hundred small ones: they are
packed into one per type.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from greedyac.core.fields import stack
from greedyac.core.streams import seed_keys
from greedyac.core.xla import configured
from greedyac.envs import Transition
from greedyac.training import curve
from greedyac.training.program import LaneState, Program

SMALL = 4096
"""Arrays of fewer numbers are packed: copying larger ones would take longer than passing them."""


Packed = tuple[Array, ...]
"""A lane without its replay, or all of them with a leading axis: its large arrays, and the small ones, one per type."""


class Packing:
    """How lanes of one program are packed; `lane` tells the shapes of one."""

    def __init__(self, lane: LaneState):
        leaves, self._structure = jax.tree.flatten(lane._replace(replay=None))
        self._shapes = [leaf.shape for leaf in leaves]
        self._large = [place for place, leaf in enumerate(leaves) if leaf.size >= SMALL]
        self._small: dict[Any, list[int]] = defaultdict(list)
        for place, leaf in enumerate(leaves):
            if leaf.size < SMALL:
                self._small[leaf.dtype].append(place)

    def pack(self, lane: LaneState) -> Packed:
        """One lane, packed."""
        leaves = jax.tree.leaves(lane._replace(replay=None))
        small = [jnp.concatenate([leaves[place].ravel() for place in places]) for places in self._small.values()]
        return (*(leaves[place] for place in self._large), *small)

    def unpack(self, packed: Packed) -> LaneState:
        """The inverse of `pack`; there is no replay."""
        large, small = packed[: len(self._large)], packed[len(self._large) :]
        leaves = dict(zip(self._large, large, strict=True))
        for places, array in zip(self._small.values(), small, strict=True):
            parts = jax.lax.split(array, [int(np.prod(self._shapes[place])) for place in places])
            leaves |= {place: part.reshape(self._shapes[place]) for place, part in zip(places, parts, strict=True)}
        lane: LaneState = jax.tree.unflatten(self._structure, [leaves[place] for place in range(len(leaves))])
        return lane


class Given(NamedTuple):
    """What stays the same from step to step: keys, traced hyperparameters in one array, and the edges of the curve."""

    keys: Array
    hypers: Array
    edges: Array

    @classmethod
    def of(cls, keys: Array, hypers: Mapping[str, Any], edges: Any) -> "Given":
        """On the device."""
        numbers = np.stack(list(hypers.values()), 1) if hypers else np.zeros((len(keys), 0), np.float32)
        return cls(keys, jnp.asarray(numbers), jnp.asarray(edges))


class Told(NamedTuple):
    """What the host tells of a step, packed for the same reason.

    `rows: [lanes, …]`: the fields of a `Transition`, and the observation to act on next. `numbers`: the time, how many
    lanes are live, and which.
    """

    rows: Any
    numbers: Any

    @classmethod
    def of(cls, width: int, features: int) -> "Told":
        """Room for it."""
        return cls(np.zeros((width, 2 * features + 3), np.float32), np.zeros(2 + width, np.int32))

    def seen(self, features: int) -> tuple[Transition, Array]:
        """What happened, and what is seen now."""
        after, rest = self.rows[:, :features], self.rows[:, features:]
        return Transition(after, rest[:, 0], rest[:, 1] > 0, rest[:, 2] > 0), rest[:, 3:]


def host_step(
    program: Program,
    packing: Packing,
    names: Sequence[str],
    memory: Array | None,
    packed: Packed,
    given: Given,
    told: Told,
    learn: bool,
) -> tuple[Array | None, Packed, Array]:
    """All lanes after their environments have moved: that step stored and learned from, and the next actions chosen."""
    time, count, live = told.numbers[0], told.numbers[1], told.numbers[2:]
    moved, observation = told.seen(program.spaces.observation.size)
    lanes = jax.vmap(packing.unpack)(packed)._replace(replay=memory)
    remember = jax.vmap(partial(program.remember, learn=learn), in_axes=(0, 0, 0, 0, None))
    memory, batch = remember(lanes, lanes.env, moved, given.keys, time)

    def one(packed: Packed, moved: Transition, batch: Any, key: Array, numbers: Array, observation: Array) -> Packed:
        hypers = {name: numbers[place] for place, name in enumerate(names)}
        lane, _ = program.learn_and_record(packing.unpack(packed), moved, batch, key, hypers, time, given.edges)
        lane = lane._replace(observation=observation)
        return packing.pack(lane._replace(env=program.act(lane, key, hypers, time + 1)))

    def nth(index: Array, lanes: Packed) -> Packed:
        place = live[index]
        own = jax.tree.map(lambda part: part[place], (lanes, moved, batch, given.keys, given.hypers, observation))
        return jax.tree.map(lambda all_lanes, new: all_lanes.at[place].set(new), lanes, one(*own))

    packed = jax.lax.fori_loop(0, count, nth, packed)
    return memory, packed, jax.vmap(packing.unpack)(packed).env


def first_actions(
    program: Program,
    lanes: LaneState,
    keys: Array,
    hypers: dict[str, Array],
    observation: Array,
    begun: Array,
    time: Array,
) -> LaneState:
    """The lanes that have `begun` an episode with its first observation, and the actions that these lead to."""
    lanes = lanes._replace(observation=jnp.where(begun[:, None], observation, lanes.observation))
    action = jax.vmap(program.act, in_axes=(0, 0, 0, None))(lanes, keys, hypers, time)
    return lanes._replace(env=jnp.where(begun.reshape(-1, *[1] * (action.ndim - 1)), action, lanes.env))


class Stepped(NamedTuple):
    """A program's entry points for so many lanes."""

    begin: Any
    first: Any
    pack: Any
    unpack: Any
    act: Any
    learn: Any


@lru_cache(maxsize=8)
@configured
def compiled_for_host(program: Program, width: int) -> Stepped:
    """The program for so many lanes, compiled once."""

    def quick(function: Any) -> Any:
        return configured(jax.jit(function, compiler_options={"xla_backend_optimization_level": 0}))

    keys, hypers = seed_keys([0] * width), stack([program.agent] * width)
    begin = jax.vmap(program.lane)
    lanes = jax.eval_shape(begin, keys, hypers)
    packing = Packing(jax.eval_shape(lambda lanes: jax.tree.map(lambda leaf: leaf[0], lanes), lanes))
    pack, unpack = jax.vmap(packing.pack), jax.vmap(packing.unpack)
    given = Given.of(keys, hypers, curve.bin_edges(0))
    told = Told.of(width, program.spaces.observation.size)

    def step(learn: bool) -> Any:
        function = partial(host_step, program, packing, list(hypers), learn=learn)
        jitted = jax.jit(function, donate_argnums=(0, 1), compiler_options={"xla_backend_optimization_level": 1})
        return jitted.lower(lanes.replay, jax.eval_shape(pack, lanes._replace(replay=None)), given, told).compile()

    act = step(False)
    learn = step(True) if program.agent.batch_size else act
    return Stepped(quick(begin), quick(partial(first_actions, program)), quick(pack), quick(unpack), act, learn)
