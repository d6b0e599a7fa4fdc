"""Checkpoints: a policy's weights as safetensors, with versioned JSON metadata. Loading one never runs code."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from greedyac import spaces as spaces_module
from greedyac.errors import InputError
from greedyac.training.files import write_atomically
from greedyac.training.rows import versions
from greedyac.training.runs import Run, check_seeds, check_steps
from greedyac.training.streams import Stream, stream_key

FORMAT = 1
"""Raised when a file of this version could not be read by the code of the last."""


class Prediction(NamedTuple):
    """An action, and None in place of a recurrent state: the pair that Stable-Baselines3 returns."""

    action: np.ndarray[Any, Any]
    state: None = None


class Policy:
    """A trained policy that can act: what a checkpoint holds."""

    def __init__(self, run: Run, state: Any):
        self.run, self.state = run, state
        self.agent, self.spaces = run.case.learner, run.case.world.spaces
        self._predictions = 0
        self._act = jax.jit(jax.vmap(self.agent.act, in_axes=(None, 0, 0, None)), static_argnums=3)

    def predict(self, observation: Any, deterministic: bool = True) -> Prediction:
        """The action for an observation `[features]`, or the actions for several `[batch, features]`.

        Deterministic: the most likely action. Otherwise a sample from the policy.
        """
        given = np.asarray(observation, np.float32)
        features = self.spaces.observation.size
        if given.ndim not in (1, 2) or given.shape[-1] != features:
            raise InputError(
                f"an observation of shape {given.shape} is not allowed; allowed: ({features},) or (batch, {features})"
            )
        batch = np.atleast_2d(given)
        key = stream_key(jax.random.key(self.run.seed), Stream.PREDICT, self._predictions)
        self._predictions += 1
        action = np.asarray(self._act(self.state, batch, jax.random.split(key, len(batch)), deterministic))
        return Prediction(action if given.ndim == 2 else action[0])

    def __repr__(self) -> str:
        case, seed = self.run.case, self.run.seed
        return f"Policy({case.agent!r} on {case.env_label!r}, seed {seed}, after {case.steps:,} steps)"


def save_checkpoint(path: Path, run: Run, actor: Any) -> None:
    """Write the policy of a run, whole or not at all."""
    about = {
        "format": FORMAT,
        **run.to_json(),
        "spaces": spaces_module.to_json(run.case.world.spaces),
        "versions": versions(),
    }
    write_atomically(path, save(_named_weights(actor), {"greedyac": json.dumps(about, sort_keys=True)}))


def load(path: str | os.PathLike[str]) -> Policy:
    """The policy in a checkpoint file. `InputError` if the file is not one, or is damaged."""
    try:
        return _read(Path(path))
    except InputError as error:
        raise InputError(f"checkpoint {str(path)!r}: {error}") from None


def _read(path: Path) -> Policy:
    try:
        if not path.is_file():
            raise InputError("there is no such file; allowed: a .safetensors file that greedyac wrote")
        with safe_open(path, framework="numpy") as file:
            about, weights = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except InputError:
        raise
    except (SafetensorError, OSError, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"it is cut short, damaged or no safetensors file ({error})") from None
    if "greedyac" not in about:
        raise InputError("it was not written by greedyac")
    try:
        return _policy(json.loads(about["greedyac"]), weights)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise InputError(f"its metadata can't be used ({error!r})") from None


def _policy(values: dict[str, Any], weights: dict[str, np.ndarray[Any, Any]]) -> Policy:
    if (given := values.pop("format")) != FORMAT:
        raise InputError(f"it has the format {given!r}; this version reads {FORMAT}")
    spaces, _ = spaces_module.from_json(values.pop("spaces")), values.pop("versions")
    run = Run.from_json(values)
    check_seeds([run.seed])
    check_steps(run.case.steps)
    if run.case.world.spaces != spaces:
        raise InputError(f"its observations and actions are not those of {run.case.env_label}")
    shapes = eqx.filter_eval_shape(run.case.learner.init, jax.random.key(0), spaces)
    actor = _fill(shapes.actor, weights)  # all that acting reads; the rest of the state is blank
    blank = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    return Policy(run, blank._replace(actor=actor))


def _named_weights(actor: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The weights by their paths: `actor.trunk.layers.0.weight`."""
    leaves = jax.tree_util.tree_leaves_with_path(actor)
    return {f"actor.{_name(path)}": np.asarray(leaf) for path, leaf in leaves}


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _fill(shapes: Any, weights: dict[str, np.ndarray[Any, Any]]) -> Any:
    """The actor of these shapes with these weights; each must be there, in its shape, and no other."""
    expected = {f"actor.{_name(path)}": leaf for path, leaf in jax.tree_util.tree_leaves_with_path(shapes)}
    if missing := expected.keys() - weights.keys():
        raise InputError(f"the weight {min(missing)!r} is missing")
    if extra := weights.keys() - expected.keys():
        raise InputError(f"the weight {min(extra)!r} does not belong to {', '.join(sorted(expected))}")
    for name, leaf in expected.items():
        if weights[name].shape != leaf.shape or weights[name].dtype != leaf.dtype:
            given = f"shape {weights[name].shape} of {weights[name].dtype}"
            raise InputError(f"the weight {name!r} has {given}; it should have {leaf.shape} of {leaf.dtype}")
    return jax.tree_util.tree_map_with_path(lambda path, _: weights[f"actor.{_name(path)}"], shapes)
