"""The second stage: what `select` writes is a study of the chosen settings, on seeds that the selection did not see."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.synthetic import Told, fill, grid_study
from hypothesis import given
from hypothesis import strategies as st

from greedyac.analysis.load import Results, load
from greedyac.analysis.second_stage import FRESH, fresh_seeds, second_stage
from greedyac.analysis.select import BYS, By, Choice, choose
from greedyac.cli import main
from greedyac.core.errors import InputError
from greedyac.core.streams import MAX_SEED
from greedyac.execution.seeds import parse_seeds, seeds_text
from greedyac.study.spec import Study, parse_study
from greedyac.study.store import Store
from greedyac.study.sweep import make_plan
from greedyac.training.config import Run

Capture = pytest.CaptureFixture[str]
Select = Callable[..., str]
ENVS = ("Pendulum-CA", "Acrobot-CA")
THREE = "critic_step_size = [1e-4, 1e-3, 1e-2]"
STUDY = grid_study(("greedy-ac", "sac"), ENVS, "0-5", "0-2", sweep=THREE)
WINNERS = {"Pendulum-CA": 1e-3, "Acrobot-CA": 1e-2}


def planted(run: Run) -> Told:
    """The winner of each environment is 20, others are 10; the best return is 40."""
    return Told(20.0 if run.config.hypers["critic_step_size"] == WINNERS[run.config.env] else 10.0, 40.0)


def made(folder: Path, study: Study, told: Callable[[Run], Told | None] = planted) -> Results:
    fill(folder, study, told)
    return load(folder)


def written(results: Results, by: By = "env", seeds: list[int] | None = None) -> tuple[Study, list[Choice]]:
    choices, notes = choose(results, by)
    return second_stage(results, choices, fresh_seeds(results, choices, seeds), notes), choices


def settings(study: Study) -> set[tuple[str, str]]:
    return {(case.env_label, case.setting_id) for case in study.configs}


def files(folder: Path) -> dict[str, bytes | None]:
    """Every path below the folder with its bytes; None for a folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def fresh(results: Results, given: list[int] | None = None) -> list[int]:
    return fresh_seeds(results, choose(results, "env")[0], given)


@pytest.mark.parametrize(
    ("seeds", "tuning", "wanted"),
    [
        ("0-9", "0-3", range(4, 10)),
        ("0,2,4,7", "2,4", [0, 7]),
        ("0-4", None, range(5, 35)),
        ("0-4", "0-4", range(5, 35)),
        ("3,100", None, range(101, 131)),
    ],
)
def test_the_seeds_are_those_that_no_selection_saw_or_else_the_next_thirty(
    tmp_path: Path, seeds: str, tuning: str | None, wanted: list[int]
) -> None:
    results = made(tmp_path, grid_study(("sac",), ENVS, seeds, tuning, sweep=THREE))
    assert fresh(results) == list(wanted)
    assert FRESH == 30


def test_seeds_that_are_only_asked_for_are_left_for_the_second_stage(tmp_path: Path) -> None:
    assert fresh(made(tmp_path, STUDY, lambda run: planted(run) if run.seed < 3 else None)) == [3, 4, 5]


def test_given_seeds_are_taken_if_the_selection_saw_none_of_them(tmp_path: Path) -> None:
    results = made(tmp_path, STUDY)
    assert fresh(results, [9, 3, 70]) == [9, 3, 70]
    with pytest.raises(
        InputError, match=r"^seed 1 is not allowed: the settings were chosen by it; allowed: all but 0-2"
    ):
        fresh(results, [7, 2, 1])


def test_without_tuning_seeds_a_second_stage_that_is_there_is_asked_for_again(tmp_path: Path) -> None:
    made(tmp_path, grid_study(("sac",), ("Pendulum-CA",), "0-3", sweep=THREE))
    winner = grid_study(("sac",), ("Pendulum-CA",), "4-9", name="winner", sweep="critic_step_size = [1e-3]")
    assert fresh(made(tmp_path, winner)) == [4, 5, 6, 7, 8, 9]


