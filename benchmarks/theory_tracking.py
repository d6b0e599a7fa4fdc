"""CCEM beside its ODE: the figure and tables of docs/theory.md on the paper's main theorem.

    python benchmarks/theory_tracking.py

Five states that share two features, Gaussian policies with natural parameters η(s) = w φ(s), w: `[..., 2, features]`,
and a Q with two peaks. All seeds go side by side in NumPy, in double precision.
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp
from scipy.special import ndtri
from theory import DOCUMENT, ROOT, dress, filled, percentile_greedy, sample_quantile

from greedyac.analysis.figures import COLOURS
from greedyac.analysis.stats import Floats
from greedyac.analysis.words import brief

Ints = np.ndarray[Any, np.dtype[np.int64]]
STEPS, SEEDS, POINTS = 13_000, 20, 24
"""How long recursions are, how many, and at how many steps their distance to the equilibrium is taken."""
STARTS = (0, 30, 100, 300, 1000, 3000, 10_000)
"""Steps t from which the ODE starts."""
FEATURES = 10 * np.stack([1 - np.linspace(0, 1, 5), np.linspace(0, 1, 5)], -1)
"""φ ≥ 0: two features of five states, so that the middle ones can't have policies of their own."""
NU = np.array([0.3, 0.1, 0.2, 0.1, 0.3])
PEAKS = np.array([[-0.3, -0.25, 0.0, 0.25, 0.3], [0.25, 0.3, -0.4, -0.3, -0.2]])
HEIGHTS = np.array([[1.0, 1.0, 1.0, 1.0, 1.0], [0.8, 0.9, 0.7, 0.9, 0.75]])
WIDTH, SWING = 0.15, 0.15
"""Of the peaks of Q, and how far θ moves them."""
RHO = 0.3
CENTRE, RADIUS = np.array([[0.0, 0.0], [-1.0, -1.0]]), 0.9
"""The ball W; within it η₂(s) ≤ −‖φ(s)‖₁ + 0.9‖φ(s)‖₂ ≤ −1."""
PROPOSAL = np.array([[0.0, 0.0], [-0.45, -0.45]])
FIRST = np.array([[0.2, -0.3], [-0.45, -0.45]])
"""w′ and w at the start."""
FIRST_SAMPLES, GROWTH, MOST_SAMPLES = 10, 1.01, 400
"""N_t grows by 1 % with every step, to 400."""
ACTOR_RATE, ACTOR_POWER, DELAY = 0.1, 0.7, 100
"""α_t = 0.1/(1 + t/100)^0.7."""
WINDOW = 10.0
"""T, in the ODE's time."""
NOISE = ndtri((np.arange(2001) + 0.5) / 2001)
"""Standard normal noise of equal probabilities, for quadrature."""


def natural_parameters(w: Floats) -> Floats:
    """η(s) = w φ(s) of all states: `[..., 2, features]` → `[..., states, 2]`."""
    return np.einsum("...kf,sf->...sk", w, FEATURES)


def gaussian(natural: Floats) -> tuple[Floats, Floats]:
    """μ and σ of η = (μ/σ², −1/(2σ²))."""
    return -natural[..., 0] / (2 * natural[..., 1]), np.sqrt(-0.5 / natural[..., 1])


def moments(natural: Floats) -> Floats:
    """∇K(η) = E[T(A)] = (μ, μ² + σ²) for T(a) = (a, a²); `[..., 2]` → `[..., 2]`."""
    mean, deviation = gaussian(natural)
    return np.stack([mean, mean**2 + deviation**2], -1)


def action_value(actions: Floats, states: Ints, theta: Floats | float = 0.0) -> Floats:
    """Q_θ: two peaks, moved by θ; `actions: [..., samples]`, `states: [...]` or all of them."""
    bumps = (
        height[states, None] * np.exp(-0.5 * ((actions - theta - peak[states, None]) / WIDTH) ** 2)
        for height, peak in zip(HEIGHTS, PEAKS, strict=True)
    )
    return sum(bumps, np.zeros(()))


def length(w: Floats) -> Floats:
    """The Euclidean norm of parameters."""
    return np.sqrt((w**2).sum((-2, -1)))


def projected(w: Floats) -> Floats:
    """Γ: the nearest point of the ball."""
    apart = w - CENTRE
    return CENTRE + apart / np.maximum(1, length(apart) / RADIUS)[..., None, None]


