"""Rows of cells written by the compiled writer and by Python: the same bytes, which others can read."""

from __future__ import annotations

import csv
import enum
import importlib
import importlib.util
import math
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import probe_reporters.csv as csv_reporter
import probe_reporters.xlsx as xlsx_reporter
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from openpyxl import load_workbook
from openpyxl.utils import get_column_letter
from openpyxl.utils.escape import unescape
from probe_reporters import plain_lines
from probe_reporters.spreadsheet_text import neutralise
from probe_reporters.table import INTEGER_CODE, NUMBER_CODE, PERCENT_CODE, CellColumn
from probe_reporters.text import MAX_CELL_LENGTH, format_excel_text
from support.cases import every
from support.measuring import PROPERTY

if importlib.util.find_spec("probe_reporters._lines") is None and "CI" not in os.environ:
    pytest.skip("probe_reporters._lines is not built: there was no C++ compiler", allow_module_level=True)
compiled: Any = importlib.import_module("probe_reporters._lines")

WRITERS = {"compiled": compiled, "Python": plain_lines}

TEXTS = [
    "", "a", "Torch.exp.0.forward", 'quo"ted', '"', '""', "a,b", ",", "a\nb", "\n", "a\r\nb", "\r", "a\rb", "\t", "a\tb",
    " ", " a", "a ", "\na", "a\t", "\xa0a\u3000", "=1+1", "+1", "-1", "-a", "@x", "%d", "=", "-inf", "+1.5e-3",
    "＝1", "＠x", "％d", ";", "a;b", "a;=1", "a;＝1", ";;-;+", "'-1', 'N/A'", "<a href='&amp;'>", "]]>", "&", "a<b>c&d\"",
    "\0", "a\0b", "\x01", "\x0b", "\x1f", "\x7f", "\x80", "a\x0cb", "_", "_x", "x_", "__x0", "_x000B_", "_x000b_", "_x12_",
    "_x005F_x000B_", "a_xFFFF_", "\ud800", "a\udfff;=b", "\ud83d\ude00", "\ufffe", "\uffff", "é", "中文，", "😀", "\u2028",
    "a" * 40_000, "é" * 40_000, "😀" * 40_000, "<" * MAX_CELL_LENGTH, "<" * (MAX_CELL_LENGTH + 1), "=" + "a" * MAX_CELL_LENGTH,
]  # fmt: skip
OTHERS = [
    None, True, False, 0, -1, 10**18, -(2**63), 2**64, 10**4000, 0.0, -0.0, 0.5, 1e16, 1e-5, 123456.75, 5e-324,
    1.7976931348623157e308, math.nan, math.inf, -math.inf, np.float64(0.1), np.float64(1e22), np.float64(2.0**-44),
    np.float64("nan"), np.float64("-inf"), np.str_("=1"), np.int64(7),
]  # fmt: skip

# Surrogates among them, which st.text() leaves out.
CHARACTERS = st.integers(0, 0x10FFFF).map(chr) | st.sampled_from("\0\t\n\r \"',;=+-@%_x0<&>＝\x0b\ud800\udc00")
FRAGMENTS = st.sampled_from(["_x000B_", ";=", ";＝", "\r\n", '""', "]]>", "-1", "inf"])
ANY_TEXT = st.lists(CHARACTERS | FRAGMENTS, max_size=12).map("".join)
ANY_CELL = st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT


def by_both(cells: Any, number: int = 7, style: int = 3) -> tuple[bytes, bytes]:
    """The line and the row, which both writers agree on."""
    lines = [writer.csv_line(cells, neutralise) for writer in WRITERS.values()]
    rows = [writer.sheet_row(cells, number, style, format_excel_text) for writer in WRITERS.values()]
    styles = [style * (place % 2) for place in range(len(cells))]
    styled = [writer.styled_row(cells, number, styles, format_excel_text) for writer in WRITERS.values()]
    assert lines[0] == lines[1]
    assert rows[0] == rows[1] and styled[0] == styled[1]
    return lines[0], rows[0]


# -- numbers -----------------------------------------------------------------------------------


