"""`maximize`: find, for each context, the action where a function is largest."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jax import Array
from jax.tree_util import Partial
from numpy.typing import NDArray

from greedyac.ccem.search import Fault, Function, Problem, Search, State, begin, run
from greedyac.errors import InputError
from greedyac.hypers import check_values, show, whole
from greedyac.policies import Policy
from greedyac.rng import KEYS
from greedyac.spaces import Box, Discrete, Spaces

TOLD = ("value", "actor_entropy", "actor_deviation", "proposal_entropy", "proposal_deviation")
"""Columns of a history, where they are known."""
BEGIN = 2**32 - 1
"""What the first weights are drawn with; updates are drawn with their numbers."""


@dataclass(frozen=True)
class Maximum:
    """What was found. With several seeds all of it has a leading axis for them."""

    actions: NDArray[Any]
    """The actor's greedy action for each context."""
    history: pl.DataFrame
    """A row per update: the mean value of the actor's greedy actions before it, and how widely both policies choose."""
    search: Search
    seeds: tuple[int, ...]
    several: bool = field(repr=False)
    """Whether there is an axis for the seeds."""
    state: State = field(repr=False)
    """That of every seed."""
    problem: Problem = field(repr=False)

    @property
    def actor(self) -> Policy:
        """From contexts `[..., features]` to distributions over actions, in units of half the range."""
        return self._policy(self.state.actor)

    @property
    def proposal(self) -> Policy | None:
        """Likewise; none with few discrete actions."""
        return self._policy(self.state.proposal)

    def _policy(self, policy: Any) -> Any:
        return policy if self.several else jax.tree.map(lambda weight: weight[0], policy)

    def predict(self, contexts: Any) -> NDArray[Any]:
        """The actor's greedy actions for other contexts."""
        seen, plain = _checked_contexts(contexts)
        known = self.problem
        if (plain, seen.shape[1]) != (known.plain_context, known.contexts.shape[1]):
            allowed = "numbers [n]" if known.plain_context else f"vectors [n, {known.contexts.shape[1]}]"
            raise InputError(f"contexts of shape {np.shape(contexts)} are not allowed; allowed: {allowed}, as before")
        actions = _greedy(known, self.state.actor, seen)
        return actions if self.several else actions[0]


def maximize(
    f: Function,
    contexts: Any,
    low: Any = None,
    high: Any = None,
    *,
    actions: int | None = None,
    steps: int = 1000,
    seed: int | Iterable[int] = 0,
    start: Maximum | None = None,
    **settings: Any,
) -> Maximum:
    """Fit an actor that tracks argmax_a f(context, a) for all contexts, by conditional CEM.

    `f(context, action)` gives one number and is traceable by JAX. Contexts are numbers `[n]` or vectors
    `[n, features]`, best about 1 in size; actions are numbers or vectors from `low` to `high`, as these are, or the
    whole numbers below `actions`. Several seeds are searched at once.

    `start` goes on from an earlier result, with its settings and seeds; `f` and the contexts may have changed. A plain
    function is compiled in every call, a `jax.tree_util.Partial(g, numbers)` of g(numbers, context, action) only once,
    whatever the numbers are. `settings` are those of `Search`: step_size, entropy_scale, elite_fraction, …
    """
    given = check_values(Search, "setting of maximize", settings)
    problem = _checked_problem(f, contexts, low, high, actions)
    steps = whole("steps", steps, 1, 2**31 - 1)
    several, seeds = _checked_seeds(seed)
    if start is None:
        search = Search(**given)
        state = _begun(search, problem.spaces, _keys(seeds))
    else:
        search = _checked_start(start, given, problem, seeds)
        state, seeds, several = start.state, start.seeds, start.several
    compiled = _compiled if isinstance(f, Partial) else jax.jit(partial(_every_seed), static_argnums=(0, 4))
    state, told, fault = compiled(search, problem, state, _keys(seeds), steps)
    _check_fault(problem, seeds, jax.tree.map(np.asarray, fault))
    found = _greedy(problem, state.actor, problem.contexts)
    history = _history(told, seeds if several else None, int(state.updates[0]) - steps)
    return Maximum(found if several else found[0], history, search, seeds, several, state, problem)