def target_moments(proposal: Floats, theta: Floats) -> Floats:
    """E[T(A)] under the percentile-greedy policy of π_{w′} in each state: `[..., 2, features]` → `[..., states, 2]`."""
    mean, deviation = gaussian(natural_parameters(proposal))
    actions = mean[..., None] + deviation[..., None] * NOISE
    values = action_value(actions, np.arange(len(NU)), theta[..., None, None])
    kept = percentile_greedy(np.full(actions.shape, 1 / len(NOISE)), values, RHO)
    return np.stack([(kept * actions).sum(-1), (kept * actions**2).sum(-1)], -1)


def field(w: Floats, target: Floats) -> Floats:
    """g: the gradient of the expected log-likelihood, ρ E_ν[(E_{π_ρ}[T(A)] − ∇K(η(S))) φ(S)ᵀ]."""
    return RHO * np.einsum("s,...sk,sf->...kf", NU, target - moments(natural_parameters(w)), FEATURES)


def projected_field(w: Floats, target: Floats) -> Floats:
    """The ODE's right side: on the boundary of W without the part of g that leads outwards."""
    push, apart = field(w, target), w - CENTRE
    outwards = np.maximum((push * apart).sum((-2, -1)), 0) / RADIUS**2
    on_boundary = length(apart) >= RADIUS * (1 - 1e-9)
    return push - (outwards * on_boundary)[..., None, None] * apart


def ode(w: Floats, times: Floats, target: Floats) -> Floats:
    """The ODE's solution from w, at times from 0 on: `[times, ..., 2, features]`."""

    def right_side(_: float, flat: Floats) -> Floats:
        return projected_field(flat.reshape(w.shape), target).ravel()

    solved = solve_ivp(right_side, (0, times[-1]), w.ravel(), t_eval=times, rtol=1e-6, atol=1e-8)
    return solved.y.T.reshape(-1, *w.shape)


def equilibrium(target: Floats) -> Floats:
    """Where the ODE ends: the one maximum of the concave expected log-likelihood in W, by projected ascent."""
    w = np.broadcast_to(CENTRE, (*target.shape[:-2], *CENTRE.shape))
    for _ in range(20_000):
        last, w = w, projected(w + field(w, target))
        if np.abs(w - last).max() < 1e-10:
            return w
    raise RuntimeError("no equilibrium after 20,000 steps")


class Setting(NamedTuple):
    """A variant of the recursion. Where their rates are 0, w′ and θ are fixed, as in the theorem."""

    proposal: Floats = PROPOSAL
    proposal_rate: float = 0.0
    proposal_power: float = 0.9
    drift_rate: float = 0.0
    drift_power: float = 1.0
    bottom: bool = False
    """Keep the actions with the lowest values."""
    per_elite: bool = False
    """Divide by the number of kept actions, not by N."""


FIXED = {
    "as in the theorem": Setting(),
    "as in the theorem, ending on ∂W": Setting(proposal=np.array([[-0.3, 0.3], [-0.9, -0.9]])),
    "divided by the number of kept actions": Setting(per_elite=True),
    "bottom ρ instead of the top": Setting(bottom=True),
}
"""Recursions with w′ and θ fixed."""
MOVING = {
    "three timescales": Setting(proposal_rate=0.005, drift_rate=0.01),
    "w′ as fast as w": Setting(proposal_rate=ACTOR_RATE, proposal_power=ACTOR_POWER, drift_rate=0.01),
    "θ as fast as w": Setting(proposal_rate=0.005, drift_rate=ACTOR_RATE / 2, drift_power=ACTOR_POWER),
}
"""Recursions in which both move."""


class Trajectory(NamedTuple):
    """A recursion over time; `actor` and `proposal`: `[steps + 1, seeds, 2, features]`, the others `[steps + 1]`."""

    actor: Floats
    proposal: Floats
    theta: Floats
    clock: Floats
    """The ODE's time, Σα."""


def sample_count(step: int) -> int:
    """N_t."""
    return math.ceil(min(FIRST_SAMPLES * GROWTH ** min(step, 1000), MOST_SAMPLES))


