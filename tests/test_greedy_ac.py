"""One whole update of GreedyAC against closed forms in NumPy, float64.

The networks have one hidden layer whose ReLUs are all active, so that they are linear and every gradient can be
written down. After one step Adam's first moments are a tenth of the gradients, and each weight has moved by
step size × gradient / (|gradient| + 1e-8).
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax
from scipy.stats import kstest, norm

from greedyac.agents import GreedyAC, make_agent
from greedyac.agents.agent import Metrics
from greedyac.agents.greedy_ac import Draws, State
from greedyac.errors import InputError
from greedyac.replay import Batch
from greedyac.spaces import Box, Discrete, Spaces

Floats = NDArray[np.float64]
Layers = Sequence[Any]  # weight and bias of the hidden layer, then of each head: the order of our networks' leaves
FEATURES, DIMS, COUNT, BATCH, SAMPLES, ELITES = 2, 2, 3, 3, 4, 2
LOW, HIGH = np.array([-2.0, -1.0]), np.array([2.0, 3.0])
OBSERVATION = Box((-1.0,) * FEATURES, (1.0,) * FEATURES)
CONTINUOUS = Spaces(OBSERVATION, Box(tuple(LOW.tolist()), tuple(HIGH.tolist())))
DISCRETE = Spaces(OBSERVATION, Discrete(COUNT))
KEY = jax.random.key(0)
CONTINUES = np.array([1.0, 0.0, 1.0])  # the second transition terminated
ESTIMATORS = ("score", "exact", "released")
# α = 0.25, κ = 0.5, τ = 0.75, γ = 0.9, polyak = 0.1, ρ = 0.5
AGENT = GreedyAC(0.25, 0.5, 0.75, 0.9, 0.1, elite_fraction=0.5, proposal_samples=SAMPLES, batch_size=BATCH, hidden=(3,))


class Case(NamedTuple):
    """Weights, a batch and draws, in float64; `proposal` noise `[samples, batch, …]`, Gumbels if discrete."""

    critic: Layers
    target: Layers
    actor: Layers
    proposal: Layers
    observation: Floats
    action: Any
    reward: Floats
    next_observation: Floats
    next_noise: Floats
    proposal_noise: Floats
    actor_noise: Floats


def layers(rng: np.random.Generator, inputs: int, *heads: int) -> Layers:
    """Random layers with hidden units that stay positive, also after a step of 0.25."""
    net: list[Any] = [rng.uniform(-0.3, 0.3, (inputs, 3)), rng.uniform(4, 5, 3)]
    for head in heads:
        net += rng.uniform(-0.3, 0.3, (3, head)), rng.normal(0, 0.3, head)
    return net


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
        self.tanh, self.std = np.tanh(raw), np.exp(self.log_std)
        self.mean = (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * self.tanh

    def sample(self, noise: Floats) -> Floats:
        return np.clip(self.mean + self.std * noise, LOW, HIGH)

    def log_likelihood(self, action: Any) -> Floats:
        return norm.logpdf(action, self.mean, self.std).sum(-1)

    def score(self, action: Any) -> tuple[Floats, Floats]:
        """∇log π(a): `[..., batch, dims]` for each head."""
        z = (action - self.mean) / self.std
        return z / self.std * (HIGH - LOW) / 2 * (1 - self.tanh**2), z**2 - 1

    def entropy_slope(self) -> tuple[Floats, Floats]:
        return np.zeros_like(self.mean), np.ones_like(self.mean)


class Softmax:
    """The softmax policy by hand."""

    def __init__(self, net: Layers, observation: Floats):
        self.log_likelihoods = log_softmax(forward(net, observation)[0], -1)
        self.probabilities = np.exp(self.log_likelihoods)

    def sample(self, noise: Floats) -> NDArray[np.int64]:
        return np.argmax(self.log_likelihoods + noise, -1)

    def log_likelihood(self, action: Any) -> Floats:
        return (np.eye(COUNT)[action] * self.log_likelihoods).sum(-1)

    def score(self, action: Any) -> tuple[Floats]:
        return (np.eye(COUNT)[action] - self.probabilities,)

    def entropy_slope(self) -> tuple[Floats]:
        entropy = -(self.probabilities * self.log_likelihoods).sum(-1, keepdims=True)
        return (-self.probabilities * (self.log_likelihoods + entropy),)


def value(critic: Layers, observation: Floats, action: Any) -> Floats:
    """Q(s, a) with leading axes broadcast: by one head after the action, or by one head per discrete action."""
    if action.dtype == np.int64:
        return (np.eye(COUNT)[action] * forward(critic, observation)[0]).sum(-1)
    wide = np.broadcast_to(observation, (*action.shape[:-1], FEATURES))
    return forward(critic, np.concatenate([wide, action], -1))[0][..., 0]


def sarsa(case: Case, policy: type[Any]) -> tuple[Layers, Layers, float]:
    """The critic after its step, the gradient that it followed, and the loss before."""
    next_action = policy(case.actor, case.next_observation).sample(case.next_noise)
    next_value = value(case.target, case.next_observation, next_action)
    error = case.reward + AGENT.discount * CONTINUES * next_value - value(case.critic, case.observation, case.action)
    slope = -2 * error / BATCH
    x, by_head = case.observation, np.eye(COUNT)[case.action] if policy is Softmax else 1.0
    x = x if policy is Softmax else np.concatenate([x, case.action], -1)
    gradient = backward(case.critic, x, [slope[:, None] * by_head])
    return stepped(case.critic, gradient, AGENT.critic_step_size), gradient, float((error**2).mean())


def elites(critic: Layers, observation: Floats, sampled: Any) -> Any:
    order = np.argsort(-value(critic, observation, sampled), 0, kind="stable")[:ELITES]
    return np.stack([sampled[order[:, state], state] for state in range(BATCH)], 1)


def entropy_slopes(estimator: str, policy: Any, first: Any) -> list[Floats]:
    """The estimated gradient of the entropy at one sample per state, for each head."""
    if estimator == "exact":
        return list(policy.entropy_slope())
    factor = {"score": -policy.log_likelihood(first), "released": -np.ones(BATCH)}[estimator]
    return [factor[:, None] * slope for slope in policy.score(first)]


def started(case: Case, agent: GreedyAC, spaces: Spaces) -> tuple[State, Batch, Draws]:
    """The case as the agent's own state, batch and draws."""
    shapes = jax.eval_shape(lambda: agent.init(KEY, spaces))
    state: State = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    nets = [net for net in ("critic", "target", "actor", "proposal") if getattr(state, net) is not None]
    given = {net: [np.asarray(part, np.float32) for part in getattr(case, net)] for net in nets}
    structure = {net: jax.tree.structure(getattr(state, net)) for net in nets}
    state = state._replace(**{net: jax.tree.unflatten(structure[net], given[net]) for net in nets})
    batch = Batch(case.observation, case.action, case.reward, case.next_observation, CONTINUES)  # type: ignore[arg-type]
    more = {} if state.proposal is None else {"proposal": case.proposal_noise, "actor": case.actor_noise}
    draws = Draws(case.next_noise, **more)  # type: ignore[arg-type]
    return state, *jax.tree.map(lambda x: x.astype(np.float32 if x.dtype == float else np.int32), (batch, draws))


