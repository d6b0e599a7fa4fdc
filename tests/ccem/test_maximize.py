"""`ccem.maximize`: it finds what is largest, goes on where it was, and refuses what it can't use."""

import gc
import re
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.tree_util import Partial

import greedyac
from greedyac import ccem
from greedyac.agents.base import Batch
from greedyac.agents.greedy_ac import Draws, GreedyACAgent
from greedyac.ccem.maximize import TOLD, _compiled
from greedyac.ccem.search import Problem, Search, begin, update
from greedyac.core.errors import InputError
from greedyac.core.spaces import Box, Discrete, Spaces

CONTEXTS = np.linspace(-1, 1, 9)
LINEAR: dict[str, Any] = {"hidden": (), "step_size": 0.01}
SMALL: dict[str, Any] = {"hidden": (16,), "step_size": 5e-3}
"""A network that compiles sooner, where it is not the point."""


def two_peaks(context: Array, action: Array) -> Array:
    """The higher peak moves with the context, a broad one stays at −0.5."""
    high = jnp.exp(-(((action - 0.8 * jnp.sin(2 * context)) / 0.2) ** 2))
    return high + 0.5 * jnp.exp(-(((action + 0.5) / 0.5) ** 2))


def best_of(f: Any, contexts: Any, low: float, high: float) -> Any:
    """By trying 4,001 actions for each context."""
    actions = jnp.linspace(low, high, 4001)
    return actions[jax.vmap(lambda one: jax.vmap(lambda action: f(one, action))(actions).argmax())(contexts)]


def test_finds_the_highest_peak_for_every_context() -> None:
    """Measured with five seeds: at most 0.05 from it, and 0.06 between the contexts."""
    found = greedyac.ccem.maximize(two_peaks, CONTEXTS, -1.5, 1.5, steps=600)
    assert found.actions.shape == (9,)
    np.testing.assert_allclose(found.actions, best_of(two_peaks, CONTEXTS, -1.5, 1.5), atol=0.1)
    np.testing.assert_allclose(
        found.values, jax.vmap(two_peaks)(jnp.asarray(CONTEXTS), jnp.asarray(found.actions)), rtol=1e-4
    )
    between = np.array([-0.6, 0.33])
    np.testing.assert_allclose(found.predict(between), best_of(two_peaks, between, -1.5, 1.5), atol=0.1)
    np.testing.assert_array_equal(found.predict(CONTEXTS), found.actions)


def test_actions_and_contexts_of_several_numbers() -> None:
    contexts = np.array([[0.5, 0.1], [-0.5, 0.2], [0.0, -0.8]])

    def f(context: Array, action: Array) -> Array:
        return -((action[0] / 100 - context[0]) ** 2) - ((action[1] - 3) / 0.01 - context[1]) ** 2

    found = ccem.maximize(f, contexts, [-100, 2.99], [100, 3.01], steps=500)
    assert found.actions.shape == (3, 2)
    np.testing.assert_allclose(found.actions[:, 0], 100 * contexts[:, 0], atol=5)
    np.testing.assert_allclose(found.actions[:, 1], 3 + 0.01 * contexts[:, 1], atol=1e-3)


@pytest.mark.parametrize("count", [4, 40], ids=["few", "many"])
def test_discrete_actions(count: int) -> None:
    contexts = np.array([0.1, 0.5, 0.8])
    found = ccem.maximize(lambda c, a: -jnp.abs(a - count * c), contexts, actions=count, steps=400)
    best = [min(range(count), key=lambda action: abs(action - count * context)) for context in contexts]
    assert found.actions.tolist() == best
    assert found.actions.dtype == np.int32
    assert (found.proposal is None) is (count == 4)
    assert ("proposal_entropy" in found.history.columns) is (count == 40)
    assert "actor_deviation" not in found.history.columns


def test_units_of_actions_don_t_matter() -> None:
    plain = ccem.maximize(two_peaks, CONTEXTS, -1.5, 1.5, steps=20, **SMALL)
    scaled = ccem.maximize(lambda c, a: two_peaks(c, (a - 5e6) / 1e6), CONTEXTS, 3.5e6, 6.5e6, steps=20, **SMALL)
    np.testing.assert_allclose((scaled.actions - 5e6) / 1e6, plain.actions, atol=1e-3)