def increment(
    w: Floats,
    proposal: Floats,
    states: Ints,
    noise: Floats,
    theta: float,
    setting: Setting = FIXED["as in the theorem"],
) -> Floats:
    """What Eq. pparamsrec multiplies by α: one state and N actions for every seed; `noise: [seeds, N]`."""
    features = FEATURES[states]
    mean, deviation = gaussian(np.einsum("...kf,...f->...k", proposal, features))
    actions = mean[:, None] + deviation[:, None] * noise
    values = action_value(actions, states, theta) * (-1 if setting.bottom else 1)
    kept = values >= sample_quantile(values, RHO)
    statistic = np.stack([actions, actions**2], -1) - moments(np.einsum("...kf,...f->...k", w, features))[:, None]
    push = np.einsum("in,ink->ik", kept, statistic)
    counted = kept.sum(1, keepdims=True) if setting.per_elite else noise.shape[1]
    return np.einsum("ik,if->ikf", push / counted, features)


def bias(w: Floats, proposal: Floats, samples: int, repeats: int, stream: int) -> Floats:
    """ℓ: the expectation of an increment with N samples less g, by Monte Carlo; each state has its share."""
    rng = np.random.default_rng(stream)
    expected = np.zeros(CENTRE.shape)
    for state, share in enumerate(NU):
        noise = rng.standard_normal((repeats, samples))
        expected += share * increment(w, proposal, np.full(repeats, state), noise, 0.0).mean(0)
    return expected - field(w, target_moments(proposal, np.zeros(())))


def decayed(rate: float, power: float, steps: int) -> Floats:
    """Step sizes rate/(1 + t/100)^power."""
    return rate / (1 + np.arange(steps) / DELAY) ** power


def summed(rates: Floats) -> Floats:
    """Σ of all rates before each step."""
    return np.concatenate([[0.0], np.cumsum(rates)])


def follow(setting: Setting, steps: int, seeds: int, stream: int = 0) -> Trajectory:
    """Eqs. pparamsrec and pparams_prime_rec for many seeds side by side; θ_t = 0.15 sin Σα_q."""
    rng = np.random.default_rng(stream)
    rates = decayed(ACTOR_RATE, ACTOR_POWER, steps)
    slow = decayed(setting.proposal_rate, setting.proposal_power, steps)
    theta = SWING * np.sin(summed(decayed(setting.drift_rate, setting.drift_power, steps)))
    actor, proposal = (np.tile(first, (steps + 1, seeds, 1, 1)) for first in (FIRST, setting.proposal))
    for step in range(steps):
        states = rng.choice(len(NU), seeds, p=NU)
        noise = rng.standard_normal((seeds, sample_count(step)))
        push = increment(actor[step], proposal[step], states, noise, theta[step], setting)
        actor[step + 1] = projected(actor[step] + rates[step] * push)
        proposal[step + 1] = proposal[step] + slow[step] * (actor[step + 1] - proposal[step])
    return Trajectory(actor, proposal, theta, summed(rates))


def tracking_errors(found: Trajectory, start: int) -> Floats:
    """sup over [t, t + T] of the distance to the ODE that starts from the recursion's own w_t, `[seeds]`."""
    end = int(np.searchsorted(found.clock, found.clock[start] + WINDOW))
    assert end < len(found.clock)
    window = slice(start, end + 1)
    target = target_moments(found.proposal[0, 0], found.theta[0])
    solution = ode(found.actor[start], found.clock[window] - found.clock[start], target)
    return length(found.actor[window] - solution).max(0)


def equilibrium_distances(found: Trajectory, steps: Ints) -> Floats:
    """‖w_t − the ODE's equilibrium for the present w′_t and θ_t‖, `[steps, seeds]`."""
    target = target_moments(found.proposal[steps], found.theta[steps, None])
    return length(found.actor[steps] - equilibrium(target))


def decades(steps: Ints, distances: Floats) -> list[float]:
    """Mean distances over seeds and steps from 10 to 100, to 1,000, and beyond."""
    ends = np.searchsorted(steps, [10, 100, 1000, steps[-1] + 1])
    return [float(distances[low:high].mean()) for low, high in pairwise(ends)]


def checkpoints(steps: int) -> Ints:
    """Steps at which distances are taken, evenly on a logarithmic axis."""
    return np.unique(np.geomspace(10, steps, POINTS).astype(int))


def tracking_table(sups: dict[str, list[float]]) -> Iterator[str]:
    """Mean sup distances to the ODE."""
    yield f"| recursion | {' | '.join(f't = {start:,}' for start in STARTS)} |"
    yield "|" + "---|" * (len(STARTS) + 1)
    yield from (f"| {name} | {' | '.join(map(brief, told))} |" for name, told in sups.items())


