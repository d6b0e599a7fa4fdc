"""The contract of an agent: a frozen dataclass of hyperparameters whose methods are its learning rule, all pure.

A new agent is one file. Agents know nothing of environments, seeds or studies. Inside a compiled program the traced
fields hold traced numbers, so that lanes can differ in them.
"""

from typing import Any, ClassVar, NamedTuple, Protocol

from jax import Array

from greedyac.core.spaces import Box, Discrete, Spaces

Metrics = dict[str, Array]
"""Scalars of one update. A NaN or inf here, or among the numbers of the state, marks a run as diverged."""


NETWORKS = ("actor", "critic", "proposal")
"""The fields of a state that a checkpoint keeps, where there are such: what acts, and what explains it."""


class Batch(NamedTuple):
    """Transitions, `[batch, ...]` each; `continues` is 0 where the environment terminated, else 1."""

    observation: Array
    action: Array
    reward: Array
    next_observation: Array
    continues: Array


class Agent(Protocol):
    """What the training loop, evaluation and checkpoints ask of an agent."""

    name: ClassVar[str]
    numerics: ClassVar[int]
    """Raised by hand when a change of the code changes the numbers: it enters every run's id."""
    actions: ClassVar[tuple[type[Box] | type[Discrete], ...]]
    """The kinds of actions that it can choose from."""

    @property
    def batch_size(self) -> int:
        """Transitions per update; 0 for an agent that does not learn."""

    @property
    def replay_capacity(self) -> int:
        """Transitions that the replay holds."""

    @property
    def discount(self) -> float:
        """Of later rewards."""

    @property
    def warm_up_steps(self) -> int:
        """Steps of uniformly random actions before learning starts."""

    @property
    def updates_per_step(self) -> int:
        """Updates after every step, each from a batch of its own."""

    @property
    def normalise_observations(self) -> bool:
        """Whether the agent sees observations centred and scaled."""

    @property
    def normalise_rewards(self) -> bool:
        """Whether the agent learns from scaled rewards."""

    def check(self) -> None:
        """Raise an `InputError` if hyperparameters that are fine by themselves don't go together."""

    def without_effect(self, spaces: Spaces) -> frozenset[str]:
        """The hyperparameters that change nothing on these spaces, and are therefore refused in a sweep."""

    def init(self, key: Array, spaces: Spaces) -> Any:
        """The state before learning. Its `actor` is all that `act` reads."""

    def act(self, state: Any, observation: Array, key: Array, greedy: bool) -> Array:
        """An action for one `observation: [features]`: a sample, or the most likely one if `greedy`."""

    def diagnose(self, state: Any, observation: Array) -> Metrics:
        """Scalars that tell how the agent stands at one `observation: [features]`: values, entropies, deviations."""

    def update(self, state: Any, batch: Batch, key: Array) -> tuple[Any, Metrics]:
        """The state after learning from one batch."""
