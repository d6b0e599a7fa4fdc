"""Greedy Actor-Critic (Algorithm 3 of the paper): a Sarsa critic, and an actor trained by conditional CEM.

Read it beside the paper: `learn` is one pass of the while loop after the transition was stored. Algorithms 1 and 2 are
in `greedyac/ccem`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
from jax import Array

from greedyac.agents.actor_critic import ActorCritic
from greedyac.agents.base import Batch, Metrics
from greedyac.ccem import CCEM
from greedyac.core.spaces import Box, Spaces
from greedyac.nn.critics import Critic, HeadsCritic, IndexCritic, make_critic
from greedyac.nn.distributions import policy_stats
from greedyac.nn.optim import init_optimizer
from greedyac.nn.policies import PolicyNetwork


class State(NamedTuple):
    """Networks and their Adam moments. With few discrete actions there is no proposal policy."""

    critic: Critic
    target: Critic
    actor: PolicyNetwork
    proposal: PolicyNetwork | None
    critic_opt_state: object
    actor_opt_state: object
    proposal_opt_state: object


class Draws(NamedTuple):
    """The random numbers of one update: noise for the next actions, the proposal's samples and one of the actor's.

    Without a proposal policy only the first.
    """

    next_action: Array
    proposal: Any = None
    actor: Any = None


@dataclass(frozen=True)
class GreedyACAgent(CCEM, ActorCritic):
    """Greedy Actor-Critic: the actor follows the best of the actions that a wider proposal policy samples."""

    name: ClassVar[str] = "greedy-ac"
    numerics: ClassVar[int] = 4

    def without_effect(self, spaces: Spaces) -> frozenset[str]:
        """Also what is for discrete actions only."""
        vain = super().without_effect(spaces)
        return vain | {"discrete_critic"} if isinstance(spaces.action, Box) else vain

    def init(self, key: Array, spaces: Spaces) -> State:
        """Fresh networks: the target is a copy of the critic, the proposal has the weights of the actor."""
        critic_key, actor_key = jax.random.split(key)
        critic = make_critic(critic_key, spaces, self.hidden, self.discrete_critic)
        actor, proposal = self.policies(actor_key, spaces, self.hidden)
        return State(critic, critic, actor, proposal, init_optimizer(critic), *self.init_optimizers(actor, proposal))

    def diagnose(self, state: State, observation: Array) -> Metrics:
        """Also of the proposal policy, where there is one."""
        told = super().diagnose(state, observation)
        return told if state.proposal is None else told | policy_stats("proposal", state.proposal(observation[None]))

    def update(self, state: State, batch: Batch, key: Array) -> tuple[State, Metrics]:
        """Learn from one batch with fresh random draws."""
        next_action, proposal, actor = jax.random.split(key, 3)
        noise = state.actor.noise(next_action, (self.batch_size,))
        if state.proposal is None:
            return self.learn(state, batch, Draws(noise))
        samples = state.proposal.noise(proposal, (self.proposal_samples, self.batch_size))
        return self.learn(state, batch, Draws(noise, samples, state.actor.noise(actor, (self.batch_size,))))

    def learn(self, state: State, batch: Batch, draws: Draws) -> tuple[State, Metrics]:
        """Update θ using Sarsa for π, then w and w' using Algorithm 2, on one batch."""
        state, metrics = self.sarsa(state, batch, draws.next_action)
        observation, step_size = batch.observation, self.actor_step_size
        if state.proposal is None:
            assert isinstance(state.critic, HeadsCritic | IndexCritic)
            state, losses = self.follow_greedy_action(state, observation, state.critic.values(observation), step_size)
        else:
            sampled = state.proposal(observation).sample(draws.proposal)
            own = state.actor(observation).sample(draws.actor)
            values = state.critic(observation, sampled)
            state, losses = self.follow_elite_actions(state, observation, sampled, values, own, step_size)
        return state, metrics | losses
