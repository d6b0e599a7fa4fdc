"""The output folder: what replaces what, and what is never lost."""

from pathlib import Path

import pytest

from greedyac.cli.output import claimed, first_free, output_folder
from greedyac.core.errors import InputError


def write(out: Path, *names: str, overwrite: bool = False, complete: bool = True) -> Path:
    with output_folder(out, overwrite) as output:
        for name in names:
            (output.staging / name).write_text(f"{name} {overwrite}")
        output.publish(complete)
    return output.out


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_complete_result_replaces_an_older_one_and_leaves_other_files(tmp_path: Path) -> None:
    write(tmp_path, "summary.json", "seed-0.safetensors", "seed-1.safetensors")
    (tmp_path / "notes.txt").write_text("mine")
    assert write(tmp_path, "summary.json", "seed-1.safetensors", overwrite=True) == tmp_path
    assert names(tmp_path) == ["notes.txt", "seed-1.safetensors", "summary.json"]
    assert (tmp_path / "summary.json").read_text() == "summary.json True"


def test_an_incomplete_result_never_replaces_another(tmp_path: Path) -> None:
    out = tmp_path / "x"
    write(out, "summary.json", "seed-0.safetensors", "seed-1.safetensors")
    elsewhere = write(out, "summary.json", "seed-0.safetensors", overwrite=True, complete=False)
    assert elsewhere == tmp_path / "x-incomplete-0"
    assert names(elsewhere) == ["seed-0.safetensors", "summary.json"]
    assert names(out) == ["seed-0.safetensors", "seed-1.safetensors", "summary.json"]
    assert (out / "summary.json").read_text() == "summary.json False"


def test_a_result_that_somebody_else_wrote_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "x"
    with output_folder(out, overwrite=False) as output:
        write(out, "summary.json")
        (output.staging / "summary.json").write_text("second")
        output.publish(complete=True)
    assert output.out == tmp_path / "x-new-0"
    assert (out / "summary.json").read_text() == "summary.json False"
    assert (output.out / "summary.json").read_text() == "second"


def test_what_is_not_published_leaves_no_trace(tmp_path: Path) -> None:
    with output_folder(tmp_path / "made" / "for" / "this", overwrite=False) as output:
        (output.staging / "summary.json").write_text("unfinished")
    assert names(tmp_path) == []


def test_a_folder_with_a_result_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "curves.parquet")
    with pytest.raises(InputError, match=r"already holds a result \(curves.parquet\); --overwrite replaces it"):
        write(tmp_path, "summary.json")
    assert names(tmp_path) == ["curves.parquet"]


def test_the_first_free_name(tmp_path: Path) -> None:
    (tmp_path / "run-0").mkdir()
    (tmp_path / "run-1").write_text("")
    assert first_free(str(tmp_path / "run")) == tmp_path / "run-2"
    assert (tmp_path / "run-2").is_dir()


def test_no_two_processes_get_the_same_default_folder(tmp_path: Path) -> None:
    stem = str(tmp_path / "runs" / "run")
    with claimed(None, stem) as one, claimed(None, stem) as other:
        assert [one.name, other.name] == ["run-0", "run-1"]
        (other / "summary.json").write_text("{}")
    assert names(tmp_path / "runs") == ["run-1"]


@pytest.mark.parametrize("out", [True, False])
def test_a_claimed_folder_that_stays_empty_is_removed(out: bool, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "for" / "this"
    with pytest.raises(InputError, match="no such agent"), claimed(folder if out else None, str(folder)):
        raise InputError("no such agent")
    assert names(tmp_path) == []


@pytest.mark.parametrize("out", [True, False])
def test_a_claimed_folder_that_can_not_be_made_is_one_line(out: bool, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "run"
    with pytest.raises(InputError, match=r"can't be written: (Not a directory|File exists)"):  # noqa: SIM117
        with claimed(folder if out else None, str(folder)):
            pass
    assert names(tmp_path) == ["file"]