def test_a_single_setting_goes_on_with_the_next_seeds(tmp_path: Path) -> None:
    results = made(tmp_path, grid_study(("sac",), ENVS, "0-3", sweep="critic_step_size = [1e-3]"))
    assert fresh(results) == list(range(4, 34))


def test_the_seeds_of_an_agent_that_was_not_tuned_are_not_used_up(tmp_path: Path) -> None:
    made(tmp_path, grid_study(("sac",), ENVS, "0-5", "0-2", sweep=THREE))
    other = grid_study(("greedy-ac",), ENVS, "10-11", name="other", sweep="critic_step_size = [1e-3]")
    assert fresh(made(tmp_path, other)) == [3, 4, 5, 10, 11]


def test_without_tuning_seeds_every_seed_was_seen(tmp_path: Path) -> None:
    results = made(tmp_path, grid_study(("sac",), ENVS, "0-3,8", sweep=THREE))
    assert fresh(results, [4, 7]) == [4, 7]
    with pytest.raises(InputError, match=r"^seed 8 is not allowed: .*; allowed: all but 0-3,8$"):
        fresh(results, [8])


@pytest.mark.parametrize(
    ("seeds", "text"), [([0], "0"), ([0, 1], "0-1"), ([0, 2, 3, 4, 9], "0,2-4,9"), ([5, 7], "5,7")]
)
def test_seeds_are_written_as_ranges(seeds: list[int], text: str) -> None:
    assert seeds_text(seeds) == text


@given(st.sets(st.integers(0, 60) | st.integers(MAX_SEED - 9, MAX_SEED), min_size=1))
def test_seeds_are_read_as_they_were_written(seeds: set[int]) -> None:
    assert parse_seeds(seeds_text(sorted(seeds))) == sorted(seeds)


@pytest.mark.parametrize("by", BYS)
def test_the_study_is_of_the_chosen_settings_on_their_environments(tmp_path: Path, by: By) -> None:
    results = made(tmp_path, STUDY)
    study, choices = written(results, by)
    assert settings(study) == {(env, choice.setting_id) for choice in choices for env in choice.envs}
    assert len(study.configs) == 4
    assert (study.seeds, study.tuning_seeds) == ((3, 4, 5), ())
    assert {case.steps for case in study.configs} == {100_000}
    assert study.name == f"best by {by} of planted"
    again = parse_study(study.text)
    assert again == study
    assert study.runs().keys() < STUDY.runs().keys()


def test_by_environment_the_planted_winners_are_in_it(tmp_path: Path) -> None:
    study, _ = written(made(tmp_path, STUDY))
    assert {(case.agent, case.env, case.hypers["critic_step_size"]) for case in study.configs} == {
        (agent, env, size) for agent in ("greedy-ac", "sac") for env, size in WINNERS.items()
    }
    assert study.text.startswith(
        "# The best setting of each agent for each environment by itself, chosen by the runs of seeds 0-2.\n"
    )


def test_by_kind_there_is_one_setting_for_all(tmp_path: Path) -> None:
    study, _ = written(made(tmp_path, STUDY), "kind")
    for agent in ("greedy-ac", "sac"):
        assert len({case.setting_id for case in study.configs if case.agent == agent}) == 1
    assert study.text.count("[[cells]]") == 2
    assert "for all environments of a kind together" in study.text


def test_given_seeds_are_sorted(tmp_path: Path) -> None:
    assert written(made(tmp_path, STUDY), seeds=[9, 4, 8])[0].seeds == (4, 8, 9)


@pytest.mark.parametrize("by", BYS)
def test_a_sweep_on_the_same_store_runs_nothing_twice(tmp_path: Path, by: By) -> None:
    study, _ = written(made(tmp_path, STUDY), by)
    plan = make_plan(study, Store.existing(tmp_path), workers=1)
    assert (plan.missing, plan.held) == (0, {"done": 4 * 3})


def test_a_sweep_on_the_same_store_runs_what_is_missing(tmp_path: Path) -> None:
    study, _ = written(made(tmp_path, STUDY, lambda run: planted(run) if run.seed < 4 else None))
    plan = make_plan(study, Store.existing(tmp_path), workers=1)
    assert (plan.missing, plan.held) == (4 * 2, {"done": 4})


