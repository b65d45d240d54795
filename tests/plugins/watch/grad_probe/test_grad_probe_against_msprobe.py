"""Gradients written by probe and by msprobe 8.3.3 are the same, except for listed differences."""

from __future__ import annotations

import csv
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from probe_watch import GradComparator
from support import ROOT
from support.programs.gradient_training import PROGRAMS
from support.runs.gradients import debugging

BOUNDS = [-1, 0, 0.5]
DIFFERENCES = yaml.safe_load((ROOT / "tests" / "data" / "differences-grad-8.3.3.yaml").read_text("utf-8"))
RUNS = [(p, level) for p in PROGRAMS for level in ("L0", "L1", "L2") if (p, level) != ("flipped", "L0")]


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("grad")
    with zipfile.ZipFile(ROOT / "tests" / "data" / "grad-8.3.3.zip") as archive:
        archive.extractall(directory)
    return directory


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mine")
    for program, level in RUNS:
        with debugging(directory / f"{program}-{level}", grad_level=level, bounds=BOUNDS) as debugger:
            PROGRAMS[program](debugger)
    return directory


def cells(path: Path) -> dict[tuple[str, str], str]:
    rows = list(csv.reader(path.read_text("utf-8-sig").splitlines()))
    return {(row[0], title): cell for row in rows[1:] for title, cell in zip(rows[0], row, strict=True)}


def is_equal(column: str, mine: str | None, peer: str | None, *, is_summed: bool) -> bool:
    """Return True for equal cells; the norm of a training may be rounded otherwise by another kernel."""
    if column == "norm" and mine is not None and peer is not None and is_summed:
        return math.isclose(float(mine), float(peer), rel_tol=3e-7)
    return mine == peer


def differing_cells(mine: Path, peer: Path) -> list[tuple[str, str]]:
    differing = []
    for program, level in RUNS:
        for file in sorted((peer / f"{program}-{level}" / "rank0").glob("*.csv")):
            ours, theirs = cells(mine / f"{program}-{level}" / "rank0" / file.name), cells(file)
            one_sided = {name for name, _ in ours.keys() ^ theirs.keys()}
            keys = [k for k in {**ours, **theirs} if k[0] not in one_sided or k[1] == "param_name"]
            differing += [
                key
                for key in keys
                if not is_equal(key[1], ours.get(key), theirs.get(key), is_summed=program != "kinds")
            ]
    return differing


def matches(entry: dict[str, Any], cell: tuple[str, str]) -> bool:
    return cell[0] in entry["parameters"] and cell[1] == entry["column"]


def test_every_cell_is_that_of_msprobe_or_a_listed_difference(mine: Path, peer: Path) -> None:
    differing = differing_cells(mine, peer)
    unlisted = [cell for cell in differing if sum(matches(e, cell) for e in DIFFERENCES) != 1]
    assert not unlisted
    gone = [
        (entry["column"], name)
        for entry in DIFFERENCES
        for name in entry["parameters"]
        if (name, entry["column"]) not in differing
    ]
    assert not gone, "these no longer differ; remove them from the list"


def test_titles_and_order_are_those_of_msprobe(mine: Path, peer: Path) -> None:
    for program, level in RUNS:
        files = [run / f"{program}-{level}" / "rank0" / "grad_summary_0.csv" for run in (mine, peer)]
        texts = [file.read_bytes().split(b"\r\n") for file in files]
        assert texts[0][0] == texts[1][0] and texts[0][-1] == texts[1][-1] == b""
        names = [[line.partition(b",")[0] for line in text] for text in texts]
        assert [name for name in names[0] if name != b"main_is_none"] == names[1]


def test_signs_are_those_of_msprobe(mine: Path, peer: Path) -> None:
    files = sorted(peer.rglob("*.npy"))
    assert len(files) > 60
    for file in files:
        ours, theirs = np.load(mine / file.relative_to(peer)), np.load(file)
        assert ours.dtype == theirs.dtype == np.bool_ and np.array_equal(ours, theirs)


@pytest.mark.parametrize("level", ["L1", "L2"])
@pytest.mark.parametrize(("target", "golden"), [("peer", "peer"), ("mine", "mine"), ("mine", "peer")])
def test_similarities_are_those_of_msprobe(
    level: str, target: str, golden: str, mine: Path, peer: Path, tmp_path: Path
) -> None:
    sides = {"mine": mine, "peer": peer}
    GradComparator.compare_distributed(
        str(sides[target] / f"training-{level}"), str(sides[golden] / f"flipped-{level}"), str(tmp_path)
    )
    written = (tmp_path / "rank0" / "similarities.csv").read_bytes()
    assert written == (peer / f"compared-{level}" / "rank0" / "similarities.csv").read_bytes()
