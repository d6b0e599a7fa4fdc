"""Soft Actor-Critic: values that include the policy's entropy, and an actor that descends to their Boltzmann policy."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from greedyac.agents.actor_critic import ActorCritic
from greedyac.agents.base import Batch, Metrics
from greedyac.core.fields import static, traced
from greedyac.core.spaces import Box, Spaces
from greedyac.nn.critics import TwinCritic, make_twin_critic
from greedyac.nn.layers import select
from greedyac.nn.optim import adam_step, init_optimizer
from greedyac.nn.policies import PolicyNetwork, SoftmaxPolicy, make_policy

TARGET_SHARE = 0.5
"""The target of an automatic entropy scale for discrete actions, as a share of the largest entropy, log |A|."""


class State(NamedTuple):
    """Networks, the automatic entropy scale if there is one, and their Adam moments."""

    critic: TwinCritic
    target: TwinCritic
    actor: PolicyNetwork
    log_entropy_scale: Any
    critic_opt_state: object
    actor_opt_state: object
    entropy_opt_state: object


class Draws(NamedTuple):
    """The random numbers of one update: noise for the next actions and, if they are continuous, for the actor's."""

    next_action: Array
    action: Any = None


@dataclass(frozen=True)
class SACAgent(ActorCritic):
    """Soft Actor-Critic: two critics that value entropy, and a reparameterised actor that follows the smaller one."""

    name: ClassVar[str] = "sac"
    numerics: ClassVar[int] = 2

    policy: str = static(
        "squashed", choices=("squashed", "gaussian"), help="continuous actions: squashed by tanh, or clipped"
    )
    automatic_entropy: bool = static(False, help="tune τ towards a target entropy, from τ = 1")
    entropy_step_size: float = traced(1e-3, above=0, help="β: Adam step size of log τ if it is automatic")
    soft_target: str = static(
        "own",
        choices=("own", "released"),
        help="discrete actions: each next action's likelihood in its own state, or in the first of the batch",
    )

    def without_effect(self, spaces: Spaces) -> frozenset[str]:
        """What is for the other kind of actions, the other kind of entropy scale, or no entropy."""
        vain = {"entropy_scale" if self.automatic_entropy else "entropy_step_size"}
        vain |= {"discrete_critic", "soft_target"} if isinstance(spaces.action, Box) else {"policy"}
        if self.entropy_scale == 0 and not self.automatic_entropy:
            vain |= {"soft_target"}
        return frozenset(vain)

    def init(self, key: Array, spaces: Spaces) -> State:
        """Fresh networks: the targets are copies of the critics."""
        critic_key, actor_key = jax.random.split(key)
        critic = make_twin_critic(critic_key, spaces, self.hidden, self.discrete_critic)
        actor = make_policy(actor_key, spaces, self.hidden, self.policy)
        scale = jnp.float32(0) if self.automatic_entropy else None
        return State(critic, critic, actor, scale, init_optimizer(critic), init_optimizer(actor), init_optimizer(scale))

    def diagnose(self, state: State, observation: Array) -> Metrics:
        """Also the entropy scale, where it is automatic."""
        told = super().diagnose(state, observation)
        return told if state.log_entropy_scale is None else told | {"entropy_scale": jnp.exp(state.log_entropy_scale)}

    def update(self, state: State, batch: Batch, key: Array) -> tuple[State, Metrics]:
        """Learn from one batch with fresh random draws."""
        next_action, action = jax.random.split(key)
        noise = state.actor.noise(next_action, (self.batch_size,))
        if isinstance(state.actor, SoftmaxPolicy):
            return self.learn(state, batch, Draws(noise))
        return self.learn(state, batch, Draws(noise, state.actor.noise(action, (self.batch_size,))))

    def learn(self, state: State, batch: Batch, draws: Draws) -> tuple[State, Metrics]:
        """Update critics, targets, the actor, and the entropy scale if it is automatic, on one batch."""
        automatic = state.log_entropy_scale is not None
        # exp as a power: XLA rounds exp of one number per lane differently at different widths
        entropy_scale: Any = 2 ** (math.log2(math.e) * state.log_entropy_scale) if automatic else self.entropy_scale
        next_value = self._soft_value(state, batch.next_observation, draws.next_action, entropy_scale)
        state, metrics = self.fit_critic(state, batch, next_value)

        def value_and_entropy(actor: PolicyNetwork) -> tuple[Array, Array]:
            return self._value_and_entropy(actor, state.critic, batch.observation, draws.action)

        def loss(actor: PolicyNetwork) -> Array:
            value, entropy = value_and_entropy(actor)
            return -(value + entropy_scale * entropy).mean()

        actor, adam, actor_loss = adam_step(loss, state.actor, state.actor_opt_state, self.actor_step_size)
        metrics["actor_loss"] = actor_loss
        if automatic:
            state = self._tune_entropy_scale(state, value_and_entropy(state.actor)[1])  # that of the loss
            metrics["entropy_scale"] = entropy_scale
        return state._replace(actor=actor, actor_opt_state=adam), metrics

    def _soft_value(self, state: State, observation: Array, noise: Array, entropy_scale: Array | float) -> Array:
        """min Q(S', A') − τ log π(A'|S') with A' ~ π(·|S'), by the target critics."""
        policy = state.actor(observation)
        action, log_prob = policy.sample_and_log_prob(noise)
        if self.soft_target == "released" and isinstance(state.actor, SoftmaxPolicy):
            log_prob = select(policy.log_probs()[0], action)
        return state.target(observation, action).min(0) - entropy_scale * log_prob

    def _value_and_entropy(
        self, actor: PolicyNetwork, critic: TwinCritic, observation: Array, noise: Any
    ) -> tuple[Array, Array]:
        """E min Q(S, A) and the entropy of π(·|S): exact, or at one A that is a function of the actor's weights."""
        policy = actor(observation)
        if isinstance(actor, SoftmaxPolicy):
            return policy.expectation(critic.values(observation).min(0)), policy.entropy()
        action, log_prob = policy.sample_and_log_prob(noise)
        return critic(observation, action).min(0), -log_prob

    def _tune_entropy_scale(self, state: State, entropy: Array) -> State:
        """Lower τ where the entropy is above its target, raise it where it is below."""
        if isinstance(state.actor, SoftmaxPolicy):
            target = TARGET_SHARE * math.log(state.actor.logits.bias.shape[-1])
        else:
            target = -float(len(state.actor.low))

        def loss(log_entropy_scale: Array) -> Array:
            return log_entropy_scale * (entropy.mean() - target)

        scale, adam, _ = adam_step(loss, state.log_entropy_scale, state.entropy_opt_state, self.entropy_step_size)
        return state._replace(log_entropy_scale=scale, entropy_opt_state=adam)
