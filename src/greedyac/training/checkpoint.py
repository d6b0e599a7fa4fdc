"""Checkpoints: a policy, or a whole run in the middle, as safetensors with versioned JSON metadata and a checksum.

Loading one never runs code.
"""

import hashlib
import json
import math
import os
from collections.abc import Hashable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from greedyac.agents import NETWORKS
from greedyac.core import spaces as spaces_module
from greedyac.core.atomic import write_atomically
from greedyac.core.counting import counted
from greedyac.core.errors import InputError
from greedyac.core.fields import check_int
from greedyac.core.machine import machine_bytes
from greedyac.core.streams import Stream, key_shape, stream_key
from greedyac.core.xla import configured, in_float32
from greedyac.envs import ENVS
from greedyac.envs.gym.adapter import SpaceAdapter
from greedyac.envs.gym.host import HostEnv
from greedyac.envs.gym.statistics import NO_STATISTICS, Statistics, prepare
from greedyac.results.provenance import versions
from greedyac.training.config import Run, check_seeds, check_steps
from greedyac.training.lanes import Outcome, Snapshot
from greedyac.training.normalize import Scales, normal_observation, unknown_scales
from greedyac.training.program import LaneState, lane_bytes, lane_shape, static_part

FORMAT = 2
"""Raised when a file of this version could not be read by the code of the last."""
UNUSABLE = (
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
    AssertionError,
    MemoryError,
)
"""What metadata that make no sense can lead to."""
STATISTICS = "statistics."
"""How the names begin of what the wrappers of a run's environment knew. Files without are as they always were."""
RENAMED = {
    "eye": "encoder",
    "trunk": "mlp",
    **{f"{name}_adam": f"{name}_opt_state" for name in ("critic", "actor", "proposal", "entropy")},
}
"""Parts of tensors' names in 0.1.0, and what they are called now."""
Weights = dict[str, np.ndarray[Any, Any]]


class Prediction(NamedTuple):
    """An action, and None in place of a recurrent state: the pair that Stable-Baselines3 returns."""

    action: np.ndarray[Any, Any]
    state: None = None


class Policy:
    """A trained policy that can act: what a checkpoint holds."""

    def __init__(
        self,
        run: Run,
        state: Any,
        scales: Scales | None = None,
        adapter: SpaceAdapter | None = None,
        statistics: Statistics = NO_STATISTICS,
    ):
        self.run, self.state, self.scales, self.statistics = run, state, scales, statistics
        self.agent = run.config.learner
        self.adapter = adapter or adapter_for(run)
        self.spaces = self.adapter.spaces
        self._predictions = 0
        self._act = _acting(cast(Hashable, static_part(self.agent)))
        self._acting: Any = None

    @classmethod
    def of(cls, run: Run, outcome: Outcome) -> "Policy":
        """What a run came to."""
        return cls(run, outcome.agent, outcome.scales, statistics=outcome.statistics)

    def prepare(self, env: Any) -> Any:
        """An environment with the statistics that its wrappers had in training, frozen, and with its own rewards."""
        return prepare(env, self.statistics)

    def predict(self, observation: Any, deterministic: bool = True) -> Prediction:
        """The action for an observation as the environment gives it, or the actions for several of them.

        Deterministic: the most likely action. Otherwise a sample from the policy.
        """
        batch, single = self.adapter.batch(observation)
        if self._acting is None:
            self._acting = _on_device(self.state, self.scales, self.run.seed)
        chosen = np.asarray(self._act(*self._acting, batch, np.int32(self._predictions), bool(deterministic)))
        self._predictions += 1
        return Prediction(self.adapter.action(chosen[0]) if single else self.adapter.actions(chosen))

    def __repr__(self) -> str:
        config, seed = self.run.config, self.run.seed
        return f"Policy({config.agent!r} on {config.env!r}, seed {seed}, after {counted(config.steps, 'step')})"


@lru_cache(maxsize=8)
def _acting(agent: Any) -> Any:
    """The compiled function from what acts and observations, `[batch, features]`, to the n-th predicted actions."""

    def act(state: Any, scales: Any, key: Any, observation: Any, number: Any, greedy: bool) -> Any:
        keys = jax.random.split(stream_key(key, Stream.PREDICT, number), len(observation))
        seen = normal_observation(scales, observation)
        return jax.vmap(lambda one, key: agent.act(state, one, key, greedy))(seen, keys)

    return configured(jax.jit(act, static_argnums=5))


