"""Selection: planted answers are found, only tuning seeds are seen, and what is reported is said to be what it is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pytest
from helpers.synthetic import Told, fill, grid_study, noise, row_of

from greedyac.agents.sac import SACAgent
from greedyac.analysis.grid import make_grids
from greedyac.analysis.load import Results, load, with_values
from greedyac.analysis.scores import PAPER_BEST, best_returns, paper_scale, paper_scales
from greedyac.analysis.select import BYS, By, Choice, Reported, choose, reported
from greedyac.core.errors import InputError
from greedyac.results.files import publish_rows
from greedyac.results.schema import SCHEMA
from greedyac.study.spec import Study
from greedyac.study.store import Store
from greedyac.training.config import Run

CRITIC = (1e-4, 1e-3, 1e-2)
THREE = "critic_step_size = [1e-4, 1e-3, 1e-2]"
TWO = "critic_step_size = [1e-4, 1e-3]"
BEST = {"Pendulum-CA": 10.0, "Acrobot-CA": -10.0}
MEANS = {"Pendulum-CA": (9.0, 8.0, 0.0), "Acrobot-CA": (-30.0, -12.0, -11.0)}
"""Scores with the bests above: 0.9, 0.8, 0 and -1, 0.8, 0.9. So the second is best across both, and nowhere else."""


def study_of(
    seeds: str = "0-3",
    tuning: str | None = None,
    envs: tuple[str, ...] = ("Pendulum-CA", "Acrobot-CA"),
    agents: tuple[str, ...] = ("sac",),
    sweep: str = THREE,
    name: str = "planted",
) -> Study:
    return grid_study(agents, envs, seeds, tuning, name, sweep=sweep)


ONE_ENV = study_of(envs=("Pendulum-CA",))


def place(run: Run) -> int:
    return CRITIC.index(run.config.hypers["critic_step_size"])


def planted(run: Run) -> Told:
    """The means above; even seeds lie one tenth below them, odd ones above."""
    mean = MEANS[run.config.env][place(run)]
    return Told(mean + (0.1 if run.seed % 2 else -0.1), BEST[run.config.env])


def flat(*values: float | None, best: float = 10.0) -> Callable[[Run], Told]:
    """The same value for all seeds of a setting."""
    return lambda run: Told(values[place(run)], best)


def chosen(results: Results, by: By, best: Literal["store", "paper"] = "store") -> dict[tuple[str, ...], float]:
    """Environments → the critic's step size; there is one agent, and no note."""
    choices, notes = choose(results, by, best)
    assert notes == []
    return {choice.envs: float(str(choice.hypers["critic_step_size"])) for choice in choices}


def plain(choices: list[Choice]) -> list[Any]:
    """Choices as values that can be compared."""
    return [(*choice[:-1], choice.rivals.rows(named=True)) for choice in choices]


def critic_of(study: Study, setting: str) -> Any:
    [found] = {case.hypers["critic_step_size"] for case in study.configs if case.setting_id == setting}
    return found


def test_the_best_setting_of_each_environment_and_across_them(tmp_path: Path) -> None:
    study = study_of()
    fill(tmp_path, study, planted)
    results = load(tmp_path)
    assert chosen(results, "env") == {("Acrobot-CA",): 1e-2, ("Pendulum-CA",): 1e-4}
    assert chosen(results, "kind") == {("Acrobot-CA", "Pendulum-CA"): 1e-3}
    first, second = choose(results, "env")[0]
    assert (first.by, first.agent, first.kind, first.setting) == ("env", "sac", "continuous", "critic_step_size=0.01")
    assert (first.score, second.score) == pytest.approx((-11.0, 9.0))
    [across] = choose(results, "kind")[0]
    assert (across.by, across.setting, across.compared, across.left_out) == ("kind", "critic_step_size=0.001", 3, 0)
    assert across.seeds == (0, 1, 2, 3)
    assert critic_of(study, across.setting_id) == 1e-3
    assert across.score == pytest.approx(0.8)
    assert across.rivals["score"].to_list() == pytest.approx([0.8, 0.45, -0.05])
    assert [critic_of(study, setting) for setting in across.rivals["setting_id"]] == [1e-3, 1e-2, 1e-4]
    assert across.rivals["setting"].to_list() == [f"critic_step_size={value:g}" for value in (1e-3, 1e-2, 1e-4)]


