"""CCEM by itself on functions with several peaks: which variants find the highest, how wide they stay, at what cost.

    python benchmarks/peaks.py

One action in [−1, 1], its value the highest of five bumps at random places. First, in one state: four kinds of proposal
and entropy estimator at five entropy scales, and proposals that are averages of the actor, all problems at once in one
compiled program; halfway all functions change. Then, with many contexts that one network serves: CCEM beside plain CEM
and gradient ascent, by evaluations of the function. Draws figures into docs/images and fills tables of docs/theory.md.
"""

import time
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial
from matplotlib.figure import Figure
from theory import DOCUMENT, ROOT, dress, filled

from greedyac import ccem
from greedyac.analysis.figures import COLOURS
from greedyac.ccem.search import Problem, Search, State, begin, update
from greedyac.core.prng import KEYS
from greedyac.core.spaces import Box, Spaces
from greedyac.nn.distributions import TruncatedGaussian
from greedyac.nn.optim import adam_step, init_optimizer
from greedyac.nn.policies import PolicyNetwork

PROBLEMS, FUNCTIONS, UPDATES = 1000, 100, 2000
"""How many in one state, and with many contexts; and the updates of each."""
SPACES = Spaces(Box((-1.0,), (1.0,)), Box((-1.0,), (1.0,)))
FIRST, SECOND, START = 2**31, 2**31 + 1, 2**31 + 2
"""What functions and starts are drawn with; updates are drawn with their numbers."""
PEAKS = 5
WIDTH = 0.1
"""Of the highest peak; the others have up to three times that, or half."""
NEAR = 0.95
"""An actor has found the highest peak if its action is worth this share of it; the next one has at most 0.9."""
FIRST_DEVIATION = 0.3
POINTS = 50
"""Moments at which widths are recorded."""


class Bumps(NamedTuple):
    """The parameters of a function: where its peaks are, how they move with the context, how high and wide they are."""

    centre: Array
    swing: Array
    phase: Array
    height: Array
    width: Array


def bumps(key: Array) -> Bumps:
    """A random function. The highest peak has height 1, the others 0.3 to 0.9."""
    keys = jax.random.split(key, 5)
    draw = partial(jax.random.uniform, shape=(PEAKS,))
    return Bumps(
        draw(keys[0], minval=-0.7, maxval=0.7),
        0.25 * draw(keys[1]),
        2 * jnp.pi * draw(keys[2]),
        draw(keys[3], minval=0.3, maxval=0.9).at[0].set(1.0),
        draw(keys[4], minval=0.5 * WIDTH, maxval=3 * WIDTH).at[0].set(WIDTH),
    )


def value(of: Bumps, context: Array, action: Array) -> Array:
    """The highest of the bumps at that action."""
    centre = of.centre + of.swing * jnp.sin(2 * context + of.phase)
    return (of.height * jnp.exp(-0.5 * ((action - centre) / of.width) ** 2)).max()


def problem(of: Bumps, contexts: Array) -> Problem:
    """To be maximised at contexts `[n, 1]`."""
    function = Partial(value, of)  # type: ignore[no-untyped-call]
    return Problem(function, contexts, -jnp.ones(1), jnp.ones(1), SPACES, True, True)


def found(of: Bumps, contexts: Array, actions: Array) -> Array:
    """The share of the contexts `[n, 1]` at which these actions `[n, 1]` are on the highest peak."""
    return (problem(of, contexts).values(contexts, actions[None]) >= NEAR).mean()


# What the practical variant does: one state, where a policy is two numbers.

