"""The front: `GreedyAC(env).learn(50_000)`, `predict`, `save`, `load`. Thin: agents and loops are those of `train`."""

import contextlib
import inspect
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import gymnasium
import numpy as np
import polars as pl

from greedyac.agents import AGENTS
from greedyac.api.interrupts import DeferredInterrupt
from greedyac.api.progress import Progress, ProgressReport
from greedyac.api.returns import missing_returns
from greedyac.core.counting import counted
from greedyac.core.errors import InputError
from greedyac.core.fields import check_int, hypers_of, show
from greedyac.envs import Env, HostEnv, World, make_world
from greedyac.envs.gym.host import named_host_env
from greedyac.execution.plan import expand_configs
from greedyac.execution.rows import make_row
from greedyac.results.schema import SCHEMA
from greedyac.training.blocks import Periodic, make_lanes, run_blocks
from greedyac.training.checkpoint import (
    CheckpointFile,
    Policy,
    Prediction,
    adapter_for,
    read_checkpoint,
    save_checkpoint,
    save_snapshot,
)
from greedyac.training.config import MAX_STEPS, Run, RunConfig, check_seeds
from greedyac.training.evaluate import Evaluation, evaluate
from greedyac.training.host_lanes import BEFORE_STARTING, HostLaneBatch
from greedyac.training.lanes import LaneBatch, Snapshot

CALLBACK_STEPS = 1000
"""How often a callback is called that does not say so itself."""
Callback = Callable[["Model"], bool | None]
"""Called between steps; training ends if it returns False. Its attribute `every`, if it has one, says how often."""


_ARGUMENTS = """
Args:
    env: a name (`"Pendulum-CA"`, any Gymnasium id), a `gymnasium.Env`, or a class or function that makes one.
    seed: of weights, actions, starts and all else that is random.
    preset: settings with a name, `"paper"`; hyperparameters given beside it override it.
    env_options: options of an environment given by name."""


class _Call(NamedTuple):
    """A call of `learn`: for how many steps, after how many steps and episodes, and when it began."""

    steps: int
    begun: int
    episodes: int
    started: float


