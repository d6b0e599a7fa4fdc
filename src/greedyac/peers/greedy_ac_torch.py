"""Greedy Actor-Critic in PyTorch on Gymnasium's Pendulum: one run, with the update of `greedyac train`.

PyTorch as it is mostly written: modules and optimizers, operation by operation.
"""

import copy
import math
from collections.abc import Callable
from typing import NamedTuple

import gymnasium
import torch
from measured import arguments, steps_per_second, tell
from torch import Tensor, nn

FEATURES, ACTIONS, TORQUE = 3, 1, 2.0
HIDDEN, BATCH, CAPACITY = 64, 32, 100_000
STEP_SIZE, DISCOUNT, POLYAK = 1e-3, 0.99, 0.01
SAMPLES, ELITES, ENTROPY_SCALE = 30, 3, 1e-3
MAX_LOG_STD, BELOW_ONE = math.log(1000.0), 1 - 2**-24
ROW = (FEATURES, ACTIONS, 1, FEATURES, 1)
"""How many numbers each part of a transition has."""
WARM_UP, CHUNK = 1000, 100


class Batch(NamedTuple):
    """Transitions, `[batch, ...]` each; `continues` is 0 where the environment terminated, else 1."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    next_observation: Tensor
    continues: Tensor

    def goal(self, next_value: Tensor) -> Tensor:
        """R + γ Q(S', A'): `[batch]`."""
        return self.reward.squeeze(-1) + DISCOUNT * self.continues.squeeze(-1) * next_value


class Gaussian(NamedTuple):
    """Its samples are clipped to the action range; log-likelihoods are those of the unclipped Gaussian."""

    mean: Tensor
    log_std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """`noise: [..., batch, dims]` of standard normals → actions of that shape."""
        return (self.mean + self.log_std.exp() * noise).clamp(-TORQUE, TORQUE)

    def log_prob(self, action: Tensor) -> Tensor:
        """`action: [..., batch, dims]` → `[..., batch]`."""
        z = (action - self.mean) * (-self.log_std).exp()
        return (-0.5 * z**2 - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def cut_off(self) -> "Truncated":
        """The same Gaussian with no density outside the action range."""
        scale = (-self.log_std).exp() / math.sqrt(2.0)
        low, high = (-TORQUE - self.mean) * scale, (TORQUE - self.mean) * scale
        return Truncated(self, low, high, low.erf(), high.erf())


class Truncated(NamedTuple):
    """A Gaussian cut off at the action range; its bounds in units of √2 deviations from the mean, and their erf."""

    whole: Gaussian
    low: Tensor
    high: Tensor
    erf_low: Tensor
    erf_high: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """`noise: [..., batch, dims]`, uniform in [0, 1) → actions of that shape."""
        within = self.erf_low + noise * (self.erf_high - self.erf_low)
        z = within.clamp(-BELOW_ONE, BELOW_ONE).erfinv()
        return (self.whole.mean + math.sqrt(2.0) * self.whole.log_std.exp() * z).clamp(-TORQUE, TORQUE)

    def log_prob(self, action: Tensor) -> Tensor:
        """`action: [..., batch, dims]` → `[..., batch]`."""
        return self.whole.log_prob(action) - self._mass().log().sum(-1)

    def entropy(self) -> Tensor:
        """`[batch]`."""
        mass = self._mass()
        ends = self.low * (-(self.low**2)).exp() - self.high * (-(self.high**2)).exp()
        constant = 0.5 * math.log(2 * math.pi * math.e)
        return (constant + self.whole.log_std + mass.log() + ends / (2 * math.sqrt(math.pi) * mass)).sum(-1)

    def _mass(self) -> Tensor:
        return (self.erf_high - self.erf_low) / 2


def gaussian(outputs: Tensor) -> Gaussian:
    """The policy that a network's outputs stand for. The mean is a tanh, scaled to the action range."""
    mean, log_std = outputs.split(ACTIONS, -1)
    return Gaussian(TORQUE * mean.tanh(), log_std.clamp(-MAX_LOG_STD, MAX_LOG_STD))


def actor_loss(actor: Gaussian, elites: Tensor) -> Tensor:
    """How unlikely the elite actions are."""
    return -actor.log_prob(elites).mean()


def proposal_loss(proposal: Truncated, elites: Tensor) -> Tensor:
    """The same, with a bonus for the proposal's entropy."""
    return -proposal.log_prob(elites).mean() - ENTROPY_SCALE * proposal.entropy().mean()


def best(sampled: Tensor, values: Tensor) -> Tensor:
    """The elites among `sampled: [samples, batch, dims]`: those with the highest `values: [samples, batch]`."""
    chosen = values.topk(ELITES, 0).indices
    return sampled.gather(0, chosen.unsqueeze(-1).expand(-1, -1, ACTIONS))


