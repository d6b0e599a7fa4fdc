"""Greedy Actor-Critic in PyTorch on Gymnasium's Pendulum: one run, with the update of `greedyac train`.

Written for speed: `torch.compile` makes one program of the whole update.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from greedy_ac_torch import (
    ACTIONS,
    FEATURES,
    HIDDEN,
    POLYAK,
    ROW,
    STEP_SIZE,
    Batch,
    Gaussian,
    Run,
    actor_loss,
    best,
    draws,
    gaussian,
    proposal_loss,
)
from measured import arguments
from torch import Tensor
from torch.func import grad
from torch.nn.functional import linear
from torch.nn.init import xavier_uniform_

Weights = list[Tensor]
"""Weight and bias of the first layer, of the second and of the last."""


def fresh(inputs: int, outputs: int) -> Weights:
    """Xavier-uniform weights with the ReLU gain, zero biases."""
    weights: Weights = []
    for before, after in pairwise((inputs, HIDDEN, HIDDEN, outputs)):
        weights += [xavier_uniform_(torch.empty(after, before), math.sqrt(2.0)), torch.zeros(after)]
    return weights


def copied(weights: Weights) -> Weights:
    """Weights to be updated on their own."""
    return [weight.clone() for weight in weights]


def policy(weights: Weights, observation: Tensor) -> Gaussian:
    """π(·|s)."""
    w1, b1, w2, b2, w3, b3 = weights
    return gaussian(linear(linear(linear(observation, w1, b1).relu(), w2, b2).relu(), w3, b3))


def value(weights: Weights, observation: Tensor, action: Tensor) -> Tensor:
    """Q(s, a) of `action: [..., batch, dims]` → `[..., batch]`; many actions of a state share the state's part."""
    w1, b1, w2, b2, w3, b3 = weights
    of_observation, of_action = w1.split((FEATURES, ACTIONS), 1)
    first = linear(observation, of_observation, b1) + linear(action, of_action)
    return linear(linear(first.relu(), w2, b2).relu(), w3, b3).squeeze(-1)


class Learner:
    """Weights that Adam moves downhill, in place."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.first = [torch.zeros_like(weight) for weight in weights]
        self.second = [torch.zeros_like(weight) for weight in weights]
        self.steps = torch.zeros(())

    def descend(self, loss: Callable[[Weights], Tensor]) -> None:
        """One step."""
        self.steps += 1
        gradients = grad(loss)(self.weights)
        for weight, gradient, first, second in zip(self.weights, gradients, self.first, self.second, strict=True):
            first.lerp_(gradient, 0.1)
            second.lerp_(gradient**2, 0.001)
            scale = (second / (1 - 0.999**self.steps)).sqrt() + 1e-8
            weight.sub_(STEP_SIZE * first / (1 - 0.9**self.steps) / scale)


class GreedyAC:
    """A Sarsa critic, an actor that follows the best of the proposal's actions, and a proposal that stays wider."""

    def __init__(self) -> None:
        critic, actor = fresh(FEATURES + ACTIONS, 1), fresh(FEATURES, 2 * ACTIONS)
        self.critic, self.target = Learner(critic), copied(critic)
        self.actor, self.proposal = Learner(actor), Learner(copied(actor))

    def act(self, observation: Tensor) -> Tensor:
        """A ~ π(·|S)."""
        return policy(self.actor.weights, observation).sample(torch.randn(ACTIONS))

    def update(self, rows: Tensor) -> None:
        """Learn from one batch with fresh random draws."""
        self.learn(Batch(*rows.split(ROW, 1)), *draws())

    def learn(self, batch: Batch, next_noise: Tensor, proposal_noise: Tensor) -> None:
        """One Sarsa step of the critic, then actor and proposal follow the elite actions."""
        observation = batch.observation
        next_action = policy(self.actor.weights, batch.next_observation).sample(next_noise)
        goal = batch.goal(value(self.target, batch.next_observation, next_action))
        self.critic.descend(lambda weights: ((goal - value(weights, observation, batch.action)) ** 2).mean())
        for slow, fast in zip(self.target, self.critic.weights, strict=True):
            slow.lerp_(fast, POLYAK)

        sampled = policy(self.proposal.weights, observation).cut_off().sample(proposal_noise)
        elites = best(sampled, value(self.critic.weights, observation, sampled))
        self.actor.descend(lambda weights: actor_loss(policy(weights, observation), elites))
        self.proposal.descend(lambda weights: proposal_loss(policy(weights, observation).cut_off(), elites))


def main() -> None:
    """Measure it."""
    seconds = arguments(__doc__).seconds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.no_grad():  # gradients are those of torch.func
        agent = GreedyAC()
        Run(agent.act, torch.compile(agent.update, fullgraph=True)).measure(seconds)


if __name__ == "__main__":
    main()