@functools.cache
def updated(spaces: Spaces) -> tuple[Case, dict[str, tuple[State, Metrics]]]:
    """A telling case, and what one update with each estimator made of it; one program for all is quicker to compile."""
    policy = Gaussian if spaces is CONTINUOUS else Softmax
    case = next(case for case in (random_case(seed, spaces) for seed in range(1000)) if telling(case, policy))
    agents = {estimator: replace(AGENT, entropy_estimator=estimator) for estimator in ESTIMATORS}
    learn = jax.jit(lambda *inputs: {estimator: agents[estimator].learn(*inputs) for estimator in ESTIMATORS})
    return case, learn(*started(case, AGENT, spaces))


def agree(ours: Any, by_hand: Layers, scale: float = 1.0) -> None:
    for leaf, expected in zip(jax.tree.leaves(ours), by_hand, strict=True):
        np.testing.assert_allclose(leaf, scale * expected, rtol=2e-4, atol=1e-5 * scale)


def agree_step(net: Any, adam: Any, before: Layers, gradient: Layers, step_size: float) -> None:
    """Gradient, by Adam's first moments, and weights are those by hand."""
    agree(adam.mu, gradient, 0.1)
    agree(net, stepped(before, gradient, step_size))


def random_case(seed: int, spaces: Spaces) -> Case:
    rng = np.random.default_rng(seed)
    if spaces is CONTINUOUS:
        critic, target = (layers(rng, FEATURES + DIMS, 1) for _ in range(2))
        actor, proposal = (layers(rng, FEATURES, DIMS, DIMS) for _ in range(2))
        action: Any = rng.uniform(LOW, HIGH, (BATCH, DIMS))
        noises = [rng.normal(size=(*shape, DIMS)) for shape in ((BATCH,), (SAMPLES, BATCH), (BATCH,))]
    else:
        critic, target, actor, proposal = (layers(rng, FEATURES, COUNT) for _ in range(4))
        action = rng.integers(0, COUNT, BATCH)
        noises = [rng.gumbel(size=(*shape, COUNT)) for shape in ((BATCH,), (SAMPLES, BATCH), (BATCH,))]
    observation, next_observation = rng.uniform(-1, 1, (2, BATCH, FEATURES))
    reward = rng.normal(size=BATCH)
    return Case(critic, target, actor, proposal, observation, action, reward, next_observation, *noises)


