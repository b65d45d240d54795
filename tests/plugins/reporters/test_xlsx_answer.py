"""The sheet of the answer, the last of a workbook and the one that is shown."""

from __future__ import annotations

import importlib.util
import math
import re
import zipfile
from pathlib import Path
from typing import Any

import probe_reporters.xlsx as xlsx
import pytest
from openpyxl import Workbook, load_workbook
from probe_reporters.answer_sheet import iterate_lines, parse_frames
from probe_reporters.xlsx_template import NUMBER_FORMATS
from support.runs.recorded import forward, tensor, write_run

from probe_core.model import Cell, Colour, Reason
from probe_core.model.answers import Answer, Coverage, Finding, Outcome

HEADERS = ("NPU Name", "Cosine", "Err_message", "Result")
ROWS: list[list[Cell]] = [[f"Torch.a.{n}.forward", n / 8, "=1+1", "Yes"] for n in range(7)]


def answer_of(text: str = "all is well", op: str = "Torch.a.0.forward") -> Answer:
    cause = Finding(op, f"{op}.output.0", Reason("introduced", text), {}, "3", ("Module.m",), "train.py, line 3")
    return Answer(Outcome.DIVERGED, f"{text}", (cause,), Coverage(9, 8), ("1 value",), ("Go on.",))


def write(path: Path, answer: Answer | None, *, rows: int = 7, of: int = 7) -> Path:
    writer = xlsx.XlsxReporter().open(path, HEADERS, of)
    for cells in ROWS[:rows]:
        writer.write(cells, None)
    if answer is not None:
        writer.answer(answer)
    writer.close()
    return path


def parts(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as book:
        assert book.testzip() is None and len(set(book.namelist())) == len(book.namelist())
        return {name: book.read(name) for name in book.namelist()}


def rows_in(sheet: bytes) -> bytes:
    (rows,) = re.findall(rb"<sheetData>.*</sheetData>", sheet, re.DOTALL)
    return bytes(rows)


def test_it_is_the_last_sheet_and_the_only_one_selected(tmp_path: Path) -> None:
    path = write(tmp_path / "a.xlsx", answer_of())
    book = load_workbook(path)
    assert book.sheetnames == ["Sheet1", "answer"] and book.active is book["answer"]
    assert [bool(sheet.sheet_view.tabSelected) for sheet in book.worksheets] == [False, True]
    found = [tuple(cell.value for cell in row) for row in book["answer"].iter_rows()]
    assert found == [(line.heading, line.text) for line in iterate_lines(answer_of())]
    assert book["answer"]["B1"].alignment.wrap_text


def test_the_rows_of_the_table_are_the_same_bytes_as_without(tmp_path: Path) -> None:
    plain, full = parts(write(tmp_path / "a.xlsx", None)), parts(write(tmp_path / "b.xlsx", answer_of()))
    first = "xl/worksheets/sheet1.xml"
    assert set(full) - set(plain) == {"xl/worksheets/sheet2.xml"}
    assert rows_in(full[first]) == rows_in(plain[first]) and full[first].count(b"<row ") == 8
    book = load_workbook(tmp_path / "b.xlsx")
    assert book.worksheets[0].dimensions == "A1:D8" and book.worksheets[0].auto_filter.ref == "A1:D8"
    assert parts(write(tmp_path / "c.xlsx", answer_of())) == full, "the same input, the same bytes"


def test_behind_several_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx, "MAX_SHEET_ROWS", 3)
    book = load_workbook(write(tmp_path / "a.xlsx", answer_of()))
    assert book.sheetnames == ["part_0", "part_1", "part_2", "answer"] and book.active is book["answer"]
    assert [bool(sheet.sheet_view.tabSelected) for sheet in book.worksheets] == [False, False, False, True]
    names = [row[0] for sheet in book.worksheets[:-1] for row in sheet.iter_rows(min_row=2, values_only=True)]
    assert names == [row[0] for row in ROWS]


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_of_an_interrupted_table(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx, "MAX_SHEET_ROWS", 3)
    book = load_workbook(write(tmp_path / "a.xlsx", answer_of(), rows=rows))
    assert book.sheetnames[-1] == "answer" and book.active is book["answer"]
    names = [row[0] for sheet in book.worksheets[:-1] for row in sheet.iter_rows(min_row=2, values_only=True)]
    assert names == [row[0] for row in ROWS[:rows]]


@pytest.mark.parametrize(
    "text", ["=cmd|' /C calc'!A0", "+1", "@SUM(A1)", "<b>&\"'</b>", "]]>", "a\x00\x1b[31mb", "\ud800", "中文 😀", "x" * 40_000]
)  # fmt: skip
def test_hostile_text(text: str, tmp_path: Path) -> None:
    book = load_workbook(write(tmp_path / "a.xlsx", answer_of(text, text[:200])))
    assert not [cell for row in book["answer"].iter_rows() for cell in row if cell.data_type == "f"]
    for heading, shown in book["answer"].iter_rows(values_only=True):
        assert isinstance(shown, str) or heading == "Row of table"
        shown = str(shown)
        assert not re.match(r"[=+@]", shown), heading
        assert len(shown) <= 32_767 and not re.search(r"[\x00-\x08\x1b]", shown)


