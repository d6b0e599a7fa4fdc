"""The paper's theory, checked with numbers: figures and tables of docs/theory.md.

    python benchmarks/theory.py

Policy improvement on random finite MDPs, solved exactly; sample quantiles and the lemmas that support them. The
recursion of CCEM beside its ODE is in theory_tracking.py. tests/ccem/test_theory.py runs shorter versions of all.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import entr, ndtr, ndtri, softmax

from greedyac.analysis.figures import COLOURS
from greedyac.analysis.stats import Floats
from greedyac.analysis.words import brief

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs/theory.md"
BLOCK = re.compile(r"(<!-- ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
MDPS, RHO, SIZES, REPEATS = 600, 0.2, (16, 64, 256, 1024, 4096, 16384, 65536), 300
"""How many MDPs; for quantiles ρ, the numbers of samples N, and how often each is drawn."""
ROUNDING = 1e-10
"""A value that fell by less does not count as worse."""

# 1. Policy improvement


class Mdp(NamedTuple):
    """A finite MDP, a policy to improve, and the share ρ of its actions to keep."""

    rewards: Floats
    """`[states, actions]`"""
    transitions: Floats
    """`[states, actions, states]`"""
    discount: float
    policy: Floats
    """`[states, actions]`"""
    rho: float


def random_mdp(rng: np.random.Generator) -> Mdp:
    """Dense or sparse rewards, or actions in equal pairs; a policy that is near-deterministic, any, or near-uniform."""
    states, actions = int(rng.integers(1, 11)), int(rng.integers(2, 9))
    rewards = rng.standard_normal((states, actions))
    transitions = rng.dirichlet(np.full(states, 0.5), (states, actions))
    kind = rng.choice(["dense", "sparse", "tied"])
    if kind == "sparse":
        rewards *= rng.random(rewards.shape) < 0.1
    if kind == "tied":
        pairs = np.arange(actions) // 2
        rewards, transitions = rewards[:, pairs], transitions[:, pairs]
    policy = rng.dirichlet(np.full(actions, rng.choice([0.05, 1.0, 10.0])), states)
    return Mdp(rewards, transitions, rng.choice([0.0, 0.5, 0.9, 0.99]), policy, rng.uniform(0.05, 0.95))


def state_values(mdp: Mdp, policy: Floats, tau: float = 0.0) -> Floats:
    """V^π, by solving Bellman's equation; with τ > 0 the entropy of π counts as a reward."""
    step = np.einsum("sa,sat->st", policy, mdp.transitions)
    reward = (policy * mdp.rewards + tau * entr(policy)).sum(-1)
    return np.linalg.solve(np.eye(len(step)) - mdp.discount * step, reward)


def action_values(mdp: Mdp, policy: Floats, tau: float = 0.0) -> Floats:
    """Q^π, with τ > 0 the soft one; `[states, actions]`."""
    return mdp.rewards + mdp.discount * mdp.transitions @ state_values(mdp, policy, tau)


def percentile_greedy(policy: Floats, values: Floats, rho: float) -> Floats:
    """π_ρ: the best actions up to a mass of exactly ρ, for which the last one is split; `[..., actions]`."""
    order = np.argsort(-values, axis=-1, kind="stable")
    ranked = np.take_along_axis(policy, order, -1)
    kept = np.clip(rho - (ranked.cumsum(-1) - ranked), 0, ranked)
    target = np.empty_like(kept)
    np.put_along_axis(target, order, kept / rho, -1)
    return target


def threshold_only(policy: Floats, values: Floats, rho: float) -> Floats:
    """A slip: of the actions that π_ρ takes only the one at the threshold is kept."""
    worst = np.where(percentile_greedy(policy, values, rho) > 0, values, np.inf).argmin(-1)
    return np.eye(policy.shape[-1])[worst]


NewPolicy = Callable[[Mdp, Floats], Floats]
"""What is made of an MDP's policy and its action values."""
BY_PERCENTILE: dict[str, NewPolicy] = {
    "percentile-greedy π_ρ": lambda mdp, values: percentile_greedy(mdp.policy, values, mdp.rho),
    "the bottom ρ instead of the top": lambda mdp, values: percentile_greedy(mdp.policy, -values, mdp.rho),
    "only the action at the threshold": lambda mdp, values: threshold_only(mdp.policy, values, mdp.rho),
    "top ρ by another state's values": lambda mdp, values: percentile_greedy(
        mdp.policy, np.roll(values, 1, 0), mdp.rho
    ),
}
"""The theorem's policy, then wrong ones."""


def boltzmann(tau: float) -> NewPolicy:
    """The policy ∝ exp(Q/τ)."""
    return lambda _, values: softmax(values / tau, axis=-1)


