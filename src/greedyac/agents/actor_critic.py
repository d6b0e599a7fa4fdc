"""What the actor-critic agents share: hyperparameters, acting, and how a critic learns from one batch."""

from dataclasses import dataclass
from typing import Any, ClassVar

from jax import Array

from greedyac.agents.base import Batch, Metrics
from greedyac.core.errors import InputError
from greedyac.core.fields import static, traced
from greedyac.core.spaces import Box, Discrete
from greedyac.nn.distributions import policy_stats
from greedyac.nn.optim import adam_step, polyak_update


@dataclass(frozen=True)
class ActorCritic:
    """An actor, a critic, and a target critic that follows it slowly.

    The states of such agents have the fields `actor`, `critic`, `target` and `critic_opt_state`, among others.
    """

    actions: ClassVar[tuple[type[Box] | type[Discrete], ...]] = (Box, Discrete)

    critic_step_size: float = traced(1e-3, above=0, help="α: Adam step size of the critic")
    actor_step_size_scale: float = traced(1.0, above=0, help="κ: step size of the policies, in units of α")
    entropy_scale: float = traced(1e-3, at_least=0, help="τ: weight of the policy's entropy")
    discount: float = traced(0.99, at_least=0, at_most=1, help="γ: discount of later rewards")
    polyak: float = traced(0.01, above=0, at_most=1, help="how far the target critic moves to the critic per update")
    discrete_critic: str = static(
        "heads",
        choices=("heads", "index"),
        help="discrete actions: one output each, or the index as an input",
    )
    batch_size: int = static(32, at_least=1, help="transitions per update")
    replay_capacity: int = static(100_000, at_least=1, help="transitions that the replay holds")
    hidden: tuple[int, ...] = static((64, 64), at_least=1, help="widths of the hidden layers; on grids 128 unless told")
    warm_up_steps: int = static(
        0, at_least=0, at_most=2**31 - 1, absent=0, help="steps of uniformly random actions before learning starts"
    )
    updates_per_step: int = static(1, at_least=1, at_most=1000, absent=1, help="updates after every step")
    normalise_observations: bool = static(
        False, absent=False, help="observations centred and in units of their deviation so far"
    )
    normalise_rewards: bool = static(
        False, absent=False, help="rewards in units of the deviation of discounted returns so far"
    )

    def check(self) -> None:
        """A batch must fit into the replay."""
        if self.batch_size > self.replay_capacity:
            raise InputError(
                f"batch_size = {self.batch_size} is not allowed with replay_capacity = {self.replay_capacity}; "
                f"allowed: whole number ≥ 1 and ≤ {self.replay_capacity}"
            )

    @property
    def actor_step_size(self) -> float:
        """κα."""
        return self.actor_step_size_scale * self.critic_step_size

    def act(self, state: Any, observation: Array, key: Array, greedy: bool) -> Array:
        """A ~ π(·|S), or the actor's most likely action."""
        policy = state.actor(observation)
        return policy.mode() if greedy else policy.sample(state.actor.noise(key, ()))

    def diagnose(self, state: Any, observation: Array) -> Metrics:
        """Q(S, a) of the actor's most likely action, and the actor's entropy and deviation."""
        policy = state.actor(observation[None])
        value = state.critic(observation[None], policy.mode())  # [1], or of a twin critic [2, 1]
        return {"q": value.min(), **policy_stats("actor", policy)}

    def sarsa(self, state: Any, batch: Batch, noise: Array) -> tuple[Any, Metrics]:
        """Update θ using Sarsa: the next value is Q(S', A') of the target critic with A' ~ π(·|S')."""
        next_action = state.actor(batch.next_observation).sample(noise)
        return self.fit_critic(state, batch, state.target(batch.next_observation, next_action))

    def fit_critic(self, state: Any, batch: Batch, next_value: Array) -> tuple[Any, Metrics]:
        """θ ← θ + α [R + γ Q(S', A') − Q(S, A)] ∇Q(S, A), then the target; γ Q is 0 where S' is terminal.

        `next_value: [batch]`. Of a twin critic both learn.
        """
        goal = batch.reward + self.discount * batch.continues * next_value

        def loss(critic: Any) -> Array:
            return ((goal - critic(batch.observation, batch.action)) ** 2).mean(-1).sum()

        critic, adam, critic_loss = adam_step(loss, state.critic, state.critic_opt_state, self.critic_step_size)
        target = polyak_update(state.target, critic, self.polyak)
        return state._replace(critic=critic, target=target, critic_opt_state=adam), {"critic_loss": critic_loss}
