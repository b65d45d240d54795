"""The files: sheets, colours, formulas, texts, numbers."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import probe_reporters.xlsx as xlsx
import pytest
from openpyxl import load_workbook
from probe_reporters.csv import CsvReporter
from probe_reporters.jsonl import JsonlReporter
from probe_reporters.spreadsheet_text import neutralise, replace_surrogates
from support.cases import every

from probe_core.model import Colour

HEADERS = ("NPU Name", "Cosine", "Err_message")


def write(reporter: Any, path: Path, rows: list[list[Any]], colours: dict[int, Colour] | None = None) -> Path:
    writer = reporter.open(path, HEADERS, len(rows))
    for number, row in enumerate(rows):
        writer.write(row, (colours or {}).get(number))
    writer.close()
    return path


@every(
    "text, safe",
    [
        ("=1+1", "'=1+1"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-2+3", "'-2+3"),
        ("＝1+1", "'＝1+1"),
        ("\t=1", "'\t=1"),
        ("a;=1+1", "a;'=1+1"),
        ("-1", "-1"),
        ("-inf", "-inf"),
        ("+1.5e-3", "+1.5e-3"),
        ("Torch.exp.0", "Torch.exp.0"),
        ("", ""),
        ("a\x00b", "a\ufffdb"),
        ("'-1', 'N/A'", "'-1', 'N/A'"),
    ],
)
def test_text_that_looks_like_a_formula(text: str, safe: str) -> None:
    assert neutralise(text) == safe


def test_lone_surrogates_become_readable() -> None:
    assert replace_surrogates("a\ud800b") == "a\ufffdb"
    assert replace_surrogates("中文 😀") == "中文 😀"


def test_xlsx_cells_keep_their_types(tmp_path: Path) -> None:
    rows = [["a", 0.5, "=1+1"], ["b", True, None], ["c", 7, "Nan"], ["d", "inf", ""]]
    sheet = load_workbook(write(xlsx.XlsxReporter(), tmp_path / "a.xlsx", rows)).active
    cells = [[cell.value for cell in row] for row in sheet.iter_rows(min_row=2)]
    assert cells == [["a", 0.5, "'=1+1"], ["b", True, None], ["c", 7, "Nan"], ["d", "inf", None]]
    assert all(cell.data_type != "f" for row in sheet.iter_rows() for cell in row)
    assert sheet.title == "Sheet1"


def test_xlsx_marks_the_whole_row(tmp_path: Path) -> None:
    rows: list[list[Any]] = [["a", 1.0, ""], ["b", None, ""], ["c", 1.0, "x"]]
    path = write(xlsx.XlsxReporter(), tmp_path / "a.xlsx", rows, {0: Colour.RED, 1: Colour.YELLOW})
    fills = [
        [cell.fill.fgColor.rgb if cell.fill.fill_type else None for cell in row]
        for row in load_workbook(path).active.iter_rows(min_row=2)
    ]
    assert fills[0][0] == fills[0][1] == fills[0][2] == "FFFF0000"
    assert fills[1][0] == fills[1][2] == "FFFFFF00"
    assert set(fills[2]) == {None}


def test_xlsx_splits_into_equal_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx, "MAX_SHEET_ROWS", 4)
    reporter = xlsx.XlsxReporter()
    rows = [[f"r{n}", n, ""] for n in range(10)]
    book = load_workbook(write(reporter, tmp_path / "a.xlsx", rows))
    assert book.sheetnames == ["part_0", "part_1", "part_2"]
    assert [sheet.max_row - 1 for sheet in book] == [4, 4, 2]
    assert all(sheet.cell(1, 1).value == "NPU Name" for sheet in book)
    sheet, line = reporter.line(7, 10).split("!")
    assert book[sheet].cell(int(line), 1).value == "r7"


def test_xlsx_cuts_what_excel_cannot_hold(tmp_path: Path) -> None:
    path = write(xlsx.XlsxReporter(), tmp_path / "a.xlsx", [["x" * 40_000, 1, "a\x00b\x1f"]])
    sheet = load_workbook(path).active
    assert len(sheet.cell(2, 1).value) == 32_767 and sheet.cell(2, 1).value.endswith("…")


def test_xlsx_leaves_nothing_beside_itself(tmp_path: Path) -> None:
    write(xlsx.XlsxReporter(), tmp_path / "a.xlsx", [["a", 1, ""]])
    writer = xlsx.XlsxReporter().open(tmp_path / "b.xlsx", HEADERS, 1)
    writer.abandon()
    (tmp_path / "b.xlsx").unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["a.xlsx"]


def test_csv_and_its_lines(tmp_path: Path) -> None:
    reporter = CsvReporter()
    path = write(reporter, tmp_path / "a.csv", [["a", 0.5, "=1"], ["名", None, True]])
    lines = path.read_text("utf-8").splitlines()
    assert lines == ["NPU Name,Cosine,Err_message", "a,0.5,'=1", "名,,True"]
    assert lines[int(reporter.line(1, 2)) - 1].startswith("名")


def test_jsonl_has_numbers_and_valid_json(tmp_path: Path) -> None:
    reporter = JsonlReporter()
    path = write(reporter, tmp_path / "a.jsonl", [["a", 0.5, "=1"], ["b", None, True]], {1: Colour.RED})
    rows = [json.loads(line, parse_constant=pytest.fail) for line in path.read_text("utf-8").splitlines()]
    assert rows[0] == {"NPU Name": "a", "Cosine": 0.5, "Err_message": "=1"}
    assert rows[1] == {"NPU Name": "b", "Cosine": None, "Err_message": True, "highlight": "red"}
    assert reporter.line(1, 2) == "2"


def test_xlsx_takes_the_large_form_of_zip_only_where_it_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Excel offers to repair a workbook in that form."""
    rows = [["a", 0.5, "x"]] * 5
    for largest, is_large in ((14, True), (15, False)):
        monkeypatch.setattr(xlsx, "MAX_CELLS_WITHOUT_ZIP64", largest)
        path = write(xlsx.XlsxReporter(), tmp_path / "a.xlsx", rows)
        assert len(list(load_workbook(path).active.rows)) == 6
        with zipfile.ZipFile(path) as book:
            start = book.getinfo("xl/worksheets/sheet1.xml").header_offset
        extra = int.from_bytes(path.read_bytes()[start + 28 : start + 30], "little")  # the sizes' room
        assert (extra > 0) is is_large


def test_xlsx_of_a_sheet_too_large_is_an_error_of_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = xlsx.XlsxReporter().open(tmp_path / "a.xlsx", HEADERS, 50)
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 2_000)
    with pytest.raises(OSError, match="more than 2 GiB; write csv instead"):
        for _ in range(50):
            writer.write(["a", 0.5, "x"], None)
        writer.close()
    writer.abandon()