@pytest.mark.parametrize(("shift", "winner"), [(0.0, 1e-2), (-1000.0, 1e-3)])
def test_the_score_is_relative_to_the_size_of_the_best(tmp_path: Path, shift: float, winner: float) -> None:
    """Setting 1e-2 is 5 better on Pendulum, 1e-3 is 1 better on Acrobot; which counts more depends on the bests."""
    best = {"Pendulum-CA": 100.0 + shift, "Acrobot-CA": -50.0}
    values = {"Pendulum-CA": (0.0, 90.0, 95.0), "Acrobot-CA": (-100.0, -60.0, -61.0)}
    moved = {"Pendulum-CA": shift, "Acrobot-CA": 0.0}
    fill(
        tmp_path,
        study_of(),
        lambda run: Told(values[run.config.env][place(run)] + moved[run.config.env], best[run.config.env]),
    )
    # (0.9 + 0.8) / 2 against (0.95 + 0.78) / 2; then 1 - 10 / 900 and 0.8 against 1 - 5 / 900 and 0.78
    assert chosen(load(tmp_path), "kind") == {("Acrobot-CA", "Pendulum-CA"): winner}


def test_the_best_is_that_of_any_agent_and_setting(tmp_path: Path) -> None:
    fill(tmp_path, study_of(agents=("sac", "greedy-ac"), envs=("Pendulum-CA",)), flat(8.0, 2.0, 4.0, best=10.0))
    store = Store.existing(tmp_path)
    rows = store.read().rows
    raised = (
        pl.when((pl.col("agent") == "greedy-ac") & (pl.col("seed") == 1)).then(20.0).otherwise(pl.col("best_return"))
    )
    for path in list(store.chunks.iterdir()):
        path.unlink()
    publish_rows(store.chunks, rows.with_columns(best_return=raised))
    scores = {choice.agent: choice.score for choice in choose(load(tmp_path), "kind")[0]}
    assert scores == pytest.approx({"sac": 0.4, "greedy-ac": 0.4})  # 8 of 20


def test_the_papers_bests_may_count_instead(tmp_path: Path) -> None:
    """With 930 and -56 the scores are 9 / 930, 8 / 930, 0 and 2 - 30 / 56, 2 - 12 / 56, 2 - 11 / 56."""
    fill(tmp_path, study_of(), planted)
    results = load(tmp_path)
    assert chosen(results, "kind", "paper") == {("Acrobot-CA", "Pendulum-CA"): 1e-2}
    [choice] = choose(results, "kind", "paper")[0]
    assert choice.score == pytest.approx((2 - 11 / 56) / 2)
    assert choice.rivals["score"].to_list() == pytest.approx(
        [(2 - 11 / 56) / 2, (8 / 930 + 2 - 12 / 56) / 2, (9 / 930 + 2 - 30 / 56) / 2]
    )
    assert chosen(results, "env", "paper") == chosen(results, "env")


def test_the_papers_bests_hold_for_environments_with_options_and_for_no_others() -> None:
    envs = pl.DataFrame({"env": ["Acrobot-CA[start=zero]", "Pendulum-DA"], "best_return": [7.0, 8.0]})
    assert best_returns(envs, "paper") == {"Acrobot-CA[start=zero]": -56.0, "Pendulum-DA": 932.0}
    assert best_returns(envs, "store") == {"Acrobot-CA[start=zero]": 7.0, "Pendulum-DA": 8.0}
    with pytest.raises(
        InputError, match=r"^the paper has no best return for Moon-CA; allowed: Acrobot-CA, Acrobot-DA, "
    ):
        best_returns(pl.DataFrame({"env": ["Moon-CA"], "best_return": [1.0]}), "paper")
    assert len(PAPER_BEST) == 6


@pytest.mark.parametrize(("best", "value", "score"), [(10.0, 8.0, 0.8), (10.0, -10.0, -1.0), (-10.0, -12.0, 0.8)])
def test_the_scale_is_the_papers_score(best: float, value: float, score: float) -> None:
    scale = paper_scale(best)
    assert scale is not None
    assert scale(np.array([value, best])).tolist() == pytest.approx([score, 1.0])
    runs = pl.DataFrame({"env": ["a", "a", "b"], "best_return": [best - 1, best, 0.0]})
    assert paper_scales(runs, "store") == {"a": scale, "b": None}