def neighbours(values: list[float]) -> list[float]:
    near = [math.nextafter(value, way) for value in values for way in (math.inf, -math.inf)]
    return [number for value in [*values, *near] for number in (value, -value) if math.isfinite(number)]


def random_bits(count: int) -> list[float]:
    found = np.frombuffer(np.random.default_rng(1).bytes(8 * count), np.float64)
    return found[np.isfinite(found)].tolist()


FLOATS = {
    "random bits": random_bits(100_000),
    "powers of two": neighbours([math.ldexp(1, power) for power in range(-1074, 1024)]),
    "powers of ten": neighbours([float(f"1e{power}") for power in range(-323, 309)]),
    "subnormals": neighbours([number * 5e-324 for number in [*range(300), *range(10**15, 2 * 10**15, 10**12)]]),
    "whole numbers": neighbours([float(number) for number in [*range(2000), *range(2**53 - 99, 2**53 + 99)]]),
    "few digits": [digits / 10**scale for scale in range(25) for digits in range(-50, 1200, 7)],
    "around 1e16 and 1e-4": [base + step * unit for base, unit in ((1e16, 2.0), (1e-4, 1e-20))
                             for step in range(-500, 500)],
}  # fmt: skip


@pytest.mark.parametrize("kind", FLOATS)
def test_numbers_are_those_of_repr(kind: str) -> None:
    values = FLOATS[kind]
    expected = [repr(value) for value in values]
    assert compiled.csv_line(values, neutralise).decode() == ",".join(expected) + "\r\n"
    row = compiled.sheet_row(values, 1, 0, format_excel_text).decode()
    assert re.findall("<v>(.*?)</v>", row) == expected


@pytest.mark.parametrize("kind", FLOATS)
def test_numbers_of_numpy_are_those_of_python(kind: str) -> None:
    """float64 is a float of Python's."""
    values = FLOATS[kind][:20_000]
    assert by_both(list(np.array(values))) == by_both(values)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_narrow_numbers_of_numpy(kind: Any) -> None:
    by_both(["a", kind(0.1)])


@given(st.floats(), st.integers())
@PROPERTY
def test_any_number(number: float, whole: int) -> None:
    line, _ = by_both([number, whole])
    assert line.decode() == f"{number!r},{whole}\r\n"


# -- rows --------------------------------------------------------------------------------------


@every("cell", TEXTS + OTHERS, ids=lambda cell: ascii(cell)[:24])
def test_one_cell_among_others(cell: Any) -> None:
    """First, last, between others, alone on a sheet, with a style and without."""
    for cells in ([cell, "b"], ["a", cell], ("a", cell, cell, None, 1)):
        for style in (0, 1, 12):
            by_both(cells, 1_048_576, style)
    rows = [writer.sheet_row([cell], 1, 0, format_excel_text) for writer in WRITERS.values()]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("cell", ["", None])
def test_one_empty_cell(cell: Any) -> None:
    """An empty line would be no row at all to those that read it."""
    by_both([cell])


class Named(str, enum.Enum):
    """An enumeration such as those of the model."""

    RED = "red"


def test_texts_that_are_more_than_text() -> None:
    by_both(["a", Named.RED])


def test_rows_without_cells() -> None:
    assert by_both([]) == by_both(()) == by_both("") == (b"\r\n", b'<row r="7"></row>')


@PROPERTY
@given(st.lists(ANY_CELL, min_size=2, max_size=9), st.integers(1, 1 << 20), st.integers(0, 20))
@example(["a\ud800", None], 1, 0)
def test_any_row(cells: list[Any], number: int, style: int) -> None:
    by_both(cells, number, style)


def test_columns_beyond_zz() -> None:
    """All columns that Excel has, empty ones left out."""
    cells = [None if column % 7 == 2 else column for column in range(16_384)]
    _, row = by_both(cells, 3, 0)
    names = re.findall('r="([A-Z]+)3"', row.decode())
    assert names == [get_column_letter(column + 1) for column in cells if column is not None]
    assert names[-1] == "XFD"


def test_writers_on_threads() -> None:
    rows = [[f"=text {n};{'x' * n}", n / 7, None, "é" * n] for n in range(400)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda row: by_both(row, 1), rows))
    assert found == [by_both(row, 1) for row in rows]


