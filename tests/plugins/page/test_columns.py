"""Rows as compressed columns: every cell comes out as it went in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from probe_page import columns as module
from probe_page.columns import Columns
from support.pages import Page

CELLS: list[Any] = [0.0, -0.0, 1.5, 1e300, 1e-300, 5e-324, 0.1, 7, 2**53, 2**70, -(2**80), True, None, "", "N/A",
                    "nan", "中文", "\x00", "x" * 40_000]  # fmt: skip


@pytest.mark.parametrize("size", [1, 3, 8192])
def test_cells_come_out_as_they_went_in(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_BLOCK_ROWS", size)
    collected = Columns(["mixed", "numbers", "texts"])
    for number, cell in enumerate(CELLS):
        collected.add([(cell,), (number / 4,), (f"t{number % 5}",)])
    found = written(tmp_path, collected)
    for cell, read in zip(CELLS, found["mixed"]):
        if type(cell) is float or (type(cell) is int and abs(cell) <= 2**53):
            assert read == pytest.approx(cell, rel=1e-7, abs=0), cell
        else:
            assert read == ("" if cell is None else str(cell))
    assert found["numbers"] == [number / 4 for number in range(len(CELLS))]
    assert found["texts"] == [f"t{number % 5}" for number in range(len(CELLS))]


def test_many_texts_and_rows(tmp_path: Path) -> None:
    collected = Columns(["name"])
    for number in range(70_000):
        collected.add([(f"Torch.a.{number}",)])
    assert written(tmp_path, collected)["name"] == [f"Torch.a.{number}" for number in range(70_000)]


def written(directory: Path, collected: Columns) -> dict[str, list[Any]]:
    """Return the columns as a page holds them."""
    from probe_page.templates import format_script_json

    blocks = "".join(f'<script data-block="rows">{block}</script>' for block in collected.encode_blocks())
    meta = format_script_json({"rows": {"names": collected.names, "count": collected.count}})
    path = directory / "page.html"
    path.write_text(f'{blocks}<script type="application/json" id="meta">{meta}</script>', "utf-8")
    return Page(path).columns("rows")