def _keys(seeds: Sequence[int]) -> Array:
    return jax.vmap(lambda seed: jax.random.key(seed, impl=KEYS))(np.array(seeds, np.uint32))


@partial(jax.jit, static_argnums=(0, 1))
def _begun(search: Search, spaces: Spaces, keys: Array) -> State:
    return jax.vmap(lambda key: begin(search, spaces, jax.random.fold_in(key, BEGIN)))(keys)


def _every_seed(search: Search, problem: Problem, state: State, keys: Array, steps: int) -> tuple[State, Any, Fault]:
    return jax.vmap(lambda state, key: run(search, problem, state, key, steps))(state, keys)


_compiled = jax.jit(_every_seed, static_argnums=(0, 4))


def _greedy(problem: Problem, actors: Policy, contexts: Array) -> NDArray[Any]:
    """`[seeds, n, ...]`, in the function's own units."""
    return np.asarray(problem.actions(_modes(actors, contexts)))


@jax.jit
def _modes(actors: Any, contexts: Array) -> Array:
    return jax.vmap(lambda actor: actor(contexts).mode())(actors)


def _history(told: Mapping[str, Array], seeds: Sequence[int] | None, before: int) -> pl.DataFrame:
    """`told: [seeds, steps]` as a frame, its updates counted from the one after `before`."""
    count, steps = told["value"].shape
    columns: dict[str, Any] = {} if seeds is None else {"seed": np.repeat(np.array(seeds), steps)}
    columns["update"] = np.tile(np.arange(before + 1, before + steps + 1), count)
    return pl.DataFrame(columns | {name: np.asarray(told[name]).ravel() for name in TOLD if name in told})


def _checked_problem(f: Any, contexts: Any, low: Any, high: Any, actions: Any) -> Problem:
    if not callable(f):
        raise InputError(f"f = {f!r} is not allowed; allowed: a function of a context and an action")
    seen, plain_context = _checked_contexts(contexts)
    observation = Box((-math.inf,) * seen.shape[1], (math.inf,) * seen.shape[1])
    function = f if isinstance(f, Partial) else Partial(f)  # type: ignore[no-untyped-call]
    if actions is not None:
        if low is not None or high is not None:
            raise InputError("low and high are not allowed beside actions; allowed: bounds, or a number of actions")
        spaces = Spaces(observation, Discrete(whole("actions", actions, 2, 2**20)))
        problem = Problem(function, seen, jnp.zeros(0), jnp.zeros(0), spaces, plain_context, False)
    else:
        lowest, highest, plain = _checked_bounds(low, high)
        spaces = Spaces(observation, Box((-1.0,) * len(lowest), (1.0,) * len(lowest)))
        middle, half = jnp.asarray(lowest / 2 + highest / 2), jnp.asarray(highest / 2 - lowest / 2)
        problem = Problem(function, seen, middle, half, spaces, plain_context, plain)
    _check_function(problem)
    return problem


def _checked_contexts(contexts: Any) -> tuple[Array, bool]:
    """Contexts as `[n, features]`, and whether they were plain numbers."""
    allowed = "finite numbers [n] or vectors [n, features]"
    numbers = _numbers("contexts", contexts, allowed)
    if numbers.ndim not in (1, 2) or not numbers.size:
        raise InputError(f"contexts of shape {numbers.shape} are not allowed; allowed: {allowed}")
    return jnp.asarray(numbers if numbers.ndim == 2 else numbers[:, None]), numbers.ndim == 1


