"""Films: the numbers of an explanation against SciPy and the networks themselves, pictures of them, and files."""

import importlib
import itertools
import math
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy.special import softmax
from scipy.stats import norm, truncnorm

from greedyac.agents import AGENTS, make_agent
from greedyac.core.errors import InputError
from greedyac.core.spaces import Box, Discrete, Spaces
from greedyac.video import gif
from greedyac.video.explain import POINTS, Categorical, Continuous, Explanation, Marginals, explain
from greedyac.video.frame import CAPTION, GAP, Frame, beside, captioned
from greedyac.video.panel import ELITE, PROPOSAL, Panel
from greedyac.video.picture import Span, bars
from greedyac.video.record import check_film, episode_frames, show_window, write_film

Floats = NDArray[np.float64]
OBSERVATION = np.array([0.3, -0.8, 0.5, 1.2], np.float32)
KEY = jax.random.key(5)
QUICKLY: Any = {"xla_backend_optimization_level": 0}
FFMPEG: str = importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
BOXES = {"Box(1)": Box((-2.0,), (2.0,)), "Box(3)": Box((-1.0, 0.0, -3.0), (1.0, 5.0, -1.0))}
COUNTS = {"Discrete(3)": Discrete(3), "Discrete(25)": Discrete(25)}


class Case(NamedTuple):
    """An agent's fresh state and what is told of it, on the host."""

    state: Any
    told: Any


def spaces_of(action: Box | Discrete) -> Spaces:
    return Spaces(Box((-2.0,) * 4, (2.0,) * 4), action)


@lru_cache(maxsize=64)
def config(name: str, action: Box | Discrete, **hypers: object) -> Case:
    agent, spaces = make_agent(name, hypers), spaces_of(action)
    state = jax.jit(agent.init, static_argnums=1, compiler_options=QUICKLY)(jax.random.key(3), spaces)
    return Case(state, jax.device_get(explain(agent, state, spaces, jnp.asarray(OBSERVATION), KEY)))


def value(state: Any, action: Any) -> float:
    """Q(s, a) of one action; the smaller of two critics."""
    return float(jnp.min(state.critic(jnp.asarray(OBSERVATION), jnp.asarray(action))))


def edges_of(grid: Floats) -> Floats:
    return np.array([grid[0], *(grid[1:] + grid[:-1]) / 2, grid[-1]])


def cumulative(policy: Any, family: str, dimension: int, edges: Floats) -> Floats:
    """The probability of less than each edge, by SciPy."""
    mean, std, low, high = (
        float(number[dimension]) for number in (policy.mean, np.exp(policy.log_std), policy.low, policy.high)
    )
    if family == "squashed":
        with np.errstate(divide="ignore"):
            return np.asarray(norm.cdf(np.arctanh((2 * edges - low - high) / (high - low)), mean, std))
    if family == "truncated-gaussian":
        return np.asarray(truncnorm.cdf(edges, (low - mean) / std, (high - mean) / std, mean, std))
    return np.asarray(norm.cdf(edges, mean, std))


POLICIES = [
    ("greedy-ac", "actor", "gaussian", {}),
    ("greedy-ac", "proposal", "truncated-gaussian", {}),
    ("greedy-ac", "proposal", "gaussian", {"proposal_policy": "gaussian"}),
    ("sac", "actor", "squashed", {}),
    ("sac", "actor", "gaussian", {"policy": "gaussian"}),
]


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize(("name", "who", "family", "hypers"), POLICIES)
def test_densities_are_those_of_scipy(name: str, who: str, family: str, hypers: dict[str, object], box: str) -> None:
    state, told = config(name, BOXES[box], **hypers)
    policy, marginals = getattr(state, who)(jnp.asarray(OBSERVATION)), getattr(told, who)
    for dimension in range(BOXES[box].size):
        edges = edges_of(told.grid[dimension].astype(float))
        below = cumulative(policy, family, dimension, edges)
        expected = np.diff(below) / np.diff(edges)
        np.testing.assert_allclose(marginals.density[dimension], expected, rtol=2e-3, atol=1e-4 * expected.max())
        at_bounds = [below[0], 1 - below[-1]] if family == "gaussian" else [0, 0]
        np.testing.assert_allclose(marginals.at_bounds[dimension], at_bounds, atol=1e-6)
    assert (family == "gaussian") == (marginals.at_bounds.max() > 0.01)


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("name", AGENTS)
def test_densities_and_what_is_at_the_bounds_hold_all_of_the_probability(name: str, box: str) -> None:
    told = config(name, BOXES[box]).told
    for marginals in (told.actor, told.proposal) if told.proposal else (told.actor,):
        assert marginals.density.shape == (BOXES[box].size, POINTS)
        for grid, density, at_bounds in zip(told.grid, *marginals, strict=True):
            cells = np.diff(edges_of(grid.astype(float)))
            assert (density * cells).sum() + at_bounds.sum() == pytest.approx(1, abs=1e-4)


