"""CCEM alone on a bandit with two peaks: how wide actor and proposal become, and how often the higher peak is found.

    python benchmarks/estimators.py [--seeds 1000] [--updates 2000] [--out docs/images/estimators.png]

One state, one action in [−1, 1], its value known. Actor and proposal start alike, anywhere in the range; four kinds of
proposal and entropy estimator, and five entropy scales, learn side by side in one compiled program.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.figure import Figure

from greedyac import ccem
from greedyac.analysis.figures import COLOURS
from greedyac.nets import minimise, moments
from greedyac.policies import GAUSSIANS, MAX_LOG_STD, entropy_term

KINDS = {
    "score": ("gaussian", "score"),
    "exact": ("gaussian", "exact"),
    "released": ("gaussian", "released"),
    "truncated": ("truncated-gaussian", "exact"),
}
"""Proposal policy and entropy estimator."""
ENTROPY_SCALES = (1e-3, 1e-2, 0.1, 1.0, 10.0)
SAMPLES, ELITES, STEP_SIZE, FIRST_DEVIATION = 30, ccem.elite_count(0.1, 30), 0.01, 0.3
LOW, HIGH = jnp.array([-1.0]), jnp.array([1.0])
PEAK, PEAK_WIDTH = 0.6, 0.2
POINTS = 50
"""Moments at which widths are recorded."""


def value(action: Array) -> Array:
    """A broad peak of 0.8 at −0.4, and a narrower one of 1 at 0.6 that holds the best tenth of the range."""
    broad = 0.8 * jnp.exp(-0.5 * ((action + 0.4) / 0.3) ** 2)
    return jnp.maximum(broad, jnp.exp(-0.5 * ((action - PEAK) / PEAK_WIDTH) ** 2))


class Heads(eqx.Module):
    """A policy of one state: its mean before tanh, and its log standard deviation."""

    mean: Array
    log_std: Array
    family: str = eqx.field(static=True)

    def __call__(self) -> Any:
        """The distribution, for a batch of one state with one dimension."""
        log_std = jnp.clip(self.log_std, -MAX_LOG_STD, MAX_LOG_STD)
        return GAUSSIANS[self.family](jnp.tanh(self.mean)[None], log_std[None], LOW, HIGH)

    def width(self) -> Array:
        """The standard deviation of the actions that it takes."""
        uniform = (jnp.arange(200) + 0.5) / 200
        noise = uniform if self.family == "truncated-gaussian" else jax.scipy.special.ndtri(uniform)
        return self().sample(noise[:, None, None]).std()


class Learner(NamedTuple):
    """Actor and proposal with their Adam moments."""

    actor: Heads
    proposal: Heads
    actor_adam: object
    proposal_adam: object


class Told(NamedTuple):
    """What is recorded of one learner: both widths over time, and whether its actor ends on the higher peak."""

    proposal: Array
    actor: Array
    found: Array


def update(kind: str, entropy_scale: Array, learner: Learner, key: Array) -> Learner:
    """Algorithm 2 on the bandit."""
    family, estimator = KINDS[kind]
    sampled = learner.proposal().sample(GAUSSIANS[family].noise(key, (SAMPLES, 1, 1)))
    elites = ccem.elites(sampled, value(sampled[..., 0]), ELITES)

    def loss(net: Heads, entropy_scale: Any) -> Array:
        policy = net()
        entropy = entropy_term(estimator, policy.log_likelihood(sampled[0]), policy.entropy())
        return ccem.elite_loss(policy.log_likelihood(elites), entropy, entropy_scale)

    actor, actor_adam, _ = minimise(lambda net: loss(net, 0.0), learner.actor, learner.actor_adam, STEP_SIZE)
    proposal, proposal_adam, _ = minimise(
        lambda net: loss(net, entropy_scale), learner.proposal, learner.proposal_adam, STEP_SIZE
    )
    return Learner(actor, proposal, actor_adam, proposal_adam)


def learn(kind: str, updates: int, entropy_scale: Array, seed: Array) -> Told:
    """One learner from its start to its end."""
    start, key = jax.random.split(jax.random.fold_in(jax.random.key(0), seed))
    mean = jnp.arctanh(jax.random.uniform(start, (1,), minval=-0.95, maxval=0.95))
    actor, proposal = (
        Heads(mean, jnp.log(jnp.array([FIRST_DEVIATION])), family) for family in ("gaussian", KINDS[kind][0])
    )

    def block(learner: Learner, point: Array) -> tuple[Learner, tuple[Array, Array]]:
        def one(index: Array, learner: Learner) -> Learner:
            return update(kind, entropy_scale, learner, jax.random.fold_in(key, point * updates + index))

        widths = learner.proposal.width(), learner.actor.width()
        return jax.lax.fori_loop(0, updates // POINTS, one, learner), widths

    first = Learner(actor, proposal, moments(actor), moments(proposal))
    last, (proposal_width, actor_width) = jax.lax.scan(block, first, jnp.arange(POINTS))
    found = jnp.abs(last.actor().mode()[0, 0] - PEAK) < PEAK_WIDTH
    return Told(proposal_width, actor_width, found)


@partial(jax.jit, static_argnums=(0, 1))
def study(seeds: int, updates: int) -> dict[str, Told]:
    """Every kind × entropy scale × seed; arrays `[scales, seeds, ...]`."""
    numbers, scales = jnp.arange(seeds), jnp.array(ENTROPY_SCALES)

    def all_of(kind: str) -> Told:
        by_seed = jax.vmap(partial(learn, kind, updates), (None, 0))
        return jax.vmap(by_seed, (0, None))(scales, numbers)

    return {kind: all_of(kind) for kind in KINDS}


def draw(told: dict[str, Told], seeds: int, updates: int) -> Figure:
    """Widths over time for each kind and entropy scale, and how often the higher peak was found."""
    figure = Figure(figsize=(13, 5.2), dpi=130, layout="constrained")
    panels = figure.subplots(2, len(KINDS) + 1)
    steps = np.arange(POINTS) * (updates // POINTS)
    for column, kind in enumerate(KINDS):
        for panel, widths, name in zip(panels[:, column], told[kind][:2], ("proposal", "actor"), strict=True):
            for scale, colour, runs in zip(ENTROPY_SCALES, COLOURS, widths, strict=False):
                low, middle, high = np.percentile(runs, [25, 50, 75], axis=0)
                panel.plot(steps, middle, color=colour, label=f"τ = {scale:g}")
                panel.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
            panel.set_ylim(0, 1)
            panel.set_title(f"{kind}: {name}", fontsize=10)
        panels[1, column].set_xlabel("updates")
    panels[0, 0].set_ylabel("width: standard deviation\nof the actions taken")
    panels[1, 0].set_ylabel("width")
    for colour, kind in zip(COLOURS, KINDS, strict=False):
        panels[0, -1].plot(ENTROPY_SCALES, told[kind].found.mean(1), "o-", color=colour, label=kind)
    panels[0, -1].set(xscale="log", ylim=(0, 1.02), xlabel="entropy scale τ")
    panels[0, -1].set_title("higher peak found", fontsize=10)
    panels[0, -1].legend(frameon=False, fontsize=8)
    actions = np.linspace(-1, 1, 400)
    panels[1, -1].plot(actions, value(jnp.asarray(actions)), color="black")
    panels[1, -1].set(xlabel="action", xlim=(-1, 1))
    panels[1, -1].set_title("value", fontsize=10)
    for panel in panels.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25, linewidth=0.6)
    lines, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle(f"medians and quartiles of {seeds:,} seeds", fontsize=10)
    return figure


def main() -> None:
    """Learn, print how often the higher peak was found and the last widths, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("estimators.png"))
    options = parser.parse_args()
    if options.updates < POINTS:
        parser.error(f"--updates {options.updates} is not allowed; allowed: whole number ≥ {POINTS}")
    told = jax.device_get(study(options.seeds, options.updates))
    print(f"{'kind':10} {'τ':>6}  found  last median width: proposal  actor")
    for kind in KINDS:
        results = told[kind]
        for index, scale in enumerate(ENTROPY_SCALES):
            proposal, actor = (np.median(widths[index, :, -1]) for widths in results[:2])
            print(f"{kind:10} {scale:6g}  {results.found[index].mean():5.2f} {proposal:28.3f} {actor:6.3f}")
    draw(told, options.seeds, options.updates).savefig(options.out)
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
