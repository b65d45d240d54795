"""Data frames: typed columns that hold what the rows of the table hold, whatever the batches are."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import probe_reporters.frame as frames
import pytest
from probe_reporters.frame import (
    LEADING_COLUMNS,
    TRAILING_COLUMNS,
    ColumnType,
    FrameColumns,
    create_columns_from_cells,
    format_text_header,
)
from probe_reporters.frame_libraries import create_data_frame
from probe_reporters.parquet import ParquetReporter
from support.runs.recorded import forward, scalar, tensor, write_run

import probe_core
from probe_core.errors import UserError
from probe_core.flow import matched as flow
from probe_core.model import Percent

VALUES = [
    1.5,
    math.nan,
    math.inf,
    -math.inf,
    None,
    True,
    "some text",
    7,
    2**53 - 1,
    2**53 + 3,
    -(10**400),
    0.0,
]
"""Values of statistics that tables show in different ways."""
CASES = [
    ("stat_L1_edge", {}), ("stat_L0_nested", {}), ("stat_mix_fuzzy", {"fuzzy": True}),
    ("md5_L1_edge", {}), ("debug_stat", {}), ("debug_tensor", {}),
    ("tensor_L1_edge", {"metrics": ["equal", "ulp"]}), ("tensor_L0_nested", {"policies": ["accuracy", "first_difference"]}),
]  # fmt: skip


def frame_of(comparison: Any) -> FrameColumns:
    """The frame of a comparison."""
    frame = FrameColumns()
    for pair, table, batch in comparison._iterate_batches():
        frame.add(pair, table, batch)
    return frame


@pytest.fixture
def mixed(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs whose statistics are of all kinds, with calls that only one of them makes."""
    sides = []
    for side, values in (("target", VALUES), ("golden", [*VALUES[1:], VALUES[0]])):
        calls: dict[str, Any] = {
            f"Torch.add.{number}.forward": forward(
                {**tensor(), "Max": value, "Mean": value, "requires_grad": (number + len(sides)) % 2 == 0},
                scalar(value if value is not None else "None"),
                output=[tensor([2, number], value=1.0 + number / 7)],
            )
            for number, value in enumerate(values)
        }
        calls[f"Torch.{side}.0.forward"] = forward(tensor(), output=[tensor()])
        calls["Torch.silent.0.forward"] = forward()
        calls["Torch.mul.0.forward"] = forward(tensor(value=2.0), output=[tensor(value=math.pi, requires_grad=None)])
        sides.append(write_run(tmp_path / side, calls).parent)
    return sides[0], sides[1]


def check_against_rows(frame: FrameColumns, rows: list[dict[str, Any]]) -> None:
    """Check each column of a frame against the cells of the rows."""
    columns = frame.columns()
    headers = [*rows[0]]
    assert {*columns} == {
        *headers,
        *TRAILING_COLUMNS,
        *(format_text_header(header) for header in headers if format_text_header(header) in columns),
    }
    assert [header for header in columns if not header.endswith(" (text)")] == [*headers, *TRAILING_COLUMNS]
    assert all(len(column) == len(rows) for column in columns.values())
    assert all(column.dtype == frame.kinds[header].dtype for header, column in columns.items())
    for header in headers:
        cells, values = [row[header] for row in rows], columns[header].tolist()
        if frame.kinds[header] is ColumnType.NUMBER:
            texts = (
                columns[format_text_header(header)].tolist()
                if format_text_header(header) in columns
                else [None] * len(rows)
            )
            assert any(text is not None for text in texts) is (format_text_header(header) in columns)
            for cell, number, text in zip(cells, values, texts):
                check_number(cell, number, text)
        elif frame.kinds[header] is ColumnType.BOOLEAN:
            assert values == [{"True": True, "False": False, "N/A": None}[str(cell)] for cell in cells]
        else:
            assert values == cells


def check_number(cell: Any, number: float, text: str | None) -> None:
    if isinstance(cell, Percent):
        assert number == cell.ratio and text is None
    elif isinstance(cell, (int, float)):
        assert number == cell and text is None
    elif cell in ("inf", "-inf"):
        assert number == float(cell) and text is None
    elif cell.lstrip("-").isdigit():
        assert number == (float(cell) if len(cell) < 300 else -math.inf) and text == cell
    else:
        assert math.isnan(number) and text == cell


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case, options", CASES)
def test_a_frame_holds_what_the_rows_hold(case: str, options: dict[str, Any], runs: Any) -> None:
    base = runs(case)
    comparison = probe_core.compare(base / "npu_dump", base / "bench_dump", **options)
    frame = frame_of(comparison)
    check_against_rows(frame, list(comparison.rows()))
    if case.startswith("tensor"):
        numbers = frame.columns()
        assert np.isfinite(numbers["distance"]).any() and np.isfinite(numbers["rounding bound"]).any()


