"""csv as the pre-check writes and reads it, and the form of its numbers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_precheck import csvfile
from probe_precheck.csvfile import format_messages, format_number, read_table
from probe_precheck.model import Message
from probe_precheck.tables import CsvColumn
from probe_reporters.spreadsheet_text import neutralise
from support.cases import every

from probe_core.errors import UserError

# -- numbers ----------------------------------------------------------------------------------


@every(
    "value, text",
    [
        (0.0, "0.00000000000000"),
        (-0.0, "-0.00000000000000"),
        (1.0, "1.00000000000000"),
        (1e-3, "0.00100000000000"),
        (9.99e-4, "9.99000000000000e-04"),
        (-3e-15, "-3.00000000000000e-15"),
        (5e-324, "4.94065645841247e-324"),
        (123456.5, "123456.50000000000000"),
        (1e22, "10000000000000000000000.00000000000000"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (3, "3"),
        (0, "0"),
    ],
)
def test_how_numbers_are_written(value: float, text: str) -> None:
    assert format_number(value, 14) == text


@pytest.mark.parametrize("digits, texts", [(0, ("2", "5e-04")), (2, ("1.50", "5.00e-04")), (3, ("1.500", "5.000e-04"))])
def test_as_many_digits_as_are_asked_for(digits: int, texts: tuple[str, str]) -> None:
    assert (format_number(1.5, digits), format_number(5e-4, digits)) == texts


@given(st.floats(allow_nan=False))
def test_a_number_read_back_is_close(value: float) -> None:
    found = float(format_number(value, 14))
    assert found == value if math.isinf(value) else math.isclose(found, value, rel_tol=6e-12, abs_tol=0)


# -- csv -------------------------------------------------------------------------------------------

COLUMNS = (CsvColumn("a", "甲", "A"), CsvColumn("b", "乙", "B"))


def read(path: Path, text: str | bytes, *, may_be_cut: bool = False) -> csvfile.Table:
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return read_table(path, COLUMNS, ["a", "b"], may_be_cut=may_be_cut)


def read_back(rows: list[tuple[str, str]], path: Path) -> list[list[str]]:
    found = read(path, csvfile.format_header(COLUMNS, "zh") + csvfile.format_rows(rows))
    return [[row["a"], row["b"]] for row in found.rows]


CELLS = st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]), max_size=8)


@given(rows=st.lists(st.tuples(CELLS, CELLS), max_size=5))
def test_what_is_written_is_read_again(rows: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    """But for formulas, which an apostrophe makes harmless, and rows of blanks, which are none."""
    expected = [[neutralise(cell) if cell.strip() else " " for cell in row] for row in rows]
    found = read_back(rows, tmp_path_factory.getbasetemp() / "again.csv")
    assert found == [row for row in expected if any(cell.strip() for cell in row)]


def test_a_carriage_return_stays_in_its_cell(tmp_path: Path) -> None:
    assert len(read_back([("a\rb", "c")], tmp_path / "t.csv")) == 1


def test_blank_cells_are_one_blank() -> None:
    assert csvfile.format_rows([["", "  ", "x"]]) == b" , ,x\n"
    assert csvfile.order_cells({"b": "1"}, COLUMNS) == [" ", "1"]


def test_headers_in_either_language_and_any_order(tmp_path: Path) -> None:
    for head, language in (("甲,乙", "zh"), ("A,B", "en")):
        found = read(tmp_path / "t.csv", f"\ufeff{head}\n1,2\n")
        assert (found.rows, found.language) == ([{"a": "1", "b": "2"}], language)
    assert read(tmp_path / "t.csv", "乙 , 甲\n2,1\n").rows == [{"b": "2", "a": "1"}]


def test_unknown_columns_stay_under_their_header(tmp_path: Path) -> None:
    found = read(tmp_path / "t.csv", "甲,乙,丙\n1,2,3\n")
    assert found.rows == [{"a": "1", "b": "2", "丙": "3"}] and found.columns[2].english == "丙"


def test_what_spreadsheets_make_of_a_file(tmp_path: Path) -> None:
    """Other line ends, quotes around every cell, empty lines at the end."""
    found = read(tmp_path / "t.csv", '\ufeff"甲","乙"\r\n"1","2"\r\n\r\n,\r\n')
    assert found.rows == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize(
    "text, says",
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        ("甲\n1\n", 'no column "乙"'),
        ("A\n1\n", 'no column "B"'),
        ("甲,乙\n1\n", "line 2 has 1 cells"),
        ("甲,乙\n1,2\n1,2,3\n", "line 3 has 3 cells"),
        ("甲,乙,甲\n1,2,3\n", 'two columns "甲"'),
        ("甲,乙\n".encode("gbk"), "not UTF-8 text"),
        ("甲,乙\n".encode("utf-16"), "not UTF-8 text"),
        ("甲,乙\n1," + "2" * (csvfile.MAX_CELL_CHARACTERS + 1) + "\n", "not valid csv"),
    ],
)  # fmt: skip
def test_files_that_are_no_tables(text: str | bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path / "t.csv", text)
    assert says in str(caught.value) and caught.value.fix


def test_a_row_cut_off_is_left_out_where_it_may_be(tmp_path: Path) -> None:
    text = "\ufeff甲,乙\n1,2\n3,"
    found = read(tmp_path / "t.csv", text, may_be_cut=True)
    assert found.is_cut and found.rows == [{"a": "1", "b": "2"}]
    assert text.encode("utf-8")[: found.complete_bytes].endswith(b"1,2\n")
    assert not read(tmp_path / "t.csv", "甲,乙\n1,2\n", may_be_cut=True).is_cut


def test_messages_in_one_cell_are_parted_and_each_is_there_once() -> None:
    texts = ("It is off.", "limit: 0.99", "limit: 0.99", "", "ERROR: too far", "ERROR: too many")
    messages = [Message(text, text) for text in texts]
    assert format_messages(messages, "en") == "It is off. limit: 0.99; ERROR: too far; ERROR: too many"
    assert format_messages(messages[1:2], "zh") == "limit: 0.99" and format_messages([], "zh") == ""
