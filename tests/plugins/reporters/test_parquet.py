"""Parquet files: the columns of data frames, in row groups, with and without pyarrow."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import probe_reporters.parquet as parquet
import pytest
from probe_reporters.frame import ColumnType, FrameColumns, find_column_types
from support.runs.recorded import forward, scalar, tensor, write_run

import probe_core
from probe_core.errors import UserError
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import ReporterSpec
from probe_core.testing import ReporterConformance


@pytest.fixture
def ranks(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of two ranks, of which one differs."""
    for side, value in (("target", 5.0), ("golden", 1.0)):
        for rank in (0, 1):
            calls = {
                f"Torch.add.{number}.forward": forward(
                    tensor(), scalar("text"), output=[tensor(value=value if rank else 1.0)]
                )
                for number in range(20)
            }
            write_run(tmp_path / side / "step2" / f"rank{rank}", calls)
    return tmp_path / "target", tmp_path / "golden"


@pytest.fixture
def pair(ranks: tuple[Path, Path]) -> tuple[Path, Path]:
    """The runs of rank 1."""
    return ranks[0] / "step2" / "rank1", ranks[1] / "step2" / "rank1"


@pytest.fixture
def without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)


# -- without pyarrow -------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_pyarrow")
def test_the_command_refuses_the_format_without_pyarrow(ranks: Any, probe: Any, tmp_path: Path) -> None:
    assert probe("compare", *ranks, "-o", tmp_path / "out", "--format", "parquet") == 2
    assert probe.err.count("need pyarrow") == 1 and "pip install pyarrow" in probe.err
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


@pytest.mark.usefixtures("without_pyarrow")
def test_python_refuses_the_format_without_pyarrow(pair: Any, tmp_path: Path) -> None:
    for refused in (
        lambda: probe_core.compare(*pair, formats="parquet"),
        lambda: probe_core.compare(*pair).write("parquet", tmp_path / "table.parquet"),
        lambda: probe_core.compare(*pair).to_arrow(),
    ):
        with pytest.raises(UserError, match="need pyarrow") as caught:
            refused()
        assert "pip install pyarrow" in caught.value.fix
    assert not (tmp_path / "table.parquet").exists()


class File:
    """A stand-in for ``ParquetWriter``, which keeps what it is given."""

    def __init__(self, path: Path, schema: Any) -> None:
        self.schema, self.tables = schema, list[Any]()

    def write_table(self, table: Any) -> None:
        self.tables.append(table)

    def close(self) -> None:
        self.tables.append("closed")


def test_row_groups_have_one_schema(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in, because pyarrow is not needed to develop probe."""
    monkeypatch.setattr(parquet, "import_pyarrow", lambda name: SimpleNamespace(ParquetWriter=File))
    monkeypatch.setattr(parquet, "create_arrow_schema", lambda kinds: {**kinds})
    monkeypatch.setattr(parquet, "create_arrow_table", lambda columns, kinds: columns)
    monkeypatch.setattr("probe_core.flow.matched.MAX_BATCH_ROWS", 7)
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 20)
    whole, writer = FrameColumns(), None
    for place, table, batch in probe_core.compare(*pair)._iterate_batches():
        writer = writer or parquet.ParquetReporter().open_table(Path("unused"), table, place)
        writer.write_batch(table.create_columns(batch, all_digits=True), batch)
        whole.add(place, table, batch)
    assert writer is not None
    writer.close()
    file: Any = writer._file
    groups = file.tables[:-1]
    assert file.tables[-1] == "closed" and len(groups) == 3 and file.schema == find_column_types(table)
    assert all([*group] == [*file.schema] for group in groups)
    for header, column in whole.columns(all_texts=True).items():
        np.testing.assert_array_equal(np.concatenate([group[header] for group in groups]), column, header)
    assert file.schema["NPU max (text)"] is ColumnType.TEXT


# -- with pyarrow ----------------------------------------------------------------------------------


def read(path: Path) -> Any:
    """The table of a file."""
    return pytest.importorskip("pyarrow.parquet").read_table(path)


def test_a_file_holds_the_arrow_table(ranks: Any, probe: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    assert probe("compare", *ranks, "-o", tmp_path, "--format", "parquet") == 0, probe.err
    comparison = probe_core.compare(*ranks)
    table = comparison.to_arrow()
    files = [next(tmp_path.glob(f"**/compare_result_rank{rank}_*.parquet")) for rank in (0, 1)]
    rows = [row for file in files for row in read(file).select(table.column_names).to_pylist()]
    assert rows == table.to_pylist() and len(rows) == 120
    assert str(table.schema.field("MaxRelativeErr").type) == "double" and table["rank"].to_pylist()[-1] == 1
    assert table["MaxRelativeErr"].null_count and "NPU max (text)" in table.column_names
    summary = read(next(tmp_path.glob("compare_summary_*.parquet")))
    assert summary.num_rows == 2 and str(summary.schema.field("Rows").type) == "double"


def test_write_gives_the_same_file_twice(pair: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for name in "ab":
        probe_core.compare(*pair).write("parquet", tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert "rank" in read(tmp_path / "a").column_names


def test_an_abandoned_file_is_closed(pair: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    place, table, batch = next(probe_core.compare(*pair)._iterate_batches())
    writer = parquet.ParquetReporter().open_table(tmp_path / "table", table, place)
    writer.write_batch(table.create_columns(batch, all_digits=True), batch)
    writer.abandon()
    (tmp_path / "table").unlink()


class TestParquet(ReporterConformance):
    """The conformance tests of reporters."""

    spec = Manager().find("reporters", "parquet", ReporterSpec)

    @pytest.fixture(autouse=True)
    def _needs_pyarrow(self) -> None:
        pytest.importorskip("pyarrow")
