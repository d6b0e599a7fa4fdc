"""What Figure 1 of the paper shows, as numbers: CCEM in a single state, with uniform and with Gaussian policies."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial
from numpy.typing import NDArray

from greedyac.ccem.elite import elite_count, elites
from greedyac.ccem.search import Problem, Search, State, begin, update
from greedyac.core.fields import static, traced
from greedyac.core.prng import KEYS
from greedyac.core.spaces import Box, Spaces
from greedyac.core.xla import configured

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Illustration(Search):
    """What can be told. Some defaults differ from a search's, so that a picture shows what happens."""

    elite_fraction: float = static(0.2, above=0, below=1, help="ρ: share of the proposal's actions that are followed")
    entropy_scale: float = traced(0.9, at_least=0, help="τ: weight of the Gaussian proposal's entropy")
    step_size: float = traced(0.02, above=0, help="Adam step size of the Gaussian policies")
    hidden: tuple[int, ...] = ()  # this and the next can't be told: there is one state, and no network
    batch_size: int = 1
    actor_rate: float = static(
        0.5, above=0, at_most=1, help="how far a uniform actor's ends move to those of its target per update"
    )
    proposal_rate: float = static(
        0.2, above=0, at_most=1, help="how far a uniform proposal's ends move to those of its target per update"
    )


class Uniform(NamedTuple):
    """Uniform policies before an update, and the target that they are about to follow."""

    actor: Floats
    """From where to where."""
    proposal: Floats
    threshold: float
    """The (1−ρ)-quantile of the values under the proposal."""
    target: Floats
    """The actions of the proposal whose value is at least that, of a fine grid."""


def uniform_updates(actions: Floats, values: Floats, told: Illustration) -> Iterator[Uniform]:
    """Update after update from the whole range, without end. Quantiles are exact but for the grid: N is infinite.

    The uniform policy that fits the target best is the least range that holds it. A policy moves its ends there by a
    share of the way, the proposal by a smaller one.
    """
    actor = proposal = actions[[0, -1]]
    while True:
        inside = (actions >= proposal[0]) & (actions <= proposal[1])
        threshold = float(np.quantile(values[inside], 1 - told.elite_fraction, method="inverted_cdf"))
        target = actions[inside & (values >= threshold)]
        yield Uniform(actor, proposal, threshold, target)
        hull = target[[0, -1]]
        actor = actor + told.actor_rate * (hull - actor)
        proposal = proposal + told.proposal_rate * (hull - proposal)


class Gaussians(NamedTuple):
    """Gaussian policies before each update, and what the proposal sampled; all in the actions' own units."""

    actor_mean: Floats
    """`[updates]`."""
    actor_deviation: Floats
    proposal_mean: Floats
    proposal_deviation: Floats
    sampled: Floats
    """`[updates, N]`."""
    elite: Floats
    """`[updates, ⌈ρN⌉]`."""


@configured
def gaussian_updates(
    f: Callable[[Array], Array], low: float, high: float, search: Search, updates: int, seed: int
) -> Gaussians:
    """A search in one state whose policies are two numbers each, from the middle of the range and as wide as half."""
    spaces = Spaces(Box((0.0,), (0.0,)), Box((-1.0,), (1.0,)))
    middle, half = (low + high) / 2, (high - low) / 2
    function = Partial(lambda _, action: f(action))  # type: ignore[no-untyped-call]
    problem = Problem(function, jnp.zeros((1, 1)), jnp.array([low]), jnp.array([high]), spaces, True, True)
    count = elite_count(search.elite_fraction, search.proposal_samples)
    key = jax.random.key(seed, impl=KEYS)

    def step(state: State, _: None) -> tuple[State, dict[str, Array]]:
        before: dict[str, Any] = {"actor": state.actor, "proposal": state.proposal}
        moved, seen = update(search, problem, state, key)
        sampled, values = seen.tried[1:], seen.values[1:]
        told = {"sampled": sampled, "elite": elites(sampled, values, count)}
        for name, net in before.items():
            policy = net(problem.contexts)
            told |= {f"{name}_mean": policy.mean, f"{name}_deviation": jnp.exp(policy.log_std)}
        return moved, told

    @jax.jit
    def trace() -> Any:
        return jax.lax.scan(step, begin(search, spaces, key), None, updates)[1]

    told = {name: half * np.asarray(numbers, np.float64).reshape(updates, -1) for name, numbers in trace().items()}
    deviations = {name: told.pop(name)[:, 0] for name in ("actor_deviation", "proposal_deviation")}
    means = {name: middle + told.pop(name)[:, 0] for name in ("actor_mean", "proposal_mean")}
    return Gaussians(**means, **deviations, **{name: middle + numbers for name, numbers in told.items()})
