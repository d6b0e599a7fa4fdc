"""Greedy Actor-Critic (Algorithm 3 of the paper): a Sarsa critic, and an actor trained by conditional CEM.

Read it beside the paper: `learn` is one pass of the while loop after the transition was stored.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
from jax import Array

from greedyac import ccem
from greedyac.agents.agent import Metrics
from greedyac.errors import InputError
from greedyac.hypers import static, swept
from greedyac.nets import ContinuousCritic, Critic, average, make_critic, minimise, moments
from greedyac.policies import Policy, SoftmaxPolicy, make_policy
from greedyac.replay import Batch
from greedyac.spaces import Discrete, Spaces


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
    """The random numbers of one update: noise for the next actions and for the proposal's samples."""

    next_action: Array
    proposal: Array | None


@dataclass(frozen=True)
class GreedyAC:
    """Greedy Actor-Critic: the actor follows the best of the actions that a wider proposal policy samples."""

    name: ClassVar[str] = "greedy-ac"
    numerics: ClassVar[int] = 1

    critic_step_size: float = swept(1e-3, above=0, help="α: Adam step size of the critic")
    actor_step_size_scale: float = swept(1.0, above=0, help="κ: actor and proposal step size, in units of α")
    entropy_scale: float = swept(1e-3, at_least=0, help="τ: weight of the proposal's entropy")
    discount: float = swept(0.99, at_least=0, at_most=1, help="γ: discount of later rewards")
    polyak: float = swept(0.01, above=0, at_most=1, help="how far the target critic moves to the critic per update")
    elite_fraction: float = static(0.1, above=0, below=1, help="ρ: share of sampled actions that are followed")
    proposal_samples: int = static(30, at_least=1, help="N: actions sampled from the proposal per state")
    entropy_estimator: str = static(
        "score",
        choices=ccem.ENTROPY_ESTIMATORS,
        help="how the gradient of the proposal's entropy is estimated",
    )
    discrete_critic: str = static(
        "heads",
        choices=("heads", "index"),
        help="discrete actions: one output each, or the index as an input",
    )
    batch_size: int = static(32, at_least=1, help="transitions per update")
    replay_capacity: int = static(100_000, at_least=1, help="transitions that the replay holds")
    hidden: tuple[int, ...] = static((64, 64), at_least=1, help="widths of the hidden layers")

    def check(self) -> None:
        """A batch must fit into the replay."""
        if self.batch_size > self.replay_capacity:
            raise InputError(
                f"batch_size = {self.batch_size} is not allowed with replay_capacity = {self.replay_capacity}; "
                f"allowed: whole number ≥ 1 and ≤ {self.replay_capacity}"
            )

    def without_effect(self, spaces: Spaces) -> frozenset[str]:
        """Continuous actions have no discrete critic; few discrete ones need no proposal."""
        if not isinstance(spaces.action, Discrete):
            return frozenset({"discrete_critic"})
        if self._needs_no_proposal(spaces):
            return frozenset({"entropy_scale", "entropy_estimator", "proposal_samples"})
        return frozenset()

    def _needs_no_proposal(self, spaces: Spaces) -> bool:
        action = spaces.action
        return isinstance(action, Discrete) and ccem.greedy_suffices(self.elite_fraction, action.count)

    @property
    def actor_step_size(self) -> float:
        """κα."""
        return self.actor_step_size_scale * self.critic_step_size

    def init(self, key: Array, spaces: Spaces) -> State:
        """Fresh networks: the target is a copy of the critic, the proposal a copy of the actor."""
        critic_key, actor_key = jax.random.split(key)
        critic = make_critic(critic_key, spaces, self.hidden, self.discrete_critic)
        actor = make_policy(actor_key, spaces, self.hidden)
        proposal = None if self._needs_no_proposal(spaces) else actor
        return State(critic, critic, actor, proposal, moments(critic), moments(actor), moments(proposal))

    def act(self, state: State, observation: Array, key: Array, greedy: bool) -> Array:
        """A ~ π(·|S), or the actor's most likely action."""
        policy = state.actor(observation)
        return policy.mode() if greedy else policy.sample(state.actor.noise(key, ()))

    def update(self, state: State, batch: Batch, key: Array) -> tuple[State, Metrics]:
        """Learn from one batch with fresh random draws."""
        next_action, proposal = jax.random.split(key)
        samples = (self.proposal_samples, self.batch_size)
        draws = Draws(
            state.actor.noise(next_action, (self.batch_size,)),
            None if state.proposal is None else state.proposal.noise(proposal, samples),
        )
        return self.learn(state, batch, draws)

    def learn(self, state: State, batch: Batch, draws: Draws) -> tuple[State, Metrics]:
        """Update θ using Sarsa for π, then w and w' using Algorithm 2, on one batch."""
        critic, critic_adam, critic_loss = self._sarsa(state, batch, draws.next_action)
        target = average(state.target, critic, self.polyak)
        state = state._replace(critic=critic, target=target, critic_adam=critic_adam)
        if draws.proposal is None:
            state, losses = self._follow_greedy_action(state, batch.observation)
        else:
            state, losses = self._follow_elite_actions(state, batch.observation, draws.proposal)
        return state, {"critic_loss": critic_loss, **losses}

    def _sarsa(self, state: State, batch: Batch, noise: Array) -> tuple[Critic, object, Array]:
        """θ ← θ + α [R + γ Q(S', A') − Q(S, A)] ∇Q(S, A) with A' ~ π(·|S'); γ Q is 0 where S' is terminal."""
        next_action = state.actor(batch.next_observation).sample(noise)
        next_value = state.target(batch.next_observation, next_action)
        goal = batch.reward + self.discount * batch.continues * next_value

        def loss(critic: Critic) -> Array:
            return ((goal - critic(batch.observation, batch.action)) ** 2).mean()

        return minimise(loss, state.critic, state.critic_adam, self.critic_step_size)

    def _follow_greedy_action(self, state: State, observation: Array) -> tuple[State, Metrics]:
        """Algorithm 2 for few discrete actions: I*(S) = argmax Q(S, ·), shared by ties."""
        assert not isinstance(state.critic, ContinuousCritic)
        assert isinstance(state.actor, SoftmaxPolicy)
        shares = ccem.greedy_shares(state.critic.values(observation))

        def loss(actor: SoftmaxPolicy) -> Array:
            return ccem.greedy_actor_loss(actor(observation).log_likelihoods(), shares)

        actor, adam, actor_loss = minimise(loss, state.actor, state.actor_adam, self.actor_step_size)
        return state._replace(actor=actor, actor_adam=adam), {"actor_loss": actor_loss}

    def _follow_elite_actions(self, state: State, observation: Array, noise: Array) -> tuple[State, Metrics]:
        """Algorithm 2: I*(S) holds the ⌈ρN⌉ best of N actions a ~ π̃(·|S); w and w' follow it."""
        assert state.proposal is not None
        sampled = state.proposal(observation).sample(noise)
        count = ccem.elite_count(self.elite_fraction, self.proposal_samples)
        elites = ccem.elites(sampled, state.critic(observation, sampled), count)

        def actor_loss(actor: Policy) -> Array:
            return ccem.actor_loss(actor(observation).log_likelihood(elites))

        def proposal_loss(proposal: Policy) -> Array:
            policy = proposal(observation)
            entropy = ccem.entropy_term(self.entropy_estimator, policy.log_likelihood(sampled[0]), policy.entropy())
            return ccem.proposal_loss(policy.log_likelihood(elites), entropy, self.entropy_scale)

        step_size = self.actor_step_size
        actor, actor_adam, followed = minimise(actor_loss, state.actor, state.actor_adam, step_size)
        proposal, proposal_adam, proposed = minimise(proposal_loss, state.proposal, state.proposal_adam, step_size)
        state = state._replace(actor=actor, actor_adam=actor_adam, proposal=proposal, proposal_adam=proposal_adam)
        return state, {"actor_loss": followed, "proposal_loss": proposed}