def garbage(run: Run) -> Told | None:
    """Numbers that would change every choice."""
    if (place(run) + run.seed) % 4 == 3:
        return None if run.seed % 2 else Told(None)
    return Told(-1e6 if place(run) < 2 else 1e6, 1e9)


@pytest.mark.parametrize("best", ["store", "paper"])
@pytest.mark.parametrize("by", BYS)
def test_selection_sees_no_other_seeds_than_those_for_tuning(
    tmp_path: Path, by: By, best: Literal["store", "paper"]
) -> None:
    study = study_of("0-9", "2,4-6", agents=("sac", "greedy-ac"))

    def honest(run: Run) -> Told:
        if (run.config.env, run.seed, place(run)) == ("Pendulum-CA", 4, 2):
            return Told(None)  # counts as the lowest of the tuning seeds' runs
        told = planted(run)
        return Told(MEANS[run.config.env][place(run)] + noise(run), told.best)

    fill(tmp_path / "honest", study, honest)
    fill(tmp_path / "garbage", study, lambda run: honest(run) if run.seed in (2, 4, 5, 6) else garbage(run))
    one, other = (choose(load(tmp_path / name), by, best) for name in ("honest", "garbage"))
    assert one[1] == other[1] == []
    assert plain(one[0]) == plain(other[0])
    assert {choice.seeds for choice in one[0]} == {(2, 4, 5, 6)}
    assert len(one[0]) == (4 if by == "env" else 2)
    alone = study_of("2,4-6", "2,4-6", agents=("sac", "greedy-ac"))
    fill(tmp_path / "alone", alone, honest)
    assert plain(choose(load(tmp_path / "alone"), by, best)[0]) == plain(one[0])


def test_without_tuning_seeds_all_are_seen(tmp_path: Path) -> None:
    fill(tmp_path, ONE_ENV, flat(1.0, 3.0, 2.0))
    [choice] = choose(load(tmp_path), "env")[0]
    assert (choice.seeds, choice.score) == ((0, 1, 2, 3), 3.0)


@pytest.mark.parametrize("by", BYS)
def test_the_order_of_rows_and_their_files_do_not_matter(tmp_path: Path, by: By) -> None:
    study = study_of(agents=("sac", "greedy-ac"))

    def told(run: Run) -> Told:
        return Told(noise(run), BEST[run.config.env])

    fill(tmp_path / "one", study, told)
    fill(tmp_path / "many", study, told, rows_per_file=1)
    rows = pl.DataFrame([row_of(run, told(run)) for run in study.runs().values()], SCHEMA)
    store = Store.create(tmp_path / "shuffled")
    store.record_study(study)
    publish_rows(store.chunks, rows.sample(fraction=1, shuffle=True, seed=1))
    choices = [plain(choose(load(tmp_path / name), by)[0]) for name in ("one", "many", "shuffled")]
    assert choices[0] == choices[1] == choices[2]
    shuffled = Results(load(tmp_path / "one").runs.sample(fraction=1, shuffle=True, seed=1), frozenset(), (), ())
    assert plain(choose(shuffled, by)[0]) == choices[0]


@pytest.mark.parametrize(("values", "winner"), [((5.0, 5.0, 1.0), 1e-4), ((1.0, 5.0, 5.0), 1e-3), ((5.0,) * 3, 1e-4)])
@pytest.mark.parametrize("by", BYS)
def test_of_equal_settings_the_first_along_the_axes_is_chosen(
    tmp_path: Path, values: tuple[float, ...], winner: float, by: By
) -> None:
    fill(tmp_path, ONE_ENV, flat(*values))
    assert list(chosen(load(tmp_path), by).values()) == [winner]


def test_incomplete_settings_are_left_out_and_counted(tmp_path: Path) -> None:
    """The best lacks a run on a tuning seed, the second-best only one on another seed."""
    study = study_of("0-3", "0-1", envs=("Pendulum-CA",))
    lost = {(0, 1), (1, 3)}
    fill(tmp_path, study, lambda run: None if (place(run), run.seed) in lost else flat(9.0, 5.0, 1.0)(run))
    for by in BYS:
        [choice] = choose(load(tmp_path), by)[0]
        assert choice.setting == "critic_step_size=0.001"
        assert (choice.compared, choice.left_out, choice.rivals.height) == (2, 1, 2)