@configured
def _on_device(state: Any, scales: Scales | None, seed: int) -> tuple[Any, Any, Any]:
    """What acting reads, where no call has to copy it: the actor, scales, and a key."""
    actor = state._replace(**{name: None for name in state._fields if name != "actor"})
    return jax.device_put((actor, scales, jax.random.key(seed)))


def adapter_for(run: Run) -> SpaceAdapter:
    """Between the observations and actions of the run's environment, and ours."""
    world = run.config.world
    return world.adapter if isinstance(world, HostEnv) else SpaceAdapter.of(world.spaces)


def save_checkpoint(path: Path, policy: Policy) -> None:
    """Write a policy, whole or not at all."""
    parts = {name: getattr(policy.state, name, None) for name in NETWORKS}
    weights = _named(parts) | _named({"scales": policy.scales}) | _prefixed(policy.statistics)
    write_atomically(path, _sealed(_about(policy.run, policy.adapter), weights))


def save_snapshot(path: Path, run: Run, snapshot: Snapshot) -> None:
    """Write a run in the middle, whole or not at all; of the replay what is filled."""
    lane = snapshot.lane
    if lane.replay is not None:
        lane = lane._replace(replay=lane.replay[: snapshot.time])
    episode = np.asarray(snapshot.episode) if snapshot.episode else np.zeros(0, np.float32)
    middle = {
        "time": snapshot.time,
        "evaluations": [value if math.isfinite(value) else None for value in snapshot.evaluations],
        "error": snapshot.error,
        "restarted": snapshot.restarted,
    }
    about = _about(run, adapter_for(run)) | {"middle": middle}
    weights = _named({"lane": lane, "episode": episode}) | _prefixed(snapshot.statistics)
    write_atomically(path, _sealed(about, weights))


def _prefixed(statistics: Statistics) -> Weights:
    return {f"{STATISTICS}{name}": value for name, value in statistics.items()}


def _without_prefix(weights: Weights) -> Statistics:
    """The statistics among the weights, which are taken out of them."""
    names = [name for name in weights if name.startswith(STATISTICS)]
    return {name.removeprefix(STATISTICS): weights.pop(name) for name in names}


def _about(run: Run, adapter: SpaceAdapter) -> dict[str, Any]:
    theirs = {} if run.config.env in ENVS else {"gymnasium": adapter.to_json()}
    spaces = spaces_module.to_json(adapter.spaces)
    return {"format": FORMAT, **run.to_json(), "spaces": spaces, **theirs, "versions": versions()}


def _sealed(about: dict[str, Any], weights: Weights) -> bytes:
    sealed = about | {"sha256": checksum(about, weights)}
    return save(weights, {"greedyac": json.dumps(sealed, sort_keys=True)})


def checksum(about: dict[str, Any], weights: Weights) -> str:
    """Of all that a file says."""
    told = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, weight in sorted(weights.items()):
        told.update(f"\n{name} {weight.dtype} {weight.shape}\n".encode())
        told.update(np.ascontiguousarray(weight).data)
    return told.hexdigest()


class CheckpointFile(NamedTuple):
    """What a file holds: a policy and, if it holds everything, the run in the middle."""

    policy: Policy
    snapshot: Snapshot | None


def load_policy(path: str | os.PathLike[str]) -> Policy:
    """The policy in a checkpoint file. `InputError` if the file is not one, or is damaged."""
    return read_checkpoint(path).policy


def read_checkpoint(path: str | os.PathLike[str]) -> CheckpointFile:
    """What a checkpoint file holds. `InputError` if the file is not one, or is damaged."""
    try:
        about, weights = _read(Path(path))
        try:
            return _checkpoint(about, weights)
        except UNUSABLE as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"its metadata can't be used ({error!r})") from None
    except InputError as error:
        raise InputError(f"checkpoint {str(path)!r}: {error}") from None


def _read(path: Path) -> tuple[dict[str, Any], Weights]:
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
        values = json.loads(about["greedyac"])
        given, sealed = values["format"], values.pop("sha256", None)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"its metadata can't be used ({error!r})") from None
    if given != FORMAT:
        raise InputError(f"it has the format {given!r}; this version reads {FORMAT}")
    if sealed != checksum(values, weights):
        raise InputError("it does not match its checksum: it was damaged or changed")
    return values, {_current(name): weight for name, weight in weights.items()}


