"""Vanilla Actor-Critic, the paper's baseline: a Sarsa critic, and an actor on the likelihood-ratio gradient."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
from jax import Array

from greedyac.agents.actor_critic import ActorCritic
from greedyac.agents.base import Batch, Metrics
from greedyac.core.fields import static
from greedyac.core.spaces import Discrete, Spaces
from greedyac.nn._xla import steady_mean
from greedyac.nn.critics import ContinuousCritic, Critic, make_critic
from greedyac.nn.distributions import ENTROPY_ESTIMATORS, entropy_term
from greedyac.nn.optim import adam_step, init_optimizer
from greedyac.nn.policies import PolicyNetwork, SoftmaxPolicy, make_policy


class State(NamedTuple):
    """Networks and their Adam moments."""

    critic: Critic
    target: Critic
    actor: PolicyNetwork
    critic_opt_state: object
    actor_opt_state: object


class Draws(NamedTuple):
    """The random numbers of one update: noise for the next actions, and for the actor's samples `[samples, batch, …]`.

    The first sample is the one whose likelihood moves, the last is for the entropy, those between are the baseline.
    """

    next_action: Array
    samples: Any = None


Objective = Callable[[Any], Array]
"""From a policy's distributions to what it should make large, `[batch]`."""


@dataclass(frozen=True)
class VanillaACAgent(ActorCritic):
    """Vanilla Actor-Critic: the actor follows the likelihood-ratio gradient of the critic's values."""

    name: ClassVar[str] = "vanilla-ac"
    numerics: ClassVar[int] = 3

    baseline_samples: int = static(28, at_least=1, help="actions sampled per state whose mean value is the baseline")
    entropy_estimator: str = static(
        "score",
        choices=ENTROPY_ESTIMATORS,
        help="how the gradient of the actor's entropy is estimated",
    )

    def without_effect(self, spaces: Spaces) -> frozenset[str]:
        """Discrete actions need no samples; continuous ones have no discrete critic; no weight, no estimate."""
        if isinstance(spaces.action, Discrete):
            return frozenset({"baseline_samples", "entropy_estimator"})
        return frozenset({"discrete_critic"} if self.entropy_scale else {"discrete_critic", "entropy_estimator"})

    def init(self, key: Array, spaces: Spaces) -> State:
        """Fresh networks: the target is a copy of the critic."""
        critic_key, actor_key = jax.random.split(key)
        critic = make_critic(critic_key, spaces, self.hidden, self.discrete_critic)
        actor = make_policy(actor_key, spaces, self.hidden)
        return State(critic, critic, actor, init_optimizer(critic), init_optimizer(actor))

    def update(self, state: State, batch: Batch, key: Array) -> tuple[State, Metrics]:
        """Learn from one batch with fresh random draws."""
        next_action, samples = jax.random.split(key)
        noise = state.actor.noise(next_action, (self.batch_size,))
        if isinstance(state.actor, SoftmaxPolicy):
            return self.learn(state, batch, Draws(noise))
        return self.learn(
            state, batch, Draws(noise, state.actor.noise(samples, (self.baseline_samples + 2, self.batch_size)))
        )

    def learn(self, state: State, batch: Batch, draws: Draws) -> tuple[State, Metrics]:
        """Update the critic using Sarsa for π, then the actor, on one batch."""
        state, metrics = self.sarsa(state, batch, draws.next_action)
        if isinstance(state.actor, SoftmaxPolicy):
            objective = self._expected_value(state, batch.observation)
        else:
            objective = self._likelihood_ratio(state, batch.observation, draws.samples)

        def loss(actor: PolicyNetwork) -> Array:
            return -objective(actor(batch.observation)).mean()

        actor, adam, actor_loss = adam_step(loss, state.actor, state.actor_opt_state, self.actor_step_size)
        return state._replace(actor=actor, actor_opt_state=adam), metrics | {"actor_loss": actor_loss}

    def _likelihood_ratio(self, state: State, observation: Array, noise: Array) -> Objective:
        """log π(A|S) [Q(S, A) − baseline] + τ H: its gradient is that of E Q(S, A) + τ H."""
        sampled = state.actor(observation).sample(noise)
        values = state.critic(observation, sampled[:-1])
        advantage = values[0] - steady_mean(values[1:])

        def objective(policy: Any) -> Array:
            entropy = entropy_term(self.entropy_estimator, policy.log_prob(sampled[-1]), policy.entropy())
            return policy.log_prob(sampled[0]) * advantage + self.entropy_scale * entropy

        return objective

    def _expected_value(self, state: State, observation: Array) -> Objective:
        """Σ_a π(a|S) Q(S, a) + τ H, exactly, for discrete actions."""
        assert not isinstance(state.critic, ContinuousCritic)
        values = state.critic.values(observation)
        return lambda policy: policy.expectation(values) + self.entropy_scale * policy.entropy()