PRESETS = """
name = "presets"
steps = 1000
seeds = "0-3"
tuning_seeds = "0-1"
[[cells]]
agents = ["greedy-ac", "sac", "vanilla-ac"]
envs = ["Pendulum-CA", "Pendulum-DA"]
preset = "paper"
"""
ACROSS = PRESETS.replace('"paper"', '"paper-across"').replace('"Pendulum-DA"', '"Acrobot-CA", "MountainCar-CA"')
OPTIONS = """
name = "options"
steps = 1000
seeds = "0-3"
tuning_seeds = "0-1"
[[cells]]
agents = ["sac"]
envs = ["Acrobot-CA"]
env_options = { start = "zero" }
sweep = { critic_step_size = [1e-3, 1e-2] }
[[cells]]
agents = ["sac"]
envs = ["Acrobot-CA"]
sweep = { critic_step_size = [1e-3, 1e-2] }
"""
POLICIES = """
name = "policies"
steps = 1000
seeds = "0-3"
tuning_seeds = "0-1"
[[cells]]
agents = ["sac"]
envs = ["Pendulum-CA", "Acrobot-CA"]
sweep = { policy = ["squashed", "gaussian"], critic_step_size = [1e-3, 1e-2] }
"""


@pytest.mark.parametrize("by", BYS)
@pytest.mark.parametrize(
    ("text", "cases"),
    [(PRESETS, 6), (ACROSS, 9), (OPTIONS, 2), (POLICIES, 4)],
    ids=["presets", "across", "options", "policies"],
)
def test_presets_options_and_variants_make_the_same_runs(tmp_path: Path, text: str, cases: int, by: By) -> None:
    first = parse_study(text)
    results = made(tmp_path, first, lambda run: Told(100 * run.config.hypers["critic_step_size"], 5.0))
    study, choices = written(results, by)
    assert len(study.configs) == cases
    assert settings(study) == {(env, choice.setting_id) for choice in choices for env in choice.envs}
    assert set(study.runs()) <= set(first.runs())
    assert make_plan(study, Store.existing(tmp_path), workers=1).missing == 0


def test_a_preset_is_named_only_where_values_without_effect_need_it(tmp_path: Path) -> None:
    """`discrete_critic` has none with continuous actions; with discrete ones, each value of SAC has some."""
    study, _ = written(made(tmp_path, parse_study(PRESETS), lambda _: Told(1.0)))
    cells = study.text.split("[[cells]]")[1:]
    assert len(cells) == 6
    plain = [cell for cell in cells if "preset" not in cell]
    assert ["Pendulum-DA" in cell and '"sac"' in cell for cell in plain] == [True]
    for cell in cells:
        assert ("discrete_critic" in cell) == ("Pendulum-DA" in cell)


def test_environments_that_can_be_written_alike_share_a_cell(tmp_path: Path) -> None:
    results = made(tmp_path, parse_study(ACROSS), lambda _: Told(1.0))
    assert written(results, "kind")[0].text.count("[[cells]]") == 3
    options = made(tmp_path / "options", parse_study(OPTIONS), lambda _: Told(1.0))
    study, _ = written(options, "kind")
    assert study.text.count("[[cells]]") == 2
    assert study.text.count('env_options = { start = "zero" }') == 1
    assert {case.env_label for case in study.configs} == {"Acrobot-CA", "Acrobot-CA[start=zero]"}


def test_variants_of_an_agent_are_chosen_by_themselves(tmp_path: Path) -> None:
    study, choices = written(made(tmp_path, parse_study(POLICIES), lambda _: Told(1.0)))
    assert {choice.agent for choice in choices} == {"sac", "sac[policy=gaussian]"}
    told = {(case.env, case.hypers["policy"]) for case in study.configs}
    assert told == {(env, policy) for env in ENVS for policy in ("squashed", "gaussian")}


