"""A search by conditional CEM as pure functions: policies follow a function's best actions, context by context."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from greedyac.ccem.update import CCEM
from greedyac.core.fields import static, traced
from greedyac.core.spaces import Discrete, Spaces
from greedyac.nn.distributions import policy_stats
from greedyac.nn.layers import select
from greedyac.nn.policies import PolicyNetwork, SoftmaxPolicy

Function = Callable[[Any, Any], Any]
"""From a context and an action to a number."""


@dataclass(frozen=True)
class Search(CCEM):
    """The hyperparameters of a search: those of CCEM, and of its policies."""

    step_size: float = traced(1e-3, above=0, help="Adam step size of actor and proposal")
    batch_size: int = static(32, at_least=1, help="contexts per update, drawn at random if there are more")
    hidden: tuple[int, ...] = static((64, 64), at_least=1, empty=True, help="widths of the hidden layers")


class Problem(eqx.Module):
    """What is maximised, for which contexts, over which actions.

    The policies choose in units of half the range, from −1 to 1, whatever the range is.
    """

    f: Function
    """Traceable, and a pytree."""
    contexts: Array
    """`[n, features]`."""
    low: Array
    """`[dims]`; unused where actions are discrete."""
    high: Array
    spaces: Spaces = eqx.field(static=True)
    plain_context: bool = eqx.field(static=True)
    """Whether the function takes a context as a number, not as a vector."""
    plain_action: bool = eqx.field(static=True)

    def actions(self, chosen: Array) -> Array:
        """What policies chose, `[..., dims]`, in the function's own units; discrete actions as they are."""
        if isinstance(self.spaces.action, Discrete):
            return chosen
        action = self.low / 2 + self.high / 2 + (self.high / 2 - self.low / 2) * chosen
        action = jnp.clip(action, self.low, self.high)  # rounding can carry it an ulp beyond the range
        return action[..., 0] if self.plain_action else action

    def values(self, contexts: Array, chosen: Array) -> Array:
        """`contexts: [batch, features]`, `chosen: [samples, batch, ...]` → `[samples, batch]`."""
        seen = contexts[..., 0] if self.plain_context else contexts
        return jax.vmap(jax.vmap(self.f), (None, 0))(seen, self.actions(chosen)).astype(jnp.float32)


class State(NamedTuple):
    """Both policies with their Adam moments, and how many updates they have had."""

    actor: PolicyNetwork
    proposal: PolicyNetwork | None
    actor_opt_state: Any
    proposal_opt_state: Any
    updates: Array


class Seen(NamedTuple):
    """What one update saw: actions that were tried, with their values, and how the policies were before it."""

    contexts: Array
    """`[batch, features]`."""
    tried: Array
    """`[tried, batch, ...]`."""
    values: Array
    """`[tried, batch]`."""
    told: dict[str, Array]
    """The mean value of the actor's greedy actions, and how widely both policies choose."""


def begin(search: Search, spaces: Spaces, key: Array) -> State:
    """Policies that choose anything: Gaussians from the middle, as wide as half the range, or a uniform softmax."""
    actor, proposal = search.policies(key, spaces, search.hidden)
    actor, proposal = _widened(actor), None if proposal is None else _widened(proposal)
    return State(actor, proposal, *search.init_optimizers(actor, proposal), jnp.int32(0))


def _widened(policy: PolicyNetwork) -> PolicyNetwork:
    """The policy with heads that are 0 whatever they see."""

    def heads(policy: PolicyNetwork) -> tuple[Any, ...]:
        return (policy.logits,) if isinstance(policy, SoftmaxPolicy) else (policy.mean, policy.log_std)

    return eqx.tree_at(heads, policy, jax.tree.map(jnp.zeros_like, heads(policy)))


def update(search: Search, problem: Problem, state: State, key: Array) -> tuple[State, Seen]:
    """One update on all contexts, or on a batch of them. `key` is the same for all updates of a search."""
    context_key, proposal_key, actor_key = jax.random.split(jax.random.fold_in(key, state.updates), 3)
    contexts = problem.contexts
    if len(contexts) > search.batch_size:
        contexts = contexts[jax.random.randint(context_key, (search.batch_size,), 0, len(contexts))]
    batch, actor = len(contexts), state.actor(contexts)
    told = policy_stats("actor", actor)
    if state.proposal is None:
        assert isinstance(problem.spaces.action, Discrete)
        count = problem.spaces.action.count
        tried = jnp.broadcast_to(jnp.arange(count)[:, None], (count, batch))
        values = problem.values(contexts, tried)
        greedy_values = select(values.T, actor.mode())
        moved, _ = search.follow_greedy_action(state, contexts, values.T, search.step_size)
    else:
        proposal = state.proposal(contexts)
        told |= policy_stats("proposal", proposal)
        sampled = proposal.sample(state.proposal.noise(proposal_key, (search.proposal_samples, batch)))
        own = actor.sample(state.actor.noise(actor_key, (batch,)))
        tried = jnp.concatenate([actor.mode()[None], sampled])
        values = problem.values(contexts, tried)
        greedy_values = values[0]
        moved, _ = search.follow_elite_actions(state, contexts, sampled, values[1:], own, search.step_size)
    told["value"] = greedy_values.mean()
    return moved._replace(updates=state.updates + 1), Seen(contexts, tried, values, told)


class Fault(NamedTuple):
    """Where the function first returned NaN, if it did."""

    found: Array
    context: Array
    """`[features]`."""
    chosen: Array


def _fault(seen: Seen) -> Fault:
    wrong = jnp.isnan(seen.values)
    sample, context = jnp.unravel_index(jnp.argmax(wrong), wrong.shape)
    return Fault(wrong[sample, context], seen.contexts[context], seen.tried[sample, context])


def run(search: Search, problem: Problem, state: State, key: Array, steps: int) -> tuple[State, Any, Fault]:
    """So many updates: the state after them, what each told, `[steps]`, and the first fault."""

    def step(carry: tuple[State, Fault], _: None) -> tuple[tuple[State, Fault], dict[str, Array]]:
        state, first = carry
        state, seen = update(search, problem, state, key)
        first = jax.tree.map(lambda old, new: jnp.where(first.found, old, new), first, _fault(seen))
        return (state, first), seen.told

    none = jax.tree.map(jnp.zeros_like, jax.eval_shape(lambda: _fault(update(search, problem, state, key)[1])))
    (state, first), told = jax.lax.scan(step, (state, none), None, steps)
    return state, told, first