def test_across_environments_a_setting_needs_to_be_complete_on_all(tmp_path: Path) -> None:
    def told(run: Run) -> Told | None:
        return None if (run.config.env, place(run)) == ("Pendulum-CA", 1) and run.seed == 0 else planted(run)

    fill(tmp_path, study_of(), told)
    [across] = choose(load(tmp_path), "kind")[0]
    assert (across.hypers["critic_step_size"], across.compared, across.left_out) == (1e-2, 2, 1)
    assert across.score == pytest.approx(0.45)
    assert {choice.envs: choice.left_out for choice in choose(load(tmp_path), "env")[0]} == {
        ("Acrobot-CA",): 0,
        ("Pendulum-CA",): 1,
    }


def test_across_environments_of_different_settings_and_seeds(tmp_path: Path) -> None:
    fill(tmp_path, study_of("0-1", envs=("Pendulum-CA",), sweep=TWO), planted)
    fill(tmp_path, study_of("2-4", envs=("Acrobot-CA",), name="other"), planted)
    [choice] = choose(load(tmp_path), "kind")[0]
    assert (choice.hypers["critic_step_size"], choice.compared, choice.left_out) == (1e-3, 2, 1)
    assert choice.seeds == (0, 1, 2, 3, 4)


def test_whether_there_is_a_score_depends_on_the_tuning_seeds_alone(tmp_path: Path) -> None:
    for tuned, fresh in ((-5.0, 0.0), (0.0, 5.0)):
        fill(
            tmp_path / str(tuned),
            study_of("0-3", "0-1", envs=("Pendulum-CA",)),
            lambda run, bests=(tuned, fresh): Told(-6.0 - place(run), bests[run.seed > 1]),  # type: ignore[misc]
        )
        choices, notes = choose(load(tmp_path / str(tuned)), "kind")
        assert (len(choices), len(notes)) == ((1, 0) if tuned else (0, 1))


def test_kinds_and_agents_are_chosen_for_by_themselves(tmp_path: Path) -> None:
    study = study_of(envs=("Pendulum-CA", "Pendulum-DA"), agents=("sac", "vanilla-ac"))
    winners = {("sac", "Pendulum-CA"): 0, ("sac", "Pendulum-DA"): 1, ("vanilla-ac", "Pendulum-CA"): 2}
    fill(
        tmp_path,
        study,
        lambda run: Told(5.0 if winners.get((run.config.agent, run.config.env), 0) == place(run) else 1.0, 10.0),
    )
    for by in BYS:
        found = {
            (choice.kind, choice.agent): choice.hypers["critic_step_size"] for choice in choose(load(tmp_path), by)[0]
        }
        assert found == {
            ("continuous", "sac"): 1e-4,
            ("continuous", "vanilla-ac"): 1e-2,
            ("discrete", "sac"): 1e-3,
            ("discrete", "vanilla-ac"): 1e-4,
        }


@pytest.mark.parametrize(("tuning", "words"), [("0-1", " on the tuning seeds"), (None, "")])
def test_where_nothing_is_complete_there_is_a_note(tmp_path: Path, tuning: str | None, words: str) -> None:
    def told(run: Run) -> Told | None:
        return None if run.config.env == "Pendulum-CA" and run.seed == 0 else planted(run)

    fill(tmp_path, study_of("0-3", tuning), told)
    none = f"no setting has a return for every run on Pendulum-CA{words}"
    choices, notes = choose(load(tmp_path), "env")
    assert [choice.envs for choice in choices] == [("Acrobot-CA",)]
    assert notes == [f"no setting of sac was chosen for Pendulum-CA: {none}"]
    assert choose(load(tmp_path), "kind") == (
        [],
        [f"no setting of sac was chosen for the continuous-action environments: {none}"],
    )


def test_where_no_setting_is_complete_everywhere_there_is_a_note(tmp_path: Path) -> None:
    fill(tmp_path, study_of(envs=("Pendulum-CA",), sweep="critic_step_size = [1e-4]"), planted)
    fill(tmp_path, study_of(envs=("Acrobot-CA",), sweep="critic_step_size = [1e-3]", name="other"), planted)
    choices, [note] = choose(load(tmp_path), "kind")
    assert choices == []
    assert note.endswith("for the continuous-action environments: no setting was run on all of them")
    assert len(chosen(load(tmp_path), "env")) == 2


