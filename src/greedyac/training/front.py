"""The front: `GreedyAC(env).learn(50_000)`, `predict`, `save`, `load`. Thin: agents and loops are those of `train`."""

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np
import polars as pl

from greedyac.agents import AGENTS
from greedyac.envs import Env, HostEnv, World, make_world
from greedyac.envs.host import named_host_env
from greedyac.errors import InputError
from greedyac.hypers import whole
from greedyac.progress import Progress, ProgressReport
from greedyac.training.checkpoint import (
    Checkpoint,
    Policy,
    Prediction,
    read_checkpoint,
    save_checkpoint,
    save_snapshot,
    translation_for,
)
from greedyac.training.drive import Every, drive, make_lanes
from greedyac.training.evaluate import Evaluation, evaluate
from greedyac.training.host import HostLanes
from greedyac.training.loop import Lanes, Snapshot
from greedyac.training.patience import Patience
from greedyac.training.plan import plan_cases
from greedyac.training.rows import SCHEMA, make_row
from greedyac.training.runs import MAX_STEPS, Case, Run, check_seeds

CALLBACK_STEPS = 1000
"""How often a callback is called that does not say so itself."""
Callback = Callable[["Model"], bool | None]
"""Called between steps; training ends if it returns False. Its attribute `every`, if it has one, says how often."""


class Model:
    """An agent on an environment: it learns, acts, and is saved and loaded.

    Args:
        env: a name (`"Pendulum-CA"`, any Gymnasium id), a `gymnasium.Env`, or a class or function that makes one.
        seed: of weights, actions, starts and all else that is random.
        preset: settings with a name, `"paper"`; hyperparameters given beside it override it.
        env_options: options of an environment given by name.
        **hypers: the agent's hyperparameters; the others keep their defaults.
    """

    agent: ClassVar[str]

    def __init__(
        self,
        env: Any,
        *,
        seed: int = 0,
        preset: str | None = None,
        env_options: Mapping[str, object] | None = None,
        **hypers: object,
    ):
        if env_options and not isinstance(env, str):
            raise InputError(f"env_options = {env_options!r} are not allowed here; allowed: for an env given by name")
        world = env if isinstance(env, str) else named_host_env(env)
        [seed] = check_seeds([seed])
        [case] = plan_cases(self.agent, world, 1, preset, env_options or {}, {}, hypers)
        self._set_up(case, seed)

    def _set_up(self, case: Case, seed: int, policy: Policy | None = None, snapshot: Snapshot | None = None) -> None:
        self._case, self._seed, self._policy, self._snapshot = case, seed, policy, snapshot
        self._lanes: Lanes | None = None
        self._rows: list[dict[str, Any]] = []
        self._begun_at: list[int] = []
        self._episodes = [int(snapshot.lane.curve.episodes) if snapshot else 0]

    @property
    def steps(self) -> int:
        """Steps that it has learned for, those before a save and a load included if everything was saved."""
        return self._lanes.time if self._lanes else self._snapshot.time if self._snapshot else 0

    @property
    def curves(self) -> pl.DataFrame:
        """What came of each call of `learn`, one row each; `begun` is the step at which it began."""
        frame = pl.DataFrame(self._rows, SCHEMA).drop("run_id", "setting_id")
        return frame.insert_column(0, pl.Series("begun", self._begun_at, pl.Int64))

    @property
    def policy(self) -> Policy:
        """What it has learned, as it is now."""
        if self._policy is None:
            [outcome] = self._begun().outcomes()
            self._policy = Policy(self._run(max(self.steps, 1)), outcome.agent, outcome.scales)
        return self._policy

    def learn(self, steps: int, *, callback: Callback | Iterable[Callback] = (), progress: bool = True) -> Self:
        """Learn for so many more steps. Ctrl-C interrupts it after a step; what was learned by then stays.

        Args:
            steps: environment steps; there is one update per step.
            callback: one or several functions of the model, called every 1,000 steps, or every `callback.every`.
            progress: whether to show a bar, in a terminal or a notebook.
        """
        steps = whole("steps", steps, 1, MAX_STEPS - self.steps)
        listed = _listed(callback)
        report = ProgressReport(f"{self.agent} on {self._case.env}", lines=False)
        with report if progress else contextlib.nullcontext():
            if progress:
                report.training(Progress(0, steps, None))
            lanes = self._begun()
            if not lanes.live:
                raise RuntimeError("it can't learn any more: it has diverged, or its environment has failed")
            begun, started = lanes.time, time.perf_counter()
            patience = Patience()

            def tell(_: int) -> None:
                if progress:
                    done, rate = lanes.time - begun, (lanes.time - begun) / (time.perf_counter() - started)
                    report.training(Progress(done, steps, rate))
                patience.end()

            due = [Every(every, self._calls(one, patience)) for every, one in listed]
            try:
                with patience.kept():
                    lanes.more(steps)
                    drive(lanes, tell, *due)
            finally:
                lanes.steps, self._policy = lanes.time, None
        [outcome] = lanes.outcomes()
        if outcome.error is not None:
            cause = lanes.causes.get(0) if isinstance(lanes, HostLanes) else None
            raise RuntimeError(f"the environment failed at step {lanes.time:,}: {outcome.error}") from cause
        row = make_row(self._run(steps), outcome, time.perf_counter() - started)
        self._rows.append(row | {"steps": lanes.time - begun, "episodes": row["episodes"] - sum(self._episodes)})
        self._episodes.append(self._rows[-1]["episodes"])
        self._begun_at.append(begun)
        if outcome.diverged_at is not None:
            warnings.warn(f"diverged to NaN or infinity at step {outcome.diverged_at:,}", RuntimeWarning, stacklevel=2)
        return self

    def _calls(self, callback: Callback, patience: "Patience") -> Callable[[], bool]:
        def call() -> bool:
            self._policy = None
            with patience.lost():
                said = callback(self)
            return not isinstance(said, bool | np.bool_) or bool(said)  # 0 is no False

        return call

    def predict(self, observation: Any, deterministic: bool = True) -> Prediction:
        """The action for an observation as the environment gives it, or the actions for several of them.

        Deterministic: the most likely action. Otherwise a sample from the policy. The second of the pair is None.
        """
        return self.policy.predict(observation, deterministic)

    def evaluate(self, episodes: int = 10, seed: int = 0, deterministic: bool = True) -> Evaluation:
        """Episodes with learning off, on an environment of their own."""
        _check_known(self._case.world)
        return evaluate(self.policy, episodes, seed, deterministic)

    def save(self, path: str | os.PathLike[str], everything: bool = False) -> None:
        """Write the networks to a file or, with `everything`, all that it takes to go on learning as if never stopped.

        Everything is: networks and optimisers, the replay, the environment. (Random streams follow from seed and time.)
        """
        file = writable(path)
        if not everything:
            save_checkpoint(file, self.policy)
            return
        [snapshot] = self._begun().snapshots()
        save_snapshot(file, self._run(max(self.steps, 1)), snapshot)

    def _run(self, steps: int) -> Run:
        case = Case(self._case.agent, self._case.env, steps, self._case.hypers, self._case.env_options)
        vars(case).update(learner=self._case.learner, world=self._case.world)
        return Run(case, self._seed)

    def _begun(self) -> Lanes:
        """The loop that trains it; compiled when it is first needed."""
        if self._lanes is None:
            agents, world, snapshot = [self._case.learner], self._case.world, self._snapshot
            _check_known(world)
            self._lanes = make_lanes(agents, world, [self._seed], self.steps, 0, [snapshot] if snapshot else [])
            if self._policy is not None and snapshot is None:
                self._lanes.start_from(self._policy.state, self._policy.scales)
        return self._lanes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._case.env!r}, seed={self._seed}) after {self.steps:,} steps"


