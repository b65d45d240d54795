from collections.abc import Callable, Sequence

from probe_core.model import Cell
from probe_core.model.columns import Array

def csv_line(cells: Sequence[Cell], prepare: Callable[[str], str], /) -> bytes: ...
def csv_rows(
    columns: list[tuple[Array, Sequence[Cell], Array | None]], count: int, prepare: Callable[[str], str], /
) -> bytes: ...
def sheet_rows(
    columns: list[tuple[Array, Sequence[Cell], Array | None]],
    start: int,
    stop: int,
    first: int,
    styles: list[Sequence[int]],
    colours: bytes,
    prepare: Callable[[str], str],
    /,
) -> bytes: ...
def styled_row(
    cells: Sequence[Cell], number: int, styles: Sequence[int], prepare: Callable[[str], str], /
) -> bytes: ...
def sheet_row(cells: Sequence[Cell], number: int, style: int, prepare: Callable[[str], str], /) -> bytes: ...
