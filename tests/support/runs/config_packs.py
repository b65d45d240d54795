"""Packs of config-check, written from a short notation (tests/data/config-check-cases.yaml)."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import yaml

DATA = Path(__file__).parents[2] / "data"
CASES = DATA / "config-check-cases.yaml"
EXPECTED = DATA / "config-check-8.3.3.json"
DIFFERENCES = DATA / "config-check-differences.yaml"
COLLECTED = DATA / "config-check-8.3.3.zip"
"""Two packs that mindstudio-probe 8.3.3 collected in a script, with changed paths."""
STATISTICS = ("max", "min", "mean", "norm")


def load_cases() -> dict[str, dict[str, Any]]:
    """Return the cases by name; each has the members of ``bench`` and ``cmp``."""
    cases: dict[str, dict[str, Any]] = yaml.safe_load(CASES.read_text())
    return cases


def write_packs(case: dict[str, Any], directory: Path) -> tuple[Path, Path]:
    """Write both packs of a case, and return their paths."""
    paths = directory / "bench.zip", directory / "cmp.zip"
    for path in paths:
        write_zip(path, members_of(case[path.stem]))
    return paths


def write_zip(path: Path, members: dict[str, str | bytes]) -> Path:
    """Write a zip file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def members_of(side: dict[str, Any]) -> dict[str, str | bytes]:
    """Return the members of a pack: names, and their content."""
    found: dict[str, str | bytes] = {}
    if "env" in side:
        found["env"] = json.dumps(side["env"])
    if "pip" in side:
        found["pip"] = "".join(f"{name}={version}\n" for name, version in side["pip"].items())
    for kind in ("static", "dynamic"):
        if kind in side:
            found[f"hyperparameters/hyperparameters_{kind}.json"] = json.dumps(side[kind])
    for item, file in (("dataset", "dataset"), ("weights", "weight")):
        for place, tree in side.get(item, {}).items():
            found[f"{item}/{place}/{file}.json"] = json.dumps(_statistics(tree))
    for rank, calls in side.get("random", {}).items():
        entries = {op: [{"count": n, "stack": stack} for n, stack in each] for op, each in calls.items()}
        found[f"random/rank{rank}.json"] = json.dumps(entries)
    return found


def _statistics(tree: Any) -> Any:
    if isinstance(tree, list):
        return dict(zip(STATISTICS, tree))
    return {name: _statistics(one) for name, one in tree.items()} if isinstance(tree, dict) else tree


def cells_of(workbook: Path) -> dict[str, list[list[Any]]]:
    """Return the rows of each sheet of a workbook, the header first."""
    book = openpyxl.load_workbook(workbook)
    return {sheet.title: [list(row) for row in sheet.iter_rows(values_only=True)] for sheet in book}
