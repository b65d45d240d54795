"""The kit for reporters: the installed ones pass, and each check finds the fault that it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from probe_reporters.hooks import probe_reporters
from support.conformance import failing

from probe_core.plugins.specs import (
    ReporterSpec,
)
from probe_core.testing import (
    ReporterConformance,
)

# -- reporters -------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", probe_reporters(), ids=lambda spec: spec.name)
def test_the_reporters_pass(spec: ReporterSpec, tmp_path: Path) -> None:
    assert failing(ReporterConformance, tmp_path, spec=spec) == set()


class Lines:
    """A good reporter and its writer in one."""

    def open(self, path: Path, headers: Any, row_count: int) -> Any:
        made = type(self)()
        made.file = path.open("wb")  # type: ignore[attr-defined]
        made.file.write(repr(headers).encode())  # type: ignore[attr-defined]
        return made

    def write(self, cells: Any, colour: Any) -> None:
        self.file.write(repr(cells).encode())  # type: ignore[attr-defined]

    def close(self) -> None:
        self.file.close()  # type: ignore[attr-defined]

    abandon = close

    def line(self, row: int, row_count: int) -> str:
        return str(row + 1)


class Ascii(Lines):
    def write(self, cells: Any, colour: Any) -> None:
        self.file.write(str(cells[2]).encode("ascii"))  # type: ignore[attr-defined]


class Stamped(Lines):
    def open(self, path: Path, headers: Any, row_count: int) -> Any:
        return super().open(path, path.name, row_count)


class Skipping(Lines):
    def write(self, cells: Any, colour: Any) -> None:
        if colour is None:
            super().write(cells, colour)


class Counting(Lines):
    def abandon(self) -> None:
        raise RuntimeError("rows are missing")


class Vague(Lines):
    def line(self, row: int, row_count: int) -> str:
        return "somewhere"


class Quiet(Lines):
    def open(self, path: Path, headers: Any, row_count: int) -> Any:
        path.parent.mkdir(exist_ok=True)
        return super().open(path, headers, row_count)


@pytest.mark.parametrize(
    "reporter, faults",
    [
        (Lines, set()),
        (Ascii, {"every_kind_of_cell_is_written", "every_row_is_written", "files_are_repeatable"}),
        (Stamped, {"files_are_repeatable"}),
        (Skipping, {"every_row_is_written"}),
        (Counting, {"a_table_may_be_abandoned"}),
        (Vague, {"lines_are_distinct"}),
        (Quiet, {"write_error_is_raised"}),
    ],
)
def test_a_fault_of_a_reporter_is_found(reporter: Any, faults: set[str], tmp_path: Path) -> None:
    spec = ReporterSpec("mine", "mine", reporter, ".mine")
    assert failing(ReporterConformance, tmp_path / "c", spec=spec) == faults


class Page(Lines):
    def head(self, comparison: Any) -> str:
        return ""

    def look(self, report: Any, op: Any, row: Any) -> None:
        """Take in a row."""


@pytest.mark.parametrize(
    "reporter, promise, is_kept",
    [(Page, "page", True), (Lines, "page", False), (Page, "answers", False), (Lines, "all_digits", True)],
)
def test_a_promise_of_the_spec_that_is_not_kept_is_found(
    reporter: Any, promise: str, is_kept: bool, tmp_path: Path
) -> None:
    spec = ReporterSpec("mine", "mine", reporter, ".mine", **{promise: True})  # type: ignore[arg-type]
    found = failing(ReporterConformance, tmp_path / "c", spec=spec)
    assert found == (set() if is_kept else {"has_the_methods_that_its_spec_promises"})


def test_a_format_without_a_suffix_is_told_so() -> None:
    class Kit(ReporterConformance):
        spec = ReporterSpec("lines", "a format", Lines)

    with pytest.raises(AssertionError, match="the suffix of a ReporterSpec must begin with a dot, not ''"):
        Kit().test_spec_has_a_suffix()