def test_a_density_between_two_points_of_the_grid_is_not_missed() -> None:
    agent, spaces, state = (
        make_agent("greedy-ac"),
        spaces_of(BOXES["Box(1)"]),
        config("greedy-ac", BOXES["Box(1)"]).state,
    )
    head = eqx.tree_at(lambda head: head.bias, jax.tree.map(jnp.zeros_like, state.actor.log_std), jnp.full(1, -6.0))
    actor = eqx.tree_at(lambda actor: actor.log_std, state.actor, head)  # a deviation of e⁻⁶, an eighth of a cell
    told: Any = explain(agent, state._replace(actor=actor), spaces, jnp.asarray(OBSERVATION), KEY)
    mode = float(told.mode[0])
    assert abs(float(told.grid[0, int(told.actor.density[0].argmax())]) - mode) <= 0.01 + 1e-6  # half a cell
    assert float(told.actor.density.sum()) * 4 / (POINTS - 1) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("name", ["greedy-ac", "sac", "vanilla-ac"])
def test_values_are_the_critics_with_the_other_dimensions_at_the_mode(name: str, box: str) -> None:
    state, told = config(name, BOXES[box])
    np.testing.assert_allclose(told.mode, state.actor(jnp.asarray(OBSERVATION)).mode(), rtol=1e-5)
    for dimension, point in itertools.product(range(BOXES[box].size), (0, 1, 77, POINTS - 1)):
        action = told.mode.copy()
        action[dimension] = told.grid[dimension, point]
        assert told.values[dimension, point] == pytest.approx(value(state, action), abs=1e-4)
    np.testing.assert_array_equal(told.grid[:, 0], np.array(BOXES[box].low, np.float32))
    np.testing.assert_array_equal(told.grid[:, -1], np.array(BOXES[box].high, np.float32))


@pytest.mark.parametrize(
    ("action", "hypers", "samples", "elite"),
    [
        (BOXES["Box(1)"], {"proposal_samples": 11, "elite_fraction": 0.25}, 11, 3),
        (BOXES["Box(3)"], {}, 30, 3),
        (COUNTS["Discrete(25)"], {}, 30, 3),
    ],
)
def test_the_elite_are_the_best_samples(
    action: Box | Discrete, hypers: dict[str, object], samples: int, elite: int
) -> None:
    state, told = config("greedy-ac", action, **hypers)
    actions = told.samples.actions
    values = np.array([value(state, one) for one in actions])
    np.testing.assert_allclose(told.samples.values, values, atol=1e-4)
    assert told.samples.elite.sum() == elite  # ⌈ρN⌉
    assert values[told.samples.elite].min() >= values[~told.samples.elite].max() - 1e-4
    if isinstance(action, Box):
        assert actions.shape == (samples, action.size)
        assert (actions >= np.array(action.low, np.float32)).all()
        assert (actions <= np.array(action.high, np.float32)).all()
    else:
        assert actions.shape == (samples,)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", AGENTS)
def test_discrete_actions_have_probabilities_values_and_a_greedy_one(name: str, count: str) -> None:
    action = COUNTS[count]
    state, told = config(name, action)
    assert told.actor.sum() == pytest.approx(1, abs=1e-5)
    if name == "random":
        np.testing.assert_allclose(told.actor, 1 / action.count)
        assert told.values is told.greedy is told.mode is None
        return
    logits = np.asarray(state.actor(jnp.asarray(OBSERVATION)).logits, float)
    np.testing.assert_allclose(told.actor, softmax(logits), rtol=1e-4)
    assert told.mode == logits.argmax()
    values = np.array([value(state, one) for one in range(action.count)])
    np.testing.assert_allclose(told.values, values, atol=1e-4)
    assert told.greedy[values.argmax()]
    assert told.greedy.sum() == 1
    proposes = name == "greedy-ac" and action.count == 25
    assert (told.proposal is not None) == (told.samples is not None) == proposes
    if proposes:
        assert told.proposal.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", AGENTS)
