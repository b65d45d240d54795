"""Tables of the pre-check that are damaged, to go on with or to be compared."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.runs.precheck_runs import (
    STAMP,
    standin_run,
    table,
    written,
)
from support.standins.precheck_fixtures import Refuses

pytest_plugins = ["support.standins.precheck_fixtures"]

RESULT_NAME, DETAILS = (f"accuracy_checking_{which}_{STAMP}.csv" for which in ("result", "details"))


@pytest.fixture
def dump(tmp_path: Path, standin: Path) -> Path:
    return standin_run(tmp_path / "run", "Functional.good.0", "Functional.near.0")


# -- csv files to go on with -----------------------------------------------------------------------


@pytest.fixture
def earlier(probe: Any, dump: Path, tmp_path: Path) -> Path:
    """The result csv of a run that is over, with the details beside it."""
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "earlier") == 0
    found = written(tmp_path / "earlier")
    found.details.rename(tmp_path / "earlier" / DETAILS)
    return found.result.rename(tmp_path / "earlier" / RESULT_NAME)


def line_of(path: Path, number: int, change: Callable[[str], str]) -> None:
    lines = path.read_text("utf-8").splitlines()
    lines[number] = change(lines[number])
    path.write_text("\n".join(lines) + "\n", "utf-8")


def drop_cell(line: str) -> str:
    return line.rpartition(",")[0]


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "renamed": (
        lambda result: shutil.copy(result, result.with_name("mine.csv")),
        "do not modify the result csv name",
    ),
    "no details": (lambda result: result.with_name(DETAILS).unlink(), "is not in the directory of"),
    "empty": (lambda result: result.write_bytes(b""), "is empty"),
    "empty details": (lambda result: result.with_name(DETAILS).write_bytes(b""), "is empty"),
    "a spreadsheet's": (lambda result: result.write_bytes("名字\n".encode("gbk")), "not UTF-8 text"),
    "a column less": (
        lambda result: line_of(result, 0, lambda line: line.replace("Message", "Words")),
        '"Message"',
    ),
    "a column less in the details": (
        lambda result: line_of(result.with_name(DETAILS), 0, lambda line: line.replace("Shape", "Size")),
        '"Shape"',
    ),
    "a cell less": (lambda result: line_of(result, 1, drop_cell), "2 has 3 cells"),
    "a cell less in the details": (
        lambda result: line_of(result.with_name(DETAILS), 1, drop_cell),
        "2 has 22 cells",
    ),
    "a row twice": (
        lambda result: line_of(result, 2, lambda _: result.read_text("utf-8").splitlines()[1]),
        "two rows",
    ),
    "not the details": (lambda result: shutil.copy(result, result.with_name(DETAILS)), "has no column"),
    "a directory": (make_directory, "There is no"),
    "zeros": (lambda result: result.write_bytes(bytes(1000)), "accuracy_checking_result"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_to_go_on_with(damage: str, earlier: Path, dump: Path, probe: Any) -> None:
    harm, says = DAMAGES[damage]
    harm(earlier)
    path = earlier.with_name("mine.csv") if damage == "renamed" else earlier
    before = {item: item.read_bytes() for item in earlier.parent.iterdir() if item.is_file()}
    assert probe("run_ut", "-api_info", dump, "-csv_path", path) == 2, probe.out
    assert says in probe.err and "Traceback" not in probe.err and len(probe.err.splitlines()) >= 2
    assert {item: item.read_bytes() for item in earlier.parent.iterdir() if item.is_file()} == before


# -- api_precision_compare -------------------------------------------------------------------------


@pytest.fixture
def sides(earlier: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The details of two devices."""
    paths = []
    for side in ("npu", "gpu"):
        (tmp_path / side).mkdir()
        paths.append(Path(shutil.copy(earlier.with_name(DETAILS), tmp_path / side / DETAILS)))
    return paths[0], paths[1]


def compared(refuses: Refuses, sides: tuple[Path, Path]) -> str:
    return refuses("api_precision_compare", "-npu", sides[0], "-gpu", sides[1])


def test_both_sides_the_same_file(refuses: Refuses, sides: tuple[Path, Path]) -> None:
    assert "Both sides are" in compared(refuses, (sides[0], sides[0]))
    other = sides[0].parent / ".." / "npu" / DETAILS
    assert "Both sides are" in compared(refuses, (sides[0], other))


@pytest.mark.parametrize("side", [0, 1])
def test_damaged_details(side: int, refuses: Refuses, sides: tuple[Path, Path]) -> None:
    path = sides[side]
    good = path.read_bytes()
    damages: list[tuple[Callable[[], object], str]] = [
        (lambda: path.write_bytes(b""), "is empty"),
        (lambda: line_of(path, 0, lambda line: line.replace("双千指标", "指标")), "双千指标"),
        (lambda: line_of(path, 0, lambda line: line.replace("Message", "Words")), "Message"),
        (lambda: line_of(path, 0, lambda line: line.replace("双千指标", "均方根误差")), "two columns"),
        (lambda: line_of(path, 2, lambda _: path.read_text("utf-8").splitlines()[1]), "two rows for"),
        (lambda: line_of(path, 1, drop_cell), "2 has 22 cells"),
        (lambda: path.write_bytes(good.replace("余弦".encode(), "余弦".encode("gbk"))), "not UTF-8 text"),
        (lambda: path.unlink(), "cannot be read"),
    ]
    for harm, says in damages:
        harm()
        assert says in compared(refuses, sides)
        path.write_bytes(good)


def test_cells_that_hold_no_number(probe: Any, sides: tuple[Path, Path], tmp_path: Path) -> None:
    """The row is skipped and says so; its neighbours are judged."""
    for text, says in (("bad", 'Input data "bad" is not a number'), (" ", "Input data is an empty string")):
        head, *rows = table(sides[0])
        rows[0][head.index("均方根误差")] = text
        path = tmp_path / f"cells{len(text)}.csv"
        path.write_text("\n".join(",".join(f'"{cell}"' for cell in row) for row in (head, *rows)) + "\n", "utf-8")
        out = tmp_path / f"out{len(text)}"
        assert probe("api_precision_compare", "-npu", path, "-gpu", sides[1], "-o", out) == 0, probe.err
        found = written(out)
        assert found.rows["Functional.good.0"][0] == "SKIP" and says in found.rows["Functional.good.0"][2]
        assert found.rows["Functional.near.0"][0] == "pass"


def test_details_to_be_found_in_the_working_directory(
    probe: Any, sides: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The working directory must hold exactly one."""
    monkeypatch.chdir(sides[0].parent)
    command = ("api_precision_compare", "-gpu", sides[1], "-o", tmp_path / "compared")
    assert probe(*command) == 0, probe.err
    shutil.copy(sides[0], sides[0].with_name("accuracy_checking_details_20270101120000.csv"))
    assert probe(*command) == 2
    assert "several accuracy_checking_details_*.csv" in probe.err and "-npu" in probe.err
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert probe(*command) == 2
    assert "There is no accuracy_checking_details_*.csv here" in probe.err
