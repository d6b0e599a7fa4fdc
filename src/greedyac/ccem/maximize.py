"""`maximize`: find, for each context, the action where a function is largest."""

import dataclasses
import inspect
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
from greedyac.core.errors import InputError, unknown_name
from greedyac.core.fields import check_int, check_values, hypers_of, show
from greedyac.core.prng import KEYS
from greedyac.core.spaces import Box, Discrete, Spaces
from greedyac.core.xla import configured

TOLD = ("value", "actor_entropy", "actor_deviation", "proposal_entropy", "proposal_deviation")
"""Columns of a history, where they are known."""
BEGIN = 2**32 - 1
"""What the first weights are drawn with; updates are drawn with their numbers."""


@dataclass(frozen=True)
class Maximum:
    """What was found. With several seeds actions and values have a leading axis for them."""

    actions: NDArray[Any]
    """The actor's greedy action for each context."""
    values: NDArray[np.float32]
    """What the function is worth there."""
    history: pl.DataFrame = field(repr=False)
    """A row per update: the mean value of the actor's greedy actions before it, and how widely both policies choose."""
    search: Search
    seeds: tuple[int, ...]
    several: bool = field(repr=False)
    """Whether there is an axis for the seeds."""
    state: State = field(repr=False)
    """That of every seed."""
    problem: Problem = field(repr=False)

    @property
    def actor(self) -> Any:
        """From contexts `[..., features]` to distributions over actions, in units of half the range.

        After a search with several seeds a list with one for each.
        """
        return self._policies(self.state.actor)

    @property
    def proposal(self) -> Any:
        """Likewise; None with few discrete actions, where there is no proposal policy."""
        return self._policies(self.state.proposal)

    def _policies(self, of_all: Any) -> Any:
        if of_all is None:
            return None
        weights = jax.tree.map(np.asarray, of_all)
        each = [jax.tree.map(lambda weight, seed=seed: weight[seed], weights) for seed in range(len(self.seeds))]
        return each if self.several else each[0]

    @configured
    def predict(self, contexts: Any) -> NDArray[Any]:
        """The actor's greedy actions for other contexts."""
        seen, plain = _checked_contexts(contexts)
        known = self.problem
        if (plain, seen.shape[1]) != (known.plain_context, known.contexts.shape[1]):
            allowed = "numbers [n]" if known.plain_context else f"vectors [n, {known.contexts.shape[1]}]"
            raise InputError(f"contexts of shape {np.shape(contexts)} are not allowed; allowed: {allowed}, as before")
        actions = np.asarray(known.actions(_modes(self.state.actor, seen)))
        return actions if self.several else actions[0]


@configured
def maximize(
    f: Function,
    contexts: Any,
    low: Any = None,
    high: Any = None,
    *,
    actions: int | None = None,
    steps: int = 1000,
    seed: int | Iterable[int] | None = None,
    start: Maximum | None = None,
    **settings: Any,
) -> Maximum:
    """Fit an actor that tracks argmax_a f(context, a) for all contexts, by conditional CEM.

    `f(context, action)` gives one number and is traceable by JAX, with numbers of 32 bits. Contexts are numbers `[n]`
    or vectors `[n, features]`, best about 1 in size; actions are numbers or vectors from `low` to `high`, as these are,
    or the whole numbers below `actions`. The seed is 0 unless told; several are searched at once.

    `start` goes on from an earlier result, with its settings and seeds; `f` and the contexts may have changed. A plain
    function is compiled in every call, a `jax.tree_util.Partial(g, numbers)` of g(numbers, context, action) only once,
    whatever the numbers are; what else g refers to must stay as it is. `settings` are those of `Search`: step_size,
    entropy_scale, elite_fraction, …
    """
    for name in settings.keys() - hypers_of(Search).keys():
        raise unknown_name(
            "argument of maximize", name, [*inspect.signature(maximize).parameters][2:-1], hypers_of(Search)
        )
    given = check_values(Search, "setting", settings)
    problem = _checked_problem(f, contexts, low, high, actions)
    steps = check_int("steps", steps, 1, 2**31 - 1)
    several, seeds = _checked_seeds(0 if seed is None else seed)
    if start is None:
        search = Search(**given)
        state = _begun(search, problem.spaces, _keys(seeds))
    else:
        search = _checked_start(start, given, problem, None if seed is None else seeds)
        state, seeds, several = start.state, start.seeds, start.several
    if isinstance(f, Partial):
        state, told, fault = _compiled(search, problem, state, _keys(seeds), steps)
    else:  # traced anew, as what it refers to may have changed, and forgotten with this call
        searched = jax.jit(lambda state, keys: _every_seed(search, problem, state, keys, steps))
        state, told, fault = searched(state, _keys(seeds))
    _check_fault(problem, seeds, jax.tree.map(np.asarray, fault))
    chosen = _modes(state.actor, problem.contexts)
    found, values = np.asarray(problem.actions(chosen)), np.asarray(problem.values(problem.contexts, chosen))
    history = _history(told, seeds if several else None, int(state.updates[0]) - steps)
    first = slice(None) if several else 0
    return Maximum(found[first], values[first], history, search, seeds, several, state, problem)