def telling(case: Case, policy: type[Any]) -> bool:
    """Whether the new critic's elites differ from those of the old one and of the targets, by more than rounding."""
    critic = sarsa(case, policy)[0]
    sampled = policy(case.proposal, case.observation).sample(case.proposal_noise)
    nets = critic, case.critic, case.target, averaged(case.target, critic, AGENT.polyak)
    chosen = [elites(net, case.observation, sampled) for net in nets]
    values = -np.sort(-value(critic, case.observation, sampled), 0)
    return not any((chosen[0] == other).all() for other in chosen[1:]) and (values[1] - values[2]).min() > 1e-3


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("spaces", "policy"), [(CONTINUOUS, Gaussian), (DISCRETE, Softmax)])
def test_one_update_with_a_proposal_by_hand(spaces: Spaces, policy: type[Any], estimator: str) -> None:
    case, by_estimator = updated(spaces)
    state, metrics = by_estimator[estimator]
    critic, gradient, critic_loss = sarsa(case, policy)
    agree_step(state.critic, state.critic_adam, case.critic, gradient, 0.25)
    agree(state.target, averaged(case.target, critic, 0.1))

    observation = case.observation
    actor, proposal = policy(case.actor, observation), policy(case.proposal, observation)
    sampled = proposal.sample(case.proposal_noise)
    best = elites(critic, observation, sampled)
    slopes = [-slope.sum(0) / (ELITES * BATCH) for slope in actor.score(best)]
    gradient = backward(case.actor, observation, slopes)
    agree_step(state.actor, state.actor_adam, case.actor, gradient, 0.5 * 0.25)

    pairs = zip(proposal.score(best), entropy_slopes(estimator, proposal, sampled[0]), strict=True)
    slopes = [-slope.sum(0) / (ELITES * BATCH) - 0.75 * entropy / BATCH for slope, entropy in pairs]
    gradient = backward(case.proposal, observation, slopes)
    agree_step(state.proposal, state.proposal_adam, case.proposal, gradient, 0.5 * 0.25)

    np.testing.assert_allclose(metrics["critic_loss"], critic_loss, rtol=1e-4)
    np.testing.assert_allclose(metrics["actor_loss"], -actor.log_likelihood(best).mean(), rtol=1e-4)
    assert set(metrics) == {"critic_loss", "actor_loss", "proposal_loss"}