def changes(mdps: Sequence[Mdp], new: NewPolicy, tau: float = 0.0, counted: float = 0.0) -> list[Floats]:
    """V of a new policy less V^π, for each MDP `[states]`.

    The new one is made from Q^π with the entropy scale τ; values to compare count the entropy `counted` times.
    """
    made = [new(mdp, action_values(mdp, mdp.policy, tau)) for mdp in mdps]
    return [
        state_values(mdp, policy, counted) - state_values(mdp, mdp.policy, counted)
        for mdp, policy in zip(mdps, made, strict=True)
    ]


def share_worse(found: Sequence[Floats]) -> float:
    """The share of MDPs in which some state became worse."""
    return float(np.mean([change.min() < -ROUNDING for change in found]))


def improvement_table(mdps: Sequence[Mdp]) -> Iterator[str]:
    """Every new policy: in how many MDPs a state became worse, and the changes over all states."""
    yield "| new policy | values | MDPs with a worse state | least change | median change |"
    yield "|---|---|---|---|---|"
    rows = [(name, "V", changes(mdps, new)) for name, new in BY_PERCENTILE.items()]
    for tau in (0.01, 0.1, 1.0, 10.0):
        name = f"Boltzmann, τ = {brief(tau)}"
        rows += [(name, "soft V", changes(mdps, boltzmann(tau), tau, tau))]
        rows += [(name, "V", changes(mdps, boltzmann(tau), tau))]
    for name, values, found in rows:
        every = np.concatenate(found)
        least, median = (brief(round(number, 6) + 0) for number in (every.min(), np.median(every)))
        share = f"{100 * share_worse(found):.0f} %"
        yield f"| {name} | {values} | {share} | {least} | {median} |"


# 2. Sample quantiles


def quantile_rank(rho: float, samples: int) -> int:
    """⌈(1−ρ)N⌉ with the ρ that was meant, as in `greedyac.ccem.elite_count`."""
    return math.ceil((1 - Fraction(rho).limit_denominator(10**9)) * samples)


def sample_quantile(values: Floats, rho: float) -> Floats:
    """f̂: the ⌈(1−ρ)N⌉-th smallest of N values on the last axis, which stays with length 1."""
    rank = quantile_rank(rho, values.shape[-1]) - 1
    return np.partition(values, rank, axis=-1)[..., rank : rank + 1]


class Sampled(NamedTuple):
    """A Q and a policy, the true (1−ρ)-quantile of Q(A), and the density of Q(A) there."""

    name: str
    value: Callable[[Floats], Floats]
    policy: Any
    quantile: float
    density: float


def sampled_values(rho: float) -> list[Sampled]:
    """Three where the density at the quantile is positive, and the counterexample, where it is 0."""
    z, normal, cut = ndtri(1 - rho), stats.norm(), stats.truncnorm(-2, 2, scale=0.5)
    square = stats.ncx2(1, 0.25)  # what A² is if A ~ N(0.5, 1)
    edge = square.ppf(rho)

    def peaks(action: Floats) -> Floats:
        return np.exp(-0.5 * ((action - 0.4) / 0.2) ** 2) + 0.6 * np.exp(-0.5 * ((action + 0.4) / 0.3) ** 2)

    uniform = (np.arange(200_000) + 0.5) / 200_000
    low, middle, high = np.quantile(peaks(cut.ppf(uniform)), [1 - rho - 0.005, 1 - rho, 1 - rho + 0.005])
    return [
        Sampled("tanh a, Gaussian", np.tanh, normal, np.tanh(z), normal.pdf(z) / (1 - np.tanh(z) ** 2)),
        Sampled(
            "exp(−a²/2), Gaussian",
            lambda action: np.exp(-(action**2) / 2),
            stats.norm(0.5),
            np.exp(-edge / 2),
            square.pdf(edge) * 2 / np.exp(-edge / 2),
        ),
        Sampled("two peaks, truncated Gaussian", peaks, cut, middle, 0.01 / (high - low)),
        Sampled(
            "∛(min(Φ(a), 1−ρ/4) − (1−ρ)), Gaussian",  # with its highest value on more than one action: Assumption 5
            lambda action: np.cbrt(np.minimum(ndtr(action), 1 - rho / 4) - (1 - rho)),
            normal,
            0.0,
            0.0,
        ),
    ]


def quantile_errors(one: Sampled, rho: float, samples: int, repeats: int, rng: np.random.Generator) -> Floats:
    """f̂ − f for fresh samples, many times."""
    draws = (one.value(one.policy.rvs(samples, random_state=rng)) for _ in range(repeats))
    return np.array([sample_quantile(values, rho)[0] for values in draws]) - one.quantile


