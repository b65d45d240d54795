"""Files of single ranks, ``compare_result_rank{r}_{ts}.json``, written and read.

A file contains the rows of a rank, op by op (docs/first-difference.md#files). Layout and names are those of
msprobe; ``difference``, ``communication`` and ``module``, which the search needs, are additions.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from probe_reporters.api import Table

from probe_core.errors import UserError
from probe_core.files.atomic import AtomicFile, create_write_error
from probe_core.model import Cell, Level, Record, Row, Side, Slot
from probe_core.model.batches import RowBatch
from probe_diagnosis.collectives.calls import CommunicationCall, Peer, find_api, load_apis, parse_call
from probe_diagnosis.timeline.batch_values import build_value_table
from probe_diagnosis.timeline.compared_calls import Basis, ComparedCall, DifferenceKind, ValueComparison, ValueState
from probe_diagnosis.timeline.floors import apply_floors

NO_TRANSFER = "None"
"""Text for a value that is not a transfer between two ranks."""

INDENT = "    "
"""Indentation of msprobe's file; but a row is on one line, which takes a third of the bytes and the time."""

_TableRow = tuple[Row, "Sequence[Cell]", ValueComparison]
"""A row, its cells and its difference."""

_OP_PATTERN = re.compile(r"(.+?\.(?:forward|backward)(?:\.\d+)?)\.(?:input|output|parameters|kwargs)\b")


@dataclass(frozen=True, slots=True)
class RankFileRow:
    """A row as it is in the file.

    Attributes:
        comparison: The comparison of its two sides; its name is that of the target's value.
        golden: The name of the golden's value.
        cells: The cells of the table, by the headers of their columns.
        stack: Frames of the call, innermost first; empty if they were not recorded.
    """

    comparison: ValueComparison
    golden: str
    cells: Mapping[str, Cell]
    stack: tuple[str, ...]


class RankFile:
    """Writer of the file of one rank.

    Args:
        path: The path of the file.
        table: The columns of the file.
        is_known: Returns True for the key of an op that the target has. An op of the golden alone gets an
            entry of its own.

    Raises:
        UserError: The output directory cannot be written to.
    """

    def __init__(self, path: Path, table: Table, is_known: Callable[[str], bool]) -> None:
        self._is_known = is_known
        self._file = AtomicFile(path)
        self._table = table
        try:
            self._out: TextIO = self._file.temporary.open("w", encoding="utf-8", newline="\n")
        except OSError as error:
            self._file.discard()
            raise create_write_error("The result", path.parent, error) from None
        self._between = "{"

    def write_batch(self, batch: RowBatch) -> None:
        """Append the ops of a batch; they are not judged if their calls may be paired wrongly."""
        cells = self._table.iterate_rows(batch)
        table = build_value_table(batch)
        apply_floors(batch, table)
        for number, (_, rows) in enumerate(batch.all_rows()):
            described, lines = batch.op(number), batch.lines(number)
            values = table.create_comparisons(lines.start, lines.stop, described.key)
            ops: dict[str, list[_TableRow]] = {}
            for row, value in zip(rows, values):
                is_left_out = bool(row.replaced_verdicts) and row.verdict.level is Level.SKIP
                shown = _mark_mispaired(value) if described.shifted and not is_left_out else value
                ops.setdefault(self._find_op(row, described.key), []).append((row, next(cells), shown))
            for op, own_rows in ops.items():
                self._write(op, own_rows, described.ancestors if op == described.key else ())

    def _find_op(self, row: Row, op: str) -> str:
        """Return the op key of a row; rows of the golden alone use the golden's key."""
        if row.pair.target is not None or row.pair.golden is None:
            return op
        match = _OP_PATTERN.match(row.pair.golden.name)
        return op if match is None or self._is_known(match[1]) else match[1]

    def _write(self, op: str, shown: Sequence[_TableRow], within: Sequence[str]) -> None:
        """Append the entry of one op, which is within these modules."""
        head: dict[str, Any] = {"is_same": all(value.state != ValueState.DIFFERS for _, _, value in shown)}
        call = _parse_row_call(op, [row for row, _, _ in shown])
        if call is not None:
            head["communication"] = _serialize_call(call)
        if within:
            head["module"] = list(within)
        lines = [f"{INDENT}{INDENT}{json.dumps(name)}: {json.dumps(part)}," for name, part in head.items()]
        items = (self._serialize_row(op, *entry) for entry in shown)
        texts = f",\n{INDENT * 3}".join(json.dumps(item, allow_nan=False) for item in items)
        lines.append(f'{INDENT}{INDENT}"op_items": [\n{INDENT * 3}{texts}\n{INDENT}{INDENT}]')
        text = "{\n" + "\n".join(lines) + f"\n{INDENT}}}"
        try:
            self._out.write(f"{self._between}\n{INDENT}{json.dumps(op)}: {text}")
        except OSError as error:
            raise create_write_error("The result", self._file.path.parent, error) from None
        self._between = ","

    def close(self, *, interrupted: bool = False) -> Path:
        """Complete the file, and return its path.

        Args:
            interrupted: True to put ``_interrupted`` into the file's name, because the remaining ops are missing.
        """
        path = self._file.path
        try:
            self._out.write("{}\n" if self._between == "{" else "\n}\n")
            self._out.close()
        except OSError as error:
            self.discard()
            raise create_write_error("The result", path.parent, error) from None
        partial = path.with_name(f"{path.stem}_interrupted.json")
        if not interrupted:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
        return self._file.commit(partial if interrupted else path)

    def discard(self) -> None:
        """Delete the unfinished file."""
        try:
            self._out.close()
        except OSError:
            pass
        finally:
            self._file.discard()

    def _serialize_row(self, op: str, row: Row, cells: Sequence[Cell], value: ValueComparison) -> dict[str, Any]:
        """Return the entry of one row."""
        item: dict[str, Any] = dict(zip(self._table.headers, map(_format_finite, cells)))
        if row.stack is not None:
            item["NPU_Stack_Info"] = list(row.stack)
        target, golden = (_describe_transfer(slot) for slot in row.pair[:2])
        item |= {
            "state": value.side.value,
            "api_origin_name": op,
            "NPU P2POp op": target[0],
            "Bench P2POp op": golden[0],
            "NPU P2POp peer": target[1],
            "Bench P2POp peer": golden[1],
            "difference": _serialize_difference(value),
        }
        return item


