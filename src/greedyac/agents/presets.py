"""Settings that have a name: the paper's tuned hyperparameters with the published code's choices."""

from typing import Any

from greedyac.core.errors import InputError, unknown_name

Row = tuple[float, float, float | None]
"""κ, α, τ as the paper's tables have them; no τ where GreedyAC has no proposal policy."""

_PER_ENVIRONMENT: dict[str, dict[str, Row]] = {
    "greedy-ac": {
        "Acrobot-CA": (0.1, 1e-3, 1e-2),
        "Acrobot-DA": (0.1, 1e-2, None),
        "MountainCar-CA": (1.0, 1e-3, 10.0),
        "MountainCar-DA": (2.0, 1e-3, None),
        "Pendulum-CA": (0.1, 1e-2, 10.0),
        "Pendulum-DA": (1.0, 1e-3, None),
    },
    "sac": {
        "Acrobot-CA": (10.0, 1e-5, 10.0),
        "Acrobot-DA": (2.0, 1e-5, 10.0),
        "MountainCar-CA": (1.0, 1e-3, 1e-3),
        "MountainCar-DA": (1.0, 1e-3, 1e-2),
        "Pendulum-CA": (0.1, 1e-2, 0.1),
        "Pendulum-DA": (1.0, 1e-3, 1.0),
    },
    "vanilla-ac": {
        "Acrobot-CA": (2.0, 1e-3, 1e-3),
        "Acrobot-DA": (0.1, 1e-2, 1e-2),
        "MountainCar-CA": (2.0, 1e-3, 1e-3),
        "MountainCar-DA": (1.0, 1e-3, 1e-2),
        "Pendulum-CA": (0.01, 1e-2, 1e-2),
        "Pendulum-DA": (2.0, 1e-3, 1.0),
    },
}
_ACROSS_ENVIRONMENTS: dict[str, dict[str, Row]] = {
    "greedy-ac": {"CA": (1.0, 1e-3, 1e-3), "DA": (10.0, 1e-3, None)},
    "sac": {"CA": (1.0, 1e-3, 1e-3), "DA": (10.0, 1e-5, 10.0)},
    "vanilla-ac": {"CA": (2.0, 1e-3, 1e-3), "DA": (0.1, 1e-3, 1e-2)},
}
_LARGER: dict[str, dict[str, tuple[Row, dict[str, Any]]]] = {
    "greedy-ac": {
        "MinAtar-Breakout": ((1.0, 1e-3, None), {}),
        "MinAtar-Freeway": ((1.0, 1e-3, None), {}),
        "Swimmer-v5": ((1e-2, 1e-4, 1e-1), {"hidden": (256, 256), "batch_size": 100}),
    },
    "sac": {"MinAtar-Breakout": ((1.0, 1e-3, 1e-3), {}), "MinAtar-Freeway": ((1.0, 1e-3, 1e-3), {})},
}
"""Also what of networks and batches differs from the defaults. For these the published code's critic is not known."""
_PUBLISHED: dict[str, dict[str, Any]] = {
    "greedy-ac": {"proposal_policy": "gaussian", "entropy_estimator": "released", "discrete_critic": "index"},
    "sac": {"soft_target": "released", "discrete_critic": "index"},
    "vanilla-ac": {"entropy_estimator": "released", "discrete_critic": "index"},
}


def _setting(agent: str, row: Row) -> dict[str, Any]:
    names = ("actor_step_size_scale", "critic_step_size", "entropy_scale")
    tuned = {name: value for name, value in zip(names, row, strict=True) if value is not None}
    return tuned | _PUBLISHED[agent]


_OTHERWISE = {"discrete_critic": "heads", "replay_capacity": 1_000_000}

PRESETS: dict[str, dict[tuple[str, str], dict[str, Any]]] = {
    "paper": {
        **{(agent, env): _setting(agent, row) for agent, rows in _PER_ENVIRONMENT.items() for env, row in rows.items()},
        **{
            (agent, env): _setting(agent, row) | _OTHERWISE | more
            for agent, rows in _LARGER.items()
            for env, (row, more) in rows.items()
        },
    },
    "paper-across": {
        (agent, env): _setting(agent, _ACROSS_ENVIRONMENTS[agent][env[-2:]])
        for agent, rows in _PER_ENVIRONMENT.items()
        for env in rows
    },
}


def preset(name: str, agent: str, env: str) -> dict[str, Any]:
    """The hyperparameters of a preset for this agent on this environment."""
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    table = PRESETS[name]
    if (agent, env) not in table:
        known = {of: [place for one, place in table if one == of] for of, _ in table}
        shown = {agent: known[agent]} if agent in known else known
        pairs = "; ".join(f"{of} on {', '.join(envs)}" for of, envs in shown.items())
        raise InputError(f"preset {name!r} has no settings for {agent} on {env}; allowed: {pairs}")
    return dict(table[agent, env])