def test_readers_of_the_first_sheet_see_the_table(tmp_path: Path) -> None:
    path = write(tmp_path / "a.xlsx", answer_of())
    first = load_workbook(path, read_only=True).worksheets[0]
    assert [row[0] for row in first.iter_rows(min_row=2, values_only=True)] == [row[0] for row in ROWS]
    if importlib.util.find_spec("pandas"):
        import pandas

        frame = pandas.read_excel(path)
        assert list(frame.columns) == list(HEADERS) and len(frame) == len(ROWS)


@pytest.fixture
def two_ranks(tmp_path: Path) -> tuple[Path, Path]:
    for rank in (0, 1):
        for side, value in (("t", 9.0), ("g", 1.0)):
            calls = {"Torch.a.0.forward": forward(tensor(), output=[tensor(value=value if rank else 1.0)])}
            write_run(tmp_path / side / f"rank{rank}", calls)
    return tmp_path / "t", tmp_path / "g"


def test_merge_result_skips_it(two_ranks: tuple[Path, Path], probe: Any, tmp_path: Path) -> None:
    """Results with the sheet and without it merge to the same rows."""
    config = tmp_path / "merge.yaml"
    config.write_text("api:\n  - Torch.a\ncompare_index:\n  - Max diff\n")
    merged = []
    for out, options in (("with", []), ("without", ["-c"])):
        assert probe("compare", *two_ranks, "-o", tmp_path / out, *options) == 0, probe.err
        sheets = {
            path.name: load_workbook(path).sheetnames for path in (tmp_path / out).glob("compare_result_rank*.xlsx")
        }
        assert len(sheets) == 2 and all(("answer" in names) is (out == "with") for names in sheets.values())
        into = tmp_path / f"merged_{out}"
        assert probe("merge_result", "-i", tmp_path / out, "-o", into, "-config", config) == 0, probe.err
        (path,) = into.glob("*.xlsx")
        book = load_workbook(path)
        merged.append({sheet.title: list(sheet.iter_rows(values_only=True)) for sheet in book.worksheets})
    assert merged[0] == merged[1] and merged[0]


# -- links, suspects, stacks, number formats ------------------------------------------------------------

STACK_HEADERS = ("NPU Name", "Bench Name", "Cosine", "NPU_Stack_Info")
FRAMES = ["File a.py, line 3, in forward, \n y = f(x)", "File b.py, line 9, in <module>, \n =1+1"]


def write_with_stacks(path: Path, answer: Answer, *, count: int = 6, of: int = 6) -> Path:
    """A table of ``count`` calls of two rows, of which the outputs are coloured."""
    writer = xlsx.XlsxReporter().open(path, STACK_HEADERS, of)
    for number in range(count // 2):
        op = f"Torch.a.{number}.forward"
        writer.write([f"{op}.input.0", f"{op}.input.0", 1.0, str([f"{op} {frame}" for frame in FRAMES])], None)
        writer.write([f"{op}.output.0", f"{op}.output.0", 0.123456789, "N/A"], Colour.RED)
    writer.answer(answer)
    writer.close()
    return path


def marked(book: Workbook) -> dict[str, list[str]]:
    """The cells of each sheet that a rule marks whatever they hold."""
    return {
        sheet.title: [str(rules.sqref) for rules in sheet.conditional_formatting if rules.rules[0].formula == ["TRUE"]]
        for sheet in book.worksheets
    }


def test_a_cause_leads_to_its_row(tmp_path: Path) -> None:
    book = load_workbook(write_with_stacks(tmp_path / "a.xlsx", answer_of(op="Torch.a.1.forward")))
    sheet = book["answer"]
    links = {cell.coordinate: cell.hyperlink.location for row in sheet.iter_rows() for cell in row if cell.hyperlink}
    assert links == {"A2": "Sheet1!A5", "B3": "Sheet1!A5"} and sheet["B3"].value == 3
    assert book["Sheet1"]["A5"].value == "Torch.a.1.forward.output.0"
    assert marked(book) == {"Sheet1": ["A5:D5"], "answer": []}
    assert sheet["A2"].fill.fgColor.rgb == "FFF8CBAD" and not sheet["A1"].fill.fill_type


def test_a_cause_leads_to_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx, "MAX_SHEET_ROWS", 2)
    answer = answer_of(op="Torch.a.2.forward")
    book = load_workbook(write_with_stacks(tmp_path / "a.xlsx", answer))
    assert book["answer"]["A2"].hyperlink.location == "part_2!A3"
    assert book["part_2"]["A3"].value == "Torch.a.2.forward.output.0"
    assert marked(book)["part_2"] == ["A3:D3"]
    answer = answer_of(op="Torch.a.0.forward")
    book = load_workbook(write_with_stacks(tmp_path / "b.xlsx", answer))
    assert book["answer"]["A2"].hyperlink.location == "part_0!A3"