def test_starts_from_the_middle_as_wide_as_half_the_range() -> None:
    state = begin(Search(), Spaces(Box((-9.0,), (9.0,)), Box((-1.0,), (1.0,))), jax.random.key(3))
    assert state.proposal is not None
    for policy in (state.actor, state.proposal):
        chosen: Any = policy(jnp.array([[-2.0], [3.0]]))
        np.testing.assert_array_equal(chosen.mean, 0)
        np.testing.assert_array_equal(chosen.log_std, 0)
    state = begin(Search(), Spaces(Box((-9.0,), (9.0,)), Discrete(3)), jax.random.key(3))
    np.testing.assert_array_equal(state.actor(jnp.array([[2.0]])).logits, 0)


def test_one_update_is_that_of_greedy_ac() -> None:
    """With the critic as the function, and the same draws: Algorithm 2 is one piece of code, used alike."""
    spaces = Spaces(Box((-1.0, -1.0), (1.0, 1.0)), Box((-1.0,), (1.0,)))
    agent = GreedyACAgent(
        batch_size=5, entropy_scale=0.3, hidden=(8,), critic_step_size=1e-30, actor_step_size_scale=1e28
    )
    states = agent.init(jax.random.key(0), spaces)
    contexts = jax.random.uniform(jax.random.key(1), (5, 2))
    search = Search(entropy_scale=0.3, hidden=(8,), step_size=1e-2)
    problem = Problem(Partial(states.critic), contexts, -jnp.ones(1), jnp.ones(1), spaces, False, False)  # type: ignore[no-untyped-call]
    mine = begin(search, spaces, jax.random.key(2))._replace(actor=states.actor, proposal=states.proposal)
    key = jax.random.key(4)
    moved, _ = jax.jit(lambda mine: update(search, problem, mine, key))(mine)
    _, proposal_key, actor_key = jax.random.split(jax.random.fold_in(key, 0), 3)
    assert states.proposal is not None
    draws = Draws(jnp.zeros((5, 1)), states.proposal.noise(proposal_key, (30, 5)), states.actor.noise(actor_key, (5,)))
    still = Batch(contexts, jnp.zeros((5, 1)), jnp.zeros(5), contexts, jnp.ones(5))
    learned, _ = jax.jit(agent.learn)(states, still, draws)
    for ours, theirs in ((moved.actor, learned.actor), (moved.proposal, learned.proposal)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), ours, theirs)
    assert not np.allclose(moved.actor.mean.weight, states.actor.mean.weight)  # type: ignore[union-attr]


def test_first_step_goes_to_the_elite_by_hand() -> None:
    """From mean 0 and deviation 1 the first step of Adam is the step size, towards the best of the samples."""
    seen: list[float] = []
    for sign in (1.0, -1.0):
        function = Partial(lambda sign, _, a: sign * a, sign)  # type: ignore[no-untyped-call]
        found = ccem.maximize(function, [0.0], -1, 1, steps=1, **LINEAR)
        chosen: Any = found.actor(jnp.zeros((1, 1)))
        seen.append(float(chosen.mean[0, 0]))
        np.testing.assert_allclose(chosen.log_std, -0.01, rtol=1e-4)  # the elite is less than 1 from the mean
    np.testing.assert_allclose(seen, np.tanh([0.01, -0.01]), rtol=1e-4)


def test_a_warm_start_goes_on_as_if_it_had_not_stopped() -> None:
    whole = ccem.maximize(two_peaks, CONTEXTS, -1.5, 1.5, steps=30, seed=[2, 5], entropy_scale=0.1, **SMALL)
    half = ccem.maximize(two_peaks, CONTEXTS, -1.5, 1.5, steps=12, seed=[2, 5], entropy_scale=0.1, **SMALL)
    rest = ccem.maximize(two_peaks, CONTEXTS, -1.5, 1.5, steps=18, start=half)
    np.testing.assert_array_equal(rest.actions, whole.actions)
    assert rest.search.entropy_scale == 0.1
    assert rest.seeds == (2, 5)
    assert rest.history.equals(whole.history.filter(whole.history["update"] > 12))


