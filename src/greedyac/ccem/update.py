"""Algorithm 2 of the paper: an actor and its proposal policy follow the best of the proposal's samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jax import Array

from greedyac.ccem.elite import elite_count, elite_loss, elites, greedy_loss, greedy_shares, greedy_suffices
from greedyac.core.fields import static, traced
from greedyac.core.spaces import Box, Discrete, Spaces
from greedyac.nn.distributions import ENTROPY_ESTIMATORS, entropy_term
from greedyac.nn.optim import adam_step, init_optimizer, polyak_update
from greedyac.nn.policies import PolicyNetwork, make_policy


@dataclass(frozen=True)
class CCEM:
    """The hyperparameters of conditional CEM, and one update of its policies.

    The states that it updates have the fields `actor`, `proposal`, `actor_opt_state` and `proposal_opt_state`, among
    others. With few discrete actions there is no proposal policy.
    """

    entropy_scale: float = traced(1e-3, at_least=0, help="τ: weight of the proposal's entropy")
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
    proposal_average_rate: float = traced(
        0.01, above=0, at_most=1, absent=0.01, help="α': how far an average proposal moves to the actor per update"
    )
    actor_entropy_scale: float = traced(0.0, at_least=0, absent=0.0, help="weight of the actor's entropy")

    def without_effect(self, spaces: Spaces) -> frozenset[str]:
        """What is for continuous actions, a proposal that is not needed, its other update, or no entropy."""
        vain = set() if isinstance(spaces.action, Box) else {"proposal_policy"}
        if self.needs_no_proposal(spaces):
            vain |= {"entropy_scale", "entropy_estimator"}
            return frozenset(vain | {"proposal_samples", "proposal_update", "proposal_average_rate"})
        averages = self.proposal_update == "average"
        vain |= {"entropy_scale"} if averages else {"proposal_average_rate"}
        if self.actor_entropy_scale == 0 and (averages or self.entropy_scale == 0):
            vain |= {"entropy_estimator"}
        return frozenset(vain)

    def needs_no_proposal(self, spaces: Spaces) -> bool:
        """Whether there are so few actions that the best of them is known."""
        action = spaces.action
        return isinstance(action, Discrete) and greedy_suffices(self.elite_fraction, action.count)

    def policies(self, key: Array, spaces: Spaces, hidden: Sequence[int]) -> tuple[PolicyNetwork, PolicyNetwork | None]:
        """A fresh actor, and the proposal with the same weights."""
        actor = make_policy(key, spaces, hidden)
        needless = self.needs_no_proposal(spaces)
        return actor, None if needless else make_policy(key, spaces, hidden, self.proposal_policy)

    def init_optimizers(self, actor: PolicyNetwork, proposal: PolicyNetwork | None) -> tuple[Any, Any]:
        """Adam's moments before the first step; a proposal that is an average has none."""
        return init_optimizer(actor), init_optimizer(None if self.proposal_update == "average" else proposal)

    def follow_greedy_action(
        self, state: Any, observation: Array, values: Array, step_size: float
    ) -> tuple[Any, dict[str, Array]]:
        """For few discrete actions, with `values: [batch, actions]`: I*(S) = argmax Q(S, ·), shared by ties."""
        shares = greedy_shares(values)

        def loss(actor: PolicyNetwork) -> Array:
            policy = actor(observation)
            return greedy_loss(policy.log_probs(), shares, policy.entropy(), self.actor_entropy_scale)

        actor, adam, actor_loss = adam_step(loss, state.actor, state.actor_opt_state, step_size)
        return state._replace(actor=actor, actor_opt_state=adam), {"actor_loss": actor_loss}

    def follow_elite_actions(
        self, state: Any, observation: Array, sampled: Array, values: Array, own: Array, step_size: float
    ) -> tuple[Any, dict[str, Array]]:
        """I*(S) holds the ⌈ρN⌉ best of N actions a ~ π̃(·|S); w and w' follow it.

        `sampled: [N, batch, ...]` with `values: [N, batch]`; `own: [batch, ...]` are actions of the actor, for an
        entropy that the paper's actor has with weight 0.
        """
        elite = elites(sampled, values, elite_count(self.elite_fraction, self.proposal_samples))

        def follow(
            net: PolicyNetwork, adam: object, sample: Array, entropy_scale: float
        ) -> tuple[PolicyNetwork, object, Array]:
            def loss(net: PolicyNetwork) -> Array:
                policy = net(observation)
                entropy = entropy_term(self.entropy_estimator, policy.log_prob(sample), policy.entropy())
                return elite_loss(policy.log_prob(elite), entropy, entropy_scale)

            return adam_step(loss, net, adam, step_size)

        actor, adam, loss = follow(state.actor, state.actor_opt_state, own, self.actor_entropy_scale)
        metrics = {"actor_loss": loss}
        proposal, opt_state = state.proposal, state.proposal_opt_state
        if self.proposal_update == "average":
            proposal = polyak_update(proposal, actor, self.proposal_average_rate)
        else:
            proposal, opt_state, loss = follow(proposal, opt_state, sampled[0], self.entropy_scale)
            metrics["proposal_loss"] = loss
        changed = {"actor": actor, "actor_opt_state": adam, "proposal": proposal, "proposal_opt_state": opt_state}
        return state._replace(**changed), metrics