def _mark_mispaired(value: ValueComparison) -> ValueComparison:
    """Return an unjudged value, because its call may be paired with the wrong one."""
    why = "this call may be paired with the wrong call; compare with --match align"
    return ValueComparison(value.row, value.side, ValueState.UNJUDGED, is_scalar=value.is_scalar, evidence=why)


def _format_finite(cell: Cell) -> Cell:
    """Return a cell that JSON can represent: inf and nan as text."""
    return str(cell) if isinstance(cell, float) and not math.isfinite(cell) else cell


def _describe_transfer(slot: Slot | None) -> tuple[str, str]:
    """Return the operation and the other rank of a transfer between two ranks."""
    p2p = slot.value.p2p if slot is not None else None
    return (p2p.op, str(p2p.peer)) if p2p else (NO_TRANSFER, NO_TRANSFER)


def _parse_row_call(op: str, rows: Sequence[Row]) -> CommunicationCall | None:
    """Return the communication call that an op of the target is; None for any other op."""
    if find_api(op) is None:
        return None
    return parse_call(Record(0, op, tuple(row.pair.target for row in rows if row.pair.target is not None)))


def _serialize_call(call: CommunicationCall) -> dict[str, Any]:
    """Return a communication call as JSON."""
    return {
        "api": call.api.name,
        "group": list(call.group),
        "root": call.root,
        "peers": [[peer.rank, peer.sends] for peer in call.peers],
    }


def _serialize_difference(value: ValueComparison) -> dict[str, Any]:
    """Return the distance of a value as JSON."""
    return {
        "state": value.state,
        "distance": "inf" if math.isinf(value.distance) else value.distance,
        "scale": value.scale,
        "noise": value.noise,
        "jump": value.jump,
        "scalar": value.is_scalar,
        "why": value.evidence,
        "by": value.basis.text,
        "breaks": value.becomes_non_finite,
        "rare": value.has_non_finite,
        "masked": value.has_masked_difference,
        "in_region": value.is_in_region,
        "kind": value.kind.text,
    }