def test_a_function_that_changed_is_followed() -> None:
    goal = {"is": 0.5}

    def f(context: Array, action: Array) -> Array:
        return -jnp.abs(action - goal["is"])

    first = ccem.maximize(f, [0.0], -1, 1, steps=400, entropy_scale=1.0, **LINEAR)
    np.testing.assert_allclose(first.actions, 0.5, atol=0.05)
    goal["is"] = -0.7
    second = ccem.maximize(f, [0.0], -1, 1, steps=400, start=first)
    np.testing.assert_allclose(second.actions, -0.7, atol=0.05)


def test_numbers_of_a_partial_don_t_compile_anew() -> None:
    def f(goal: Array, context: Array, action: Array) -> Array:
        return -jnp.abs(action - goal - context)

    program: Any = _compiled
    found, compiled = None, 0
    for goal in (0.1, 0.2, 0.3):
        function = Partial(f, jnp.float32(goal))  # type: ignore[no-untyped-call]
        found = ccem.maximize(function, [0.0, 0.2], -1, 1, steps=250, start=found)
        compiled = compiled or program._cache_size()
        assert program._cache_size() == compiled
    assert found is not None
    np.testing.assert_allclose(found.actions, [0.3, 0.5], atol=0.05)


def test_what_a_partial_does_not_hold_stays_as_it_was_first() -> None:
    """As the docs say: it is compiled once."""
    goal = {"is": 0.5}
    function = Partial(lambda _, action: -jnp.abs(action - goal["is"]))  # type: ignore[no-untyped-call]
    first = ccem.maximize(function, [0.0], -1, 1, steps=300, **LINEAR)
    goal["is"] = -0.5
    second = ccem.maximize(function, [0.0], -1, 1, steps=300, **LINEAR)
    np.testing.assert_array_equal(first.actions, second.actions)


def test_a_plain_function_is_forgotten_after_the_call() -> None:
    def search() -> Any:
        big = jnp.zeros(3)

        def f(context: Array, action: Array) -> Array:
            return big[0] - action**2

        ccem.maximize(f, [0.0], -1, 1, steps=2, **LINEAR)
        return weakref.ref(f)

    gone = search()
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("family", ["gaussian", "truncated-gaussian"])
@pytest.mark.parametrize(("low", "high"), [(-1.4, 0.8), (-2.9, -2.8), (-3.0, 1.9)])
def test_actions_never_leave_the_range(family: str, low: float, high: float) -> None:
    """Not by rounding, either: this function is NaN beyond it, and highest at its upper end."""
    ends = np.float32(low), np.float32(high)

    def f(_: Array, action: Array) -> Array:
        return 1 - 0.1 * jnp.sqrt(ends[1] - action) + 0 * jnp.sqrt(action - ends[0])

    found = ccem.maximize(f, [0.0], low, high, steps=400, proposal_policy=family, entropy_scale=0.5, **LINEAR)
    assert ends[0] <= found.actions[0] <= ends[1]
    assert found.actions[0] > low + 0.8 * (high - low)


@pytest.mark.slow
def test_several_seeds_are_what_each_would_be() -> None:
    several = ccem.maximize(two_peaks, CONTEXTS, -1.5, 1.5, steps=25, seed=range(3), **SMALL)
    assert several.actions.shape == (3, 9)
    assert several.history.columns == ["seed", "update", *TOLD]
    assert several.history.height == 75
    alone = ccem.maximize(two_peaks, CONTEXTS, -1.5, 1.5, steps=25, seed=2, **SMALL)
    assert alone.history.columns == ["update", *TOLD]
    np.testing.assert_allclose(several.actions[2], alone.actions, atol=1e-5)
    assert not np.allclose(several.actions[2], several.actions[1])
    seen = np.asarray(CONTEXTS, np.float32)[:, None]
    for actor, actions in zip([*several.actor, alone.actor], [*several.actions, alone.actions], strict=True):
        np.testing.assert_allclose(1.5 * actor(seen).mode()[:, 0], actions, rtol=1e-5)