def test_environments_of_different_length_are_refused(tmp_path: Path) -> None:
    fill(tmp_path, STUDY, planted)
    short = grid_study(("sac",), ("MountainCar-CA",), "0-5", "0-2", "short", steps=5000, sweep=THREE)
    results = made(tmp_path, short, lambda _: Told(1.0))
    complaint = r"^the runs differ in length \(5000, 100000 steps\), and a study has one; allowed: --steps N$"
    with pytest.raises(InputError, match=complaint):
        written(results)
    study, _ = written(load(tmp_path, steps=5000))
    assert {(case.env, case.steps) for case in study.configs} == {("MountainCar-CA", 5000)}


def test_a_setting_that_no_study_can_hold_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = made(tmp_path, parse_study(PRESETS), lambda _: Told(1.0))
    monkeypatch.setattr(sys.modules["greedyac.analysis.second_stage"], "PRESETS", {})
    with pytest.raises(
        InputError, match=r"^the setting [0-9a-f]+ of greedy-ac can't be written as a study for Pendulum"
    ):
        written(results)


def test_the_name_tells_all_studies(tmp_path: Path) -> None:
    fill(tmp_path, STUDY, planted)
    results = made(tmp_path, grid_study(("sac",), ENVS, "0-5", "0-2", 'a \\"second\\" \\\\ é', sweep=THREE))
    name = written(results)[0].name
    assert name.startswith("best by env of ")
    assert sorted(name.removeprefix("best by env of ").split(", ")) == ['a "second" \\ é', "planted"]


def test_the_name_may_hold_any_printable_letter(tmp_path: Path) -> None:
    results = made(tmp_path, grid_study(("sac",), ENVS, "0-5", "0-2", "moon 🚀", sweep=THREE))
    assert written(results)[0].name == "best by env of moon 🚀"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "store", STUDY, planted)
    return tmp_path / "store"


@pytest.fixture
def refused(capsys: Capture) -> Select:
    """Runs a selection that must be refused; gives the one line that it printed. Nothing may have been written."""

    def run(*words: str, code: int = 2) -> str:
        before = files(Path.cwd())
        assert main(["select", *words]) == code
        printed, complaint = capsys.readouterr()
        assert printed == ""
        [line] = complaint.splitlines()
        assert line.startswith("greedyac: error: ")
        assert files(Path.cwd()) == before
        return line.removeprefix("greedyac: error: ")

    return run


@pytest.mark.usefixtures("store")
def test_select_writes_the_study_and_says_what_was_chosen(capsys: Capture) -> None:
    assert main(["select", "--store", "store", "--by", "env", "--out", "new/folder/best.toml"]) == 0
    study = parse_study(Path("new/folder/best.toml").read_text())
    assert study == written(load("store"))[0]
    assert [path.name for path in Path("new/folder").iterdir()] == ["best.toml"]
    lines = capsys.readouterr().out.splitlines()
    assert "sac on Pendulum-CA: critic_step_size=0.001" in lines
    assert "sac on Acrobot-CA: critic_step_size=0.01" in lines
    assert lines.count("  best of 3 with 20; 0 can't be told from it") == 4
    assert lines[-2:] == [
        "written to new/folder/best.toml: 12 runs on seeds 3-5, 12 of them in the store already",
        "next: greedyac report --store store --out report, or --seeds with more seeds",
    ]
    few = "note: with 3 seeds to choose by, more settings than that can't be told apart"
    assert [line for line in lines if line.startswith("note:")] == [few]


def test_select_says_how_many_settings_can_not_be_told_from_the_best(store: Path, capsys: Capture) -> None:
    equal = grid_study(("sac",), ("Pendulum-CA",), "0-3", "0-1", sweep=THREE)
    fill(store.parent / "equal", equal, lambda _: Told(5.0))
    assert main(["select", "--store", "equal", "--by", "env", "--out", "best.toml"]) == 0
    assert "  best of 3 with 5, tied with 2 and the first of them; 2 can't be told from it\n" in capsys.readouterr().out