# -- reading ---------------------------------------------------------------------------------------


def read_rank_file(path: Path) -> Iterator[ComparedCall]:
    """Read the facts about all ops from the file of one rank, in its order.

    Raises:
        UserError: The file cannot be read, or is not one that ``RankFile`` writes.
    """
    try:
        with path.open("rb") as file:
            for op, entry, place in _iterate_entries(file):
                yield _load_call(op, entry, place)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{path} is damaged, so the first difference cannot be searched: {error}.",
            "Compare that rank again with -da.",
        ) from None
    except OSError as error:
        raise _create_read_error(path, error) from None


def _iterate_entries(file: BinaryIO) -> Iterator[tuple[str, dict[str, Any], tuple[int, int]]]:
    """Yield the name and the entry of each op, with the offsets of the entry's first byte and of its end.

    One entry is in memory at a time: it ends with the first line that closes it, as ``RankFile`` writes it.

    Raises:
        ValueError: The file is not complete, or not valid JSON.
    """
    head = INDENT.encode() + b'"'
    start, offset, text = 0, 0, b""
    lines: list[bytes] = []
    for line in file:
        text = line.rstrip(b"\r\n,")
        if lines:
            lines.append(line)
        elif line.startswith(head):
            start, lines = offset, [line]
        offset += len(line)
        if lines and text == INDENT.encode() + b"}":
            ((name, entry),) = json.loads(b"{" + b"".join(lines).rstrip(b"\r\n,") + b"}").items()
            begin = start + lines[0].rindex(b"{")
            yield name, entry, (begin, offset - len(line) + len(text))
            lines = []
    if lines or text not in (b"}", b"{}"):
        raise ValueError(f"it ends at byte {offset} within a value")


def _create_read_error(path: Path, error: OSError) -> UserError:
    """Return the error for the file of a rank that the operating system does not let us read."""
    return UserError(
        f"{path} cannot be read, so the first difference cannot be searched: {error.strerror or error}.",
        "Check that the output directory is still there, and compare again with -da.",
    )


def read_items(path: Path, place: tuple[int, int]) -> tuple[RankFileRow, ...]:
    """Read the rows of one op from the file of one rank.

    Args:
        path: The file.
        place: Offset of the first byte of the op's entry, and of the byte after it.

    Raises:
        UserError: The file cannot be read.
    """
    try:
        with path.open("rb") as file:
            file.seek(place[0])
            entry = json.loads(file.read(place[1] - place[0]))
    except OSError as error:
        raise _create_read_error(path, error) from None
    return tuple(
        RankFileRow(_load_difference(item), item["Bench Name"], item, tuple(stack) if isinstance(stack, list) else ())
        for item in entry["op_items"]
        for stack in (item.get("NPU_Stack_Info"),)
    )


def _load_difference(item: dict[str, Any]) -> ValueComparison:
    """Return the distance of a value, from its entry in the file."""
    difference = item["difference"]
    return ValueComparison(
        item["NPU Name"],
        Side(item["state"]),
        ValueState(difference["state"]),
        float(difference["distance"]),
        float(difference["scale"]),
        float(difference["noise"]),
        float(difference["jump"]),
        difference["scalar"],
        difference["why"],
        Basis[difference.get("by", "").upper().replace(" ", "_") or "NONE"],
        difference.get("breaks", False),
        difference.get("rare", False),
        has_masked_difference=difference.get("masked", False),
        is_in_region=difference.get("in_region", False),
        kind=DifferenceKind[difference.get("kind", "value").upper()],
    )


def _load_call(op: str, entry: dict[str, Any], place: tuple[int, int]) -> ComparedCall:
    """Return the facts about an op, from its entry in the file."""
    values = tuple(map(_load_difference, entry["op_items"]))
    plain = entry.get("communication")
    call = None
    if plain is not None:
        peers = tuple(Peer(int(rank), bool(sends)) for rank, sends in plain["peers"])
        call = CommunicationCall(load_apis()[plain["api"]], tuple(plain["group"]), plain["root"], peers)
    return ComparedCall(op, values, call, tuple(entry.get("module", ())), place)