@pytest.mark.parametrize("count", [0, 2])
def test_a_row_that_is_not_in_the_table_has_no_link(count: int, tmp_path: Path) -> None:
    book = load_workbook(write_with_stacks(tmp_path / "a.xlsx", answer_of(op="Torch.a.2.forward"), count=count))
    assert not [cell for row in book["answer"].iter_rows() for cell in row if cell.hyperlink]
    assert marked(book) == {"Sheet1": [], "answer": []}


def test_a_stack_has_a_frame_a_line(tmp_path: Path) -> None:
    book = load_workbook(write_with_stacks(tmp_path / "a.xlsx", answer_of(op="Torch.a.1.forward")))
    (cell,) = [row[1] for row in book["answer"].iter_rows() if row[0].value == "Stack"]
    first, second = (" ".join(f"Torch.a.1.forward {frame}".split()) for frame in FRAMES)
    assert cell.value == f"{first}\n{second}" and cell.alignment.wrap_text


@pytest.mark.parametrize("text", ["N/A", "no list", "[1, 2]", "[" * 5000, "['=1+1']"])
def test_a_stack_that_is_no_list_is_one_text(text: str) -> None:
    assert parse_frames(text) == (["=1+1"] if "=" in text else [text])


def test_the_stack_of_another_call_is_not_shown(tmp_path: Path) -> None:
    writer = xlsx.XlsxReporter().open(tmp_path / "a.xlsx", STACK_HEADERS, 2)
    writer.write(["Torch.b.0.forward.input.0"] * 2 + [1.0, str(FRAMES)], None)
    writer.write(["Torch.a.0.forward.output.0"] * 2 + [1.0, "N/A"], Colour.RED)
    writer.answer(answer_of())
    writer.close()
    headings = [row[0].value for row in load_workbook(tmp_path / "a.xlsx")["answer"].iter_rows()]
    assert "Stack" not in headings and "Line of code" in headings


def test_numbers_have_few_digits_and_cells_all(tmp_path: Path) -> None:
    book = load_workbook(write_with_stacks(tmp_path / "a.xlsx", answer_of()))
    sheet = book["Sheet1"]
    assert sheet["C3"].value == 0.123456789 and sheet["C3"].number_format == "General"
    (rules,) = [rules for rules in sheet.conditional_formatting if str(rules.sqref) == "B2:D7"]
    assert [rule.dxf.numFmt.formatCode for rule in rules.rules] == list(NUMBER_FORMATS)
    assert all("(B2)" in rule.formula[0] for rule in rules.rules)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.123456789, "0.0####"), (-5.25, "0.0####"), (9999.5, "0.0####"), (1e-7, "0.00E+00"), (-1e-7, "0.00E+00"),
        (3.4e38, "0.00E+00"), (0.0, ""), (1.0, ""), (12.0, ""), (65504.0, ""), (0.9999999, ""), (-0.9999999, ""),
        (12345.678, ""),
    ],
)  # fmt: skip
def test_each_number_has_one_format(value: float, shown: str) -> None:
    """The formulas, evaluated as a spreadsheet does; what is next to 1 keeps its digits."""
    known = {"AND": lambda *all_: all(all_), "OR": lambda *any_: any(any_), "ISNUMBER": lambda _: True, "ABS": abs,
             "INT": math.floor}  # fmt: skip
    held = [
        name
        for name, rule in NUMBER_FORMATS.items()
        if eval(rule.format("value").replace("<>", "!="), {**known, "value": value})
    ]
    assert held == ([shown] if shown else [])


@pytest.mark.parametrize("op", ["=HYPERLINK(1)", "'!A1\"><x", "http://evil", "a\x1b\x00b", "中文"])
def test_a_link_is_made_of_numbers_alone(op: str, tmp_path: Path) -> None:
    writer = xlsx.XlsxReporter().open(tmp_path / "a.xlsx", STACK_HEADERS, 1)
    writer.write([f"{op}.output.0", f"{op}.output.0", 1.0, str([op])], Colour.RED)
    writer.answer(answer_of(op=op))
    writer.close()
    sheet = parts(tmp_path / "a.xlsx")["xl/worksheets/sheet2.xml"]
    links = re.findall(rb"<hyperlink [^>]*>", sheet)
    assert links == [b'<hyperlink ref="%s" location="Sheet1!A2" display=" "/>' % cell for cell in (b"A2", b"B3")]
    load_workbook(tmp_path / "a.xlsx")