def _keys(seeds: Sequence[int]) -> Array:
    return jax.vmap(lambda seed: jax.random.key(seed, impl=KEYS))(np.array(seeds, np.uint32))


@partial(jax.jit, static_argnums=(0, 1))
def _begun(search: Search, spaces: Spaces, keys: Array) -> State:
    return jax.vmap(lambda key: begin(search, spaces, jax.random.fold_in(key, BEGIN)))(keys)


def _every_seed(search: Search, problem: Problem, state: State, keys: Array, steps: int) -> tuple[State, Any, Fault]:
    """For every seed the state after so many updates, what they told, `[seeds, steps]`, and the first fault."""
    return jax.vmap(lambda state, key: run(search, problem, state, key, steps))(state, keys)


_compiled = jax.jit(_every_seed, static_argnums=(0, 4))


@jax.jit
def _modes(actors: Any, contexts: Array) -> Array:
    """Every actor's greedy choices, `[seeds, n, ...]`."""
    return jax.vmap(lambda actor: actor(contexts).mode())(actors)


def _history(told: Mapping[str, Array], seeds: Sequence[int] | None, before: int) -> pl.DataFrame:
    """`told: [seeds, steps]` as a frame, its updates counted from the one after `before`."""
    count, steps = told["value"].shape
    columns: dict[str, Any] = {} if seeds is None else {"seed": np.repeat(np.array(seeds), steps)}
    columns["update"] = np.tile(np.arange(before + 1, before + steps + 1), count)
    return pl.DataFrame(columns | {name: np.asarray(told[name]).ravel() for name in TOLD if name in told})


def _checked_problem(f: Any, contexts: Any, low: Any, high: Any, actions: Any) -> Problem:
    if not callable(f) or not _takes_two(f):
        raise InputError(f"f = {f!r} is not allowed; allowed: a function of a context and an action")
    for number in jax.tree.leaves(f) if isinstance(f, Partial) else ():
        if not isinstance(number, Array | np.ndarray | np.generic | float | int):
            raise InputError(f"{number!r} in the Partial is not allowed; allowed: numbers and arrays of them")
    seen, plain_context = _checked_contexts(contexts)
    observation = Box((-math.inf,) * seen.shape[1], (math.inf,) * seen.shape[1])
    function = f if isinstance(f, Partial) else Partial(f)  # type: ignore[no-untyped-call]
    if actions is not None:
        if low is not None or high is not None:
            raise InputError("low and high are not allowed beside actions; allowed: bounds, or a number of actions")
        spaces = Spaces(observation, Discrete(check_int("actions", actions, 2, 2**20)))
        problem = Problem(function, seen, jnp.zeros(0), jnp.zeros(0), spaces, plain_context, False)
    else:
        lowest, highest, plain = _checked_bounds(low, high)
        spaces = Spaces(observation, Box((-1.0,) * len(lowest), (1.0,) * len(lowest)))
        problem = Problem(function, seen, jnp.asarray(lowest), jnp.asarray(highest), spaces, plain_context, plain)
    _check_function(problem)
    return problem


