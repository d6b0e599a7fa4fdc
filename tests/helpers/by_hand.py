"""What the agents' tests share to write one whole update down in NumPy, float64.

The networks have one hidden layer whose ReLUs are all active, so that they are linear and every gradient can be
written down. After one step Adam's first moments are a tenth of the gradients, and each weight has moved by
step size × gradient / (|gradient| + 1e-8).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax
from scipy.stats import kstest, norm

from greedyac.agents import make_agent
from greedyac.agents.base import Batch
from greedyac.core.errors import InputError
from greedyac.core.spaces import Box, Discrete, Spaces

Floats = NDArray[np.float64]
Layers = Sequence[Any]  # weight and bias of the hidden layer, then of each head: the order of our networks' leaves
FEATURES, DIMS, COUNT, BATCH = 2, 2, 3, 3
LOW, HIGH = np.array([-2.0, -1.0]), np.array([2.0, 3.0])
MIDDLE, HALF = (LOW + HIGH) / 2, (HIGH - LOW) / 2
OBSERVATION = Box((-1.0,) * FEATURES, (1.0,) * FEATURES)
CONTINUOUS = Spaces(OBSERVATION, Box(tuple(LOW.tolist()), tuple(HIGH.tolist())))
DISCRETE = Spaces(OBSERVATION, Discrete(COUNT))
KEY = jax.random.key(0)
CONTINUES = np.array([1.0, 0.0, 1.0])  # the second transition terminated
ESTIMATORS = ("score", "exact", "released")
CRITIC_STEP, ACTOR_STEP, TAU, DISCOUNT, POLYAK = 0.25, 0.5 * 0.25, 0.75, 0.9, 0.1
HYPERS: dict[str, Any] = {"critic_step_size": CRITIC_STEP, "actor_step_size_scale": 0.5, "entropy_scale": TAU}
HYPERS |= {"discount": DISCOUNT, "polyak": POLYAK, "batch_size": BATCH, "hidden": (3,)}
CHANGES: dict[str, Any] = {"discrete_critic": "index"}  # one other value of what all agents have
CHANGES |= dict.fromkeys(("critic_step_size", "actor_step_size_scale", "entropy_scale", "discount", "polyak"), 0.125)


class Case(NamedTuple):
    """Weights, a batch and draws, in float64. `noise` has the names of the agent's draws, `[..., batch, …]` each."""

    critic: Layers
    target: Layers
    actor: Layers
    proposal: Layers
    observation: Floats
    action: Any
    reward: Floats
    next_observation: Floats
    noise: dict[str, Floats]


def layers(rng: np.random.Generator, inputs: int, *heads: int) -> Layers:
    """Random layers with hidden units that stay positive, also after a step of 0.25."""
    net: list[Any] = [rng.uniform(-0.3, 0.3, (inputs, 3)), rng.uniform(4, 5, 3)]
    for head in heads:
        net += rng.uniform(-0.3, 0.3, (3, head)), rng.normal(0, 0.3, head)
    return net


def random_case(seed: int, spaces: Spaces, samples: Mapping[str, tuple[int, ...]], twin: bool = False) -> Case:
    """`samples` gives each draw's shape before the batch. The layers of twin critics have a leading axis of two."""
    rng, continuous = np.random.default_rng(seed), spaces is CONTINUOUS

    def critic() -> Layers:
        return layers(rng, FEATURES + DIMS, 1) if continuous else layers(rng, FEATURES, COUNT)

    first, target = (both([critic(), critic()]) if twin else critic() for _ in range(2))
    actor, proposal = (layers(rng, FEATURES, *((DIMS, DIMS) if continuous else (COUNT,))) for _ in range(2))
    action: Any = rng.uniform(LOW, HIGH, (BATCH, DIMS)) if continuous else rng.integers(0, COUNT, BATCH)
    observation, next_observation = rng.uniform(-1, 1, (2, BATCH, FEATURES))
    draw, size = (rng.normal, DIMS) if continuous else (rng.gumbel, COUNT)
    noise = {name: draw(size=(*shape, BATCH, size)) for name, shape in samples.items()}
    reward = rng.normal(size=BATCH)
    return Case(first, target, actor, proposal, observation, action, reward, next_observation, noise)