def test_where_all_runs_diverged_there_is_a_note(tmp_path: Path) -> None:
    fill(tmp_path, study_of(), lambda run: Told(None) if run.config.env == "Pendulum-CA" else planted(run))
    choices, [note] = choose(load(tmp_path), "env")
    assert [choice.envs for choice in choices] == [("Acrobot-CA",)]
    assert "no setting of sac was chosen for Pendulum-CA: " in note
    choices, [note] = choose(load(tmp_path), "kind")
    assert choices == []
    assert "for the continuous-action environments: " in note


def test_a_setting_that_diverges_is_no_better_than_the_lowest(tmp_path: Path) -> None:
    fill(tmp_path, ONE_ENV, lambda run: Told(None) if place(run) == 0 and run.seed else flat(50.0, 40.0, 2.0)(run))
    [choice] = choose(load(tmp_path), "env")[0]
    assert choice.hypers["critic_step_size"] == 1e-3
    assert choice.rivals["score"].to_list() == [40.0, (50 + 2 + 2 + 2) / 4, 2.0]


def test_a_best_return_of_zero_has_no_score(tmp_path: Path) -> None:
    fill(tmp_path, ONE_ENV, flat(-3.0, -1.0, -2.0, best=0.0))
    assert list(chosen(load(tmp_path), "env").values()) == [1e-3]
    choices, [note] = choose(load(tmp_path), "kind")
    assert choices == []
    assert note.endswith(": the score is not defined on Pendulum-CA, where the best return is 0 or unknown")
    assert list(chosen(load(tmp_path), "kind", "paper").values()) == [1e-3]


@pytest.mark.parametrize("best", [3000.0, -3000.0])
@pytest.mark.parametrize("by", BYS)
def test_a_clear_winner_has_no_rival(tmp_path: Path, by: By, best: float) -> None:
    fill(tmp_path, ONE_ENV, lambda run: Told(1000.0 * place(run) + noise(run), best))
    [choice] = choose(load(tmp_path), by)[0]
    assert choice.rivals["win_share"].to_list() == [1.0, 0.0, 0.0]
    assert choice.rivals["indistinguishable"].to_list() == [True, False, False]
    assert choice.rivals["setting_id"][0] == choice.setting_id


@pytest.mark.parametrize("by", BYS)
def test_settings_that_win_alike_are_indistinguishable(tmp_path: Path, by: By) -> None:
    """The first wins wherever odd seeds are drawn more often, the second where even ones are."""

    def told(run: Run) -> Told:
        return Told([float(run.seed % 2), 1.0 - run.seed % 2, -50.0][place(run)], 10.0)

    fill(tmp_path, study_of("0-8", envs=("Pendulum-CA",)), told)
    [choice] = choose(load(tmp_path), by)[0]
    rivals = choice.rivals
    assert rivals["indistinguishable"].to_list() == [True, True, False]
    assert rivals["win_share"].sum() == pytest.approx(1.0)
    assert 0.1 < rivals["win_share"][1] < 0.9
    assert rivals["win_share"][2] == 0.0


def test_the_fewest_settings_that_win_95_percent_are_indistinguishable(tmp_path: Path) -> None:
    sweep = "critic_step_size = [1e-4, 2e-4, 3e-4, 4e-4, 5e-4, 6e-4]"
    levels = {1e-4: 0.0, 2e-4: 0.2, 3e-4: 0.5, 4e-4: 0.9, 5e-4: 1.0, 6e-4: -1.0}
    fill(
        tmp_path,
        study_of("0-19", envs=("Pendulum-CA",), sweep=sweep),
        lambda run: Told(levels[run.config.hypers["critic_step_size"]] + noise(run)),
    )
    [choice] = choose(load(tmp_path), "env")[0]
    ordered = choice.rivals.sort("win_share", descending=True)
    shares, kept = ordered["win_share"].to_list(), int(ordered["indistinguishable"].sum())
    assert 1 < kept < 6
    assert sum(shares[:kept]) >= 0.95
    assert ordered["indistinguishable"].to_list() == [True] * kept + [False] * (6 - kept)
    # And those that are not behind the best in 97.5 % of resamples: 1.96 standard errors, about √(2 / 20) each.
    scores = ordered["score"].to_numpy()
    assert (scores.max() - scores[:kept] < 1.0).all()
    assert (scores.max() - scores[kept:] > 0.4).all()


def test_one_seed_tells_no_settings_apart(tmp_path: Path) -> None:
    fill(tmp_path, study_of("0", envs=("Pendulum-CA",)), flat(1.0, 5.0, 900.0))
    [choice] = choose(load(tmp_path), "env")[0]
    assert choice.rivals["indistinguishable"].to_list() == [True, True, True]