def test_history_tells_what_was_before_each_update() -> None:
    found = ccem.maximize(two_peaks, CONTEXTS, -1.5, 1.5, steps=40, **SMALL)
    first, last = found.history.row(0, named=True), found.history.row(-1, named=True)
    middle = np.mean([two_peaks(context, jnp.float32(0)) for context in CONTEXTS])
    assert (first["update"], last["update"]) == (1, 40)
    np.testing.assert_allclose(first["value"], middle, rtol=1e-5)
    assert first["actor_deviation"] == first["proposal_deviation"] == 1
    np.testing.assert_allclose(first["actor_entropy"], 0.5 * np.log(2 * np.pi * np.e), rtol=1e-6)
    assert last["actor_deviation"] < first["actor_deviation"]


@pytest.mark.slow
def test_more_contexts_than_a_batch() -> None:
    contexts = np.linspace(-1, 1, 100)
    found = ccem.maximize(lambda c, a: -((a - c) ** 2), contexts, -2, 2, steps=300, batch_size=8)
    np.testing.assert_allclose(found.actions, contexts, atol=0.2)
    tried = ccem.maximize(lambda c, a: jnp.where(c == 0.5, 1.0, 0.0), [0.5, 0.25, 0.0], 0, 1, steps=40, batch_size=1)
    assert set(tried.history["value"]) == {0.0, 1.0}  # one context at a time, each its turn


