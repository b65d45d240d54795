"""Conformance tests for reporters, as a class to subclass."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from probe_core.model import Cell, Colour
from probe_core.plugins.specs import ReporterSpec

HEADERS = ("Name", "Value", "Text")
ROWS: list[tuple[Cell, ...]] = [
    ("Functional.relu.0.forward.output.0", 0.1, "plain"),
    ("whole", 7, True),
    ("nothing", None, ""),
    ("quotes", -1e300, "a \"b\", 'c'"),
    ("several lines", 1e-300, "one\ntwo\r\nthree\ttab"),
    ("a formula", -0.0, "=1+1"),
    ("not in XML", 2**53, "\x00\x1b[31m\ud800"),
    ("Chinese", 0, "余弦相似度"),
    ("long", 1, "x" * 40_000),
]
"""Cells that are difficult to write. Numbers are finite, because nan and inf arrive as text."""


class ReporterConformance:
    """Tests for any reporter; set ``spec`` in a subclass, and pytest collects them."""

    spec: ClassVar[ReporterSpec]

    def reporter(self) -> Any:
        """Return a new reporter from the spec's factory."""
        return self.spec.make()

    def write(self, path: Path, rows: list[tuple[Cell, ...]]) -> bytes:
        """Write a table with rows of every colour, and return the bytes of its file."""
        writer = self.reporter().open(path, HEADERS, len(rows))
        colors = (None, *Colour)
        for number, row in enumerate(rows):
            writer.write(row, colors[number % len(colors)])
        writer.close()
        return path.read_bytes()

    def test_spec_has_a_suffix(self) -> None:
        """Check for a name, a summary, and a suffix that begins with a dot."""
        assert self.spec.name and self.spec.summary
        is_suffix = self.spec.suffix.startswith(".") and "/" not in self.spec.suffix
        assert is_suffix, f"the suffix of a ReporterSpec must begin with a dot, not {self.spec.suffix!r}"

    def test_has_the_methods_that_its_spec_promises(self, tmp_path: Path) -> None:
        """Check a page for ``head`` and ``look``, and a file that holds the answer for ``answer``."""
        reporter = self.reporter()
        writer = reporter.open(tmp_path / "table", HEADERS, 0)
        writer.close()
        promised = [(reporter, "head"), (writer, "look")] if self.spec.page else []
        promised += [(writer, "answer")] if self.spec.answers else []
        missing = [f"{type(owner).__name__}.{name}" for owner, name in promised if not hasattr(owner, name)]
        assert not missing, f"the spec promises {', '.join(missing)}"

    def test_every_kind_of_cell_is_written(self, tmp_path: Path) -> None:
        """Check that texts of any characters, numbers, booleans and None can be written."""
        assert self.write(tmp_path / "table", ROWS)

    def test_every_row_is_written(self, tmp_path: Path) -> None:
        """Check that each additional row changes the file."""
        written = {self.write(tmp_path / f"table{count}", ROWS[:count]) for count in range(len(ROWS) + 1)}
        assert len(written) == len(ROWS) + 1

    def test_files_are_repeatable(self, tmp_path: Path) -> None:
        """Check that equal tables are written as equal bytes."""
        assert self.write(tmp_path / "one", ROWS) == self.write(tmp_path / "another", ROWS)

    def test_a_table_may_end_early(self, tmp_path: Path) -> None:
        """Check that a table with fewer rows than announced can be closed."""
        writer = self.reporter().open(tmp_path / "table", HEADERS, 100)
        writer.write(ROWS[0], None)
        writer.close()
        assert (tmp_path / "table").stat().st_size

    def test_a_table_may_be_abandoned(self, tmp_path: Path) -> None:
        """Check that a table can be abandoned before and after the first row."""
        for count in (0, 2):
            path = tmp_path / f"table{count}"
            writer = self.reporter().open(path, HEADERS, len(ROWS))
            for row in ROWS[:count]:
                writer.write(row, None)
            writer.abandon()
            path.unlink(missing_ok=True)

    def test_write_error_is_raised(self, tmp_path: Path) -> None:
        """Check that a missing directory raises OSError and nothing else."""
        try:
            self.write(tmp_path / "no such directory" / "table", ROWS)
        except OSError:
            return
        raise AssertionError("it was written")

    def test_lines_are_distinct(self) -> None:
        """Check that each row has its own position, as one line of text."""
        reporter = self.reporter()
        for count in (1, 1000, 3_000_000):
            rows = {0, count // 2, count - 1}
            lines = {reporter.line(row, count) for row in rows}
            assert len(lines) == len(rows)
            assert all(isinstance(line, str) and line and "\n" not in line for line in lines)