def _takes_two(f: Any) -> bool:
    """Whether it can be called with a context and an action; of what tells nothing about itself, yes."""
    try:
        inspect.signature(f).bind(None, None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _checked_contexts(contexts: Any) -> tuple[Array, bool]:
    """Contexts as `[n, features]`, and whether they were plain numbers."""
    allowed = "finite numbers [n] or vectors [n, features]"
    numbers = _numbers("contexts", contexts, allowed)
    if numbers.ndim not in (1, 2) or not numbers.size:
        raise InputError(f"contexts of shape {numbers.shape} are not allowed; allowed: {allowed}")
    return jnp.asarray(numbers if numbers.ndim == 2 else numbers[:, None]), numbers.ndim == 1


def _checked_bounds(low: Any, high: Any) -> tuple[NDArray[np.float32], NDArray[np.float32], bool]:
    """Bounds as vectors, and whether they were plain numbers."""
    if low is None and high is None:
        raise InputError("neither low and high nor actions was given; allowed: bounds, or a number of discrete actions")
    allowed = "a finite number or a vector of them, of the size of float32"
    lowest, highest = (_numbers(name, bound, allowed) for name, bound in (("low", low), ("high", high)))
    if lowest.shape != highest.shape or lowest.ndim > 1 or not lowest.size:
        shapes = f"low of shape {lowest.shape} and high of shape {highest.shape}"
        raise InputError(f"{shapes} are not allowed; allowed: two numbers, or two vectors of one length")
    if not (lowest < highest).all():
        raise InputError(f"low = {low} and high = {high} are not allowed; allowed: low < high, as float32")
    return lowest.reshape(-1), highest.reshape(-1), lowest.ndim == 0


def _numbers(name: str, given: Any, allowed: str) -> NDArray[np.float32]:
    try:
        numbers = np.asarray(given)
    except ValueError:  # lists of several lengths
        numbers = np.array(None)
    with np.errstate(over="ignore"):
        singles = numbers.astype(np.float32) if numbers.dtype.kind in "iufb" else np.array(np.nan, np.float32)
    if not (fine := np.isfinite(singles)).all():
        shown = given if fine.ndim == 0 else f"[… {numbers[~fine].flat[0]} …]"
        raise InputError(f"{name} = {' '.join(str(shown).split())[:80]} is not allowed; allowed: {allowed}")
    return singles


def _checked_seeds(seed: Any) -> tuple[bool, tuple[int, ...]]:
    """Whether several seeds were asked for, and them."""
    several = isinstance(seed, Iterable) and np.ndim(seed) > 0  # type: ignore[arg-type]
    seeds = tuple(check_int("seed", one, 0, 2**32 - 1) for one in (seed if several else [seed]))
    if not seeds:
        raise InputError("no seeds were given; allowed: one or more whole numbers ≥ 0")
    return several, seeds


def _check_function(problem: Problem) -> None:
    """Refuse a function that JAX can't trace, or that gives something else than one number."""
    context = problem.contexts[0, 0] if problem.plain_context else problem.contexts[0]
    discrete = isinstance(problem.spaces.action, Discrete)
    action = jnp.int32(0) if discrete else problem.actions(jnp.zeros(len(problem.low)))
    returned: list[Any] = []
    try:
        jax.eval_shape(lambda *given: returned.append(problem.f(*given)), context, action)
    except jax.errors.JAXTypeError as error:
        why = str(error).splitlines()[0]
        raise InputError(f"f can't be traced by JAX ({why}); allowed: a function written with jax.numpy") from None
    [value] = returned
    number = isinstance(value, Array | np.ndarray | np.generic | float | int) and not isinstance(value, bool)
    if not number or np.shape(value) or jnp.result_type(value).kind not in "fiu":
        told = f"shape {np.shape(value)}, {jnp.result_type(value)}" if number else f"a {type(value).__name__}"
        given = f"a context of shape {context.shape} and an action of shape {action.shape}"
        raise InputError(f"f returned {told} for {given}; allowed: one real number, of shape ()")


def _checked_start(start: Any, given: Mapping[str, Any], problem: Problem, seeds: tuple[int, ...] | None) -> Search:
    """The settings to go on with; policies must be for this problem, and stay what they are."""
    if not isinstance(start, Maximum):
        raise InputError(f"start = {start!r} is not allowed; allowed: what maximize returned")
    if (start.problem.spaces, start.problem.plain_context) != (problem.spaces, problem.plain_context):
        raise InputError("start has contexts or actions of another kind or size; allowed: those of this search")
    if not np.array_equal([start.problem.low, start.problem.high], [problem.low, problem.high]):
        known = f"low = {start.problem.low} and high = {start.problem.high}"
        raise InputError(
            f"low = {problem.low} and high = {problem.high} are not allowed with this start; allowed: {known}"
        )
    for name in ("hidden", "proposal_policy", "proposal_update"):
        if given.get(name, known := getattr(start.search, name)) != known:
            raise InputError(f"{name} = {given[name]!r} is not allowed with this start; allowed: {known!r}")
    if seeds not in (None, start.seeds):
        raise InputError(f"seed = {show(seeds)} is not allowed with this start; allowed: {show(start.seeds)}, or none")
    search = dataclasses.replace(start.search, **given)
    if search.needs_no_proposal(problem.spaces) != (start.state.proposal is None):
        raise InputError(
            f"elite_fraction = {show(search.elite_fraction)} is not allowed with this start; "
            f"allowed: one that needs {'no' if start.state.proposal is None else 'a'} proposal policy"
        )
    return search


def _check_fault(problem: Problem, seeds: Sequence[int], fault: Fault) -> None:
    """Refuse a function that returned NaN, and say where."""
    if fault.found.any():
        first = int(fault.found.argmax())
        context = fault.context[first, 0] if problem.plain_context else fault.context[first]
        action = np.asarray(problem.actions(jnp.asarray(fault.chosen[first])))
        where = f"context {context} and action {action}"
        raise InputError(f"f returned nan for {where} (seed {seeds[first]}); allowed: numbers, −inf for the worst")