def started(case: Case, agent: Any, spaces: Spaces, draws: type[Any]) -> tuple[Any, Batch, Any]:
    """The case as the agent's own state, batch and draws; moments and what else the state has are zero."""
    shapes = jax.eval_shape(lambda: agent.init(KEY, spaces))
    state = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    nets = [net for net in ("critic", "target", "actor", "proposal") if getattr(state, net, None) is not None]
    given = {net: [np.asarray(part, np.float32) for part in getattr(case, net)] for net in nets}
    structure = {net: jax.tree.structure(getattr(state, net)) for net in nets}
    state = state._replace(**{net: jax.tree.unflatten(structure[net], given[net]) for net in nets})
    batch = Batch(case.observation, case.action, case.reward, case.next_observation, CONTINUES)  # type: ignore[arg-type]
    batch, noise = jax.tree.map(
        lambda x: x.astype(np.float32 if x.dtype == float else np.int32), (batch, draws(**case.noise))
    )
    return state, batch, noise


def each(twin: Layers) -> list[Layers]:
    return [[part[index] for part in twin] for index in range(2)]


def both(nets: Sequence[Layers]) -> Layers:
    return [np.stack(parts) for parts in zip(*nets, strict=True)]


def forward(net: Layers, x: Floats) -> list[Floats]:
    """The outputs of the heads for `x: [..., inputs]`."""
    hidden = x @ net[0] + net[1]
    assert (hidden > 0).all()
    return [hidden @ weight + bias for weight, bias in zip(net[2::2], net[3::2], strict=True)]


def backward(net: Layers, x: Floats, slopes: Sequence[Floats]) -> Layers:
    """The gradient of every layer from those of the heads' outputs, `[batch, head]` each."""
    hidden = x @ net[0] + net[1]
    back = sum(slope @ weight.T for weight, slope in zip(net[2::2], slopes, strict=True))
    return [x.T @ back, back.sum(0), *(part for slope in slopes for part in (hidden.T @ slope, slope.sum(0)))]


def stepped(net: Layers, gradient: Layers, step_size: float) -> Layers:
    """Adam's first step."""
    return [old - step_size * slope / (np.abs(slope) + 1e-8) for old, slope in zip(net, gradient, strict=True)]


def averaged(slow: Layers, fast: Layers, rate: float) -> Layers:
    return [(1 - rate) * old + rate * new for old, new in zip(slow, fast, strict=True)]


class Gaussian:
    """The Gaussian policy by hand; slopes are with respect to the heads before tanh and clip."""

    def __init__(self, net: Layers, observation: Floats):
        raw, self.log_std = forward(net, observation)
        tanh, self.std = np.tanh(raw), np.exp(self.log_std)
        self.mean, self.mean_slope = MIDDLE + HALF * tanh, HALF * (1 - tanh**2)

    def sample(self, noise: Floats) -> Floats:
        return np.clip(self.mean + self.std * noise, LOW, HIGH)

    def clipped(self, noise: Floats) -> Any:
        """Where a sample is beyond the range; None if one is too near to a bound to tell."""
        sample = self.mean + self.std * noise
        near = np.minimum(np.abs(sample - LOW), np.abs(sample - HIGH)).min() < 1e-3
        return None if near else (sample < LOW) | (sample > HIGH)

    def log_prob(self, action: Any) -> Floats:
        return norm.logpdf(action, self.mean, self.std).sum(-1)

    def score(self, action: Any) -> tuple[Floats, Floats]:
        """∇log π(a): `[..., batch, dims]` for each head."""
        z = (action - self.mean) / self.std
        return z / self.std * self.mean_slope, z**2 - 1

    def entropy(self) -> Floats:
        return norm.entropy(self.mean, self.std).sum(-1)

    def entropy_slope(self) -> tuple[Floats, Floats]:
        return np.zeros_like(self.mean), np.ones_like(self.mean)


class Softmax:
    """The softmax policy by hand."""

    def __init__(self, net: Layers, observation: Floats):
        self.log_probs = log_softmax(forward(net, observation)[0], -1)
        self.probabilities = np.exp(self.log_probs)

    def sample(self, noise: Floats) -> NDArray[np.int64]:
        return np.argmax(self.log_probs + noise, -1)

    def log_prob(self, action: Any) -> Floats:
        return (np.eye(COUNT)[action] * self.log_probs).sum(-1)

    def score(self, action: Any) -> tuple[Floats]:
        return (np.eye(COUNT)[action] - self.probabilities,)

    def expectation(self, values: Floats) -> Floats:
        return (self.probabilities * values).sum(-1)

    def expectation_slope(self, values: Floats) -> tuple[Floats]:
        return (self.probabilities * (values - self.expectation(values)[:, None]),)

    def entropy(self) -> Floats:
        return -self.expectation(self.log_probs)

    def entropy_slope(self) -> tuple[Floats]:
        return (-self.probabilities * (self.log_probs + self.entropy()[:, None]),)


