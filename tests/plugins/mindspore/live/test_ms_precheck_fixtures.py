"""Pre-check on runs of msprobe 26.2.0: the real bug is found, the good run passes, no call is lost."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support import DATA

pytest.importorskip("mindspore")

ARCHIVE = DATA / "precheck-mindspore.zip"
Rows = list[dict[str, str]]
DETAILS = [
    "API Name",
    "Bench Dtype",
    "Tested Dtype",
    "Shape",
    "Cosine",
    "MaxAbsErr",
    "MaxRelativeErr",
    "Status",
    "Message",
]
RESULT = ["API Name", "Forward Test Success", "Backward Test Success", "Message"]


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("fixtures")
    zipfile.ZipFile(ARCHIVE).extractall(directory)
    return directory


def read(path: Path) -> Rows:
    with path.open(encoding="utf-8-sig") as file:
        return [{key: value.strip() for key, value in row.items()} for row in csv.DictReader(file)]


def check(probe: Callable[..., int], dump: Path, out: Path) -> tuple[Rows, Rows]:
    line = ("run_ut", "--framework", "mindspore", "-api_info", dump, "-o", out, "--lang", "en")
    assert probe(*line) == 0
    found = [read(next(out.glob(f"accuracy_checking_{kind}_*.csv"))) for kind in ("result", "details")]
    return found[0], found[1]


def statuses(row: dict[str, str]) -> tuple[str, str, str]:
    return row["Forward Test Success"], row["Backward Test Success"], row["Standard"]


def test_the_real_bug_comes_out_and_nothing_else(fixtures: Path, tmp_path: Path, probe: Callable[..., int]) -> None:
    result, details = check(probe, fixtures / "msbug_mix_tensor" / "dump.json", tmp_path)
    rows = {row["API Name"]: row for row in result}
    split = rows.pop("Mint.split.0")
    assert statuses(split) == ("pass", "error", "error")
    assert "NOT REPRODUCED HERE" in split["Message"]
    run = [row for name, row in rows.items() if name.startswith(("Mint", "Functional"))]
    assert len(run) == 37 and all(set(statuses(row)) <= {"pass", ""} for row in run)
    wrong = [row["API Name"] for row in details if "error" in (row["Status"], row["Standard"])]
    assert wrong == ["Mint.split.0.backward.output.0"]
    assert list(details[0])[: len(DETAILS)] == DETAILS and list(result[0])[: len(RESULT)] == RESULT


def test_the_good_run_passes_and_says_what_was_tested(
    fixtures: Path, tmp_path: Path, probe: Callable[..., int]
) -> None:
    result, _ = check(probe, fixtures / "ms_mix_tensor" / "dump.json", tmp_path)
    run = [row for row in result if row["API Name"].startswith(("Mint", "Functional"))]
    assert len(run) == 38 and all(set(statuses(row)) <= {"pass", ""} for row in run)
    assert all("The recorded values were tested; run again here" in row["Message"] for row in run)
    left_out = [row for row in result if row not in run]
    assert {row["API Name"].partition(".")[0] for row in left_out} == {"Primitive", "Cell"}
    assert all(row["Forward Test Success"] == "SKIP" and row["Message"] for row in left_out)


@pytest.mark.parametrize("run, ours", [("bug_tensor", "msbug_mix_tensor"), ("good_tensor", "ms_mix_tensor")])
def test_statuses_and_numbers_of_msprobe(
    run: str, ours: str, fixtures: Path, tmp_path: Path, probe: Callable[..., int]
) -> None:
    result, details = check(probe, fixtures / ours / "dump.json", tmp_path)
    mine = {row["API Name"]: row for row in result}
    for row in read(fixtures / "peer" / run / "result.csv"):
        found = mine[row["API Name"]]
        for column in RESULT[1:3]:
            assert found[column] == row[column], row["API Name"]
    numbers = {row["API Name"]: row for row in details}
    for row in read(fixtures / "peer" / run / "details.csv"):
        found = numbers[row["API Name"]]
        assert (found["Tested Dtype"], found["Shape"]) == (row["Tested Dtype"], row["Shape"])
        assert float(found["Cosine"]) == pytest.approx(float(row["Cosine"]), abs=1e-6)
        assert float(found["MaxAbsErr"]) == pytest.approx(float(row["MaxAbsErr"]), abs=1e-6)


SEED_FAILS_WHAT_IS_RIGHT = {"Mint.exp.1", "Mint.mul.0", "Mint.matmul.0"}
BETTER_THAN_SKIPPED = {
    "Mint.cat.0": ("pass", "pass", "pass"), "Mint.max.0": ("pass", "pass", "pass"),
    "Mint.exp.3": ("pass", "", "pass"), "Mint.exp.4": ("pass", "", "pass"), "Mint.exp.2": ("pass", "", "pass"),
    "MintFunctional.flatten.0": ("pass", "", "pass"), "Mint.item.0": ("pass", "", "pass"),
}  # fmt: skip
"""Calls that msprobe skips or fails: gradients of lists, outputs that are indices, inf and nan."""


def test_edge_cases(fixtures: Path, tmp_path: Path, probe: Callable[..., int]) -> None:
    edge = fixtures / "peer" / "edge_statistics"
    result, _ = check(probe, edge / "dump_stat.json", tmp_path)
    mine = {row["API Name"]: row for row in result}
    recorded = json.loads((edge / "dump_stat.json").read_text())["data"]
    assert set(mine) == {name.removesuffix(".forward").removesuffix(".backward") for name in recorded}
    for row in mine.values():
        assert row["Standard"] != "error", row
        assert "SKIP" not in statuses(row) or row["Message"], row
    for name, expected in BETTER_THAN_SKIPPED.items():
        assert statuses(mine[name]) == expected, mine[name]
    for row in read(edge / "result.csv"):
        name = row["API Name"]
        if name in BETTER_THAN_SKIPPED:
            continue
        found = tuple(mine[name][column] for column in RESULT[1:3])
        if name in SEED_FAILS_WHAT_IS_RIGHT:
            assert "error" in found and mine[name]["Standard"] == "pass"
        else:
            assert found == (row["Forward Test Success"], row["Backward Test Success"]), name
    assert statuses(mine["Tensor.__add__.0"])[0] == statuses(mine["Functional.relu.0"])[0] == "pass"
    assert "Cell is not run alone" in mine["Cell.fc.Dense.0"]["Message"]
    assert "The kernel LinalgVectorNorm unregistered" in mine["Mint.norm.0"]["Message"]