def test_a_lucky_run_wins_only_where_it_is_drawn(tmp_path: Path) -> None:
    def told(run: Run) -> Told:
        return Told(100.0 if (place(run), run.seed) == (0, 0) else [-1.0, 0.0, -50.0][place(run)])

    fill(tmp_path, study_of("0-8", envs=("Pendulum-CA",)), told)
    [choice] = choose(load(tmp_path), "env")[0]
    assert choice.hypers["critic_step_size"] == 1e-4
    assert choice.score == pytest.approx((100 - 8) / 9)
    assert choice.rivals["indistinguishable"].to_list() == [True, True, False]
    share = 1 - (8 / 9) ** 9  # of resamples in which the lucky run is
    assert choice.rivals["win_share"].to_list() == pytest.approx([share, 1 - share, 0], abs=0.04)


def test_the_chosen_setting_is_among_the_indistinguishable_even_if_it_never_wins(tmp_path: Path) -> None:
    """It is a little above zero for every seed; the others are waves around zero, of which one or another is higher."""
    sweep = "critic_step_size = [1e-4, 2e-4, 3e-4, 4e-4, 5e-4, 6e-4]"
    waves = {2e-4: (1, 1), 3e-4: (1, -1), 4e-4: (2, 1), 5e-4: (2, -1), 6e-4: (3, 1)}

    def told(run: Run) -> Told:
        if (critic := run.config.hypers["critic_step_size"]) not in waves:
            return Told(1e-6)
        times, sign = waves[critic]
        return Told(sign * float(np.cos(2 * np.pi * times * run.seed / 10)))

    fill(tmp_path, study_of("0-9", envs=("Pendulum-CA",), sweep=sweep), told)
    [choice] = choose(load(tmp_path), "env")[0]
    assert choice.hypers["critic_step_size"] == 1e-4
    assert choice.rivals["win_share"][0] < 0.01
    assert choice.rivals["indistinguishable"][0]


@pytest.mark.parametrize(("ahead", "share"), [((10.0, 10.0), 0.25), ((10.0, 0.0), 0.25), ((0.0, 10.0), 0.0)])
def test_the_best_return_is_that_of_the_resampled_seeds(
    tmp_path: Path, ahead: tuple[float, float], share: float
) -> None:
    """On Acrobot the first setting is ahead, and the best is 10 on seed 0 and another agent's 1000 on seed 1.

    On Pendulum the second setting is ahead by 10 of 100. So the first wins only if it is ahead on seed 0 and no other
    seed is drawn, which happens in a quarter of the resamples.
    """

    def told(run: Run) -> Told:
        first = place(run) == 0
        if run.config.env == "Pendulum-CA":
            return Told(0.0 if first else 10.0, 100.0)
        best = 1000.0 if run.config.agent == "greedy-ac" and run.seed == 1 else 10.0
        return Told(ahead[run.seed] if first else 0.0, best)

    fill(tmp_path, study_of("0-1", agents=("sac", "greedy-ac"), sweep=TWO), told)
    [choice] = [choice for choice in choose(load(tmp_path), "kind")[0] if choice.agent == "sac"]
    assert choice.hypers["critic_step_size"] == 1e-3
    assert choice.rivals["win_share"].to_list() == pytest.approx([1 - share, share], abs=0.03 if share else 0)


def test_a_seed_on_which_every_run_diverged_does_not_make_settings_alike(tmp_path: Path) -> None:
    fill(tmp_path, ONE_ENV, lambda run: Told(None) if run.seed == 0 else flat(1.0, 5.0, 900.0, best=1000.0)(run))
    [choice] = choose(load(tmp_path), "kind")[0]
    assert choice.rivals["setting_id"][0] == choice.setting_id
    assert choice.rivals["indistinguishable"].to_list() == [True, False, False]


def test_a_best_return_of_zero_on_some_seeds_does_not_make_settings_alike(tmp_path: Path) -> None:
    values = (1.0, 5.0, 900.0)
    fill(tmp_path, ONE_ENV, lambda run: Told(values[place(run)] + run.seed, 1000.0 if run.seed == 3 else 0.0))
    [choice] = choose(load(tmp_path), "kind")[0]
    assert choice.rivals["indistinguishable"].to_list() == [True, False, False]