OF_TEXT = Partial(lambda g, c, a: a, "x")  # type: ignore[no-untyped-call]
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "elite fraction": ({"elite_fraction": 1.0}, "elite_fraction = 1 is not allowed; allowed: > 0 and < 1"),
    "samples": ({"proposal_samples": 0}, "proposal_samples = 0 is not allowed; allowed: whole number ≥ 1"),
    "unknown": ({"entropy_scal": 1}, "unknown argument of maximize 'entropy_scal' (did you mean 'entropy_scale'?)"),
    "misspelt": ({"seeds": 3}, "unknown argument of maximize 'seeds' (did you mean 'seed'?)"),
    "reversed": ({"low": 1, "high": -1}, "low = 1 and high = -1 are not allowed; allowed: low < high"),
    "one bound": ({"high": None}, "high = None is not allowed; allowed: a finite number or a vector"),
    "no bounds": ({"low": None, "high": None}, "neither low and high nor actions was given"),
    "too large": ({"high": 1e300}, "high = 1e+300 is not allowed; allowed: a finite number"),
    "no range": ({"low": 0, "high": 1e-300}, "allowed: low < high, as float32"),
    "digits": ({"low": "-1"}, "low = -1 is not allowed; allowed: a finite number"),
    "a nan": ({"contexts": [0.0] * 50 + [np.nan]}, "contexts = [… nan …] is not allowed; allowed: finite numbers"),
    "shapes": ({"low": [0, 0]}, "low of shape (2,) and high of shape () are not allowed"),
    "both": ({"actions": 3}, "low and high are not allowed beside actions"),
    "infinite": ({"high": np.inf}, "high = inf is not allowed"),
    "contexts": ({"contexts": [[[1.0]]]}, "contexts of shape (1, 1, 1) are not allowed"),
    "no contexts": ({"contexts": []}, "contexts of shape (0,) are not allowed"),
    "words": ({"contexts": ["a"]}, "contexts = ['a'] is not allowed"),
    "steps": ({"steps": 0}, "steps = 0 is not allowed"),
    "seed": ({"seed": -1}, "seed = -1 is not allowed"),
    "no seeds": ({"seed": []}, "no seeds were given"),
    "not a function": ({"f": 3}, "f = 3 is not allowed; allowed: a function of a context and an action"),
    "vector": ({"f": lambda c, a: jnp.zeros(2)}, "f returned shape (2,), float32 for a context of shape ()"),
    "list": ({"f": lambda c, a: [a]}, "f returned a list"),
    "text": ({"f": lambda c, a: "x"}, "f returned a str"),
    "one argument": ({"f": lambda c: c}, "allowed: a function of a context and an action"),
    "text in a partial": (
        {"f": OF_TEXT},
        "'x' in the Partial is not allowed; allowed: numbers",
    ),
    "complex": ({"f": lambda c, a: 1j * a}, "f returned shape (), complex64"),
    "untraceable": ({"f": lambda c, a: float(a)}, "f can't be traced by JAX"),
    "nan": ({"f": lambda c, a: jnp.log(a)}, "f returned nan for context 0.0 and action -"),
    "nan of one context": (
        {
            "f": lambda c, a: jnp.where(c[1] > 2, jnp.nan, a[0]),
            "contexts": [[1, 2], [1, 3]],
            "low": [0, 5],
            "high": [1, 6],
        },
        "f returned nan for context [1. 3.] and action [0.5 5.5] (seed 0)",
    ),
    "nan of one action and seed": (
        {"f": lambda c, a: jnp.where(a == 2, jnp.nan, c), "low": None, "high": None, "actions": 3, "seed": [4, 5]},
        "f returned nan for context 0.0 and action 2 (seed 4)",
    ),
    "start": ({"start": 3}, "start = 3 is not allowed; allowed: what maximize returned"),
    "empty layers": ({"hidden": (0,)}, "hidden = 0 is not allowed"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_can_t_be_used_is_named(case: str) -> None:
    given, message = WRONG[case]
    usual: dict[str, Any] = {"f": lambda c, a: -a * a, "contexts": [0.0], "low": -1, "high": 1, "steps": 3}
    with pytest.raises(InputError, match=re.escape(message)) as error:
        ccem.maximize(**usual | given)
    assert "\n" not in str(error.value)


def test_a_start_must_fit() -> None:
    start = ccem.maximize(lambda c, a: -a * a, [0.0], -1, 1, steps=2, seed=3, **LINEAR)
    usual: dict[str, Any] = {"f": lambda c, a: -a * a, "contexts": [0.0], "low": -1, "high": 1, "start": start}
    for given, message in (
        ({"hidden": (4,)}, "hidden = (4,) is not allowed with this start; allowed: ()"),
        ({"proposal_policy": "gaussian"}, "proposal_policy = 'gaussian' is not allowed with this start"),
        ({"seed": 7}, "seed = 7 is not allowed with this start; allowed: 3, or none"),
        ({"seed": 0}, "seed = 0 is not allowed with this start"),
        (
            {"high": 2},
            "low = [-1.] and high = [2.] are not allowed with this start; allowed: low = [-1.] and high = [1.]",
        ),
        ({"contexts": [[0.0]]}, "start has contexts or actions of another kind or size"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            ccem.maximize(**usual | given)
    with pytest.raises(InputError, match="contexts of shape"):
        start.predict([[1.0, 2.0]])
    few = ccem.maximize(lambda c, a: -a, [0.0], actions=4, steps=2, **LINEAR)
    with pytest.raises(InputError, match=r"elite_fraction = 0.9 is not allowed .* one that needs no proposal policy"):
        ccem.maximize(lambda c, a: -a, [0.0], actions=4, start=few, elite_fraction=0.9)


@pytest.mark.parametrize(
    "settings", [{"proposal_update": "average"}, {"actor_entropy_scale": 0.1}, {"entropy_estimator": "score"}]
)
def test_other_variants_search_too(settings: dict[str, Any]) -> None:
    found = ccem.maximize(lambda _, a: -((a - 0.3) ** 2), [0.0], -1, 1, steps=300, **LINEAR, **settings)
    np.testing.assert_allclose(found.actions, 0.3, atol=0.1)


def test_minus_infinity_is_a_value_like_any_other() -> None:
    found = ccem.maximize(lambda _, a: jnp.where(a < 0, -jnp.inf, -a), [0.0], -1, 1, steps=400, **LINEAR)
    assert 0 <= found.actions[0] < 0.1