@pytest.mark.usefixtures("store")
def test_select_by_kind(capsys: Capture) -> None:
    assert main(["select", "--store", "store", "--by", "kind", "--out", "best.toml", "--seeds", "70,60-62"]) == 0
    study = parse_study(Path("best.toml").read_text())
    assert study.seeds == (60, 61, 62, 70)
    assert study.name == "best by kind of planted"
    told = capsys.readouterr().out
    assert "sac on Acrobot-CA, Pendulum-CA: critic_step_size=" in told
    assert told.endswith("\nnext: greedyac sweep best.toml --store store\n")


@pytest.mark.parametrize(("best", "winner"), [("store", 1e-3), ("paper", 1e-2)])
def test_select_takes_the_bests_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, best: str, winner: float
) -> None:
    """1e-3 is better by 10 on Pendulum and worse by 1 on Acrobot: 10/100 - 1/90 > 0, and 10/930 - 1/56 < 0."""
    monkeypatch.chdir(tmp_path)
    values = {("Pendulum-CA", 1e-3): 100, ("Pendulum-CA", 1e-2): 90}
    values |= {("Acrobot-CA", 1e-3): -100, ("Acrobot-CA", 1e-2): -99}
    study = grid_study(("sac",), ENVS, "0-3", "0-1", sweep="critic_step_size = [1e-3, 1e-2]")
    bests = {"Pendulum-CA": 100.0, "Acrobot-CA": -90.0}
    fill(
        Path("store"),
        study,
        lambda run: Told(float(values[run.config.env, run.config.hypers["critic_step_size"]]), bests[run.config.env]),
    )
    assert main(["select", "--store", "store", "--by", "kind", "--out", "best.toml", "--best", best]) == 0
    chosen = parse_study(Path("best.toml").read_text()).configs
    assert [case.hypers["critic_step_size"] for case in chosen] == [winner, winner]


@pytest.mark.usefixtures("store")
def test_select_sees_only_the_study_that_is_asked_for(capsys: Capture) -> None:
    fill(
        Path("store"), grid_study(("sac",), ("MountainCar-CA",), "0-3", name="other", sweep=THREE), lambda _: Told(1.0)
    )
    assert main(["select", "--store", "store", "--by", "env", "--out", "best.toml", "--study", "other"]) == 0
    study = parse_study(Path("best.toml").read_text())
    assert {case.env for case in study.configs} == {"MountainCar-CA"}
    assert study.seeds == tuple(range(4, 34))
    assert "note: no study here names tuning seeds: all seeds were used to choose\n" in capsys.readouterr().out


@pytest.mark.usefixtures("store")
def test_a_file_that_is_there_is_replaced_only_on_demand(refused: Select) -> None:
    Path("best.toml").write_text("mine")
    words = ("--store", "store", "--by", "env", "--out", "best.toml")
    assert refused(*words) == "the file 'best.toml' is there already; --overwrite replaces it"
    assert main(["select", *words, "--overwrite"]) == 0
    assert parse_study(Path("best.toml").read_text()).name == "best by env of planted"


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ("--by", "env", "--out", "best.txt"),
            "the file 'best.txt' is not allowed; allowed: a name that ends in .toml",
        ),
        (("--by", "env", "--out", " "), "argument --out: '' is not allowed; allowed: the path of a file"),
        (("--by", "emv", "--out", "b.toml"), "unknown value 'emv' (did you mean 'env'?); allowed: env, kind"),
        (("--by", "env", "--out", "b.toml", "--best", "papr"), "unknown value 'papr' (did you mean 'paper'?)"),
        (("--by", "env", "--out", "b.toml", "--study", "plantd"), "'plantd' (did you mean 'planted'?)"),
        (("--by", "env", "--out", "b.toml", "--steps", "7"), "steps = 7 is not allowed; allowed: 100000"),
        (("--by", "env", "--out", "b.toml", "--seeds", "2-9"), "seed 2 is not allowed: the settings were chosen by it"),
        (("--by", "env", "--out", "b.toml", "--seeds", "x"), "seeds 'x' are not allowed; allowed: whole numbers"),
        (("--by", "env", "--out", "b.toml", "--seeds", ""), "seeds '' are not allowed; allowed: whole numbers"),
        (("--by", "env", "--out", "store/chunks"), "the file 'store/chunks' is not allowed"),
        (("--by", "env", "--out", "plain/b.toml"), "the file 'plain/b.toml' can't be written: "),
        (("--by", "env"), "--out"),
        (("--out", "b.toml"), "--by"),
    ],
)
def test_select_refuses_bad_input(refused: Select, words: tuple[str, ...], complaint: str) -> None:
    Path("plain").write_text("a file")
    assert complaint in refused("--store", "store", *words)