def test_settings_with_the_same_runs_are_indistinguishable(tmp_path: Path) -> None:
    fill(tmp_path, ONE_ENV, lambda run: Told([5.0, 5.0, -90.0][place(run)] + run.seed))
    [choice] = choose(load(tmp_path), "env")[0]
    assert choice.rivals["indistinguishable"].to_list() == [True, True, False]
    assert choice.rivals["win_share"].to_list() == [0.5, 0.5, 0.0]


def test_runs_of_an_earlier_version_of_an_agent_are_not_mixed_with_the_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, ONE_ENV, flat(1.0, 3.0, 2.0))
    monkeypatch.setattr(SACAgent, "numerics", SACAgent.numerics + 1)
    fill(tmp_path, study_of(envs=("Pendulum-CA",)), flat(11.0, 12.0, 13.0))
    report = only_report(load(tmp_path))
    assert report.runs["seed"].to_list() == [0, 1, 2, 3]


def only_report(results: Results, by: By = "env") -> Reported:
    [report] = reported(results, choose(results, by)[0])
    return report


def test_fresh_seeds_are_reported_where_there_are_some(tmp_path: Path) -> None:
    study = study_of("0-4", "0-1", envs=("Pendulum-CA",))
    store = fill(tmp_path, study, lambda run: None if run.seed > 2 else Told(1.0 + place(run) + run.seed))
    store.record_failure([Run(study.configs[2], 3)], "signal 9", 3)
    report = only_report(load(tmp_path))
    assert report.choice.hypers["critic_step_size"] == 1e-2
    assert (report.env, report.fresh, report.optimistic) == ("Pendulum-CA", True, False)
    assert report.runs.select("seed", "value").rows() == [(2, 5.0)]
    assert report.asked == 3  # one failed, one is missing
    assert set(report.runs["setting_id"]) == {study.configs[2].setting_id}


def test_without_fresh_seeds_the_tuning_seeds_are_reported_and_called_optimistic(tmp_path: Path) -> None:
    study = study_of("0-4", "0-1", envs=("Pendulum-CA",))
    fill(tmp_path, study, lambda run: None if run.seed > 1 else flat(1.0, 3.0, 2.0)(run))
    report = only_report(load(tmp_path))
    assert (report.fresh, report.optimistic, report.asked) == (False, True, 2)
    assert report.runs["seed"].to_list() == [0, 1]


def test_fresh_seeds_of_other_settings_are_not_those_of_the_winner(tmp_path: Path) -> None:
    study = study_of("0-4", "0-1", envs=("Pendulum-CA",))
    fill(tmp_path, study, lambda run: None if run.seed > 1 and place(run) == 1 else flat(1.0, 3.0, 2.0)(run))
    report = only_report(load(tmp_path))
    assert (report.fresh, report.optimistic, report.runs["seed"].to_list()) == (False, True, [0, 1])


def test_without_tuning_seeds_all_runs_are_reported(tmp_path: Path) -> None:
    fill(tmp_path, ONE_ENV, flat(1.0, 3.0, 2.0))
    report = only_report(load(tmp_path))
    assert (report.fresh, report.optimistic, report.asked) == (False, True, 4)
    assert report.runs["seed"].to_list() == [0, 1, 2, 3]


def test_a_single_setting_is_never_optimistic(tmp_path: Path) -> None:
    for seeds, tuning in (("0-3", None), ("0-3", "0-3"), ("0-3", "0-1")):
        folder = tmp_path / f"{seeds} {tuning}"
        fill(folder, study_of(seeds, tuning, ("Pendulum-CA",), sweep="critic_step_size = [1e-3]"), flat(0, 1, 2))
        report = only_report(load(folder))
        assert (report.choice.compared, report.optimistic, report.fresh) == (1, False, tuning == "0-1")


def test_a_diverged_run_is_reported_with_its_value(tmp_path: Path) -> None:
    """The lowest of all runs on the environment, of whatever seed and setting."""
    study = study_of("0-3", "0-1", envs=("Pendulum-CA",))
    values = flat(1.0, 3.0, -20.0)
    fill(tmp_path, study, lambda run: Told(None) if run.seed == 3 and place(run) == 1 else values(run))
    report = only_report(load(tmp_path))
    assert report.runs.select("seed", "value", "status").rows() == [(2, 3.0, "done"), (3, -20.0, "diverged")]