def _current(name: str) -> str:
    """The name that a tensor has now, of one that 0.1.0 may have written."""
    return name if name.startswith(STATISTICS) else ".".join(RENAMED.get(part, part) for part in name.split("."))


def _checkpoint(values: dict[str, Any], weights: Weights) -> CheckpointFile:
    spaces, _, _ = spaces_module.from_json(values.pop("spaces")), values.pop("versions"), values.pop("format")
    theirs, middle = values.pop("gymnasium", None), values.pop("middle", None)
    run = Run.from_json(values)
    check_seeds([run.seed])
    check_steps(run.config.steps)
    if run.config.env not in ENVS:
        world = HostEnv(
            run.config.env, tuple(sorted(run.config.env_options.items())), known=SpaceAdapter.from_json(theirs)
        )
        vars(run.config)["world"] = world
    known = run.config.world.spaces
    seen = replace(spaces.observation, stored=known.observation.stored)  # which older files don't tell
    if replace(spaces, observation=seen) != known:
        raise InputError(f"its observations and actions are not those of {run.config.env_label}")
    statistics = _without_prefix(weights)
    if middle is None:
        return CheckpointFile(_policy(run, weights, statistics), None)
    snapshot = _snapshot(run, middle, weights)._replace(statistics=statistics)
    return CheckpointFile(Policy(run, snapshot.lane.agent, snapshot.lane.scales, statistics=statistics), snapshot)


@in_float32
def _policy(run: Run, weights: Weights, statistics: Statistics) -> Policy:
    learner, spaces = run.config.learner, run.config.world.spaces
    shapes = eqx.filter_eval_shape(learner.init, key_shape(), spaces)
    scales = eqx.filter_eval_shape(
        unknown_scales, spaces.observation.size, learner.normalise_observations, learner.normalise_rewards
    )
    parts = {name: getattr(shapes, name, None) for name in NETWORKS}
    filled = _fill({**parts, "scales": scales}, weights)
    blank = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)  # what only learning reads
    kept = {name: part for name, part in filled.items() if parts.get(name) is not None}
    return Policy(run, blank._replace(**kept), filled["scales"], statistics=statistics)


def _snapshot(run: Run, middle: dict[str, Any], weights: Weights) -> Snapshot:
    time, error, restarted = (middle[name] for name in ("time", "error", "restarted"))
    check_int("time", time, 0, run.config.steps)
    if (memory := machine_bytes()) is not None and lane_bytes(run.config.program) > memory:
        raise InputError(
            f"a replay of {run.config.learner.replay_capacity:,} transitions is too large for this machine"
        )
    evaluations = [math.nan if value is None else float(value) for value in middle["evaluations"]]
    lane = lane_shape(run.config.program)
    episode = weights.pop("episode")
    if lane.replay is not None:
        capacity, numbers = lane.replay.shape
        lane = lane._replace(
            replay=jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call, arg-type]
                (min(time, capacity), numbers), lane.replay.dtype
            )
        )
    filled: LaneState = _fill({"lane": lane}, weights)["lane"]
    if filled.replay is not None:
        rest = np.zeros((capacity - len(filled.replay), numbers), filled.replay.dtype)
        filled = filled._replace(replay=np.concatenate([filled.replay, rest]))  # type: ignore[arg-type]
    return Snapshot(int(time), filled, evaluations, list(episode), error, restarted)


def _named(tree: Any) -> Weights:
    """The weights by their paths: `actor.mlp.layers.0.weight`."""
    return {_name(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _fill(shapes: Any, weights: Weights) -> Any:
    """The tree of these shapes with these weights; each must be there, in its shape, and no other."""
    expected = {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(shapes)}
    if missing := expected.keys() - weights.keys():
        raise InputError(f"the weight {min(missing)!r} is missing")
    if extra := weights.keys() - expected.keys():
        raise InputError(f"the weight {min(extra)!r} does not belong to {', '.join(sorted(expected))}")
    for name, leaf in expected.items():
        if weights[name].shape != leaf.shape or weights[name].dtype != leaf.dtype:
            given = f"shape {weights[name].shape} of {weights[name].dtype}"
            raise InputError(f"the weight {name!r} has {given}; it should have {leaf.shape} of {leaf.dtype}")
    return jax.tree_util.tree_map_with_path(lambda path, _: weights[_name(path)], shapes)