# -- what is no row ----------------------------------------------------------------------------


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("cells", [None, 5, 1.5, object()])
def test_cells_that_are_no_sequence(writer: str, cells: Any) -> None:
    with pytest.raises(TypeError):
        WRITERS[writer].csv_line(cells, neutralise)
    with pytest.raises(TypeError):
        WRITERS[writer].sheet_row(cells, 1, 0, format_excel_text)


@pytest.mark.parametrize("writer", WRITERS)
def test_prepare_that_raises(writer: str) -> None:
    """Its own exception comes through, and the next row is whole."""

    def refuse(text: str) -> str:
        raise KeyError(text)

    for cells in (["=a"], ["b", "é", "c"], [1.5, "=a", "=b"]):
        with pytest.raises(KeyError):
            WRITERS[writer].csv_line(cells, refuse)
        with pytest.raises(KeyError):
            WRITERS[writer].sheet_row(cells, 1, 2, refuse)
    assert by_both(["a", "=b"])[0] == b"a,'=b\r\n"


@pytest.mark.parametrize("answer", [None, b"bytes", 7])
def test_prepare_that_returns_no_text(answer: Any) -> None:
    for write in (compiled.csv_line, lambda cells, prepare: compiled.sheet_row(cells, 1, 0, prepare)):
        with pytest.raises(TypeError, match="prepare must return a text"):
            write(["a", "=b", "c"], lambda text: answer)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("cell", ["=\ud800", 10**5000], ids=["lone surrogate", "more digits than str() writes"])
def test_what_cannot_be_written(writer: str, cell: Any) -> None:
    """UnicodeEncodeError is a ValueError; ``str`` prepares nothing."""
    with pytest.raises(ValueError):
        WRITERS[writer].csv_line(["a", cell], str)
    with pytest.raises(ValueError):
        WRITERS[writer].sheet_row(["a", cell], 1, 0, str)


def test_nothing_is_kept() -> None:
    """Neither the cells nor what prepare returned, also where it raises."""
    answer, cells = "é" * 30, ["=a" * 9, "ü" * 9, 0.125, 10**30, "<" * 9]
    everything = [answer, *cells]
    before = [sys.getrefcount(one) for one in everything]
    for _ in range(50):
        compiled.csv_line(cells, lambda text: answer)
        compiled.sheet_row(cells, 1, 2, lambda text: answer)
        for write in (compiled.csv_line, lambda row, prepare: compiled.sheet_row(row, 1, 2, prepare)):
            with pytest.raises(ZeroDivisionError):
                write(cells, lambda text: 1 / 0)
    assert [sys.getrefcount(one) for one in everything] == before


# -- files that others read --------------------------------------------------------------------

READABLE = [text for text in TEXTS if text]


def shown(cell: Any) -> Any:
    """Return what is to be read back of a cell, texts as Python's strings have them."""
    if isinstance(cell, str):
        return unescape(format_excel_text(cell))
    return str(cell) if isinstance(cell, float) and not math.isfinite(cell) else cell


