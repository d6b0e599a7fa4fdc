"""Settings that have a name: the paper's tuned hyperparameters with the published code's choices."""

from typing import Any

from greedyac.errors import InputError, unknown

_PUBLISHED = {"entropy_estimator": "released", "discrete_critic": "index"}


def _row(actor_step_size_scale: float, critic_step_size: float, entropy_scale: float | None) -> dict[str, Any]:
    values = {
        "actor_step_size_scale": actor_step_size_scale,
        "critic_step_size": critic_step_size,
        **_PUBLISHED,
    }
    return values if entropy_scale is None else {**values, "entropy_scale": entropy_scale}


PRESETS: dict[str, dict[tuple[str, str], dict[str, Any]]] = {
    "paper": {  # κ, α, τ of the paper's per-environment tables; no τ where there is no proposal policy
        ("greedy-ac", "Acrobot-CA"): _row(0.1, 1e-3, 1e-2),
        ("greedy-ac", "Acrobot-DA"): _row(0.1, 1e-2, None),
        ("greedy-ac", "MountainCar-CA"): _row(1.0, 1e-3, 10.0),
        ("greedy-ac", "MountainCar-DA"): _row(2.0, 1e-3, None),
        ("greedy-ac", "Pendulum-CA"): _row(0.1, 1e-2, 10.0),
        ("greedy-ac", "Pendulum-DA"): _row(1.0, 1e-3, None),
    },
}


def preset(name: str, agent: str, env: str) -> dict[str, Any]:
    """The hyperparameters of a preset for this agent on this environment."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    table = PRESETS[name]
    if (agent, env) not in table:
        pairs = ", ".join(f"{known} on {place}" for known, place in table)
        raise InputError(f"preset {name!r} has no settings for {agent} on {env}; allowed: {pairs}")
    return dict(table[agent, env])