def test_values_of_all_kinds(mixed: Any) -> None:
    comparison = probe_core.compare(*mixed)
    frame, rows = frame_of(comparison), list(comparison.rows())
    check_against_rows(frame, rows)
    columns = frame.columns()
    texts = {text for text in columns["NPU max (text)"] if text is not None}
    assert {"N/A", "Nan", "None", "True", "some text", str(2**53 + 3), str(-(10**400))} <= texts
    assert {"inf", "-inf", "7"}.isdisjoint(texts)
    assert {math.inf, -math.inf, 7.0, 2.0**53 - 1} <= {*columns["NPU max"].tolist()}
    relative = columns["MaxRelativeErr"]
    assert any(isinstance(row["MaxRelativeErr"], Percent) for row in rows) and np.isfinite(relative).any()
    assert {*columns["Requires_grad Consistent"].tolist()} == {True, False, None}


@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_size_of_batches_changes_nothing(count: int, mixed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = frame_of(probe_core.compare(*mixed)).columns()
    monkeypatch.setattr(flow, "MAX_BATCH_ROWS", count)
    frame = frame_of(probe_core.compare(*mixed))
    split = frame.columns()
    assert len(frame._chunks) > 3 and [*split] == [*whole]
    for header, column in whole.items():
        np.testing.assert_array_equal(split[header], column, header)


def test_a_frame_without_rows_has_the_columns(mixed: Any) -> None:
    _, table, _ = next(probe_core.compare(*mixed)._iterate_batches())
    columns = FrameColumns(frames.find_column_types(table)).columns()
    assert {*LEADING_COLUMNS, "NPU Name", "Max diff", *TRAILING_COLUMNS} < {
        *columns
    } and "Max diff (text)" not in columns
    assert {len(column) for column in columns.values()} == {0} and columns["Max diff"].dtype == np.float64
    assert [*FrameColumns().columns()] == [*LEADING_COLUMNS]


def test_several_steps_and_ranks_of_different_tables(tmp_path: Path) -> None:
    """A column that the table of one rank lacks is empty there."""
    fields: dict[int, dict[str, Any]] = {0: {}, 1: {"md5": "12345678"}}
    for side in ("target", "golden"):
        for rank, field in fields.items():
            calls = {"Torch.add.0.forward": forward(tensor(**field), output=[tensor(**field)])}
            write_run(tmp_path / side / "step3" / f"rank{rank}", calls)
            write_run(tmp_path / side / "step4" / f"rank{rank}", calls)
    frame = frame_of(probe_core.compare(tmp_path / "target", tmp_path / "golden"))
    columns = frame.columns()
    assert columns["step"].tolist() == ["step3"] * 4 + ["step4"] * 4
    assert columns["rank"].dtype == np.int64 and columns["rank"].tolist() == [0, 0, 1, 1] * 2
    assert columns["NPU MD5"].tolist() == [None, None, "12345678", "12345678"] * 2
    assert np.isnan(columns["Max diff"][2:4]).all() and not np.isnan(columns["Max diff"][:2]).any()


# -- columns that rows do not have ---------------------------------------------------------------------


def test_distance_and_bound_are_those_of_the_further_policy(mixed: Any) -> None:
    comparison = probe_core.compare(*mixed)
    frame = frame_of(comparison).columns()
    drifts = [
        row.further["first_difference"].drift
        for _, _, batch in comparison._iterate_batches()
        for _, rows in batch.all_rows()
        for row in rows
    ]
    distances = [math.nan if drift is None else drift.relative_to(drift.scale) for drift in drifts]
    np.testing.assert_array_equal(frame["distance"], distances)
    np.testing.assert_array_equal(
        frame["rounding bound"], [math.nan if drift is None else drift.noise for drift in drifts]
    )
    assert np.isfinite(distances).any() and np.isnan(distances).any() and 0 in distances


def test_module_and_source_line_are_those_of_suspects(runs: Any) -> None:
    base = runs("tensor_L1_dist2")
    comparison = probe_core.compare(base / "npu_dump", base / "bench_dump", steps=0, ranks=0)
    frame = frame_of(comparison).columns()
    found = {op: (module, line) for op, module, line in zip(frame["op"], frame["module"], frame["source line"])}
    suspects = [suspect for suspect in comparison.suspects if suspect.where]
    assert suspects
    for suspect in suspects:
        assert found[suspect.op] == (suspect.module, suspect.where)


def test_unpaired_surrogates_become_readable(tmp_path: Path) -> None:
    """Neither Arrow nor polars can hold them."""
    calls = {"Torch.a\ud800.0.forward": forward(scalar("x\ud800"), output=[tensor()])}
    sides = [write_run(tmp_path / side, calls).parent for side in "tg"]
    columns = frame_of(probe_core.compare(*sides)).columns()
    assert columns["op"].tolist() == ["Torch.a\ufffd.0.forward"] * 2
    assert columns["NPU max (text)"][0] == "x\ufffd"


def test_a_column_of_the_table_takes_precedence_over_one_of_the_frame() -> None:
    table = SimpleNamespace(headers=("level", "distance"), sources=[("row.label", "plain"), ("row.message", "plain")])
    kinds = frames.find_column_types(table)  # type: ignore[arg-type]
    assert [*kinds] == ["step", "rank", "op", "level", "distance", "rounding bound", "module", "source line"]
    assert kinds["distance"] is ColumnType.TEXT


# -- cells -----------------------------------------------------------------------------------------


def test_columns_of_a_few_rows_of_cells() -> None:
    rows = [["a", 1, True, None, Percent(0.5)], ["b", "unsupported", None, None, None]]
    columns, kinds = create_columns_from_cells(("text", "mixed", "flag", "empty", "ratio"), rows)
    assert [kind.name for kind in kinds.values()] == ["TEXT", "NUMBER", "TEXT", "BOOLEAN", "TEXT", "NUMBER"]
    assert columns["mixed (text)"].tolist() == [None, "unsupported"] and columns["mixed"][0] == 1
    assert columns["flag"].tolist() == [True, None] and columns["empty"].tolist() == [None, None]
    assert columns["ratio"][0] == 0.5
    assert create_columns_from_cells(("text",), [])[0]["text"].tolist() == []


# -- libraries -------------------------------------------------------------------------------------


class Standing:
    """A stand-in for a data frame, which keeps what it is made of."""

    def __init__(self, columns: Any, **options: Any) -> None:
        self.columns, self.options = columns, options

    def astype(self, dtypes: Any) -> Standing:
        self.options["astype"] = dtypes
        return self


def test_pandas_gets_arrays_and_polars_lists_of_objects() -> None:
    columns = {
        "a": np.array([1.0, np.nan]),
        "b": np.array(["x", None], object),
        "c": np.array([True, None], object),
    }
    kinds = {"a": ColumnType.NUMBER, "b": ColumnType.TEXT, "c": ColumnType.BOOLEAN}
    made = create_data_frame(SimpleNamespace(__name__="pandas", DataFrame=Standing), columns, kinds)
    assert made.columns == columns and made.options == {"astype": {"c": "boolean"}}
    polars = SimpleNamespace(__name__="polars", DataFrame=Standing, Float64=1, String=2, Boolean=3)
    made = create_data_frame(polars, columns, kinds)
    assert made.columns["a"] is columns["a"] and made.columns["b"] == ["x", None]
    assert made.options == {"schema": {"a": 1, "b": 2, "c": 3}, "nan_to_null": True}


def test_nothing_is_measured_where_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pandas", "polars", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)

    def batches() -> Iterator[Any]:
        raise AssertionError("a batch is read")
        yield

    for make, package in (
        (ParquetReporter().data_frame, "pandas"),
        (ParquetReporter().arrow_table, "pyarrow"),
    ):
        with pytest.raises(UserError, match=package) as caught:
            make(batches())
        assert f"pip install {package}" in caught.value.fix


def test_a_real_pandas_frame_is_written_as_parquet(mixed: Any, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = probe_core.compare(*mixed).to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["MaxRelativeErr"].dtype == frame["distance"].dtype == np.float64
    assert str(frame["Requires_grad Consistent"].dtype) == "boolean" and frame["rank"].dtype == np.int64
    frame.to_parquet(tmp_path / "frame.parquet")
    pandas.testing.assert_frame_equal(pandas.read_parquet(tmp_path / "frame.parquet"), frame)


def test_a_real_polars_frame(mixed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    polars = pytest.importorskip("polars")
    monkeypatch.setitem(sys.modules, "pandas", None)
    comparison = probe_core.compare(*mixed)
    frame, columns = comparison.to_dataframe(), frame_of(comparison).columns()
    assert isinstance(frame, polars.DataFrame) and frame.columns == [*columns]
    assert frame.schema["MaxRelativeErr"] == polars.Float64 and frame.schema["NPU max (text)"] == polars.String
    assert frame["Requires_grad Consistent"].to_list() == columns["Requires_grad Consistent"].tolist()
    assert frame["NPU max"].null_count() == np.isnan(columns["NPU max"]).sum()
    frame.write_parquet(tmp_path / "frame.parquet")
    empty = create_data_frame(polars, FrameColumns().columns(), LEADING_COLUMNS)
    assert empty.shape == (0, 4) and empty.schema["op"] == polars.String