def draws() -> tuple[Tensor, Tensor]:
    """The noise of one update: standard normals for the next actions, uniform for the proposal's samples."""
    return torch.randn(BATCH, ACTIONS), torch.rand(SAMPLES, BATCH, ACTIONS)


class Run:
    """An agent in its environment, with the transitions of the past: one row each, so that a batch is one gather."""

    def __init__(self, act: Callable[[Tensor], Tensor], update: Callable[[Tensor], None]) -> None:
        self.act, self.update = act, update
        self.env = gymnasium.make("Pendulum-v1", disable_env_checker=True)
        self.observation, _ = self.env.reset(seed=0)
        self.replay = torch.zeros(CAPACITY, sum(ROW))
        self.steps = 0

    def train(self, steps: int) -> int:
        """That many steps, each with one update."""
        for _ in range(steps):
            action = self.act(torch.from_numpy(self.observation)).numpy()
            following, reward, terminated, truncated, _ = self.env.step(action)
            transition = [*self.observation, *action, reward, *following, not terminated]
            self.replay[self.steps % CAPACITY] = torch.tensor(transition)
            self.steps += 1
            self.observation = self.env.reset()[0] if terminated or truncated else following
            self.update(self.replay[torch.randint(min(self.steps, CAPACITY), (BATCH,))])
        return steps

    def measure(self, seconds: float) -> None:
        """Tell how fast it trains, once it is warm."""
        self.train(WARM_UP)
        tell(steps_per_second(seconds, lambda: self.train(CHUNK)), ("torch", "gymnasium"))


def network(inputs: int, outputs: int) -> nn.Sequential:
    """Two hidden layers; Xavier-uniform weights with the ReLU gain, zero biases."""
    layers = [nn.Linear(inputs, HIDDEN), nn.Linear(HIDDEN, HIDDEN), nn.Linear(HIDDEN, outputs)]
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight, math.sqrt(2.0))
        nn.init.zeros_(layer.bias)
    first, second, last = layers
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)


def value(critic: nn.Sequential, observation: Tensor, action: Tensor) -> Tensor:
    """Q(s, a) of `action: [..., batch, dims]` → `[..., batch]`."""
    state = observation.expand(*action.shape[:-1], FEATURES)
    return critic(torch.cat((state, action), -1)).squeeze(-1)


class GreedyAC:
    """A Sarsa critic, an actor that follows the best of the proposal's actions, and a proposal that stays wider."""

    def __init__(self) -> None:
        self.critic, self.actor = network(FEATURES + ACTIONS, 1), network(FEATURES, 2 * ACTIONS)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.proposal = copy.deepcopy(self.actor)
        policies = [*self.actor.parameters(), *self.proposal.parameters()]
        self.critic_opt_state = torch.optim.Adam(self.critic.parameters(), STEP_SIZE, fused=True)
        self.policies_opt_state = torch.optim.Adam(policies, STEP_SIZE, fused=True)
        self.slow, self.fast = list(self.target.parameters()), list(self.critic.parameters())

    def act(self, observation: Tensor) -> Tensor:
        """A ~ π(·|S)."""
        with torch.inference_mode():
            return gaussian(self.actor(observation)).sample(torch.randn(ACTIONS))

    def update(self, rows: Tensor) -> None:
        """Learn from one batch with fresh random draws."""
        self.learn(Batch(*rows.split(ROW, 1)), *draws())

    def learn(self, batch: Batch, next_noise: Tensor, proposal_noise: Tensor) -> None:
        """One Sarsa step of the critic, then actor and proposal follow the elite actions."""
        self._fit_critic(batch, next_noise)
        self._follow_elites(batch.observation, proposal_noise)

    def _fit_critic(self, batch: Batch, noise: Tensor) -> None:
        with torch.no_grad():
            next_action = gaussian(self.actor(batch.next_observation)).sample(noise)
            goal = batch.goal(value(self.target, batch.next_observation, next_action))
        loss = nn.functional.mse_loss(value(self.critic, batch.observation, batch.action), goal)
        self.critic_opt_state.zero_grad()
        loss.backward()
        self.critic_opt_state.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.slow, self.fast, POLYAK)

    def _follow_elites(self, observation: Tensor, noise: Tensor) -> None:
        """Actor and proposal share no weights, so one backward pass and one step of Adam serve both."""
        actor, proposal = gaussian(self.actor(observation)), gaussian(self.proposal(observation)).cut_off()
        with torch.no_grad():
            sampled = proposal.sample(noise)
            elites = best(sampled, value(self.critic, observation, sampled))
        self.policies_opt_state.zero_grad()
        (actor_loss(actor, elites) + proposal_loss(proposal, elites)).backward()
        self.policies_opt_state.step()


def main() -> None:
    """Measure it."""
    seconds = arguments(__doc__).seconds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    agent = GreedyAC()
    Run(agent.act, agent.update).measure(seconds)


if __name__ == "__main__":
    main()