def test_one_update_with_few_discrete_actions_follows_the_greedy_action_and_ties_share() -> None:
    # Heads 1 and 2 value every state 0.5 and are never trained. The update lowers head 0, which was best everywhere:
    # to 0.5 − gap in the first state, to at least 0.5 + gap in the others.
    case = random_case(0, DISCRETE)
    critic = [np.array([[0.8, 0.0, 0.0], [0.0, 0.0, 0.0]]), np.full(3, 5.0), np.zeros((3, COUNT)), np.full(COUNT, 0.5)]
    critic[2][:, 0] = [0.3, 0.1, 0.1]
    observation, reward = np.array([[-1.0, 0.1], [1.0, -0.2], [0.9, 0.3]]), np.array([-20.0, -30.0, -25.0])
    case = case._replace(critic=critic, observation=observation, action=np.zeros(BATCH, np.int64), reward=reward)
    lowered = np.sort(forward(sarsa(case, Softmax)[0], observation)[0][:, 0])
    critic[3][0] += 0.5 - lowered[:2].mean()
    assert (forward(critic, observation)[0].argmax(-1) == 0).all()
    assert lowered[1] - lowered[0] > 0.1

    agent = replace(AGENT, elite_fraction=0.1)
    state, metrics = jax.jit(agent.learn)(*started(case, agent, DISCRETE))
    moved, gradient, _ = sarsa(case, Softmax)
    agree_step(state.critic, state.critic_adam, critic, gradient, 0.25)
    agree(state.target, averaged(case.target, moved, 0.1))
    shares = np.array([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    actor = Softmax(case.actor, observation)
    gradient = backward(case.actor, observation, [(actor.probabilities - shares) / BATCH])
    agree_step(state.actor, state.actor_adam, case.actor, gradient, 0.5 * 0.25)
    np.testing.assert_allclose(metrics["actor_loss"], -(shares * actor.log_likelihoods).sum(-1).mean(), rtol=1e-4)
    assert state.proposal is None


def program(agent: GreedyAC, spaces: Spaces) -> str:
    """What would be compiled for a fresh agent and one update, as text."""
    batch = started(random_case(0, spaces), agent, spaces)[1]
    made = jax.make_jaxpr(lambda key, batch: agent.update(agent.init(key, spaces), batch, key))(KEY, batch)
    return re.sub("0x[0-9a-f]+", "", str(made))


CHANGES: dict[str, Any] = {"proposal_samples": 6, "entropy_estimator": "exact", "discrete_critic": "index"}
CHANGES |= dict.fromkeys(("critic_step_size", "actor_step_size_scale", "entropy_scale", "discount", "polyak"), 0.125)
CHANGES |= {"proposal_policy": "truncated-gaussian", "proposal_average_rate": 0.125, "actor_entropy_scale": 0.125}
FEW = {"entropy_scale", "entropy_estimator", "proposal_samples", "proposal_update", "proposal_average_rate"}
ENTROPY = {"proposal_average_rate"}
AVERAGE = {"entropy_scale"}


@pytest.mark.parametrize(
    ("spaces", "elite_fraction", "update", "idle"),
    [
        (CONTINUOUS, 0.1, "entropy", {"discrete_critic"} | ENTROPY),
        (CONTINUOUS, 0.1, "average", {"discrete_critic"} | AVERAGE),
        (DISCRETE, 0.33, "entropy", {"proposal_policy"} | FEW),
        (DISCRETE, 0.34, "entropy", {"proposal_policy"} | ENTROPY),
        (DISCRETE, 0.34, "average", {"proposal_policy"} | AVERAGE),
    ],
)
def test_exactly_the_hyperparameters_without_effect_leave_the_program_as_it_is(
    spaces: Spaces, elite_fraction: float, update: str, idle: set[str]
) -> None:
    agent = replace(AGENT, elite_fraction=elite_fraction, proposal_update=update, actor_entropy_scale=0.25)
    before = program(agent, spaces)
    changes = CHANGES | {"proposal_update": "entropy" if update == "average" else "average"}
    after = {name: program(replace(agent, **{name: other}), spaces) for name, other in changes.items()}
    assert agent.without_effect(spaces) == idle == {name for name in changes if after[name] == before}


def test_a_batch_larger_than_the_replay_is_refused_and_an_equal_one_is_not() -> None:
    make_agent("greedy-ac", {"batch_size": 8, "replay_capacity": 8})
    with pytest.raises(InputError, match=r"^batch_size = 9 is not allowed with replay_capacity = 8; allowed: .* ≤ 8$"):
        make_agent("greedy-ac", {"batch_size": 9, "replay_capacity": 8})


def test_the_target_starts_as_the_critic_the_proposal_as_the_actor_and_moments_at_zero() -> None:
    state = jax.jit(AGENT.init, static_argnums=1)(KEY, CONTINUOUS)
    jax.tree.map(np.testing.assert_array_equal, state.target, state.critic)
    jax.tree.map(np.testing.assert_array_equal, state.proposal, state.actor)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves((state.critic_adam, state.actor_adam, state.proposal_adam)))
    assert not np.allclose(state.critic.first.weight[:FEATURES], state.actor.trunk.layers[0].weight)


def test_act_samples_the_actor_within_the_range_or_takes_its_mode() -> None:
    case = random_case(0, CONTINUOUS)
    state = started(case, AGENT, CONTINUOUS)[0]
    act = jax.jit(jax.vmap(AGENT.act, (None, None, 0, None)), static_argnums=3)
    keys, observation = jax.random.split(KEY, 500), jnp.asarray(case.observation[0], np.float32)
    policy = Gaussian(case.actor, case.observation[:1])
    np.testing.assert_allclose(act(state, observation, keys, True), np.tile(policy.mean, (500, 1)), rtol=1e-5)
    actions = np.asarray(act(state, observation, keys, False), float)
    inside = ((actions > LOW) & (actions < HIGH)).all(-1)
    assert ((actions >= LOW) & (actions <= HIGH)).all()
    assert 0 < inside.sum() < 500


@dataclass(frozen=True)
class Spy(GreedyAC):
    """Shows the draws of an update instead of learning from them."""

    def learn(self, state: State, batch: Batch, draws: Draws) -> tuple[State, Metrics]:
        assert draws.proposal is not None
        return state, {"next_action": draws.next_action, "proposal": draws.proposal}


def test_an_update_draws_fresh_standard_noise_per_state_and_sample() -> None:
    spy = Spy(proposal_samples=50, batch_size=20, hidden=(3,))
    state, batch, _ = started(random_case(0, CONTINUOUS), spy, CONTINUOUS)
    update = jax.jit(spy.update)
    drawn, other = (update(state, batch, jax.random.key(seed))[1] for seed in (0, 1))
    assert (drawn["next_action"].shape, drawn["proposal"].shape) == ((20, DIMS), (50, 20, DIMS))
    numbers = np.concatenate([np.ravel(noise) for noise in (*drawn.values(), *other.values())]).astype(float)
    assert len(np.unique(numbers)) > 0.99 * len(numbers)
    assert kstest(numbers, norm.cdf).pvalue > 1e-3  # ten pairs of keys: lowest 0.035