def test_what_an_agent_does_not_have_is_none(name: str) -> None:
    told = config(name, BOXES["Box(3)"]).told
    assert (told.values is not None) == (name != "random") == (told.mode is not None)
    assert (told.proposal is not None) == (name == "greedy-ac") == (told.samples is not None)


@pytest.mark.parametrize("action", [BOXES["Box(3)"], Discrete(25)], ids=repr)
def test_of_a_state_with_nothing_but_an_actor_its_policy_is_told(action: Box | Discrete) -> None:
    class ActorOnly(NamedTuple):
        actor: Any

    agent, whole = make_agent("greedy-ac"), config("greedy-ac", action)
    told = explain(agent, ActorOnly(whole.state.actor), spaces_of(action), jnp.asarray(OBSERVATION), KEY)
    assert told.values is told.proposal is told.samples is None
    jax.tree.map(np.testing.assert_array_equal, told.actor, whole.told.actor)


def curve(values: Any, dims: int = 1) -> Continuous:
    """An explanation with these values in every dimension, and nothing of CCEM."""
    grid = jnp.tile(jnp.linspace(-1, 1, len(values)), (dims, 1))
    flat = Marginals(jnp.full(grid.shape, 0.5), jnp.zeros((dims, 2)))
    return Continuous(grid, jnp.tile(jnp.asarray(values), (dims, 1)), jnp.zeros(dims), flat, None, None)


def has_colour(frame: Frame, colour: str) -> bool:
    wanted = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return bool((frame == np.array(wanted, np.uint8)).all(-1).any())


@pytest.mark.parametrize("action", [*BOXES.values(), *COUNTS.values()], ids=repr)
@pytest.mark.parametrize("name", AGENTS)
def test_a_panel_draws_whatever_there_is_and_nothing_else(name: str, action: Box | Discrete) -> None:
    told = config(name, action).told
    frame = Panel(height=300).draw(told, told.mode)
    assert frame.dtype == np.uint8
    assert frame.shape[0] == 300
    assert frame.shape[2] == 3
    assert has_colour(frame, PROPOSAL) == (told.proposal is not None)
    assert has_colour(frame, ELITE) == (told.samples is not None or getattr(told, "greedy", None) is not None)


def test_a_frame_does_not_depend_on_the_ones_before_but_for_the_axis() -> None:
    first, other, panel = curve([0.0, -3.0, -1.0]), curve([5.0, 9.0, 7.0]), Panel()
    before = panel.draw(first)
    kept = before.copy()
    assert not np.array_equal(panel.draw(other), before)
    np.testing.assert_array_equal(panel.draw(first), before)
    np.testing.assert_array_equal(before, kept)  # a frame that was given away is not drawn over


def test_a_panel_says_how_many_dimensions_it_leaves_out() -> None:
    def notes(dims: int) -> list[str]:
        panel = Panel()
        panel.draw(curve([0.0, -1.0, 0.5], dims))
        assert panel._picture is not None
        return [text.get_text() for text in panel._picture.figure.texts]

    assert notes(3) == []
    assert notes(5) == ["3 of 5 action dimensions; the other 2 are not shown"]


@pytest.mark.parametrize("values", [[0.0, 0.0, 0.0], [math.nan, 1.0, 2.0], [1e30, -1e30, 0.0]])
def test_a_panel_survives_values_that_are_equal_missing_or_huge(values: list[float]) -> None:
    assert Panel().draw(curve(values), np.zeros(1)).shape == (400, 460, 3)