HERE = jnp.zeros((1, 1))
"""The only context."""
SCALES = (1e-3, 1e-2, 0.1, 1.0, 10.0)
RATES = (0.3, 0.1, 0.03, 0.01, 0.003)
ALONE = Search(hidden=(), step_size=0.01)
KINDS: dict[str, tuple[Search, str, tuple[float, ...]]] = {
    "score": (replace(ALONE, proposal_policy="gaussian", entropy_estimator="score"), "entropy_scale", SCALES),
    "exact": (replace(ALONE, proposal_policy="gaussian"), "entropy_scale", SCALES),
    "released": (replace(ALONE, proposal_policy="gaussian", entropy_estimator="released"), "entropy_scale", SCALES),
    "truncated": (ALONE, "entropy_scale", SCALES),
    "average": (replace(ALONE, proposal_update="average"), "proposal_average_rate", RATES),
}
"""Settings, and what of them is varied: the entropy scale τ, or the rate α' of a proposal that is an average."""


class Told(NamedTuple):
    """What is recorded of one learner: both widths over time, and whether it found the peak of either function."""

    proposal: Array
    actor: Array
    first: Array
    second: Array


def width(policy: PolicyNetwork) -> Array:
    """The standard deviation of the actions that a policy takes here."""
    uniform = (jnp.arange(200) + 0.5) / 200
    chosen: Any = policy(HERE)
    noise = uniform if isinstance(chosen, TruncatedGaussian) else jax.scipy.special.ndtri(uniform)
    return chosen.sample(noise[:, None, None]).std()


def started(search: Search, key: Array) -> State:
    """Both policies alike, anywhere in the range, and narrower than it."""
    mean = jnp.arctanh(jax.random.uniform(key, (1,), minval=-0.95, maxval=0.95))
    biases = [mean, jnp.log(jnp.array([FIRST_DEVIATION]))]
    state = begin(search, SPACES, key)

    def moved(policy: Any) -> Any:
        return eqx.tree_at(lambda net: [net.mean.bias, net.log_std.bias], policy, biases)

    return state._replace(actor=moved(state.actor), proposal=moved(state.proposal))


