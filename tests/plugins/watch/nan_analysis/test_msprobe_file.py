"""The file ``anomaly_analyze`` beside that of mindstudio-probe 8.3.3, cell by cell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from probe_watch.nan_analysis import msprobe_file
from probe_watch.nan_analysis.command import iterate_analyses
from support.runs.nan_dumps import DIFFERENCES, EXPECTED, RECORDED, load_cases, write_case

from probe_core.plugins.manager import Manager

Cell = tuple[str, str, str, str]
"""Kind of difference, case, rank, call."""


@cache
def expected() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(EXPECTED.read_text())
    return loaded


def differences() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = yaml.safe_load(DIFFERENCES.read_text())
    return entries


def listed(entry: dict[str, Any]) -> set[Cell]:
    return {(entry["kind"], *map(str, cell)) for cell in entry["cells"]}  # type: ignore[misc]


def content_of(step: Path) -> dict[str, Any]:
    """Return what probe writes for a step; empty for no file."""
    content: dict[str, Any] = {}
    for analysis in iterate_analyses(step, Manager()):
        content = json.loads(json.dumps(msprobe_file.create_content(analysis)))
    return content


def nodes(content: Any) -> dict[tuple[str, str], Any]:
    return {(rank, node["op_name"]): node for rank, found in content.items() for node in found}


def cells_that_differ(case: str, content: Any) -> Iterator[Cell]:
    peer = expected()[case]
    own, theirs = nodes(content), {} if peer in (None, "error") else nodes(peer)
    if peer == "error":
        yield from (("error", case, *place) for place in own)
        return
    yield from (("extra", case, *place) for place in own.keys() - theirs.keys())
    yield from (("missing", case, *place) for place in theirs.keys() - own.keys())
    for place in own.keys() & theirs.keys():
        for field in own[place].keys() | theirs[place].keys():
            sides = (json.dumps(node[place].get(field), sort_keys=True) for node in (own, theirs))
            if len({*sides}) > 1:  # as texts, in which nan equals nan
                yield field, case, *place


@pytest.mark.parametrize("case", load_cases())
def test_cases_differ_only_as_listed(case: str, tmp_path: Path) -> None:
    content = content_of(write_case(load_cases()[case], tmp_path / "step0"))
    assert {*cells_that_differ(case, content)} == {
        cell for entry in differences() for cell in listed(entry) if cell[1] == case
    }


@pytest.mark.parametrize("case", RECORDED)
def test_recorded_runs_differ_only_as_listed(case: str, runs: Callable[..., Path]) -> None:
    run, _, side = case.rpartition("/")
    content = content_of(runs(run) / f"{side}_dump" / "step0")
    assert {*cells_that_differ(case, content)} == {
        cell for entry in differences() for cell in listed(entry) if cell[1] == case
    }


def test_the_list_of_differences_is_well_formed() -> None:
    cells = [cell for entry in differences() for cell in listed(entry)]
    assert len(cells) == len({*cells})
    assert {cell[1] for cell in cells} <= expected().keys()
    for entry in differences():
        assert entry["cells"] and ("decision" in entry) is not ("defect" in entry)
    assert expected().keys() == {*load_cases(), *RECORDED}