def test_an_axis_widens_at_once_but_gliding_and_narrows_only_after_a_while() -> None:
    span = Span()
    assert [span.follow(needed) for needed in (3.0, 4.0, 2.5)] == [5.0, 5.0, 5.0]
    glide = [span.follow(30.0) for _ in range(20)]
    assert glide == sorted(glide)
    assert 5 < glide[0] < 15
    assert glide[-1] == 50.0
    assert [span.follow(1.0) for _ in range(span.interrupt)] == [50.0] * span.interrupt
    assert span.follow(40.0) == 50.0  # the wait starts anew
    for _ in range(span.interrupt + 20):
        shown = span.follow(1.0)
    assert shown == 2.0
    assert span.follow(0.0) == span.follow(math.nan) == 2.0


def test_bars_are_one_polygon_along_the_floor() -> None:
    corners = [(0, -1), (0, 2), (1, 2), (1, -1), (3, -1), (3, 5), (4, 5), (4, -1)]
    np.testing.assert_array_equal(bars([0, 3], [1, 4], [2, 5], floor=-1), corners)


class Counter(gymnasium.Env[Any, Any]):
    """Observes how many steps there were, rewards −1.5 for each, and ends after `length`."""

    observation_space = gymnasium.spaces.Box(0, np.inf, (1,))
    action_space = gymnasium.spaces.Discrete(1000)
    render_mode = "rgb_array"

    def __init__(self, length: int = 7, truncates: bool = False):
        self.length, self.truncates = length, truncates
        self.actions: list[int] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.actions.clear()
        return self._observation(), {"seed": seed}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        ended = len(self.actions) == self.length
        return self._observation(), -1.5, ended and not self.truncates, ended and self.truncates, {}

    def _observation(self) -> Floats:
        return np.array([len(self.actions)], float)

    def render(self) -> Any:
        return np.full((8, 10, 3), 20 * len(self.actions), np.uint8)


def ten_more(observation: Any) -> int:
    return int(observation[0]) + 10


@pytest.mark.parametrize(
    ("truncates", "limit", "steps"), [(False, 100, 7), (True, 100, 7), (False, 4, 4), (True, 7, 7)]
)
def test_an_episode_has_a_frame_of_its_start_and_one_after_every_step(truncates: bool, limit: int, steps: int) -> None:
    env = Counter(truncates=truncates)
    frames = list(episode_frames(env, ten_more, seed=0, max_steps=limit, height=40))
    assert env.actions == list(range(10, 10 + steps))
    assert [int(frame[0, 0, 0]) for frame in frames] == [20 * step for step in range(steps + 1)]
    assert {frame.shape for frame in frames} == {(40, 20, 3)}  # 16 of 8 pixels and the caption; twice as wide, too


def test_the_panel_shows_the_observation_and_the_action_that_the_frame_leads_to() -> None:
    seen = []

    def panel(observation: Any, action: Any) -> Frame:
        seen.append((observation[0], action))
        return np.full((60, 5, 3), 100 + action, np.uint8)

    frames = list(episode_frames(Counter(2), ten_more, 0, 9, panel, height=60))
    assert seen == [(0, 10), (1, 11)]
    assert [int(frame[0, -1, 0]) for frame in frames] == [110, 111, 111]  # at the end nothing is chosen
    assert frames[0].shape == (60, 45 + GAP + 5, 3)
    assert (frames[0][:, 45 : 45 + GAP] == 255).all()


def test_the_caption_is_below_the_frame() -> None:
    frame = np.full((100, 150, 3), 9, np.uint8)
    one, other = (captioned(frame, f"step {step}, return −35.0", 100 + CAPTION) for step in (120, 121))
    assert one.shape == (100 + CAPTION, 150, 3)
    np.testing.assert_array_equal(one[:100], frame)
    assert (one[100:] < 100).any()
    assert not np.array_equal(one, other)


def test_pictures_of_unequal_height_stand_side_by_side_on_white() -> None:
    both = beside(np.zeros((4, 2, 3), np.uint8), np.zeros((6, 3, 3), np.uint8))
    assert both.shape == (6, 2 + GAP + 3, 3)
    assert (both[:, :, 0] == 0).sum() == 4 * 2 + 6 * 3


def test_an_environment_that_renders_no_pictures_is_refused() -> None:
    env = gymnasium.make("CartPole-v1", render_mode=None)
    env.unwrapped.render = lambda: None  # type: ignore[method-assign]
    with pytest.raises(InputError, match="rgb_array"):
        next(episode_frames(env.unwrapped, ten_more, 0, 1))