@pytest.mark.usefixtures("store")
def test_select_refuses_what_is_no_store(refused: Select) -> None:
    assert refused("--store", "nowhere", "--by", "env", "--out", "b.toml").startswith(
        "there are no results at 'nowhere'"
    )


@pytest.mark.usefixtures("store")
def test_select_refuses_a_name_that_is_too_long(refused: Select) -> None:
    refused("--store", "store", "--by", "env", "--out", 300 * "x" + ".toml")


def test_a_failing_selection_writes_nothing(store: Path, refused: Select) -> None:
    fill(store.parent / "holes", STUDY, lambda run: None if run.seed == 1 else planted(run))
    Path("old.toml").write_text("old")
    line = refused("--store", "holes", "--by", "env", "--out", "new/best.toml")
    assert line.startswith("no setting of greedy-ac was chosen for Acrobot-CA: no setting has a return for")
    refused("--store", "holes", "--by", "env", "--out", "old.toml", "--overwrite")


@pytest.mark.usefixtures("store")
def test_a_write_that_fails_leaves_the_older_file(refused: Select, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    Path("best.toml").write_text("old")
    monkeypatch.setattr("greedyac.core.atomic.write_atomically", full)
    line = refused("--store", "store", "--by", "env", "--out", "best.toml", "--overwrite")
    assert line == "the file 'best.toml' can't be written: No space left on device"


def test_what_took_no_part_is_told_and_stands_in_the_file(store: Path, capsys: Capture) -> None:
    def told(run: Run) -> Told | None:
        if run.config.agent == "greedy-ac" and run.config.env == "Acrobot-CA" and run.seed == 1:
            return None
        lacking = run.config.agent == "sac" and run.config.hypers["critic_step_size"] == 1e-4 and run.seed == 0
        return None if lacking and run.config.env == "Pendulum-CA" else planted(run)

    growing = fill(store.parent / "growing", STUDY, told, rows_per_file=5)
    assert main(["select", "--store", "growing", "--by", "env", "--out", "best.toml"]) == 0
    unchosen = "no setting of greedy-ac was chosen for Acrobot-CA: no setting has a return for every run on Acrobot-CA"
    notes = [
        f"{unchosen} on the tuning seeds",
        "1 setting of sac without all runs on Pendulum-CA took no part",
    ]
    printed, text = capsys.readouterr().out.splitlines(), Path("best.toml").read_text()
    assert [line.removeprefix("note: ") for line in printed if line.startswith("note: ")][:-1] == notes
    assert [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")][1:] == notes
    assert "  best of 2 with 20; 0 can't be told from it" in printed
    study = parse_study(text)
    told_cases = {(case.agent, case.env) for case in study.configs}
    assert told_cases == {("greedy-ac", "Pendulum-CA"), ("sac", "Pendulum-CA"), ("sac", "Acrobot-CA")}
    first = sorted(growing.chunks.iterdir())[0]
    first.write_bytes(b"")
    assert main(["select", "--store", "growing", "--by", "env", "--out", "again.toml"]) == 0
    assert f"note: chunks/{first.name} is empty" in capsys.readouterr().out


def test_an_environment_that_no_tuning_seed_was_run_on_is_told(tmp_path: Path) -> None:
    fill(tmp_path, STUDY, planted)
    other = grid_study(("sac",), ("MountainCar-CA",), "50-53", name="other", sweep=THREE)
    results = made(tmp_path, other, lambda _: Told(1.0))
    choices, notes = choose(results, "env")
    assert "MountainCar-CA" in "".join(notes) or any("MountainCar-CA" in choice.envs for choice in choices)
