"""Number formats of workbooks, and the sheet of the answer in summaries."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook
from probe_reporters.xlsx import COMPRESSION_LEVEL
from support.runs.recorded import forward, tensor, write_run

NAME = "Torch.a.0.forward.output.0"


def compare(probe: Any, out: Path, target: Path, golden: Path) -> Path:
    """Compare two runs, and return the workbook at the top of the output."""
    assert probe("compare", target, golden, "-o", out, "-hl", "--format", "xlsx") == 0, probe.err
    (path,) = out.glob("*.xlsx")
    return path


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two runs of two steps with two ranks, of which rank 1 differs in step 1."""
    for side, value in (("t", 9.0), ("g", 8.0)):
        for step, rank in ((0, 0), (0, 1), (1, 0), (1, 1)):
            output = tensor(value=value if step == rank == 1 else 1.0)
            calls = {"Torch.a.0.forward": forward(tensor(), None, output=[output])}
            write_run(tmp_path / side / f"step{step}" / f"rank{rank}", calls)
    return [tmp_path / side for side in "tg"]


def test_percentages_are_numbers_with_a_format(probe: Any, runs: list[Path], tmp_path: Path) -> None:
    book = load_workbook(compare(probe, tmp_path / "o", *(run / "step1" / "rank1" for run in runs)))
    sheet = book.worksheets[0]
    columns = {cell.value: cell.column for cell in sheet[1]}
    (row,) = [cells[0].row for cells in sheet.iter_rows() if cells[0].value == NAME]
    for header in ("MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"):
        cell = sheet.cell(row, columns[header])
        assert cell.value == 0.125 and cell.number_format == "0.00%", header
        for rules in sheet.conditional_formatting:
            shown = {rule.dxf.numFmt.formatCode for rule in rules.rules if rule.dxf.numFmt}
            assert not shown or (cell.coordinate in rules.sqref) == (shown == {"0.0########%"})
    assert sheet.cell(row, columns["Max diff"]).number_format == "General"
    none_row = next(cells[0].row for cells in sheet.iter_rows() if cells[2].value == "None")
    assert sheet.cell(none_row, columns["MaxRelativeErr"]).value == "N/A"


def test_summary_shows_the_answer_with_links_to_its_rows(probe: Any, runs: list[Path], tmp_path: Path) -> None:
    book = load_workbook(compare(probe, tmp_path / "o", *runs))
    summary, answer = book.worksheets
    assert answer.title == "answer" and book.active is answer
    lines = {row[0].value: row[1] for row in answer.iter_rows()}
    assert lines["Verdict"].value.startswith("DIVERGED: in step1, on rank 1, Torch.a.0.forward ")
    assert lines["Cause 1"].value.startswith("step1 rank 1: Torch.a.0.forward ")
    assert lines["Row of table"].value == "4, in the table of step1 rank 1"
    place = lines["Row of table"].hyperlink.location.removeprefix("Sheet1!")
    assert [cell.value for cell in summary[summary[place].row][:2]] == ["step1", 1]
    assert summary.column_dimensions["O"].width > 50, "the reason why is readable"
    heights = {row[0].value: answer.row_dimensions[row[0].row].height for row in answer.iter_rows()}
    assert heights["Compared"] == 15 and heights["Verdict"] > 30, "wrapped text is not cut off"


def test_cause_of_a_whole_call_leads_to_the_first_row_of_the_call(probe: Any, tmp_path: Path) -> None:
    calls = {f"Torch.a.{n}.forward": forward(tensor(), output=[tensor(value=n + 1.0)]) for n in range(4)}
    golden = write_run(tmp_path / "g", calls)
    extra = {"Torch.b.0.forward": forward(tensor(value=2.0), output=[tensor(value=9.0)])}
    changed = {"Torch.c.0.forward": forward(tensor(value=9.0), output=[tensor(value=9.0)])}
    original = {"Torch.c.0.forward": forward(tensor(value=2.0), output=[tensor(value=2.0)])}
    target = write_run(tmp_path / "t", {**calls, **extra, **changed})
    golden = write_run(tmp_path / "g", {**calls, **original})
    book = load_workbook(compare(probe, tmp_path / "o", target, golden))
    lines = {row[0].value: row for row in book["answer"].iter_rows()}
    cause, link = lines["Cause 1"][1].value, lines["Cause 1"][0].hyperlink
    assert cause.startswith("Torch.b.0.forward is called in the target only"), cause
    name = book["Sheet1"][link.location.removeprefix("Sheet1!")].value
    assert name == "Torch.b.0.forward.input.0"


def test_sheets_are_compressed_at_the_level_of_the_writer(probe: Any, runs: list[Path], tmp_path: Path) -> None:
    path = compare(probe, tmp_path / "o", *(run / "step1" / "rank1" for run in runs))
    with zipfile.ZipFile(path) as book:
        for entry in book.infolist():
            packer = zlib.compressobj(COMPRESSION_LEVEL, zlib.DEFLATED, -15)
            content = book.read(entry)
            assert entry.compress_size == len(packer.compress(content) + packer.flush()), entry.filename