class Model:
    """An agent on an environment: it learns, acts, and is saved and loaded."""

    agent: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Name the agent's hyperparameters in the documentation and in the signature."""
        super().__init_subclass__()
        if "agent" in vars(cls):
            known = hypers_of(AGENTS[cls.agent]).values()
            lines = (f"    {one.name}: {one.help}; {one.range} (default {show(one.default)})" for one in known)
            cls.__doc__ = "\n".join(
                [f"{cls.__doc__}\n{_ARGUMENTS}", *(["\nHyperparameters:"] if known else []), *lines]
            )
            *given, _ = list(inspect.signature(Model.__init__).parameters.values())[1:]
            more = [inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default) for one in known]
            cls.__signature__ = inspect.Signature([*given, *more])  # type: ignore[attr-defined]
        if "__init__" in vars(cls):
            cls.__signature__ = inspect.signature(partial(cls.__init__, None))  # type: ignore[attr-defined, arg-type]

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
        [config] = expand_configs(self.agent, world, 1, preset, env_options or {}, {}, hypers)
        self._set_up(env, config, seed)

    def _set_up(
        self, env: Any, config: RunConfig, seed: int, policy: Policy | None = None, snapshot: Snapshot | None = None
    ) -> None:
        self._env, self._case, self._seed, self._policy, self._snapshot = env, config, seed, policy, snapshot
        self._lanes: LaneBatch | None = None
        self._rows: list[dict[str, Any]] = []
        self._call: _Call | None = None

    @property
    def env(self) -> Any:
        """The environment as it was given: a name, a `gymnasium.Env`, or what makes one."""
        return self._env

    @property
    def seed(self) -> int:
        """The seed of all that is random."""
        return self._seed

    @property
    def hypers(self) -> dict[str, Any]:
        """The hyperparameters, defaults included."""
        return dict(self._case.hypers)

    @property
    def steps(self) -> int:
        """Steps that it has learned for, those before a save and a load included if everything was saved."""
        return self._lanes.time if self._lanes else self._snapshot.time if self._snapshot else 0

    @property
    def curves(self) -> pl.DataFrame:
        """What came of each call of `learn`, one row each; `begun` is the step at which it began.

        The last row of a call that goes on has the status `learning`, of one that was interrupted `interrupted`.
        """
        rows = [*self._rows, *([self._row(self._call, "learning")] if self._call else [])]
        frame = pl.DataFrame(rows, {"begun": pl.Int64, **SCHEMA})
        return frame.drop("run_id", "setting_id")

    @property
    def metrics(self) -> dict[str, float | None]:
        """How learning goes, for callbacks and loggers: `steps`, `episodes` and, of the last call, returns and speed.

        `average_return` is over all its steps, `recent_return` over the last hundredth that belongs to finished
        episodes; returns are None until an episode has finished.
        """
        row = self._row(self._call, "learning") if self._call else self._rows[-1] if self._rows else {}
        known = [value for value in row.get("curve") or [] if value is not None]
        return {
            "steps": self.steps,
            "episodes": self._episodes(),
            "average_return": row.get("average_return"),
            "recent_return": known[-1] if known else None,
            "best_return": row.get("best_return"),
            "steps_per_second": row["steps"] / row["seconds"] if row.get("seconds") else None,
        }

    def _episodes(self) -> int:
        """Finished episodes, those before a save and a load included if everything was saved."""
        if self._lanes is None:
            return int(self._snapshot.lane.curve.episodes) if self._snapshot else 0
        return int(self._lanes.state.curve.episodes[0])

    def _row(self, call: _Call, status: str | None = None) -> dict[str, Any]:
        """The row of a call so far; without another status it is done, diverged or failed."""
        lanes = self._begun()
        [outcome] = lanes.so_far() if status == "learning" else lanes.outcomes()
        row = make_row(self._run(call.steps), outcome, time.perf_counter() - call.started)
        counts = {"begun": call.begun, "steps": lanes.time - call.begun, "episodes": self._episodes() - call.episodes}
        return {**row, **counts, "status": status if status and row["status"] == "done" else row["status"]}

    @property
    def policy(self) -> Policy:
        """What it has learned, as it is now."""
        if self._policy is None:
            [outcome] = self._begun().outcomes()
            self._policy = Policy.of(self._run(max(self.steps, 1)), outcome)
        return self._policy

    def learn(self, steps: int, *, callback: Callback | Iterable[Callback] = (), progress: bool = True) -> Self:
        """Learn for so many more steps. Ctrl-C interrupts it after a step; what was learned by then stays.

        Args:
            steps: environment steps; there is one update per step.
            callback: one or several functions of the model, called every 1,000 steps, or every `callback.every`.
            progress: whether to show a bar, in a terminal or a notebook.
        """
        steps = check_int("steps", steps, 1, MAX_STEPS - self.steps)
        listed, world = _listed(callback), self._case.world
        if isinstance(world, HostEnv) and any(getattr(one, "evaluates", False) for _, one in listed):
            world.check_evaluation()
        report = ProgressReport(f"{self.agent} on {self._case.env}", lines=False)
        with report if progress else contextlib.nullcontext():
            if progress:
                report.training(Progress(0, steps, None))
            begun_before, lanes = self._lanes is not None, self._begun()
            if not lanes.live:
                _raise_failed(lanes, "it can't learn any more: " if begun_before else "")
            call = self._call = _Call(steps, lanes.time, self._episodes(), time.perf_counter())
            interrupt, status = DeferredInterrupt(), "interrupted"

            def tell(_: int) -> None:
                if progress:
                    done = lanes.time - call.begun
                    report.training(Progress(done, steps, done / (time.perf_counter() - call.started)))
                interrupt.end()

            due = [Periodic(every, self._calls(one, interrupt)) for every, one in listed]
            try:
                with interrupt.kept():
                    lanes.more(steps)
                    run_blocks(lanes, tell, *due)
                    status = "done"
            finally:
                lanes.steps, self._policy, self._call = lanes.time, None, None
                if lanes.time > call.begun:
                    self._rows.append(self._row(call, status))
        [outcome] = lanes.outcomes()
        if outcome.error is not None:
            _raise_failed(lanes)
        if outcome.diverged_at is not None:
            warnings.warn(f"diverged to NaN or infinity at step {outcome.diverged_at:,}", RuntimeWarning, stacklevel=2)
        elif progress and not self._episodes():  # since it was made: one under way goes on in the next call
            [line] = missing_returns(self._case.env, self.steps, [(None, None)])
            report.say(line)
        return self

    def _calls(self, callback: Callback, interrupt: "DeferredInterrupt") -> Callable[[], bool]:
        def call() -> bool:
            self._policy = None
            with interrupt.lost():
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

        Everything is: networks and optimizers, the replay, the environment. (Random streams follow from seed and time.)
        """
        file = writable(path)
        if not everything:
            save_checkpoint(file, self.policy)
            return
        [snapshot] = self._begun().snapshots()
        save_snapshot(file, self._run(max(self.steps, 1)), snapshot)

    def _run(self, steps: int) -> Run:
        config = RunConfig(self._case.agent, self._case.env, steps, self._case.hypers, self._case.env_options)
        vars(config).update(learner=self._case.learner, world=self._case.world)
        return Run(config, self._seed)

    def _begun(self) -> LaneBatch:
        """The loop that trains it; compiled when it is first needed."""
        if self._lanes is None:
            agents, world, snapshot = [self._case.learner], self._case.world, self._snapshot
            _check_known(world)
            self._lanes = make_lanes(agents, world, [self._seed], self.steps, 0, [snapshot] if snapshot else [])
            if self._policy is not None and snapshot is None:
                self._lanes.start_from(self._policy.state, self._policy.scales, self._policy.statistics)
        return self._lanes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._case.env!r}, seed={self._seed}) after {counted(self.steps, 'step')}"


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
    return [(check_int("every", getattr(one, "every", CALLBACK_STEPS), 1, MAX_STEPS), one) for one in listed]


def _raise_failed(lanes: LaneBatch, before: str = "") -> NoReturn:
    """Say why there is nothing left to train."""
    [outcome] = lanes.outcomes()
    if outcome.error is None:
        raise RuntimeError("it can't learn any more: it has diverged")
    where = "" if outcome.error.startswith(BEFORE_STARTING) else f"at step {lanes.time:,}: "
    cause = lanes.causes.get(0) if isinstance(lanes, HostLaneBatch) else None
    raise RuntimeError(f"{before}the environment failed {where}{outcome.error}") from cause


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
        policy = Policy(run, policy.state, policy.scales, statistics=policy.statistics)
    model = FRONTS[run.config.agent].__new__(FRONTS[run.config.agent])
    model._set_up(run.config.env if env is None else env, run.config, run.seed, policy, held.snapshot)
    return model


def _moved(held: CheckpointFile, env: Any, path: str | os.PathLike[str]) -> Run:
    """The run of a file, on this environment."""
    run, world = held.policy.run, make_world(env) if isinstance(env, str) else named_host_env(env)
    name, options = (env, {}) if isinstance(world, Env) else (world.name, world.options)
    config = RunConfig(run.config.agent, name, run.config.steps, run.config.hypers, options)
    vars(config).update(learner=run.config.learner, world=world)
    moved = Run(config, run.seed)
    if adapter_for(moved) != held.policy.adapter:
        raise InputError(f"env = {env!r} has other observations and actions than {str(path)!r} was trained on")
    if held.snapshot is not None and isinstance(world, Env) != isinstance(run.config.world, Env):
        raise InputError(f"env = {env!r} is not allowed for everything of a run on {run.config.env}; save without it")
    if isinstance(world, HostEnv) and isinstance(run.config.world, HostEnv):
        vars(config).update(world=replace(world, known=held.policy.adapter))  # images are seen as in training
    return moved