def equilibria_table(steps: Ints, distances: dict[str, Floats]) -> Iterator[str]:
    """Mean distances to the present equilibrium."""
    yield "| recursion | t = 10…100 | 100…1,000 | 1,000…13,000 | at the end |"
    yield "|---|---|---|---|---|"
    for name, told in distances.items():
        yield f"| {name} | {' | '.join(map(brief, [*decades(steps, told), told[-1].mean()]))} |"


def bias_table() -> Iterator[str]:
    """The size of ℓ at the start in units of that of g, for several numbers of samples."""
    sizes = (10, 30, 100, 300, 1000)
    push = length(field(FIRST, target_moments(PROPOSAL, np.zeros(()))))
    found = [float(length(bias(FIRST, PROPOSAL, samples, 2 * 10**6 // samples, 0)) / push) for samples in sizes]
    yield f"| N | {' | '.join(map(brief, sizes))} |"
    yield "|" + "---|" * (len(sizes) + 1)
    yield f"| ‖ℓ‖ / ‖g‖ | {' | '.join(map(brief, found))} |"
    yield f"| N ‖ℓ‖ / ‖g‖ | {' | '.join(brief(samples * size) for samples, size in zip(sizes, found, strict=True))} |"


def draw_tracking(found: Trajectory, sups: dict[str, list[float]], steps: Ints, distances: dict[str, Floats]) -> Figure:
    """Means and deviations of three states over the ODE's time; sup distances; distances to equilibria."""
    figure = Figure(figsize=(13, 7.5), dpi=150, layout="constrained")
    (means, deviations), (tracking, moving) = figure.subplots(2, 2)
    shown = found.clock <= 60
    target = target_moments(found.proposal[0, 0], found.theta[0])
    runs = gaussian(natural_parameters(found.actor[shown]))
    exact = gaussian(natural_parameters(ode(FIRST, found.clock[shown], target)))
    for panel, lines, thick, name in zip((means, deviations), runs, exact, ("mean μ", "deviation σ"), strict=True):
        for state, colour in zip((0, 2, 4), COLOURS, strict=False):
            panel.plot(found.clock[shown], lines[..., state], color=colour, linewidth=0.4, alpha=0.5)
            panel.plot(found.clock[shown], thick[:, state], color=colour, linewidth=2.5, label=f"state {state}, ODE")
        panel.set(xlabel="the ODE's time Σα", ylabel=f"{name}(s)")
        dress(panel, f"{name} of the actor, w′ and θ fixed")
    for colour, (name, told) in zip(COLOURS, sups.items(), strict=False):
        tracking.loglog([start + 1 for start in STARTS], told, "o-", color=colour, markersize=4, label=name)
    guide = 0.2 * np.sqrt(decayed(1.0, ACTOR_POWER, STEPS))
    tracking.loglog(np.arange(1, STEPS + 1), guide, color="0.5", linestyle="--", linewidth=1, label="∝ √α")
    tracking.set(xlabel="t + 1", ylabel="sup distance over [t, t + T]")
    dress(tracking, "distance to the ODE from w_t on")
    for colour, name in zip(COLOURS, MOVING, strict=False):
        moving.loglog(steps, distances[name].mean(1), "o-", color=colour, markersize=4, label=name)
    moving.set(xlabel="t", ylabel="distance")
    dress(moving, "distance to the ODE's equilibrium for the present w′ and θ")
    return figure


def main() -> None:
    """Run all recursions, draw the figure and fill the tables of section 3."""
    steps = checkpoints(STEPS)
    found = {name: follow(setting, STEPS, SEEDS) for name, setting in {**FIXED, **MOVING}.items()}
    sups = {name: [float(tracking_errors(found[name], start).mean()) for start in STARTS] for name in FIXED}
    distances = {name: equilibrium_distances(one, steps) for name, one in found.items()}
    draw_tracking(found["as in the theorem"], sups, steps, distances).savefig(ROOT / "docs/images/theory-tracking.png")
    tables = {
        "tracking": tracking_table(sups),
        "equilibria": equilibria_table(steps, distances),
        "bias": bias_table(),
    }
    DOCUMENT.write_text(filled(DOCUMENT.read_text(), tables))


if __name__ == "__main__":
    main()