def moving(count: int, height: int = 24, width: int = 36) -> list[Frame]:
    """A square that walks over a ground of a few colours; every fourth frame repeats the one before."""
    frames = []
    for number in range(count):
        frame = np.zeros((height, width, 3), np.uint8)
        frame[:, ::3] = (10, 200, 30)
        place = number - (number % 4 == 3)
        frame[5:9, place : place + 4] = (255, place, 0)
        frames.append(frame)
    return frames


def gif_of(content: Path | Any) -> tuple[list[Frame], list[int], Any]:
    with Image.open(content) as film:
        frames, times = [], []
        for number in range(getattr(film, "n_frames", 1)):
            film.seek(number)
            frames.append(np.asarray(film.convert("RGB")))
            times.append(film.info["duration"])
        return frames, times, film.info.get("loop")


def test_a_gif_holds_every_frame_at_the_right_time_and_loops(tmp_path: Path) -> None:
    frames = moving(13)
    write_film(iter(frames), tmp_path / "film.GIF", fps=30)
    shown, times, loop = gif_of(tmp_path / "film.GIF")
    np.testing.assert_array_equal(shown, frames)
    assert times[:6] == [30, 40, 30, 30, 40, 30]
    assert sum(times) == 430  # 13/30 s
    assert loop == 0
    assert [path.name for path in tmp_path.iterdir()] == ["film.GIF"]


@pytest.mark.parametrize(("fps", "kept", "time"), [(25, 1, 40), (50, 1, 20), (100, 2, 20), (60, 2, None), (150, 3, 20)])
def test_a_fast_gif_leaves_frames_out_rather_than_time(fps: int, kept: int, time: int | None, tmp_path: Path) -> None:
    frames = moving(12)
    write_film(frames, tmp_path / "film.gif", fps)
    shown, times, _ = gif_of(tmp_path / "film.gif")
    np.testing.assert_array_equal(shown, frames[::kept])
    assert sum(times) == pytest.approx(12_000 / fps, abs=5)
    assert min(times) >= 20
    assert time is None or set(times) == {time}


def test_a_gif_of_many_colours_comes_close_to_them(tmp_path: Path) -> None:
    across = np.linspace(0, 255, 90).astype(np.uint8)
    frames = [np.stack([*np.meshgrid(across, across[::-1]), np.full((90, 90), blue, np.uint8)], -1) for blue in (0, 99)]
    write_film(frames, tmp_path / "film.gif", 10)
    shown, _, _ = gif_of(tmp_path / "film.gif")
    error = np.abs(np.asarray(shown, int) - np.asarray(frames, int))
    assert error.mean() < 6  # 4.6 measured: 255 colours for 8,100


def test_a_gif_of_a_long_film_is_small() -> None:
    frames = (captioned(frame, f"step {number}") for number, frame in enumerate(moving(36, 24, 40)))
    assert len(gif.encode(frames, 30)) < 36 * 10_000  # 200 steps: under 2 MB


def frames_of_mp4(path: Path, height: int, width: int) -> Frame:
    command = [FFMPEG, "-loglevel", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)


def test_an_mp4_can_be_read_back_and_has_even_sides(tmp_path: Path) -> None:
    frames = [np.full((31, 45, 3), 20 * number, np.uint8) for number in range(9)]
    write_film(iter(frames), tmp_path / "film.mp4", fps=20)
    shown = frames_of_mp4(tmp_path / "film.mp4", 32, 46)
    assert len(shown) == 9
    np.testing.assert_allclose(shown[:, 5:20, 5:20].mean((1, 2, 3)), [20 * number for number in range(9)], atol=4)
    assert [path.name for path in tmp_path.iterdir()] == ["film.mp4"]
    told = subprocess.run([FFMPEG, "-i", tmp_path / "film.mp4"], capture_output=True, text=True, check=False)
    assert "20 fps" in told.stderr


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_a_film_that_fails_leaves_what_was_there(suffix: str, tmp_path: Path) -> None:
    def breaking() -> Iterator[Frame]:
        yield from moving(3)
        raise RuntimeError("the environment broke")

    path = tmp_path / f"film{suffix}"
    with pytest.raises(RuntimeError, match="broke"):
        write_film(breaking(), path, 30)
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="broke"):
        write_film(breaking(), path, 30)
    with pytest.raises(ValueError, match="at least one frame"):
        write_film([], path, 30)
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [(path.name, b"old")]