def learn(search: Search, varied: str, updates: int, number: Array, seed: Array) -> Told:
    """One learner: half of the updates on one function, and then on another."""
    changed: dict[str, Any] = {varied: number}
    search = replace(search, **changed)
    key = jax.random.key(seed, impl=KEYS)
    before, after = bumps(jax.random.fold_in(key, FIRST)), bumps(jax.random.fold_in(key, SECOND))

    def half(of: Bumps, state: State) -> tuple[State, tuple[Array, Array]]:
        def block(state: State, _: None) -> tuple[State, tuple[Array, Array]]:
            def one(_: Array, state: State) -> State:
                return update(search, problem(of, HERE), state, key)[0]

            assert state.proposal is not None
            widths = width(state.proposal), width(state.actor)
            return jax.lax.fori_loop(0, updates // POINTS, one, state), widths

        return jax.lax.scan(block, state, None, POINTS // 2)

    state, first_widths = half(before, started(search, jax.random.fold_in(key, START)))
    on_first = found(before, HERE, state.actor(HERE).mode())
    state, second_widths = half(after, state)
    on_second = found(after, HERE, state.actor(HERE).mode())
    proposal, actor = (jnp.concatenate(both) for both in zip(first_widths, second_widths, strict=True))
    return Told(proposal, actor, on_first, on_second)


@partial(jax.jit, static_argnums=(0, 1, 2))
def variant(kind: str, problems: int, updates: int) -> Told:
    """All numbers × problems of one kind; arrays `[numbers, problems, ...]`."""
    search, varied, numbers = KINDS[kind]
    every = jax.vmap(partial(learn, search, varied, updates), (None, 0))
    return jax.vmap(every, (0, None))(jnp.array(numbers), jnp.arange(problems))


def variants(problems: int, updates: int) -> dict[str, Told]:
    """All kinds."""
    return {kind: jax.device_get(variant(kind, problems, updates)) for kind in KINDS}


# CCEM beside other ways to the same end: many contexts.

CONTEXTS = jnp.linspace(-1, 1, 16)[:, None]
STARTS = 10
"""Of gradient ascent, side by side."""
ASCENT = 0.02
"""Adam's step size for single actions."""


class Cost(NamedTuple):
    """How a method does: the share of contexts on the highest peak after each of its steps, and what a step costs."""

    share: Array
    """`[problems, steps]`."""
    evaluations: int
    """Of the function, for each context."""


def by_ccem(search: Search, steps: int, of: Bumps, key: Array) -> Array:
    """One actor for all contexts."""
    task = problem(of, CONTEXTS)

    def step(state: State, _: None) -> tuple[State, Array]:
        state, seen = update(search, task, state, key)
        return state, (seen.values[0] >= NEAR).mean()

    return jax.lax.scan(step, begin(search, SPACES, key), None, steps)[1]


def by_ccem_alone(search: Search, steps: int, of: Bumps, key: Array) -> Array:
    """An actor of two numbers for each context by itself."""

    def one(context: Array, key: Array) -> Array:
        def step(state: State, _: None) -> tuple[State, Array]:
            state, seen = update(search, problem(of, context[None]), state, key)
            return state, seen.values[0] >= NEAR

        return jax.lax.scan(step, begin(search, SPACES, key), None, steps)[1]

    return jax.vmap(one)(CONTEXTS, jax.random.split(key, len(CONTEXTS))).mean((0, 2))


def by_cem(smoothing: float, steps: int, of: Bumps, key: Array) -> Array:
    """A Gaussian for each context by itself, that moves by a share of the way to what fits the elite of its samples."""
    samples, count = ALONE.proposal_samples, ccem.elite_count(ALONE.elite_fraction, ALONE.proposal_samples)

    def step(policy: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Array]:
        mean, deviation = policy
        sampled = jnp.clip(mean + deviation * jax.random.normal(key, (samples, *mean.shape)), -1, 1)
        elite = ccem.elites(sampled, problem(of, CONTEXTS).values(CONTEXTS, sampled), count)
        fitted = (elite.mean(0), elite.std(0))
        moved = tuple(smoothing * new + (1 - smoothing) * old for old, new in zip(policy, fitted, strict=True))
        return (moved[0], moved[1]), found(of, CONTEXTS, moved[0])

    first = jnp.zeros_like(CONTEXTS), jnp.ones_like(CONTEXTS)
    return jax.lax.scan(step, first, jax.random.split(key, steps))[1]


def by_ascent(starts: int, steps: int, of: Bumps, key: Array) -> Array:
    """Adam on the actions themselves, from random starts; the best of them counts."""
    task = problem(of, CONTEXTS)

    def step(carry: tuple[Array, Any], _: None) -> tuple[tuple[Array, Any], Array]:
        actions, adam = carry
        moved, adam, _loss = adam_step(lambda actions: -task.values(CONTEXTS, actions).sum(), actions, adam, ASCENT)
        return (jnp.clip(moved, -1, 1), adam), (task.values(CONTEXTS, actions).max(0) >= NEAR).mean()

    actions = jax.random.uniform(key, (starts, *CONTEXTS.shape), minval=-1, maxval=1)
    return jax.lax.scan(step, (actions, init_optimizer(actions)), None, steps)[1]


def by_network(search: Search, steps: int, of: Bumps, key: Array) -> Array:
    """Gradient ascent, too, by a network like CCEM's actor."""
    task = problem(of, CONTEXTS)
    actor, _ = search.policies(key, SPACES, search.hidden)

    def step(carry: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], Array]:
        actor, adam = carry
        values = task.values(CONTEXTS, actor(CONTEXTS).mode()[None])[0]
        moved, adam, _loss = adam_step(
            lambda actor: -task.values(CONTEXTS, actor(CONTEXTS).mode()[None]).mean(), actor, adam, search.step_size
        )
        return (moved, adam), (values >= NEAR).mean()

    return jax.lax.scan(step, (actor, init_optimizer(actor)), None, steps)[1]


def methods(problems: int, updates: int) -> dict[str, Cost]:
    """Every method on the same functions, for about as many evaluations as CCEM's so many updates need."""
    search = Search()
    per_update = search.proposal_samples + 1  # and the actor's own action
    ways: dict[str, tuple[Any, int, int]] = {
        "CCEM": (partial(by_ccem, search), updates, per_update),
        "CCEM, τ = 1": (partial(by_ccem, replace(search, entropy_scale=1.0)), updates, per_update),
        "CCEM for each context": (partial(by_ccem_alone, ALONE), updates, per_update),
        "CEM for each context": (partial(by_cem, 0.7), min(updates, 300), search.proposal_samples),
        "CEM, a smoothing of 0.1": (partial(by_cem, 0.1), min(updates, 300), search.proposal_samples),
        "gradient ascent": (partial(by_ascent, 1), updates, 1),
        f"gradient ascent, best of {STARTS}": (partial(by_ascent, STARTS), updates, STARTS),
        "network by gradient ascent": (partial(by_network, search), 2 * updates, 1),
    }

    @partial(jax.jit, static_argnums=(0, 1))
    def all_of(way: Any, steps: int) -> Array:
        def one(seed: Array) -> Array:
            key = jax.random.key(seed, impl=KEYS)
            return way(steps, bumps(jax.random.fold_in(key, FIRST)), key)

        return jax.lax.map(one, jnp.arange(problems), batch_size=25)

    return {name: Cost(jax.device_get(all_of(way, steps)), cost) for name, (way, steps, cost) in ways.items()}


def to_reach(cost: Cost, share: float) -> float:
    """Evaluations for each context until the mean share of contexts on the highest peak is that; inf if never."""
    reached = np.flatnonzero(np.asarray(cost.share).mean(0) >= share)
    return float((reached[0] + 1) * cost.evaluations) if len(reached) else np.inf


def speed(problems: int = 1000, updates: int = 1000) -> tuple[float, float]:
    """Seconds for so many problems × updates in one compiled call of `maximize`, the first time and after that."""
    function = Partial(value, bumps(jax.random.key(0)))  # type: ignore[no-untyped-call]
    times = []
    for _ in range(2):
        begun = time.perf_counter()
        ccem.maximize(function, [0.0], -1, 1, steps=updates, seed=range(problems), hidden=(), step_size=0.01)
        times.append(time.perf_counter() - begun)
    return times[0], times[1]


# Figures and tables.


def draw_variants(told: dict[str, Told], problems: int, updates: int) -> Figure:
    """Widths over time for every kind, and how often the highest peak was found."""
    figure = Figure(figsize=(15, 5.4), dpi=130, layout="constrained")
    panels = figure.subplots(2, len(KINDS) + 1)
    steps = np.arange(POINTS) * (updates // POINTS)
    for column, (kind, (_, varied, numbers)) in enumerate(KINDS.items()):
        symbol = "τ" if varied == "entropy_scale" else "α'"
        for panel, widths, name in zip(panels[:, column], told[kind][:2], ("proposal", "actor"), strict=True):
            for number, colour, runs in zip(numbers, COLOURS, widths, strict=False):
                low, middle, high = np.percentile(runs, [25, 50, 75], axis=0)
                panel.plot(steps, middle, color=colour, label=f"{symbol} = {number:g}")
                panel.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
            panel.axvline(updates / 2, color="0.5", linewidth=0.8, linestyle=(0, (4, 2)))
            panel.set_ylim(0, 1)
            dress(panel, f"{kind}: {name}")
        panels[1, column].set_xlabel("updates")
        panels[1, column].get_legend().remove()
    for panel in panels[:, 0]:
        panel.set_ylabel("width: standard deviation\nof the actions taken")
    for panel, when, title in zip(panels[:, -1], ("first", "second"), ("at first", "after the change"), strict=True):
        for colour, (kind, (_, _, numbers)) in zip(COLOURS, KINDS.items(), strict=False):
            dashes = "--" if kind == "average" else "-"
            panel.plot(numbers, getattr(told[kind], when).mean(1), "o", linestyle=dashes, color=colour, label=kind)
        panel.set(xscale="log", ylim=(0, 1.02), xlabel="τ, or α' of an average")
        dress(panel, f"peak found {title}")
    figure.suptitle(f"medians and quartiles of {problems:,} problems; halfway the functions change", fontsize=10)
    return figure


def draw_methods(costs: dict[str, Cost], problems: int) -> Figure:
    """The share of contexts on the highest peak over evaluations of the function; and one of the functions."""
    figure = Figure(figsize=(11, 4), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    for (name, cost), colour in zip(costs.items(), (*COLOURS, "0.4", "0.7"), strict=True):
        share = np.asarray(cost.share).mean(0)
        left.plot((1 + np.arange(len(share))) * cost.evaluations, share, color=colour, linewidth=1.8, label=name)
    left.set(xscale="log", ylim=(0, 1.02), xlabel="evaluations of the function, for each context")
    left.set_ylabel("contexts on the highest peak")
    dress(left, f"mean of {problems:,} functions × {len(CONTEXTS)} contexts")
    actions = jnp.linspace(-1, 1, 400)
    for context, colour in zip((-1.0, 0.0, 1.0), COLOURS, strict=False):
        of = bumps(jax.random.fold_in(jax.random.key(1, impl=KEYS), FIRST))
        right.plot(actions, jax.vmap(lambda action, of=of, context=context: value(of, context, action))(actions),
                   color=colour, label=f"context {context:g}")  # fmt: skip
    right.set(xlabel="action", xlim=(-1, 1))
    dress(right, "one of the functions")
    return figure


def variants_table(told: dict[str, Told]) -> list[str]:
    """How often the highest peak was found before and after the change, for every number."""
    lines = [
        "| proposal | " + " | ".join(f"τ = {scale:g}" for scale in SCALES) + " |",
        "|" + "---|" * (1 + len(SCALES)),
    ]
    for kind, (_, varied, numbers) in KINDS.items():
        shares = [f"{a:.2f}, {b:.2f}" for a, b in zip(told[kind].first.mean(1), told[kind].second.mean(1), strict=True)]
        if varied != "entropy_scale":
            heads = [f"α' = {number:g}" for number in numbers]
            lines.append(f"| | {' | '.join(heads)} |")
        lines.append(f"| {kind} | {' | '.join(shares)} |")
    return lines


def methods_table(costs: dict[str, Cost]) -> list[str]:
    """Where every method ends, and the evaluations that it needs."""
    lines = ["| method | ends at, ± standard error | evaluations for 0.5 | for 0.9 |", "|---|---|---|---|"]
    for name, cost in costs.items():
        needed = [to_reach(cost, share) for share in (0.5, 0.9)]
        told = " | ".join("–" if np.isinf(number) else f"{number:,.0f}" for number in needed)
        ends = np.asarray(cost.share)[:, -1]
        error = ends.std(ddof=1) / np.sqrt(len(ends))
        lines.append(f"| {name} | {ends.mean():.3f} ± {error:.3f} | {told} |")
    return lines


def main() -> None:
    """Measure, draw the figures and fill the tables of sections 4 and 5."""
    first, again = speed()
    print(
        f"1,000 problems × 1,000 updates with N = 30: {first:.1f} s with compilation, {again:.1f} s after it",
        flush=True,
    )
    told = variants(PROBLEMS, UPDATES)
    draw_variants(told, PROBLEMS, UPDATES).savefig(ROOT / "docs/images/theory-variants.png")
    costs = methods(FUNCTIONS, UPDATES)
    draw_methods(costs, FUNCTIONS).savefig(ROOT / "docs/images/theory-methods.png")
    tables = {"variants": variants_table(told), "methods": methods_table(costs)}
    DOCUMENT.write_text(filled(DOCUMENT.read_text(), tables))


if __name__ == "__main__":
    main()