def test_fresh_seeds_of_the_winners_alone_may_be_a_study_of_their_own(tmp_path: Path) -> None:
    fill(tmp_path, study_of("0-1", "0-1"), planted)
    fill(tmp_path, study_of("10-19", sweep="critic_step_size = [1e-3]", name="winner"), planted)
    results = load(tmp_path)
    assert results.tuning_seeds == {0, 1}
    reports = reported(results, choose(results, "kind")[0])
    assert [(report.env, report.fresh, report.asked) for report in reports] == [
        ("Acrobot-CA", True, 10),
        ("Pendulum-CA", True, 10),
    ]
    assert {report.choice.seeds for report in reports} == {(0, 1)}
    for report in reports:
        assert set(report.runs["seed"]) == set(range(10, 20))
        assert set(report.runs["env"]) == {report.env}
    winners = reported(results, choose(results, "env")[0])
    assert [(report.fresh, report.optimistic, report.asked) for report in winners] == 2 * [(False, True, 2)]


def test_an_agent_without_runs_on_tuning_seeds_is_reported_by_all_its_runs(tmp_path: Path) -> None:
    fill(tmp_path, study_of("0-3", "0-1"), planted)
    other = study_of("10-13", agents=("greedy-ac",), sweep="critic_step_size = [1e-3]", name="other")
    fill(tmp_path, other, planted)
    results = load(tmp_path)
    choices, notes = choose(results, "env")
    assert notes == []
    found = {(one.choice.agent, one.env): one for one in reported(results, choices)}
    for env in BEST:
        assert found["greedy-ac", env].runs["seed"].to_list() == [10, 11, 12, 13]
        assert not found["greedy-ac", env].optimistic
        assert found["sac", env].runs["seed"].to_list() == [2, 3]
        assert found["sac", env].fresh


def test_tuning_seeds_are_those_of_the_studies_looked_at(tmp_path: Path) -> None:
    fill(tmp_path, study_of("0-3", "0-1"), planted)
    long = grid_study(("sac",), ("Pendulum-CA",), "0-3", None, "long", 200_000, TWO)
    fill(tmp_path, long, planted)
    assert load(tmp_path, steps=100_000).tuning_seeds == {0, 1}
    results = load(tmp_path, steps=200_000)
    assert results.tuning_seeds == frozenset()
    assert [choice.seeds for choice in choose(results, "env")[0]] == [(0, 1, 2, 3)]


def test_without_tuning_seeds_the_second_stage_is_fresh_too(tmp_path: Path) -> None:
    fill(tmp_path, study_of("0-3"), planted)
    fill(tmp_path, study_of("4-9", sweep="critic_step_size = [1e-3]", name="winner"), planted)
    results = load(tmp_path)
    for one in reported(results, choose(results, "kind")[0]):
        assert one.choice.seeds == (0, 1, 2, 3)
        assert (one.runs["seed"].to_list(), one.fresh, one.optimistic) == ([4, 5, 6, 7, 8, 9], True, False)


def test_two_settings_stay_two_after_one_of_them_has_more_seeds(tmp_path: Path) -> None:
    fill(tmp_path, study_of("0-3", "0-3", sweep=TWO), planted)
    fill(tmp_path, study_of("4-9", sweep="critic_step_size = [1e-3]", name="winner"), planted)
    results = load(tmp_path)
    for grid in make_grids(with_values(results.runs)):
        assert (len(grid.settings), grid.seeds, grid.left_out) == (2, (0, 1, 2, 3), 0)


def test_variants_of_an_agent_are_chosen_and_reported_by_themselves(tmp_path: Path) -> None:
    sweep = TWO + ', policy = ["squashed", "gaussian"]'
    best = {"squashed": 0, "gaussian": 1}
    fill(
        tmp_path,
        study_of(envs=("Pendulum-CA",), sweep=sweep),
        lambda run: Told(5.0 if place(run) == best[run.config.hypers["policy"]] else 1.0),
    )
    results = load(tmp_path)
    choices, _ = choose(results, "kind")
    assert {choice.agent: choice.hypers["critic_step_size"] for choice in choices} == {
        "sac": 1e-4,
        "sac[policy=gaussian]": 1e-3,
    }
    assert {choice.compared for choice in choices} == {2}
    for report in reported(results, choices):
        assert set(report.runs["agent"]) == {report.choice.agent}
        assert report.runs["value"].to_list() == [5.0] * 4