def root_mean_squares(one: Sampled, rho: float, sizes: Sequence[int], repeats: int, stream: int) -> Floats:
    """The root mean square of f̂ − f for each number of samples."""
    rng = np.random.default_rng(stream)
    return np.array([np.sqrt((quantile_errors(one, rho, n, repeats, rng) ** 2).mean()) for n in sizes])


def log_slope(x: Sequence[float] | Floats, y: Floats) -> float:
    """The exponent of a power law through the points."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def check(value: Floats, level: Floats | float, rho: float) -> Floats:
    """Ψ(y, ℓ), whose expectation is least where ℓ is the (1−ρ)-quantile of y."""
    return np.where(value >= level, (1 - rho) * (value - level), rho * (level - value))


def mean_check(values: Floats, levels: Floats, rho: float) -> Floats:
    """The mean of Ψ over values, at each level."""
    return check(values[:, None], levels, rho).mean(0)


def minimiser(values: Floats, rho: float) -> float:
    """The level at which the mean of Ψ over values is least."""
    ends = float(values.min()), float(values.max())
    return float(minimize_scalar(lambda level: check(values, level, rho).mean(), bounds=ends, method="bounded").x)


def steepest(values: Floats, rho: float, rng: np.random.Generator) -> float:
    """The largest slope of the mean of Ψ between random levels: its Lipschitz constant, from below."""
    first, second = rng.uniform(values.min() - 1, values.max() + 1, (2, 1000))
    rise = mean_check(values, first, rho) - mean_check(values, second, rho)
    return float(np.abs(rise / (first - second)).max())


def convexity_gaps(values: Floats, first: Floats, second: Floats, rho: float) -> Floats:
    """The mean of Ψ at both ends, averaged, less that in the middle: ≥ 0 if convex, > 0 if strictly."""
    ends = (mean_check(values, first, rho) + mean_check(values, second, rho)) / 2
    return ends - mean_check(values, (first + second) / 2, rho)


class Minimisers(NamedTuple):
    """How far sample and expectation of Ψ are apart, and their minimisers, for one number of samples `[repeats]`."""

    functions: Floats
    minimisers: Floats
    bound: Floats


def minimisers(samples: int, rho: float, repeats: int, stream: int) -> Minimisers:
    """For uniform values in [0, 1] the expectation of Ψ has the second derivative 1: so |f̂ − f| ≤ 2√sup|ϑ̂ − ϑ|."""
    rng, levels = np.random.default_rng(stream), np.linspace(0, 1, 401)
    expected = (1 - rho) * (1 - levels) ** 2 / 2 + rho * levels**2 / 2
    drawn = rng.random((repeats, samples))
    sup = np.array([np.abs(mean_check(values, levels, rho) - expected).max() for values in drawn])
    return Minimisers(sup, np.abs(sample_quantile(drawn, rho)[:, 0] - (1 - rho)), 2 * np.sqrt(sup))


def plateau_share(samples: int, rho: float, repeats: int, stream: int) -> float:
    """The mean share of actions with Q ≥ f̂ for a Q that is flat at f = 0 for a share of 1−ρ, and rises after it."""
    noise = np.random.default_rng(stream).standard_normal((repeats, samples))
    values = np.clip(noise - ndtri(1 - rho), 0, 1)
    return float((values >= sample_quantile(values, rho)).mean())


def quantiles_table(errors: dict[str, Floats]) -> Iterator[str]:
    """Measured rates; and the last error in units of √(ρ(1−ρ)/N)/p, which it tends to where p > 0."""
    yield "| Q and π′ | quantile f | density p at f | exponent of the error | error · p √(N / ρ(1−ρ)) at the last N |"
    yield "|---|---|---|---|---|"
    for one in sampled_values(RHO):
        found = errors[one.name]
        ratio = found[-1] * one.density * np.sqrt(SIZES[-1] / (RHO * (1 - RHO)))
        numbers = " | ".join(map(brief, (one.quantile, one.density, log_slope(SIZES[1:], found[1:]))))
        yield f"| {one.name} | {numbers} | {brief(ratio) if one.density else '–'} |"


def lemmas_table(found: Sequence[Minimisers]) -> Iterator[str]:
    """What was found of Ψ, of minimisers, and of a Q with a plateau, beside what it should be."""
    rng = np.random.default_rng(0)
    few, fine = np.sort(rng.standard_normal(10)), ndtri((np.arange(10**5) + 0.5) / 10**5)
    first, second = rng.uniform(-3, 3, (2, 1000))
    gaps, flat = (convexity_gaps(few, low, high, RHO) for low, high in ((first, second), (few[:-1], few[1:])))
    step = np.ptp(mean_check(few, few[7:9], RHO))
    sizes, (sups, errors) = SIZES[: len(found)], np.array([[one[part].mean() for one in found] for part in (0, 1)])
    rows = [
        ("E Ψ is least at", minimiser(fine, RHO), f"{brief(ndtri(1 - RHO))}, the (1−ρ)-quantile of N(0, 1)"),
        ("mean of Ψ over 10 samples: steepest slope", steepest(few, RHO, rng), "max(ρ, 1−ρ); the paper has ≤ ρ + 2"),
        ("its least midpoint gap between random ℓ", round(gaps.min(), 12) + 0, "≥ 0: convex"),
        ("its largest one between neighbouring samples", round(flat.max(), 12) + 0, "> 0 if strictly convex"),
        ("its step from the 8th to the 9th of them", round(step, 12), "> 0 if its minimiser were unique"),
        ("exponent of sup abs(ϑ̂ − ϑ)", log_slope(sizes, sups), "−1/2"),
        ("exponent of abs(f̂ − f) for the same samples", log_slope(sizes, errors), "−1/2; −1/4 by way of the former"),
        ("largest abs(f̂ − f) in units of 2√sup", max((one[1] / one[2]).max() for one in found), "≤ 1"),
        ("share of actions kept beside a plateau, N = 10,000", plateau_share(10_000, RHO, 2000, 0), "1 by the true f"),
    ]
    yield "| | found | to compare with |"
    yield "|---|---|---|"
    yield from (f"| {what} | {brief(number)} | {expected} |" for what, number, expected in rows)


def dress(panel: Axes, title: str) -> None:
    """The look that all figures have."""
    panel.set_title(title, fontsize=11)
    panel.grid(alpha=0.25, linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.legend(frameon=False, fontsize=8)


def draw_quantiles(errors: dict[str, Floats], found: Sequence[Minimisers]) -> Figure:
    """Errors of sample quantiles; sample and expectation of Ψ drawing together; a sample's mean with a flat bottom."""
    figure = Figure(figsize=(13, 4), dpi=150, layout="constrained")
    rates, functions, bottom = figure.subplots(1, 3)
    for colour, (name, error) in zip(COLOURS, errors.items(), strict=False):
        rates.loglog(SIZES, error, "o-", color=colour, markersize=4, label=name)
    for power, dashes in ((2, "--"), (6, ":")):
        guide = 0.5 * np.array(SIZES) ** (-1 / power)
        rates.loglog(SIZES, guide, color="0.5", linestyle=dashes, linewidth=1, label=f"∝ N^(−1/{power})")
    rates.set(xlabel="samples N", ylabel="root mean square of f̂ − f")
    dress(rates, "sample quantiles")
    for colour, part, label in zip(COLOURS, (0, 1, 2), ("sup |ϑ̂ − ϑ|", "|f̂ − f|", "2√sup |ϑ̂ − ϑ|"), strict=False):
        means = [one[part].mean() for one in found]
        functions.loglog(SIZES[: len(found)], means, "o-", color=colour, markersize=4, label=label)
    functions.set(xlabel="samples N")
    dress(functions, "functions and their minimisers")
    few, levels = np.sort(np.random.default_rng(0).standard_normal(10)), np.linspace(0, 1.6, 321)
    expected = mean_check(ndtri((np.arange(10**4) + 0.5) / 10**4), levels, RHO)
    bottom.plot(levels, expected, color="0.5", label="expectation ϑ")
    bottom.plot(levels, mean_check(few, levels, RHO), color=COLOURS[0], label="mean of 10 samples ϑ̂")
    bottom.plot(few[7:9], mean_check(few, few[7:9], RHO), "o", color=COLOURS[1], label="8th and 9th of them")
    bottom.set(xlabel="ℓ")
    dress(bottom, "check function Ψ, ρ = 0.2, values N(0, 1)")
    return figure


def filled(document: str, tables: Mapping[str, Iterable[str]]) -> str:
    """The document with these tables in their places; others stay as they are."""
    texts = {name: "\n".join([*lines, ""]) for name, lines in tables.items()}
    return BLOCK.sub(lambda match: match[1] + texts.get(match[2], match[3]) + match[4], document)


def main() -> None:
    """Compute all, draw the figure and fill the tables of sections 1 and 2."""
    rng = np.random.default_rng(0)
    errors = {one.name: root_mean_squares(one, RHO, SIZES, REPEATS, 0) for one in sampled_values(RHO)}
    found = [minimisers(samples, RHO, 100, 0) for samples in SIZES[:5]]
    draw_quantiles(errors, found).savefig(ROOT / "docs/images/theory-quantiles.png")
    tables = {
        "improvement": improvement_table([random_mdp(rng) for _ in range(MDPS)]),
        "quantiles": quantiles_table(errors),
        "lemmas": lemmas_table(found),
    }
    DOCUMENT.write_text(filled(DOCUMENT.read_text(), tables))


if __name__ == "__main__":
    main()