def entropy_term(estimator: str, policy: Any, sample: Any) -> tuple[Floats, Sequence[Floats]]:
    """What stands for the entropy `[batch]`, and the estimate of its gradient for each head."""
    if estimator == "exact":
        return policy.entropy(), policy.entropy_slope()
    log_prob = policy.log_prob(sample)
    factor = -log_prob if estimator == "score" else -np.ones(BATCH)
    return factor * log_prob, [factor[:, None] * slope for slope in policy.score(sample)]


def value(critic: Layers, observation: Floats, action: Any) -> Floats:
    """Q(s, a) with leading axes broadcast: by one head after the action, or by one head per discrete action."""
    if action.dtype == np.int64:
        return (np.eye(COUNT)[action] * forward(critic, observation)[0]).sum(-1)
    wide = np.broadcast_to(observation, (*action.shape[:-1], FEATURES))
    return forward(critic, np.concatenate([wide, action], -1))[0][..., 0]


def fitted(case: Case, critic: Layers, next_value: Floats) -> tuple[Layers, Layers, float]:
    """The critic after its step, the gradient that it followed, and the loss before."""
    error = case.reward + DISCOUNT * CONTINUES * next_value - value(critic, case.observation, case.action)
    slope, x = (-2 * error / BATCH)[:, None], case.observation
    if case.action.dtype == np.int64:
        slope = slope * np.eye(COUNT)[case.action]
    else:
        x = np.concatenate([x, case.action], -1)
    gradient = backward(critic, x, [slope])
    return stepped(critic, gradient, CRITIC_STEP), gradient, float((error**2).mean())


def sarsa(case: Case, policy: type[Any]) -> tuple[Layers, Layers, float]:
    """As `fitted`, with the target's values of next actions from the actor."""
    next_action = policy(case.actor, case.next_observation).sample(case.noise["next_action"])
    return fitted(case, case.critic, value(case.target, case.next_observation, next_action))


def agree(ours: Any, by_hand: Layers, scale: float = 1.0) -> None:
    for leaf, expected in zip(jax.tree.leaves(ours), by_hand, strict=True):
        np.testing.assert_allclose(leaf, scale * expected, rtol=2e-4, atol=1e-5 * scale)


def agree_step(net: Any, adam: Any, before: Layers, gradient: Layers, step_size: float) -> None:
    """Gradient, by Adam's first moments, and weights are those by hand."""
    agree(adam.mu, gradient, 0.1)
    agree(net, stepped(before, gradient, step_size))


def agree_metrics(ours: Mapping[str, Any], **by_hand: float) -> None:
    assert set(ours) == set(by_hand)
    for name, expected in by_hand.items():
        np.testing.assert_allclose(ours[name], expected, rtol=1e-4, err_msg=name)


def programs(agents: Mapping[str, Any], spaces: Spaces) -> dict[str, str]:
    """What would be compiled for each fresh agent and one update, as text."""
    case = random_case(0, spaces, {})
    action = case.action.astype(np.float32 if spaces is CONTINUOUS else np.int32)
    floats = [x.astype(np.float32) for x in (case.observation, case.reward, case.next_observation, CONTINUES)]
    batch = Batch(floats[0], action, *floats[1:])  # type: ignore[arg-type]

    def text(agent: Any) -> str:
        made = jax.make_jaxpr(lambda key, batch: agent.update(agent.init(key, spaces), batch, key))(KEY, batch)
        return re.sub("0x[0-9a-f]+", "", str(made))

    return {name: text(agent) for name, agent in agents.items()}


def drawn(agent: Any, spaces: Spaces) -> Iterator[dict[str, Any]]:
    """The draws of two updates with different keys."""
    with mock.patch.object(type(agent), "learn", lambda self, state, batch, draws: (state, draws)):
        update = jax.jit(lambda key: agent.update(agent.init(key, spaces), None, key)[1])
        yield from (update(jax.random.key(seed))._asdict() for seed in range(2))


def assert_fresh(numbers: Sequence[Any], cdf: Any) -> None:
    """All of one distribution, and none shared. The keys are fixed: the lowest p-value of all uses is 0.03."""
    flat = np.concatenate([np.ravel(noise) for noise in numbers]).astype(float)
    assert len(np.unique(flat)) > 0.99 * len(flat)
    assert kstest(flat, cdf).pvalue > 1e-3


def refusal(name: str, **hypers: object) -> str:
    """The message with which an agent of these hyperparameters is refused: one line."""
    with pytest.raises(InputError) as refused:
        make_agent(name, hypers)
    message = str(refused.value)
    assert message.isprintable()
    return message