def test_an_mp4_that_ffmpeg_refuses_is_an_error_in_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "greedyac.video.record._ffmpeg", lambda *_: [sys.executable, "-c", "import sys; sys.exit('no')"]
    )
    with pytest.raises(OSError, match="ffmpeg failed: no"):
        write_film(itertools.repeat(moving(1)[0], 200), tmp_path / "film.mp4", 30)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["film", "film.avi", "film.gif.png", ".gif"])
def test_other_films_are_refused_before_anything_is_drawn(name: str, tmp_path: Path) -> None:
    untouched: Iterator[Frame] = map(pytest.fail, ["a frame was asked for"])
    with pytest.raises(InputError, match=r"\.gif or \.mp4"):
        write_film(untouched, tmp_path / name, 30)


def test_a_film_needs_a_folder_and_no_folder_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "folder.gif").mkdir()
    for path, words in (
        (tmp_path / "nowhere" / "film.gif", "does not exist"),
        (tmp_path / "folder.gif", "is a folder"),
    ):
        with pytest.raises(InputError, match=words):
            check_film(path)


def test_what_the_extra_brings_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in ("imageio_ffmpeg", "pygame"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=r"imageio-ffmpeg: pip install 'greedyac\[play\]'"):
        write_film(moving(1), tmp_path / "film.mp4", 30)
    with pytest.raises(InputError, match=r"pygame: pip install 'greedyac\[play\]'"):
        show_window(moving(1), 30, "title")
    write_film(moving(1), tmp_path / "film.gif", 30)  # needs no extra


WINDOW = """
import sys
import numpy as np
from greedyac.core.errors import InputError
from greedyac.video.record import show_window

def frames(ending):
    for number in range(6):
        print(ending, number, flush=True)
        yield np.full((40, 60, 3), number, np.uint8)
        import pygame
        assert pygame.display.get_caption()[0] == "a title" and pygame.display.get_window_size() == (60, 40)
        if number == 1:
            pygame.event.post(pygame.event.Event(pygame.KEYDOWN, {"key": pygame.K_SPACE}))  # does nothing
        if number == 2 and ending == "escape":
            pygame.event.post(pygame.event.Event(pygame.KEYDOWN, {"key": pygame.K_ESCAPE}))
        if number == 2 and ending == "close":
            pygame.event.post(pygame.event.Event(pygame.QUIT))

try:
    for ending in ("none", "escape", "close"):
        show_window(frames(ending), 1000, "a title")
except InputError as error:
    sys.exit(f"refused: {error}")
"""


def window(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WINDOW]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_window_shows_frames_until_they_end_or_it_is_closed() -> None:
    ended = window({"SDL_VIDEODRIVER": "dummy"})
    assert (ended.stderr, ended.returncode) == ("", 0)
    shown = [
        f"{ending} {number}" for ending, count in (("none", 6), ("escape", 4), ("close", 4)) for number in range(count)
    ]
    assert ended.stdout.splitlines() == shown  # and no greeting


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is a display without being told")
def test_without_a_display_a_film_is_suggested() -> None:
    ended = window({})
    assert ended.returncode == 1
    assert "refused: there is no display for a window" in ended.stderr
    assert ended.stderr.rstrip().endswith("--out film.gif")
    assert ended.stdout == ""


def test_a_film_of_a_real_environment_with_its_panel(tmp_path: Path) -> None:
    env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    agent, spaces, panel = make_agent("greedy-ac"), spaces_of(Discrete(2)), Panel()
    state = config("greedy-ac", Discrete(2)).state

    def why(observation: Any, action: Any) -> Frame:
        told: Explanation = explain(agent, state, spaces, jnp.asarray(observation), KEY)
        assert isinstance(told, Categorical)
        return panel.draw(told, action)

    frames = episode_frames(env, lambda observation: int(agent.act(state, observation, KEY, greedy=True)), 0, 5, why)
    write_film(frames, tmp_path / "film.gif", 50)
    shown, times, _ = gif_of(tmp_path / "film.gif")
    env.close()
    assert times == [20] * 6
    assert shown[0].shape == (400, 564 + GAP + 460, 3)  # 376 × 600 / 400 pixels
