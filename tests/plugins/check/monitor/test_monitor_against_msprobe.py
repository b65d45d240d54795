"""Files written by TrainerMon of probe and of msprobe 8.3.3 are the same, except for listed differences."""

from __future__ import annotations

import csv
import json
import math
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from probe_check.monitor.events import EVENT_FILE
from support import ROOT
from support.programs.monitored_training import CASES, run

DIFFERENCES = yaml.safe_load((ROOT / "tests" / "data" / "differences-monitor-8.3.3.yaml").read_text("utf-8"))
PLACES = ("vpp_stage", "name", "step", "micro_step")
ROW = "row"
Cell = tuple[str, str, str, str]
"""Case, task, name and column."""


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("peer")
    with zipfile.ZipFile(ROOT / "tests" / "data" / "monitor-8.3.3.zip") as archive:
        archive.extractall(directory)
    return directory


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mine")
    with pytest.MonkeyPatch.context() as patch:
        for case in CASES:
            patch.setenv("MONITOR_OUTPUT_DIR", "")
            run("probe_check", directory, case)
    return directory


def rows_in(directory: Path) -> dict[tuple[str, ...], dict[str, str]]:
    """Return the rows of all tables by file, place in the step, and number among equal places."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for file in sorted(directory.glob("**/*.csv")):
        for row in csv.DictReader(file.read_text("utf-8").splitlines()):
            place = file.name, *(row.get(title, "") for title in PLACES)
            assert place not in rows
            rows[place] = row
    return rows


def is_equal(mine: str, peer: str, *, is_trained: bool) -> bool:
    """Return True for equal cells; a kernel may round the last digits of a training otherwise."""
    if mine == peer:
        return True
    try:
        numbers = float(mine), float(peer)
    except ValueError:
        return False
    if not is_trained:
        return numbers[0] == numbers[1] or all(map(math.isnan, numbers))
    return all(map(math.isnan, numbers)) or math.isclose(*numbers, rel_tol=1e-6, abs_tol=1.01e-6)


def differing_cells(mine: Path, peer: Path) -> Iterator[Cell]:
    for case in CASES:
        ours, theirs = rows_in(mine / case), rows_in(peer / case)
        assert theirs
        for place in {**ours, **theirs}:
            task, name = place[0].rpartition("_")[0], place[2]
            if place not in ours or place not in theirs:
                yield case, task, name, ROW
                continue
            for column, cell in theirs[place].items():
                if not is_equal(ours[place][column], cell, is_trained=case != "kinds"):
                    yield case, task, name, column


def matches(entry: dict[str, Any], cell: Cell) -> bool:
    fields = ("case", "task", "name", "column")
    return all(re.fullmatch(entry[field], part) for field, part in zip(fields, cell))


def test_every_cell_is_that_of_msprobe_or_a_listed_difference(mine: Path, peer: Path) -> None:
    differing = set(differing_cells(mine, peer))
    assert [cell for cell in sorted(differing) if sum(matches(e, cell) for e in DIFFERENCES) != 1] == []
    assert [entry for entry in DIFFERENCES if not any(matches(entry, cell) for cell in differing)] == []


def test_files_and_columns_are_those_of_msprobe(mine: Path, peer: Path) -> None:
    for case in CASES:
        ours, theirs = (
            {file.name: file.read_text("utf-8").partition("\n")[0] for file in directory.glob("**/*.csv")}
            for directory in (mine / case, peer / case)
        )
        assert ours == theirs, case


def test_events_are_those_of_msprobe(mine: Path, peer: Path) -> None:
    ours, theirs = (
        json.loads((directory / "alerts" / "anomaly_detected" / "rank0" / EVENT_FILE).read_text("utf-8"))
        for directory in (mine, peer)
    )
    common = ("rank", "step", "micro_step", "pp_stage", "vpp_stage", "tag_name", "group_mates")

    def known(events: dict[str, Any]) -> list[str]:
        return sorted(
            str([event[name] for name in common]) + re.sub(r"(-?[\d.]+(e-?\d+)?|nan)", "", event["message"])
            for event in events.values()
            if ".up." not in event["tag_name"]  # before a LayerNorm, so the mean of its gradient is rounding
        )

    assert known(ours) == known(theirs)
    assert all(key.endswith(f"_step_{event['step']}_call_{event['call_id']}") for key, event in ours.items())
    assert next(iter(theirs.values())).keys() == next(iter(ours.values())).keys()
