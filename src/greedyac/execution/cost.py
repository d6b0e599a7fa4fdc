"""What training costs before anything was run: operations of a step, memory of a lane, seconds on a plain machine."""

from collections.abc import Mapping
from itertools import pairwise

from greedyac.agents import Agent, GreedyACAgent, SACAgent, VanillaACAgent
from greedyac.agents.actor_critic import ActorCritic
from greedyac.ccem import elite_count
from greedyac.core.spaces import KERNEL, Box, Spaces
from greedyac.nn.layers import convolution_size, encoded_size
from greedyac.training.config import RunConfig

PASSES: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = {
    # agent: (policy, critic) with continuous actions, the same with discrete ones. A gradient takes three passes.
    "greedy-ac": ((1 + 3 + 3, 1 + 3), (1 + 3, 1 + 3 + 1)),  # S', actor, proposal; S', fit, all actions
    "sac": ((1 + 3, 2 + 6 + 4), (1 + 3, 2 + 6 + 2)),  # S', actor; S', fit, actor (there and back): each of two critics
    "vanilla-ac": ((1 + 3, 1 + 3), (1 + 3, 1 + 3 + 1)),  # S', actor; S', fit, all actions
}
"""Forward passes of a whole batch through one network that one update takes in the plain algorithm, apart from those
that value sampled continuous actions."""


OTHER_PASSES = PASSES["vanilla-ac"]
"""Of an agent that is not listed: an actor and a critic."""


UPDATE_SECONDS, STEP_SECONDS, OPERATIONS_PER_SECOND = 32e-6, 5e-6, 60e9
"""Of one lane on one core of the machine on which the defaults were measured; they decide how runs are cut into chunks,
so they are constants: the same study gives the same chunks everywhere."""


def operations(agent: Agent, spaces: Spaces) -> int:
    """Floating-point operations of one step of the plain dense algorithm: one action, one update.

    Matrix products only, two operations per weight and input. It is the same number whatever tricks the code uses.
    """
    if not isinstance(agent, ActorCritic):
        return 0
    features, action = encoded_size(spaces.observation), spaces.action
    if isinstance(action, Box):
        (policy_passes, critic_passes), _ = PASSES.get(agent.name, OTHER_PASSES)
        critic_passes += sampled_actions(agent, spaces)
        policy = _dense(features, *agent.hidden, 2 * action.size)
        critic = _dense(features + action.size, *agent.hidden, 1)
    else:
        _, (policy_passes, critic_passes) = PASSES.get(agent.name, OTHER_PASSES)
        policy = critic = _dense(features, *agent.hidden, action.count)
    looks = agent.batch_size * (policy_passes + critic_passes) + 1
    return (
        policy + agent.batch_size * (policy_passes * policy + critic_passes * critic) + looks * _eye(spaces.observation)
    )


def sampled_actions(agent: Agent, spaces: Spaces) -> int:
    """Continuous actions per state that the critic values for the actor's update."""
    if not isinstance(spaces.action, Box):
        return 0
    if isinstance(agent, GreedyACAgent):
        return agent.proposal_samples
    return agent.baseline_samples + 1 if isinstance(agent, VanillaACAgent) else 0


def summed_numbers(agent: Agent, spaces: Spaces) -> list[int]:
    """The sizes of the arrays of one lane that an update adds up, itself or in a gradient.

    They have an entry for each of a batch and each unit or output, or one; SAC has them for two critics at once, too,
    and GreedyAC for each of the elite.
    """
    rows = [agent.batch_size, 2 * agent.batch_size] if isinstance(agent, SACAgent) else [agent.batch_size]
    elite = elite_count(agent.elite_fraction, agent.proposal_samples) if isinstance(agent, GreedyACAgent) else 0
    if not isinstance(agent, ActorCritic):
        return []
    outputs = spaces.action.size if isinstance(spaces.action, Box) else spaces.action.count
    columns = (1, *agent.hidden, outputs, elite, elite * outputs)
    return [inputs * units for inputs in rows for units in columns if units]


def _eye(observation: Box) -> int:
    """Operations of one observation's way through its convolutions, if there are any."""
    return sum(2 * convolution_size(image.grid) * KERNEL**2 * image.grid[2] for image in observation.convolved)


def _dense(*widths: int) -> int:
    """Operations of one input's way through a network."""
    return sum(2 * inputs * outputs for inputs, outputs in pairwise(widths))


def nominal_seconds(config: RunConfig) -> float:
    """Roughly how long one core is busy with one run of the configuration, among others of its program."""
    learning = UPDATE_SECONDS if config.learner.batch_size else 0.0
    work = operations(config.learner, config.world.spaces) / OPERATIONS_PER_SECOND
    return config.steps * (STEP_SECONDS + (learning + work) * max(1, config.learner.updates_per_step))