def _checked_bounds(low: Any, high: Any) -> tuple[NDArray[np.float32], NDArray[np.float32], bool]:
    """Bounds as vectors, and whether they were plain numbers."""
    lowest, highest = (_numbers(name, bound, "a number or a vector") for name, bound in (("low", low), ("high", high)))
    if lowest.shape != highest.shape or lowest.ndim > 1 or not lowest.size:
        shapes = f"low of shape {lowest.shape} and high of shape {highest.shape}"
        raise InputError(f"{shapes} are not allowed; allowed: two numbers, or two vectors of one length")
    if not (lowest < highest).all():
        raise InputError(f"low = {low} and high = {high} are not allowed; allowed: low < high")
    return lowest.reshape(-1), highest.reshape(-1), lowest.ndim == 0


def _numbers(name: str, given: Any, allowed: str) -> NDArray[np.float32]:
    try:
        numbers = np.asarray(given, np.float32)
    except (TypeError, ValueError):
        numbers = np.array(np.nan, np.float32)
    if not np.isfinite(numbers).all():
        raise InputError(f"{name} = {' '.join(str(given).split())} is not allowed; allowed: {allowed}")
    return numbers


def _checked_seeds(seed: Any) -> tuple[bool, tuple[int, ...]]:
    """Whether several seeds were asked for, and them."""
    several = isinstance(seed, Iterable)
    seeds = tuple(whole("seed", one, 0, 2**32 - 1) for one in (seed if several else [seed]))
    if not seeds:
        raise InputError("no seeds were given; allowed: one or more whole numbers ≥ 0")
    return several, seeds


def _check_function(problem: Problem) -> None:
    """Refuse a function that JAX can't trace, or that gives something else than one number."""
    context = problem.contexts[0, 0] if problem.plain_context else problem.contexts[0]
    discrete = isinstance(problem.spaces.action, Discrete)
    action = jnp.int32(0) if discrete else problem.actions(jnp.zeros(len(problem.half)))
    try:
        value = jax.eval_shape(problem.f, context, action)
    except jax.errors.JAXTypeError as error:
        why = str(error).splitlines()[0]
        raise InputError(f"f can't be traced by JAX ({why}); allowed: a function written with jax.numpy") from error
    if not hasattr(value, "shape") or value.shape or not jnp.isrealobj(value) or value.dtype == bool:
        told = f"shape {value.shape}, {value.dtype}" if hasattr(value, "shape") else f"a {type(value).__name__}"
        given = f"a context of shape {context.shape} and an action of shape {action.shape}"
        raise InputError(f"f returned {told} for {given}; allowed: one real number, of shape ()")


def _checked_start(start: Any, given: Mapping[str, Any], problem: Problem, seeds: tuple[int, ...]) -> Search:
    """The settings to go on with; policies must be for this problem, and stay what they are."""
    if not isinstance(start, Maximum):
        raise InputError(f"start = {start!r} is not allowed; allowed: what maximize returned")
    if (start.problem.spaces, start.problem.plain_context) != (problem.spaces, problem.plain_context):
        raise InputError("start has contexts or actions of another kind or size; allowed: those of this search")
    for name in ("hidden", "proposal_policy", "proposal_update"):
        if given.get(name, known := getattr(start.search, name)) != known:
            raise InputError(f"{name} = {given[name]!r} is not allowed with this start; allowed: {known!r}")
    if seeds not in ((0,), start.seeds):
        raise InputError(f"seed = {show(seeds)} is not allowed with this start; allowed: {show(start.seeds)}, or none")
    return dataclasses.replace(start.search, **given)


def _check_fault(problem: Problem, seeds: Sequence[int], fault: Fault) -> None:
    """Refuse a function that returned NaN, and say where."""
    if fault.found.any():
        first = int(fault.found.argmax())
        context = fault.context[first, 0] if problem.plain_context else fault.context[first]
        action = np.asarray(problem.actions(jnp.asarray(fault.chosen[first])))
        where = f"context {context} and action {action}"
        raise InputError(f"f returned nan for {where} (seed {seeds[first]}); allowed: numbers, −inf for the worst")
