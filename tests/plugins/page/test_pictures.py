"""Pictures of two tensors, and the rows that get one."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_page import drawing
from probe_page.pictures import MAX_MAP_CELLS, SHADE_COUNT, draw_picture
from support.cases import every
from support.pages import Page
from support.runs.recorded import forward, tensor, write_run, write_tensor_run

ALL = 1 << 30


def test_the_map_shows_where_the_worst_elements_are() -> None:
    golden = np.ones((3, 64, 128), np.float32)
    target = golden.copy()
    target[1, 63, 0] += 0.5
    found = draw_picture(target, golden, 1e-5, ALL)
    assert (found["map"]["height"], found["map"]["width"]) == (MAX_MAP_CELLS, MAX_MAP_CELLS)
    shades = found["map"]["shades"]
    assert shades.index(str(SHADE_COUNT)) == MAX_MAP_CELLS * (MAX_MAP_CELLS - 1) and set(shades) == {
        "0",
        str(SHADE_COUNT),
    }
    assert found["worst"] == [([1, 63, 0], 1.5, 1.0)]
    assert found["difference"]["equal"] == golden.size - 1 and sum(found["difference"]["counts"]) == 1
    assert found["every"] == 1


@every("shape", [(), (1,), (5,), (1, 1), (7, 1), (1, 9), (2, 3, 4, 5), (33, 65)])
@every("dtype", ["f4", "f2", "i4", "?", "c8"])
def test_tensors_of_any_shape_and_dtype(shape: tuple[int, ...], dtype: str) -> None:
    golden = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape).astype(dtype)
    target = np.full_like(golden, 1)
    found = draw_picture(target, golden, 1e-6, ALL)
    size = golden.size
    assert sum(found["values"]["target"]) == sum(found["values"]["golden"]) == size
    assert sum(found["difference"]["counts"]) + found["difference"]["equal"] == size
    assert (
        len(found["map"]["shades"]) == found["map"]["height"] * found["map"]["width"] <= MAX_MAP_CELLS * MAX_MAP_CELLS
    )
    for index, *_ in found["worst"]:
        assert target[tuple(index)] != golden[tuple(index)]
    json.dumps(found, allow_nan=False)


def test_nan_and_inf() -> None:
    golden = np.array([np.nan, np.inf, -np.inf, 1.0, 2.0, np.inf])
    target = np.array([np.nan, np.inf, 0.0, np.nan, 2.0, -np.inf])
    found = draw_picture(target, golden, 1e-9, ALL)
    assert found["difference"]["apart"] == 3 and found["difference"]["equal"] == 1
    assert found["map"]["shades"] == f"00{SHADE_COUNT}{SHADE_COUNT}0{SHADE_COUNT}"
    assert [index for index, *_ in found["worst"]] == [[2], [3], [5]]
    assert found["worst"][0][1:] == (0.0, "-inf")


def test_a_golden_of_zeros_and_huge_values() -> None:
    found = draw_picture(np.array([0.0, 2.0]), np.zeros(2), 1e-6, ALL)
    assert found["worst"] == [([1], 2.0, 0.0)] and found["difference"]["low"] == 0
    huge = np.array([1e300, -1e300])
    assert draw_picture(huge, -huge, 1e-6, ALL)["map"]["shades"] == f"{SHADE_COUNT}{SHADE_COUNT}"


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_picture_counts_differences_that_overflow_as_without_size() -> None:
    golden = np.full(8, np.finfo(np.float64).max)
    found = draw_picture(np.where(np.arange(8) < 3, -golden, golden), golden, 1e-6, ALL)
    assert found["difference"] == {"low": 0, "counts": [], "equal": 5, "apart": 3}
    json.dumps(found, allow_nan=False)


def test_outliers_do_not_hide_the_other_values() -> None:
    golden = np.random.default_rng(0).normal(size=1000)
    golden[0] = -1e30
    found = draw_picture(golden, golden, 1e-6, ALL)["values"]
    assert found["low"] > -1e3 and sum(found["golden"]) == 1000 and max(found["golden"]) < 900


def test_large_tensors_are_looked_at_in_part() -> None:
    golden = np.zeros((400, 100))
    target = golden + 1
    found = draw_picture(target, golden, 0.0, 1000)
    assert found["every"] == 40 and sum(found["values"]["target"]) == 1000
    assert set(found["map"]["shades"]) == {str(SHADE_COUNT)} and found["map"]["height"] == 10
    assert found["worst"][1][0] == [0, 1]
    flat = draw_picture(np.ones(10_000), np.zeros(10_000), 0.0, 1000)
    assert flat["every"] == 10 and flat["worst"][1][0] == [10]


# -- the pictures of a page -----------------------------------------------------------------------------


def drawn(page: Page) -> dict[str, Any]:
    """Return the pictures of a page."""
    blocks = re.findall(r'data-block="pictures">([^<]*)<', page.source)
    found: dict[str, Any] = {}
    for block in blocks:
        found |= json.loads(zlib.decompress(b64decode(block)))
    return found


def write_sides(directory: Path, size: int, count: int, off: dict[int, float]) -> tuple[Path, Path]:
    """Write two runs of ``count`` calls, of which those in ``off`` return something else in the target."""
    array = np.linspace(1, 2, size, dtype=np.float32)
    for side in ("t", "g"):
        calls = {}
        for number in range(count):
            changed = array * np.float32(1 + (off.get(number, 0.0) if side == "t" else 0.0))
            calls[f"Torch.a.{number}.forward"] = ([array], [changed])
        write_tensor_run(directory / side, calls)
    return directory / "t", directory / "g"


def compare(probe: Any, sides: tuple[Path, Path], out: Path) -> Page:
    assert probe("compare", *sides, "-o", out, "--format", "html") == 0, probe.err
    (path,) = out.glob("compare_result*.html")
    return Page(path)


def test_the_cause_and_the_worst_rows_have_pictures(probe: Any, tmp_path: Path) -> None:
    off = {3: 1e-3} | {number: 1e-2 * number for number in range(5, 30)}
    page = compare(probe, write_sides(tmp_path, 50, 30, off), tmp_path / "o")
    columns, calls = page.columns("rows"), page.columns("ops")
    names = {number: calls["key"][int(op)] for number, op in zip(columns["#row"], columns["#op"])}
    shown = [names[int(number)] for number in drawn(page)]
    assert shown[0] == "Torch.a.3.forward" == page.meta["causes"][0]
    worst = [f"Torch.a.{number}.forward" for number in range(29, 29 - drawing.MAX_WORST_PICTURES, -1)]
    assert set(shown) <= {*page.meta["causes"], *worst} and set(worst) <= set(shown)
    assert page.meta["limits"]["Cosine"].startswith("No below 0.9")
    assert any(tag == "div" and attrs.get("data-row") for tag, attrs in page.tags)


def test_the_budget_of_elements_is_kept(probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "MAX_CAUSE_ELEMENTS", 40)
    monkeypatch.setattr(drawing, "MAX_ROW_ELEMENTS", 20)
    monkeypatch.setattr(drawing, "MAX_TOTAL_ELEMENTS", 70)
    page = compare(probe, write_sides(tmp_path, 50, 6, dict.fromkeys(range(2, 6), 0.5)), tmp_path / "o")
    sizes = [sum(found["values"]["golden"]) for found in drawn(page).values()]
    assert sizes and sum(sizes) <= 70 and max(sizes) <= 40
    assert all(found["every"] > 1 for found in drawn(page).values())


def test_statistics_have_no_pictures(probe: Any, tmp_path: Path) -> None:
    for side, value in (("t", 9.0), ("g", 1.0)):
        write_run(tmp_path / side, {"Torch.a.0.forward": forward(tensor(), output=[tensor(value=value)])})
    page = compare(probe, (tmp_path / "t", tmp_path / "g"), tmp_path / "o")
    assert drawn(page) == {} and page.meta["mode"] == "statistics"
    assert page.meta["limits"]["MaxRelativeErr"] == "Warning above 50%"


def test_tensors_that_cannot_be_read_again_are_left_out(
    probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = write_sides(tmp_path, 50, 4, {2: 0.5})
    chosen = drawing.CandidateCollector.select

    def remove(self: Any, report: Any) -> Any:
        gone = [path for side in sides for path in Path(side).rglob("*.npy")]
        assert gone
        for path in gone:
            path.unlink()
        return chosen(self, report)

    monkeypatch.setattr(drawing.CandidateCollector, "select", remove)
    assert drawn(compare(probe, sides, tmp_path / "o")) == {}