@pytest.mark.parametrize("writer", WRITERS)
def test_workbooks_open(writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx_reporter, "sheet_row", WRITERS[writer].sheet_row)
    numbers = [value for kind in FLOATS.values() for value in kind[:: len(kind) // 40]]
    numbers += [True, False, 0, -(2**63), 2**64, math.nan, math.inf, -math.inf]
    rows = [[text, number, None] for text, number in zip(READABLE + ["x"] * len(numbers), numbers)]
    assert len(rows) > len(READABLE)
    path = tmp_path / "a.xlsx"
    file = xlsx_reporter.XlsxReporter().open(path, ("Text", "Number", "Nothing"), len(rows))
    for row in rows:
        file.write(row, None)
    file.close()
    found = load_workbook(path).active.iter_rows(min_row=2, values_only=True)
    for row, (text, number, nothing) in zip(rows, found, strict=True):
        assert unescape(text) == shown(row[0])
        assert number == shown(row[1]) and type(number) is type(shown(row[1]))
        assert nothing is None


@pytest.mark.parametrize("writer", WRITERS)
def test_csv_opens(writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_reporter, "csv_line", WRITERS[writer].csv_line)
    numbers = [value for kind in FLOATS.values() for value in kind[:: len(kind) // 40]]
    path = tmp_path / "a.csv"
    file = csv_reporter.CsvReporter().open(path, ("Texts", "..."), 2)
    for row in (TEXTS, OTHERS, numbers):
        file.write(row, None)
    file.close()
    with path.open(encoding="utf-8", newline="") as lines:
        _, texts, others, read = csv.reader(lines)
    assert texts == [neutralise(text) for text in TEXTS]
    assert others == ["" if cell is None else neutralise(str(cell)) for cell in OTHERS]
    assert [float(number).hex() for number in read] == [number.hex() for number in numbers]


# -- columns -------------------------------------------------------------------------------------

COLUMN = st.one_of(
    st.tuples(st.just(NUMBER_CODE), st.floats(allow_nan=False, allow_infinity=False)),
    st.tuples(st.just(INTEGER_CODE), st.integers(-(2**53) + 1, 2**53 - 1).map(float)),
    st.tuples(st.just(PERCENT_CODE), st.floats(0, 1e300)),
    st.tuples(st.just(0), ANY_CELL),
)


@st.composite
def tables(draw: Any) -> tuple[list[Any], int]:
    """Columns of one length, and the length."""
    count = draw(st.integers(1, 6))
    columns = []
    for _ in range(draw(st.integers(1, 3))):
        entries = draw(st.lists(COLUMN, min_size=count, max_size=count))
        texts: list[Any] = draw(st.lists(ANY_CELL, max_size=2))
        codes, numbers = [], []
        for code, value in entries:
            numbers.append(0.0 if code == 0 else value)
            codes.append(code if code else len(texts))
            texts += [value] if code == 0 else []
        columns.append((np.array(codes, np.int32), texts, np.array(numbers, np.float64)))
    return columns, count


@given(tables())
@PROPERTY
def test_columns_are_written_as_their_rows(table: tuple[list[Any], int]) -> None:
    columns, count = table
    rows = [*zip(*(CellColumn(*column).get_cells() for column in columns))]
    wanted = b"".join(plain_lines.csv_line(row, neutralise) for row in rows)
    for writer in WRITERS.values():
        assert writer.csv_rows(columns, count, neutralise) == wanted
    styles = [[0] * len(columns), [3] * len(columns)]
    colours = bytes(line % 2 for line in range(count))
    shown = [
        plain_lines.styled_row(xlsx_reporter.replace_percentages(row), 5 + n, styles[n % 2], format_excel_text)
        for n, row in enumerate(rows)
    ]
    for writer in WRITERS.values():
        for start, stop in ((0, count), (1, count), (0, 0)):
            found = writer.sheet_rows(columns, start, stop, 5 + start, styles, colours, format_excel_text)
            assert found == b"".join(shown[start:stop])


@pytest.mark.parametrize(
    "column",
    [
        (np.array([1], np.int32), ["a"], None),
        (np.array([NUMBER_CODE], np.int32), ["a"], None),
        (np.array([-4], np.int32), ["a"], np.zeros(1)),
        (np.array([0, 0], np.int32), ["a"], None),
        (np.array([NUMBER_CODE], np.int32), [], np.zeros(2)),
        (np.array([0], np.int64), ["a"], None),
    ],
)
def test_columns_that_do_not_fit_their_rows_are_refused(column: Any) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        compiled.csv_rows([column], 1, neutralise)
    with pytest.raises(ValueError, match="does not fit"):
        compiled.sheet_rows([column], 0, 1, 1, [[0]], b"\0", format_excel_text)
    good = [(np.zeros(1, np.int32), ["a"], None)]
    for arguments in ((0, 2, 1, [[0]], b"\0"), (0, 1, 1, [[0, 0]], b"\0"), (0, 1, 1, [[0]], b"\1")):
        with pytest.raises(ValueError):
            compiled.sheet_rows(good, *arguments, format_excel_text)
