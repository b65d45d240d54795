"""Variables saved on their own (debug.json): which files, which rows, what is said of them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_reporters.tables import COLUMNS
from support.runs.recorded import scalar, tensor, write_run

from probe_core.model import Mode

HEADERS = {
    mode: [column.header for column in columns if column.header != "NPU_Stack_Info"]
    for mode, columns in COLUMNS.items()
}
RECORDED = [
    ("debug_tensor", "8.3.3", Mode.TENSOR), ("debug_tensor", "26.2.0", Mode.TENSOR),
    ("debug_stat", "8.3.3", Mode.STATISTICS), ("debug_stat", "26.2.0", Mode.STATISTICS),
]  # fmt: skip
SAVED = [
    "hidden.0.debug", "hidden_grad.0.debug", "tree.0.debug.a", "tree.0.debug.b.0", "tree.0.debug.b.1",
    "tree.0.debug.b.2", "tree.0.debug.c.n", "scalar.0.debug", "hidden.1.debug", "hidden_grad.1.debug",
]  # fmt: skip
"""The rows of the recorded runs, nested values one by one."""

Rows = list[dict[str, Any]]
Compare = Callable[..., Rows]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def compare(probe: Any, out: Path) -> Compare:
    """``compare(target, golden)``: the rows of the one table that was written."""

    def run(*arguments: str | Path) -> Rows:
        for old in out.glob("**/*.*"):
            old.unlink()
        assert probe("compare", *arguments, "-o", out, "--format", "jsonl", "-j", "1") == 0, probe.err
        (path,) = out.glob("debug_compare_result*.jsonl")
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]

    return run


def save(directory: Path, data: dict[str, Any], task: str = "statistics") -> Path:
    """Write a debug.json; the path of it."""
    return write_run(directory, data, task, "debug.json")


def save_tensors(directory: Path, arrays: dict[str, Any]) -> Path:
    """Write a debug.json with a tensor file for each value."""
    (directory / "dump_tensor_data").mkdir(parents=True)
    data = {}
    for key, array in arrays.items():
        np.save(directory / "dump_tensor_data" / f"{key}.npy", array)
        data[key] = tensor(list(array.shape), data_name=f"{key}.npy")
    path = save(directory, data, "tensor")
    path.write_text(path.read_text().replace("pytorch", "mindspore"))
    return path


def names(rows: Rows, side: str = "NPU") -> list[str]:
    return [row[f"{side} Name"] for row in rows]


# -- recorded runs -----------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "version", "mode"), RECORDED)
def test_the_rows_of_a_recorded_run(case: str, version: str, mode: Mode, compare: Compare, runs: Any) -> None:
    """Each value in its place, nested ones below their paths; the columns of the mode without the stack."""
    run = runs(case, version)
    rows = compare(run / "npu_dump/step0", run / "bench_dump/step0")
    assert names(rows) == names(rows, "Bench") == SAVED
    assert all(list(row) == HEADERS[mode] for row in rows)


@pytest.mark.parametrize("version", ["8.3.3", "26.2.0"])
def test_what_is_found_in_a_recorded_run(version: str, compare: Compare, runs: Any) -> None:
    """The target scales the hidden layer by 1.001, and saves another scalar."""
    run = runs("debug_tensor", version)
    rows = {row["NPU Name"]: row for row in compare(run / "npu_dump/step0", run / "bench_dump/step0")}
    assert rows["hidden.0.debug"]["MaxRelativeErr"] == pytest.approx(0.001, rel=1e-3)
    assert rows["hidden_grad.0.debug"]["MaxAbsErr"] == 0.0
    assert rows["tree.0.debug.c.n"]["Cosine"] == 1.0
    scalar_row = rows["scalar.0.debug"]
    assert (scalar_row["NPU max"], scalar_row["Bench max"]) == (1.5, 1.25)
    assert scalar_row["Err_message"] == "Scalar of NPU and bench do not match."
    assert (rows["tree.0.debug.b.1"]["NPU max"], rows["tree.0.debug.b.2"]["NPU max"]) == (3, "txt")
    data_names = rows["tree.0.debug.b.0"]["Data_name"]
    assert data_names == "['tree.0.debug.b.0.pt', 'tree.0.debug.b.0.pt']"


@pytest.mark.parametrize(("case", "version", "mode"), RECORDED)
def test_a_recorded_run_against_itself(
    case: str, version: str, mode: Mode, probe: Any, out: Path, compare: Compare, runs: Any
) -> None:
    golden = runs(case, version) / "bench_dump/step0"
    rows = compare(golden, golden)
    assert names(rows) == SAVED
    assert probe.out.startswith("AGREE: ") and " 0 fail, " in probe.out
    assert "compared: 10 of 10 recorded values" in probe.out and "\n  1. " not in probe.out
    assert probe("compare", golden, golden, "-o", out, "--fail-on", "error") == 0


def test_steps_get_directories_of_their_own(probe: Any, out: Path, runs: Any) -> None:
    run = runs("debug_tensor", "26.2.0")
    both = run / "npu_dump", run / "bench_dump"
    assert probe("compare", *both, "-o", out, "--format", "csv", "-c", "-j", "1") == 0, probe.err
    for step in ("step0", "step1"):
        (path,) = (out / step).glob("debug_compare_result_*.csv")
        with path.open(newline="", encoding="utf-8-sig") as file:
            assert [row["NPU Name"] for row in csv.DictReader(file)] == SAVED


# -- files -------------------------------------------------------------------------------------


def test_a_file_or_a_directory(compare: Compare, out: Path, tmp_path: Path) -> None:
    data = {"x.0.debug": tensor(), "y.0.debug": scalar(2)}
    first, second = save(tmp_path / "a", data), save(tmp_path / "b", data)
    by_file, by_directory = compare(first, second), compare(first.parent, second.parent)
    assert by_file == by_directory
    assert names(by_file) == ["x.0.debug", "y.0.debug"]
    wrapper = tmp_path / "compare.json"
    wrapper.write_text(json.dumps({"npu_path": str(first), "bench_path": str(second)}))
    assert compare("-i", wrapper) == by_file


@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_rank_or_many(count: int, probe: Any, out: Path, tmp_path: Path) -> None:
    for side in ("t", "g"):
        for rank in range(count):
            save(tmp_path / side / f"rank{rank}", {"x.0.debug": tensor(value=rank + 1.0)})
    both = tmp_path / "t", tmp_path / "g"
    assert probe("compare", *both, "-o", out, "--format", "jsonl", "-c", "-j", "1") == 0, probe.err
    tables = sorted(out.glob("debug_compare_result*"))
    assert len(tables) == count and not list(out.glob("compare_result*"))
    for rank, path in enumerate(tables):
        stem = f"debug_compare_result_rank{rank}_" if count > 1 else "debug_compare_result_"
        assert path.name.startswith(stem)
        assert path.stem.removeprefix(stem).isdigit()
        assert json.loads(path.read_text())["NPU max"] == rank + 1.0


def test_saved_variables_beside_a_recorded_run(probe: Any, out: Path, tmp_path: Path) -> None:
    """Both are compared, each with its own sort, into files of their own."""
    for side in ("t", "g"):
        save(tmp_path / side, {"x.0.debug": tensor()})
        write_run(tmp_path / side, {"Torch.exp.0.forward": {"output": [tensor()]}})
    both = tmp_path / "t", tmp_path / "g"
    assert probe("compare", *both, "-o", out, "--format", "csv", "-c", "-j", "1") == 0, probe.err
    tables = sorted(path.name for path in out.glob("*_result_*"))
    assert [name.partition("compare")[0] for name in tables] == ["", "debug_"]


@pytest.mark.parametrize("name", ["debug.json", "my_debug.json"])
def test_files_are_known_by_the_end_of_their_names(name: str, compare: Compare, tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", {"x.0.debug": tensor()}, name=name)
    assert names(compare(path, path)) == ["x.0.debug"]


def test_saved_variables_do_not_go_with_a_recorded_run(probe: Any, out: Path, tmp_path: Path) -> None:
    debug = save(tmp_path / "a", {"x.0.debug": tensor()})
    dump = write_run(tmp_path / "b", {"Torch.exp.0.forward": {"output": [tensor()]}})
    for both in ((debug, dump), (dump, debug)):
        assert probe("compare", *both, "-o", out) == 2
        assert "same kind of records" in probe.err and "Traceback" not in probe.err


# -- rows --------------------------------------------------------------------------------------


def test_nested_values_are_rows_below_their_paths(compare: Compare, tmp_path: Path) -> None:
    data = {
        "tree.0.debug": {"a": tensor(), "b": [tensor(), {"c": [[tensor()], scalar(1)]}], "d": None},
        "list.0.debug": [tensor(), [tensor(), scalar("x")]],
        "empty.0.debug": [],
        "hollow.0.debug": {"a": {}, "b": []},
        "null.0.debug": None,
        "plain.0.debug": scalar(1.5),
    }
    path = save(tmp_path / "a", data)
    assert names(compare(path, path)) == [
        "tree.0.debug.a", "tree.0.debug.b.0", "tree.0.debug.b.1.c.0.0", "tree.0.debug.b.1.c.1",
        "tree.0.debug.d", "list.0.debug.0", "list.0.debug.1.0", "list.0.debug.1.1", "null.0.debug",
        "plain.0.debug",
    ]  # fmt: skip


def test_a_name_saved_again_has_a_count_of_its_own(compare: Compare, tmp_path: Path) -> None:
    first = save(tmp_path / "a", {f"x.{count}.debug": tensor(value=count + 1.0) for count in range(12)})
    second = save(tmp_path / "b", {f"x.{count}.debug": tensor(value=count + 1.0) for count in range(12)[::-1]})
    rows = compare(first, second)
    assert names(rows) == names(rows, "Bench") == [f"x.{count}.debug" for count in range(12)]
    assert [row["NPU max"] for row in rows] == [row["Bench max"] for row in rows]


def test_gradients_are_rows_like_all_others(compare: Compare, tmp_path: Path) -> None:
    data = {"x.0.debug": tensor(), "x_grad.0.debug": tensor(value=0.5), "x_grad.1.debug": {"w": tensor()}}
    path = save(tmp_path / "a", data)
    assert names(compare(path, path)) == ["x.0.debug", "x_grad.0.debug", "x_grad.1.debug.w"]


@pytest.mark.parametrize("name", ["backward", "my.loss", "Module", "x.0.forward", "=1+1", "损失", "a b", "debug"])
def test_names_are_the_users_own(name: str, compare: Compare, tmp_path: Path) -> None:
    path = save(tmp_path / "a", {f"{name}.0.debug": tensor(), f"{name}_grad.0.debug": tensor()})
    assert names(compare(path, path)) == [f"{name}.0.debug", f"{name}_grad.0.debug"]


def test_values_of_one_side_alone(probe: Any, compare: Compare, tmp_path: Path) -> None:
    both = {"a.0.debug": tensor(), "z.0.debug": tensor()}
    more = {"a.0.debug": tensor(), "b.0.debug": tensor(), "z.0.debug": tensor()}
    first, second = save(tmp_path / "a", both), save(tmp_path / "b", more)
    golden_only = compare(first, second)
    assert names(golden_only) == ["a.0.debug", "N/A", "z.0.debug"]
    assert names(golden_only, "Bench") == ["a.0.debug", "b.0.debug", "z.0.debug"]
    assert golden_only[1]["Err_message"] == "No NPU data matched."
    assert "1 only in the golden" in probe.out
    target_only = compare(second, first)
    assert names(target_only, "Bench") == ["a.0.debug", "N/A", "z.0.debug"]
    assert target_only[1]["Err_message"] == "No bench data matched."
    assert target_only[1]["Max diff"] == target_only[1]["Result"] == "N/A"


def test_nested_values_of_one_side_alone(compare: Compare, tmp_path: Path) -> None:
    first = save(tmp_path / "a", {"t.0.debug": {"a": tensor(), "b": tensor()}})
    second = save(tmp_path / "b", {"t.0.debug": {"b": tensor(), "c": tensor()}})
    rows = compare(first, second)
    assert sorted(zip(names(rows), names(rows, "Bench"))) == [
        ("N/A", "t.0.debug.c"), ("t.0.debug.a", "N/A"), ("t.0.debug.b", "t.0.debug.b"),
    ]  # fmt: skip


def test_nothing_in_common(probe: Any, out: Path, tmp_path: Path) -> None:
    first, second = (
        save(tmp_path / "a", {"x.0.debug": tensor()}),
        save(tmp_path / "b", {"xs.0.debug": tensor()}),
    )
    assert probe("compare", first, second, "-o", out) == 2
    assert "nearest in the golden: xs.0.debug" in probe.err


# -- the three modes ---------------------------------------------------------------------------


def test_tensors_are_measured(compare: Compare, tmp_path: Path) -> None:
    golden = np.array([1.0, 2.0, 4.0], np.float32)
    goldens = {"same.0.debug": golden, "other.0.debug": golden, "other_grad.0.debug": golden}
    targets = {**goldens, "other.0.debug": golden * 3, "other_grad.0.debug": golden[::-1].copy()}
    rows = compare(save_tensors(tmp_path / "a", targets), save_tensors(tmp_path / "b", goldens))
    assert [list(row) for row in rows] == [HEADERS[Mode.TENSOR]] * 3
    assert [row["Accuracy Reached or Not"] for row in rows] == ["Yes", "No", "No"]
    assert [row["MaxAbsErr"] for row in rows] == [0.0, 8.0, 3.0]
    assert rows[1]["Data_name"] == "['other.0.debug.npy', 'other.0.debug.npy']"


def test_statistics_are_compared(compare: Compare, tmp_path: Path) -> None:
    first = save(tmp_path / "a", {"x.0.debug": tensor(value=2.0), "y.0.debug": tensor(value=1.0)})
    second = save(tmp_path / "b", {"x.0.debug": tensor(value=1.0), "y.0.debug": tensor(value=1.0)})
    rows = compare(first, second)
    assert [list(row) for row in rows] == [HEADERS[Mode.STATISTICS]] * 2
    assert [row["Result"] for row in rows] == ["Warning", ""]
    assert rows[0]["MaxRelativeErr"] == "100.0%"


def test_checksums_are_compared(compare: Compare, tmp_path: Path) -> None:
    """The checksum may lie as deep as it likes."""
    first, second = (
        save(tmp_path / side, {"x.0.debug": {"a": [tensor(md5="aa")]}, "y.0.debug": tensor(md5=checksum),
                               "z.0.debug": scalar(number)})
        for side, checksum, number in (("a", "bb", 1), ("b", "cc", 2))
    )  # fmt: skip
    rows = compare(first, second)
    assert [list(row) for row in rows] == [HEADERS[Mode.MD5]] * 3
    assert [row["Result"] for row in rows] == ["Pass", "Different", "Different"]
    assert (rows[1]["NPU MD5"], rows[1]["BENCH MD5"]) == ("bb", "cc")


@pytest.mark.parametrize("task", ["statistics", "md5"])
def test_stacks_beside_the_file_are_not_shown(task: str, compare: Compare, tmp_path: Path) -> None:
    """A stack.json there belongs to a recorded run."""
    data = {"x.0.debug": tensor(**({"md5": "aa"} if task == "md5" else {}))}
    path = save(tmp_path / "a", data)
    (tmp_path / "a/stack.json").write_text(json.dumps({"0": [["x.0.debug"], ["File a.py, line 1, in f"]]}))
    assert all("NPU_Stack_Info" not in row for row in compare(path, path))
    assert all("NPU_Stack_Info" not in row for row in compare(path, path, "-s"))


def test_nothing_is_highlighted(probe: Any, out: Path, tmp_path: Path) -> None:
    from openpyxl import load_workbook

    first = save(tmp_path / "a", {"x.0.debug": tensor(value=float("nan")), "y.0.debug": tensor(value=1e30)})
    second = save(tmp_path / "b", {"x.0.debug": tensor(), "y.0.debug": tensor()})
    assert probe("compare", first, second, "-o", out, "-hl", "-c") == 0, probe.err
    (path,) = out.iterdir()
    cells = [cell for line in load_workbook(path).active.iter_rows(min_row=2) for cell in line]  # type: ignore[union-attr]
    assert {cell.fill.fill_type for cell in cells} == {None}


def test_the_first_variable_that_differs_is_the_suspect(probe: Any, compare: Compare, tmp_path: Path) -> None:
    data = {f"{name}.0.debug": tensor() for name in "abcd"}
    wrong = {**data, "c.0.debug": tensor(value=5.0), "d.0.debug": tensor(value=6.0)}
    compare(save(tmp_path / "a", wrong), save(tmp_path / "b", data))
    assert probe.out.startswith("DIVERGED: c.0.debug ")
    assert re.search(r"^  1\. c\.0\.debug  \(row", probe.out, re.M)