def writable(path: str | os.PathLike[str]) -> Path:
    """The path of a file that can be written, as far as can be told beforehand."""
    file = Path(path)
    if not file.parent.is_dir() or file.is_dir():
        raise InputError(f"path = {str(file)!r} is not allowed; allowed: a file in a folder that exists")
    return file


def _listed(callback: Callback | Iterable[Callback]) -> list[tuple[int, Callback]]:
    """The callbacks, each with the number of steps between its calls."""
    listed = list(callback) if isinstance(callback, Iterable) else [callback]
    for one in listed:
        if not callable(one):
            raise InputError(f"callback = {one!r} is not allowed; allowed: a function of the model, or several")
    return [(whole("every", getattr(one, "every", CALLBACK_STEPS), 1, MAX_STEPS), one) for one in listed]


def _check_known(world: World) -> None:
    """Refuse an environment of which only a file tells, and that has no name by which to make it."""
    if isinstance(world, HostEnv) and world.maker is None:
        module, _, name = world.name.rpartition(":")
        if not module and name not in gymnasium.registry:
            raise InputError(
                f"environment {name!r} can't be found by its name; allowed: greedyac.load(path, env=…) with a "
                f"gymnasium.Env, or a function that makes one"
            )


class GreedyAC(Model):
    """Greedy Actor-Critic on an environment."""

    agent = "greedy-ac"


class SAC(Model):
    """Soft Actor-Critic on an environment."""

    agent = "sac"


class VanillaAC(Model):
    """Vanilla Actor-Critic on an environment."""

    agent = "vanilla-ac"


class Random(Model):
    """Uniformly random actions on an environment: a baseline."""

    agent = "random"


FRONTS: dict[str, type[Model]] = {front.agent: front for front in (GreedyAC, SAC, VanillaAC, Random)}
assert FRONTS.keys() == AGENTS.keys()


def load(path: str | os.PathLike[str], env: Any = None) -> Model:
    """The model in a file. `InputError` if the file is not one, or is damaged.

    It can act at once. To learn, or to be evaluated, it needs its environment, which is found by its name, or given as
    `env` if it has none. If not everything was saved, learning goes on from the networks, with a new replay.
    """
    held = read_checkpoint(path)
    run, policy = held.policy.run, held.policy
    if env is not None:
        run = _moved(held, env, path)
        policy = Policy(run, policy.state, policy.scales)
    model = FRONTS[run.case.agent].__new__(FRONTS[run.case.agent])
    model._set_up(run.case, run.seed, policy, held.snapshot)
    return model


def _moved(held: Checkpoint, env: Any, path: str | os.PathLike[str]) -> Run:
    """The run of a file, on this environment."""
    run, world = held.policy.run, make_world(env) if isinstance(env, str) else named_host_env(env)
    name, options = (env, {}) if isinstance(world, Env) else (world.name, world.options)
    case = Case(run.case.agent, name, run.case.steps, run.case.hypers, options)
    vars(case).update(learner=run.case.learner, world=world)
    moved = Run(case, run.seed)
    if translation_for(moved) != held.policy.translation:
        raise InputError(f"env = {env!r} has other observations and actions than {str(path)!r} was trained on")
    if held.snapshot is not None and isinstance(world, Env) != isinstance(run.case.world, Env):
        raise InputError(f"env = {env!r} is not allowed for everything of a run on {run.case.env}; save without it")
    return moved
