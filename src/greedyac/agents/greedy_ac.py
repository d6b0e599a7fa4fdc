"""Greedy Actor-Critic (Algorithm 3 of the paper): a Sarsa critic, and an actor trained by conditional CEM.

Read it beside the paper: `learn` is one pass of the while loop after the transition was stored.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
from jax import Array

from greedyac import ccem
from greedyac.agents.actor_critic import ActorCritic
from greedyac.agents.agent import Metrics
from greedyac.hypers import static, swept
from greedyac.nets import Critic, HeadsCritic, IndexCritic, average, make_critic, minimise, moments
from greedyac.policies import ENTROPY_ESTIMATORS, Policy, entropy_term, make_policy, spread
from greedyac.replay import Batch
from greedyac.spaces import Box, Discrete, Spaces


class State(NamedTuple):
    """Networks and their Adam moments. With few discrete actions there is no proposal policy."""

    critic: Critic
    target: Critic
    actor: Policy
    proposal: Policy | None
    critic_adam: object
    actor_adam: object
    proposal_adam: object


class Draws(NamedTuple):
    """The random numbers of one update: noise for the next actions, the proposal's samples and one of the actor's.

    Without a proposal policy only the first.
    """

    next_action: Array
    proposal: Any = None
    actor: Any = None


@dataclass(frozen=True)
class GreedyAC(ActorCritic):
    """Greedy Actor-Critic: the actor follows the best of the actions that a wider proposal policy samples."""

    name: ClassVar[str] = "greedy-ac"
    numerics: ClassVar[int] = 4

    entropy_scale: float = swept(1e-3, at_least=0, help="τ: weight of the proposal's entropy")
    elite_fraction: float = static(0.1, above=0, below=1, help="ρ: share of sampled actions that are followed")
    proposal_samples: int = static(30, at_least=1, help="N: actions sampled from the proposal per state")
    entropy_estimator: str = static(
        "exact",
        choices=ENTROPY_ESTIMATORS,
        help="how the gradient of the proposal's entropy is estimated",
    )
    proposal_policy: str = static(
        "truncated-gaussian",
        choices=("gaussian", "truncated-gaussian"),
        absent="gaussian",
        help="continuous actions: samples clipped to the action range, or a density cut off at it",
    )
    proposal_update: str = static(
        "entropy",
        choices=("entropy", "average"),
        absent="entropy",
        help="the proposal follows the elite with an entropy bonus, or is a slow average of the actor",
    )
    proposal_average_rate: float = swept(
        0.01, above=0, at_most=1, absent=0.01, help="α': how far an average proposal moves to the actor per update"
    )
    actor_entropy_scale: float = swept(0.0, at_least=0, absent=0.0, help="weight of the actor's entropy")

    def without_effect(self, spaces: Spaces) -> frozenset[str]:
        """What is for the other kind of actions, a proposal that is not needed, its other update, or no entropy."""
        vain = {"discrete_critic"} if isinstance(spaces.action, Box) else {"proposal_policy"}
        if self._needs_no_proposal(spaces):
            vain |= {"entropy_scale", "entropy_estimator"}
            return frozenset(vain | {"proposal_samples", "proposal_update", "proposal_average_rate"})
        averages = self.proposal_update == "average"
        vain |= {"entropy_scale"} if averages else {"proposal_average_rate"}
        if self.actor_entropy_scale == 0 and (averages or self.entropy_scale == 0):
            vain |= {"entropy_estimator"}
        return frozenset(vain)

    def _needs_no_proposal(self, spaces: Spaces) -> bool:
        action = spaces.action
        return isinstance(action, Discrete) and ccem.greedy_suffices(self.elite_fraction, action.count)

    def init(self, key: Array, spaces: Spaces) -> State:
        """Fresh networks: the target is a copy of the critic, the proposal has the weights of the actor."""
        critic_key, actor_key = jax.random.split(key)
        critic = make_critic(critic_key, spaces, self.hidden, self.discrete_critic)
        actor = make_policy(actor_key, spaces, self.hidden)
        needless = self._needs_no_proposal(spaces)
        proposal = None if needless else make_policy(actor_key, spaces, self.hidden, self.proposal_policy)
        learned = None if self.proposal_update == "average" else proposal
        return State(critic, critic, actor, proposal, moments(critic), moments(actor), moments(learned))

    def diagnose(self, state: State, observation: Array) -> Metrics:
        """Also of the proposal policy, where there is one."""
        told = super().diagnose(state, observation)
        return told if state.proposal is None else told | spread("proposal", state.proposal(observation[None]))

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
        if state.proposal is None:
            state, losses = self._follow_greedy_action(state, batch.observation)
        else:
            state, losses = self._follow_elite_actions(state, batch.observation, draws)
        return state, metrics | losses

    def _follow_greedy_action(self, state: State, observation: Array) -> tuple[State, Metrics]:
        """Algorithm 2 for few discrete actions: I*(S) = argmax Q(S, ·), shared by ties."""
        assert isinstance(state.critic, HeadsCritic | IndexCritic)
        shares = ccem.greedy_shares(state.critic.values(observation))

        def loss(actor: Policy) -> Array:
            policy = actor(observation)
            return ccem.greedy_loss(policy.log_likelihoods(), shares, policy.entropy(), self.actor_entropy_scale)

        actor, adam, actor_loss = minimise(loss, state.actor, state.actor_adam, self.actor_step_size)
        return state._replace(actor=actor, actor_adam=adam), {"actor_loss": actor_loss}

    def _follow_elite_actions(self, state: State, observation: Array, draws: Draws) -> tuple[State, Metrics]:
        """Algorithm 2: I*(S) holds the ⌈ρN⌉ best of N actions a ~ π̃(·|S); w and w' follow it."""
        assert state.proposal is not None
        sampled = state.proposal(observation).sample(draws.proposal)
        count = ccem.elite_count(self.elite_fraction, self.proposal_samples)
        elites = ccem.elites(sampled, state.critic(observation, sampled), count)

        def follow(net: Policy, adam: object, sample: Array, entropy_scale: float) -> tuple[Policy, object, Array]:
            def loss(net: Policy) -> Array:
                policy = net(observation)
                entropy = entropy_term(self.entropy_estimator, policy.log_likelihood(sample), policy.entropy())
                return ccem.elite_loss(policy.log_likelihood(elites), entropy, entropy_scale)

            return minimise(loss, net, adam, self.actor_step_size)

        own = state.actor(observation).sample(draws.actor)  # for an entropy that the paper's actor has with weight 0
        actor, adam, loss = follow(state.actor, state.actor_adam, own, self.actor_entropy_scale)
        metrics = {"actor_loss": loss}
        if self.proposal_update == "average":
            proposal, proposal_adam = average(state.proposal, actor, self.proposal_average_rate), state.proposal_adam
        else:
            proposal, proposal_adam, metrics["proposal_loss"] = follow(
                state.proposal, state.proposal_adam, sampled[0], self.entropy_scale
            )
        return state._replace(actor=actor, actor_adam=adam, proposal=proposal, proposal_adam=proposal_adam), metrics
