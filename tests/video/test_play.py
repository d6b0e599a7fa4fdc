"""`greedyac play`: films of policies on every built-in environment and on Gymnasium's own, explained or not."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

import greedyac
from greedyac.agents import make_agent
from greedyac.cli import main
from greedyac.core.fields import values_of
from greedyac.envs import ENVS
from greedyac.training.checkpoint import Policy, save_checkpoint
from greedyac.training.config import Run, RunConfig
from greedyac.video.frame import captioned
from greedyac.video.play import drawn_env, frames_per_second, play

Capture = pytest.CaptureFixture[str]


def policy_of(agent: str, env: str, **options: Any) -> Policy:
    """Fresh networks."""
    learner = make_agent(agent, {} if agent == "random" else {"hidden": (4,)})
    run = Run(RunConfig(agent, env, 10, values_of(learner), options), seed=3)
    return Policy(run, learner.init(jax.random.key(1), run.config.world.spaces))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("play") / "policy.safetensors"
    save_checkpoint(path, policy_of("greedy-ac", "Pendulum-CA", time_limit=30))
    return path


@pytest.mark.parametrize("env", ENVS)
def test_a_film_of_each_environment(env: str) -> None:
    policy = policy_of("random", env, time_limit=5)
    drawn = drawn_env(policy)
    frames = list(play(drawn, policy, 0, 100, deterministic=True, explained=False))
    assert len(frames) == 6  # the start, and after every step until the time limit
    assert len({frame.tobytes() for frame in frames}) == 6
    assert len({frame.shape for frame in frames}) == 1
    assert frames_per_second(drawn) > 0


def test_the_film_shows_what_the_policy_does() -> None:
    """The same frames as of a plain loop over the environment."""
    policy = policy_of("vanilla-ac", "Acrobot-CA", time_limit=4)
    frames = list(play(drawn_env(policy), policy, 7, 100, deterministic=True, explained=False))
    env, total = drawn_env(policy), 0.0
    observation, _ = env.reset(seed=7)
    for step, frame in enumerate(frames):
        drawn: Any = env.render()
        assert np.array_equal(frame, captioned(drawn, f"step {step}, return {total:.1f}".replace("-", "−"), 400))
        if step < 4:
            observation, reward, *_ = env.step(policy.predict(observation).action)
            total += float(reward)
    assert len(frames) == 5


def test_the_command_writes_a_film(checkpoint: Path, tmp_path: Path, capsys: Capture) -> None:
    plain, explained = tmp_path / "plain.gif", tmp_path / "explained.gif"
    words = ["play", str(checkpoint), "--steps", "12"]
    assert main([*words, "--out", str(plain)]) == 0
    assert main([*words, "--out", str(explained), "--explain"]) == 0
    assert f"written: {explained}" in capsys.readouterr().out
    with Image.open(plain) as small, Image.open(explained) as wide:
        assert (small.n_frames, wide.n_frames) == (13, 13)  # type: ignore[attr-defined]
        assert wide.width > small.width + 300
        assert wide.height == small.height
    first = plain.read_bytes()
    assert main([*words, "--out", str(plain)]) == 0
    assert plain.read_bytes() == first  # nothing in it is left to chance
    assert main([*words, "--out", str(plain), "--stochastic"]) == 0
    assert plain.read_bytes() != first


def test_films_of_other_environments(tmp_path: Path) -> None:
    """Gymnasium's own, and one with a discrete action that does not start at 0."""
    policy = policy_of("sac", "CartPole-v1")
    frames = list(play(drawn_env(policy), policy, 0, 5, deterministic=True, explained=True))
    assert len(frames) == 6


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--out", "film.avi"], "a film 'film.avi' can't be written; allowed: names that end in .gif or .mp4"),
        (["--out", "nowhere/film.gif"], "the folder 'nowhere' of the film does not exist"),
        (["--out", ""], "'' is not allowed; allowed: the path of a file"),
        (["--steps", "0", "--out", "film.gif"], "'0' is not allowed; allowed: whole number ≥ 1"),
        (["--seed", "-1", "--out", "film.gif"], "seed = -1 is not allowed"),
    ],
)
def test_wrong_words(
    words: list[str], complaint: str, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["play", str(checkpoint), *words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert complaint in line
    assert not list(tmp_path.iterdir())


def test_what_can_not_be_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in (("words.txt", b"hello"), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        assert main(["play", name, "--out", "film.gif"]) == 2
        assert f"checkpoint '{name}': it is cut short, damaged or no safetensors file" in capsys.readouterr().err
    policy = policy_of("vanilla-ac", "Pendulum-CA")
    broken = policy.state._replace(actor=jax.tree.map(lambda leaf: leaf * np.nan, policy.state.actor))
    save_checkpoint(tmp_path / "broken", Policy(policy.run, broken))
    assert main(["play", "broken", "--out", "film.gif"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "nan" in line.casefold()
    assert not (tmp_path / "film.gif").exists()


def test_a_policy_without_a_screen_says_so(checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    assert main(["play", str(checkpoint)]) == 2
    assert "--out film.gif" in capsys.readouterr().err.splitlines()[-1]
    assert greedyac.load(checkpoint).steps == 0
