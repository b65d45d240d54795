"""The answer sheet: its lines and their formats, the links to the table, and the suspects in the table."""

from __future__ import annotations

import ast
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any
from unicodedata import east_asian_width

from probe_core.model import Cell, Colour
from probe_core.model.answers import Answer, Finding
from probe_reporters.table import CellColumn

ANSWER_SHEET_NAME = "answer"
"""Name of the sheet, which is the last sheet and is displayed first."""
ANSWER_COLUMN_WIDTHS = (14, 110)
"""Widths of the columns of the sheet, in characters."""
FONT_SIZE, LINE_HEIGHT, MAX_ROW_HEIGHT = 11, 15, 409
"""Size of the default font, height of its lines, and largest height of a row in Excel, in points."""
BOLD_WIDTH = 1.1
"""Width of bold text, relative to the same text in the default font."""
NAME_COLUMN_COUNT, STACK_HEADER, EMPTY_CELL = 2, "NPU_Stack_Info", "N/A"
"""Number of columns with names, header of the stack, and the text of a cell without a name or a stack."""
SUMMARY_HEADERS = ("Step", "Rank")
"""First headers of the summary of several comparisons."""
LINE_FORMATS: Mapping[str, Mapping[str, Any]] = {
    "text": {"align": "left"},
    "verdict": {"bold": True, "font_size": 13},
    "cause": {"bold": True, "bg_color": "#F8CBAD"},
    "link": {"font_color": "#0563C1", "underline": 1, "align": "left"},
    "stack": {"font_color": "#404040"},
}
"""Formats of lines by their kind; all are wrapped."""
SUSPECT_FORMAT = {"bg_color": "#C00000", "font_color": "#FFFFFF", "bold": True}
"""Format of the rows of suspects in the table."""
MAX_STACKS = 10_000
"""Maximum number of coloured rows whose stacks are stored until the answer is set."""


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """A line of the sheet.

    Attributes:
        heading: The text of the first cell.
        text: The text or number of the second cell.
        kind: The key of the format in ``LINE_FORMATS``.
        row: The index of the linked row of the table; -1 for no link.
    """

    heading: str
    text: Cell
    kind: str = "text"
    row: int = -1

    @property
    def height(self) -> int:
        """The height of the row in points. Only some spreadsheets adapt it to wrapped text automatically."""
        look = LINE_FORMATS[self.kind]
        size: float = look.get("font_size", FONT_SIZE) / FONT_SIZE
        scale = size * (BOLD_WIDTH if look.get("bold") else 1)
        widths = [sum(1 + (east_asian_width(sign) in "WF") for sign in text) for text in str(self.text).split("\n")]
        count = sum(max(1, ceil(width * scale / ANSWER_COLUMN_WIDTHS[1])) for width in widths)
        return min(MAX_ROW_HEIGHT, round(count * LINE_HEIGHT * size))


@dataclass(slots=True)
class RowIndex:
    """Positions of rows in the table by their names, and the call stacks of coloured rows.

    Names are kept as their hashes, 8 bytes a row. In a summary, the step and the rank are the name of a row.
    """

    headers: Sequence[str]
    _hashes: array[int] = field(default_factory=lambda: array("q"))
    _stacks: dict[str, tuple[str, str]] = field(default_factory=dict)
    _last: tuple[str, str] = ("", "")
    _place: int = -1
    is_summary: bool = False

    def __post_init__(self) -> None:
        self._place = self.headers.index(STACK_HEADER) if STACK_HEADER in self.headers else -1
        self.is_summary = tuple(self.headers[:NAME_COLUMN_COUNT]) == SUMMARY_HEADERS

    def add(self, cells: Sequence[Cell], color: Colour | None) -> None:
        """Take in the next row."""
        name = cells[0] if cells[0] != EMPTY_CELL or len(cells) < NAME_COLUMN_COUNT else cells[1]
        self._hashes.append(hash(tuple(cells[:NAME_COLUMN_COUNT]) if self.is_summary else name))
        self._add_stack(name, cells[self._place] if self._place >= 0 else "", color)

    def add_batch(self, columns: Sequence[CellColumn], colors: Sequence[Colour | None]) -> None:
        """Take in the next rows, given as columns of a table with two columns of names."""
        names, golden_names = (column.get_cells() for column in columns[:NAME_COLUMN_COUNT])
        shown = [golden_name if name == EMPTY_CELL else name for name, golden_name in zip(names, golden_names)]
        self._hashes.extend(map(hash, shown))
        stacks = columns[self._place].get_cells() if self._place >= 0 else [""] * len(shown)
        for name, stack, color in zip(shown, stacks, colors):
            if color is not None or stack != EMPTY_CELL:
                self._add_stack(name, stack, color)

    def _add_stack(self, name: Cell, stack: Cell, color: Colour | None) -> None:
        if stack != EMPTY_CELL and stack:
            self._last = str(name), str(stack)
        if color is not None and len(self._stacks) < MAX_STACKS:
            self._stacks.setdefault(str(name), self._last)

    def find_row(self, cause: Finding) -> int:
        """Return the first row of a cause's name, counted from 0; -1 if there is none."""
        name = (cause.step, cause.rank) if self.is_summary else cause.row or cause.first_row
        try:
            return self._hashes.index(hash(name)) if name else -1
        except ValueError:
            return -1

    def find_stack(self, cause: Finding) -> str:
        """Return the stack that the table shows for a cause, a frame a line; empty if it is not known."""
        name, stack = self._stacks.get(cause.row, ("", ""))
        return "\n".join(parse_frames(stack)) if name.startswith(f"{cause.op}.") else ""


def iterate_lines(answer: Answer, places: RowIndex | None = None) -> Iterator[AnswerLine]:
    """Yield the lines of the sheet; without places, no line has a link or a stack."""
    yield AnswerLine("Verdict", answer.sentence, "verdict")
    for condition in answer.conditions:
        yield AnswerLine("Condition", condition.text)
    for number, cause in enumerate(answer.causes, 1):
        row = places.find_row(cause) if places is not None else -1
        place = f"{cause.step} rank {cause.rank}".lstrip() if places and places.is_summary else ""
        head = f"{place}: {cause.op}" if place else cause.op
        yield AnswerLine(f"Cause {number}", f"{head} {cause.reason.detail}", "cause", row)
        if cause.line:
            line: Cell = int(cause.line) if cause.line.isdecimal() else cause.line
            text = f"{line}, in the table of {place}" if place else line
            yield AnswerLine("Row of table", text, "link" if row >= 0 else "text", row)
        if cause.modules:
            yield AnswerLine("Module", cause.modules[0])
        if cause.where:
            yield AnswerLine("Line of code", cause.where)
        if cause.caller:
            yield AnswerLine("Called by", cause.caller)
        if places is not None and (stack := places.find_stack(cause)):
            yield AnswerLine("Stack", stack, "stack")
    coverage = answer.coverage
    yield AnswerLine("Compared", f"{coverage.compared:,} of {coverage.recorded:,} recorded values")
    notes = [note.text for note in answer.notes]
    for heading, texts in (("Note", notes), ("Not compared", answer.missing), ("Next", answer.next)):
        for text in texts:
            yield AnswerLine(heading, text)


def parse_frames(stack: str) -> list[str]:
    """Return the frames in the text of a stack, each on one line; the text itself if it is not a list."""
    try:
        frames = ast.literal_eval(stack)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        frames = None
    if not isinstance(frames, list) or not all(isinstance(frame, str) for frame in frames):
        frames = [stack]
    return [" ".join(frame.split()) for frame in frames]
