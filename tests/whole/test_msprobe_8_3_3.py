"""Every table of msprobe 8.3.3 against that of probe, cell by cell.

What differs must be on the list ``tests/data/differences-8.3.3.yaml``, with its reason.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from openpyxl import load_workbook
from probe_metrics.reasons import REASONS
from probe_reporters import reason_texts
from support import DATA
from support.spreadsheets import displayed

OPTIONS = {
    "default": ["-c"],
    "s_c": ["-s", "-c"],
    "hl": ["-c", "-hl"],
    "fuzzy": ["-f", "-c"],
    "dm": ["-c", "-dm", "data_mapping.yaml"],
}
MESSAGES = sorted(
    {text.message for text in {**reason_texts.REASON_TEXTS, **REASONS}.values() if text.message} - {"Metric {}."},
    key=len,
    reverse=True,
)
Row = dict[str, Any]


class Difference:
    """One entry of the list: where it applies, which columns, what each side shows, and why."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.reason: str = entry["reason"]
        self._columns = entry["columns"]
        self._when: dict[str, dict[str, str]] = entry.get("when", {})
        self._msprobe = re.compile(entry.get("msprobe", ".*"), re.DOTALL)
        self._own = re.compile(entry.get("probe", ".*"), re.DOTALL)
        self._rewrite: dict[str, str] = entry.get("rewrite", {})
        self.used = 0

    def rewritten(self, column: str, cell: Any) -> Any:
        """Msprobe's cell with the spellings that this entry forgives."""
        if not isinstance(cell, str) or (column not in self._columns and self._columns != ["*"]):
            return cell
        for pattern, replacement in self._rewrite.items():
            cell, count = re.subn(pattern, replacement, cell)
            self.used += count
        return cell

    def explains(self, column: str, msprobe: Row, own: Row, shown: tuple[str, str]) -> bool:
        if self._rewrite or (column not in self._columns and self._columns != ["*"]):
            return False
        for side, row in (("msprobe", msprobe), ("probe", own)):
            for name, pattern in self._when.get(side, {}).items():
                if not re.fullmatch(pattern, text(row.get(name)), re.DOTALL):
                    return False
        if not (self._msprobe.fullmatch(shown[0]) and self._own.fullmatch(shown[1])):
            return False
        self.used += 1
        return True


def text(cell: Any) -> str:
    """A cell as text; an empty cell is an empty text."""
    return "" if cell is None else str(cell)


def number(cell: Any) -> float | None:
    if isinstance(cell, bool) or cell is None:
        return None
    try:
        return float(str(cell).removesuffix("%"))
    except ValueError:
        return None


def same(msprobe: Any, own: Any) -> bool:
    if text(msprobe) == text(own):
        return True
    first, second = number(msprobe), number(own)
    if first is None or second is None:
        return False
    return math.isclose(first, second, rel_tol=1e-5, abs_tol=1e-12)


def messages(cell: Any) -> set[str]:
    """The messages in a cell of Err_message."""
    rest, found = text(cell), set()
    for message in MESSAGES:
        if message in rest:
            found.add(message)
            rest = rest.replace(message, "")
    assert not rest.strip(), f"unknown message in {cell!r}: {rest!r}"
    return found


def as_joined(found: set[str], own: Any) -> bool:
    """True where ``own`` is made of just these messages: one blank between, marks on lines of their own."""
    parts = re.split(r"\n", text(own))
    return sum(map(len, found)) + max(0, len(found) - 1) == len(text(own)) and all(p == p.strip() for p in parts)


def differing_cells(msprobe: Row, own: Row) -> list[tuple[str, tuple[str, str]]]:
    found = []
    for column in msprobe:
        if column == "Err_message":
            before, after = messages(msprobe[column]), messages(own[column])
            if not as_joined(after, own[column]):
                found.append((column, ("joined by one blank", text(own[column]))))
            found += [(column, (message, "")) for message in sorted(before - after)]
            found += [(column, ("", message)) for message in sorted(after - before)]
        elif not same(msprobe[column], own[column]):
            found.append((column, (text(msprobe[column]), text(own[column]))))
    return found


@pytest.fixture(scope="module")
def differences() -> list[Difference]:
    return [Difference(entry) for entry in yaml.safe_load((DATA / "differences-8.3.3.yaml").read_text("utf-8"))]


def tables_of(probe: Any, case: Path, mode: str, out: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.chdir(case)
    assert probe("compare", "--framework", "pytorch", "-i", "compare.json", "-o", out, *OPTIONS[mode]) == 0
    tables = []
    for path in sorted(out.glob("*.xlsx")):
        sheet = load_workbook(path).worksheets[0]
        head, *body = sheet.iter_rows()
        columns = [cell.value for cell in head]
        rows = [dict(zip(columns, map(displayed, row))) for row in body]
        fills = [str(row[0].fill.fgColor.rgb)[-6:] if row[0].fill.fill_type else "" for row in body]
        tables.append((path, columns, rows, fills))
    return tables


def test_every_table_of_msprobe(
    probe: Any, runs: Any, expected: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    differences: list[Difference],
) -> None:  # fmt: skip
    unexplained: list[str] = []
    compared: Counter[str] = Counter()
    done: dict[tuple[str, str], list[Any]] = {}
    for table in expected:
        key = (table["case"], table["mode"])
        if key not in done:
            done[key] = tables_of(probe, runs(table["case"]), key[1], tmp_path / "-".join(key), monkeypatch)
        path, columns, own, fills = done[key].pop(0)
        assert (f"_rank{table['rank']}_" in path.name) == bool(table["rank"])
        assert columns == table["columns"], path
        order = [row["NPU Name"] for row in own if row["NPU Name"] != "N/A"]
        assert order == [cells[0] for cells in table["rows"]], f"{path}: rows in another order"
        by_name: dict[str, list[tuple[Row, str]]] = {}
        for row, fill in zip(own, fills):
            by_name.setdefault(row["NPU Name"], []).append((row, fill))
        for position, cells in enumerate(table["rows"]):
            msprobe = dict(zip(columns, cells))
            for entry in differences:
                msprobe = {column: entry.rewritten(column, cell) for column, cell in msprobe.items()}
            assert by_name.get(msprobe["NPU Name"]), f"{path.name}: no row {msprobe['NPU Name']}"
            row, fill = by_name[msprobe["NPU Name"]].pop(0)
            wrong = differing_cells(msprobe, row)
            if table["fills"] and table["fills"][position] != fill:
                wrong.append(("fill", (table["fills"][position], fill)))
            compared["cells"] += len(msprobe)
            compared["rows"] += 1
            for column, shown in wrong:
                if not any(entry.explains(column, msprobe, row, shown) for entry in differences):
                    unexplained.append(
                        f"{key} {msprobe['NPU Name']} {column}: msprobe {shown[0]!r:.90}; probe {shown[1]!r:.90}"
                    )
    assert not unexplained, f"{len(unexplained)} of {compared}:\n" + "\n".join(unexplained[:60])
    assert compared["rows"] > 4000
    unused = [entry.reason for entry in differences if not entry.used]
    assert not unused, f"entries that explain nothing: {unused}"


def test_the_list_is_short_and_argued() -> None:
    entries = yaml.safe_load((DATA / "differences-8.3.3.yaml").read_text("utf-8"))
    assert len(entries) <= 30
    assert all(len(entry["reason"].split()) > 5 for entry in entries)
