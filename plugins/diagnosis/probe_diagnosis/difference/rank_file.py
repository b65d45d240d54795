"""``compare_result_rank{r}_{ts}.json``: the rows of one rank, op by op, with what the search goes by.

Layout and names are the seed's (spec/compare 12.1); ``difference``, ``communication`` and ``module`` are
additions of this project's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from probe_core.errors import UserError
from probe_core.files.atomic import AtomicFile, not_written
from probe_core.files.jsonstream import JsonCursor, JsonError, parse
from probe_core.flow.table import Table
from probe_core.model import Cell, Level, Op, Reason, Record, Row, Side, Slot, Verdict
from probe_diagnosis.collectives.calls import Call, Peer, api_of, apis, call_of
from probe_diagnosis.difference.facts import DIFFERS, POLICY, Apart, OpFacts, apart

NONE = "None"
INDENT = "    "
"""That of the seed's file; a row stands on one line, which is a third of the bytes and of the time."""
_OP = re.compile(r"(.+?\.(?:forward|backward)(?:\.\d+)?)\.(?:input|output|parameters|kwargs)\b")


@dataclass(frozen=True, slots=True)
class Item:
    """A row as the file has it.

    Attributes:
        apart: How far its two sides are apart; its name is the target's.
        golden: The name of the golden's value.
        cells: What the columns of the table hold, by their headers.
        stack: Where its op was called, innermost first; empty where that is not on record.
    """

    apart: Apart
    golden: str
    cells: Mapping[str, Cell]
    stack: tuple[str, ...]


class RankFile:
    """Writes the file of one rank as its rows pass by.

    ``is_known`` says whether the target has an op of that name; one of the golden alone stands for itself.
    """

    def __init__(self, path: Path, table: Table, is_known: Callable[[str], bool]) -> None:
        self._is_known = is_known
        self._file = AtomicFile(path)
        self._table = table
        try:
            self._out: TextIO = self._file.temporary.open("w", encoding="utf-8", newline="\n")
        except OSError as error:
            self._file.discard()
            raise not_written("The result", path.parent, error) from None
        self._between = "{"

    def write(self, described: Op, rows: Sequence[Row]) -> None:
        """Append an op with its rows; where its calls may be mispaired none is judged."""
        ops: dict[str, list[Row]] = {}
        for row in rows:
            own = self._own_op(row, described.key)
            ops.setdefault(own, []).append(_mispaired(row) if described.shifted else row)
        for op, own_rows in ops.items():
            self._write(op, own_rows, described.ancestors if op == described.key else ())

    def _own_op(self, row: Row, op: str) -> str:
        """The op that a row is of: of the golden's, which stands behind the target's, the golden's own."""
        if row.pair.target is not None or row.pair.golden is None:
            return op
        found = _OP.match(row.pair.golden.name)
        return op if found is None or self._is_known(found[1]) else found[1]

    def _write(self, op: str, rows: Sequence[Row], within: Sequence[str]) -> None:
        values = [apart(row) for row in rows]
        head: dict[str, Any] = {"is_same": all(value.state != DIFFERS for value in values)}
        call = _call(op, rows)
        if call is not None:
            head["communication"] = _plain_call(call)
        if within:
            head["module"] = list(within)
        lines = [f"{INDENT}{INDENT}{json.dumps(name)}: {json.dumps(part)}," for name, part in head.items()]
        items = (self._item(op, row, value) for row, value in zip(rows, values))
        shown = f",\n{INDENT * 3}".join(json.dumps(item, allow_nan=False) for item in items)
        lines.append(f'{INDENT}{INDENT}"op_items": [\n{INDENT * 3}{shown}\n{INDENT}{INDENT}]')
        text = "{\n" + "\n".join(lines) + f"\n{INDENT}}}"
        try:
            self._out.write(f"{self._between}\n{INDENT}{json.dumps(op)}: {text}")
        except OSError as error:
            raise not_written("The result", self._file.path.parent, error) from None
        self._between = ","

    def close(self, *, interrupted: bool = False) -> Path:
        """Complete the file; that of an interrupted comparison says so in its name."""
        path = self._file.path
        try:
            self._out.write("{}\n" if self._between == "{" else "\n}\n")
            self._out.close()
        except OSError as error:
            self.discard()
            raise not_written("The result", path.parent, error) from None
        partial = path.with_name(f"{path.stem}_interrupted.json")
        if not interrupted:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
        return self._file.commit(partial if interrupted else path)

    def discard(self) -> None:
        """Leave nothing behind."""
        try:
            self._out.close()
        except OSError:
            pass
        finally:
            self._file.discard()

    def _item(self, op: str, row: Row, value: Apart) -> dict[str, Any]:
        item: dict[str, Any] = dict(zip(self._table.headers, map(_finite, self._table.cells(row))))
        if row.stack is not None:
            item["NPU_Stack_Info"] = list(row.stack)
        ours, theirs = (_transfer(slot) for slot in row.pair[:2])
        item |= {
            "state": value.side.value,
            "api_origin_name": op,
            "NPU P2POp op": ours[0],
            "Bench P2POp op": theirs[0],
            "NPU P2POp peer": ours[1],
            "Bench P2POp peer": theirs[1],
            "difference": _plain_apart(value),
        }
        return item


def _mispaired(row: Row) -> Row:
    why = Reason("evidence", "calls may be mispaired; see --match align")
    return row._replace(further={**row.further, POLICY: Verdict(Level.SKIP, "", (why,))})


def _finite(cell: Cell) -> Cell:
    return str(cell) if isinstance(cell, float) and not math.isfinite(cell) else cell


def _transfer(slot: Slot | None) -> tuple[str, str]:
    p2p = slot.value.p2p if slot is not None else None
    return (p2p.op, str(p2p.peer)) if p2p else (NONE, NONE)


def _call(op: str, rows: Sequence[Row]) -> Call | None:
    if api_of(op) is None:
        return None
    return call_of(Record(0, op, tuple(row.pair.target for row in rows if row.pair.target is not None)))


def _plain_call(call: Call) -> dict[str, Any]:
    return {
        "api": call.api.name,
        "group": list(call.group),
        "root": call.root,
        "peers": [[peer.rank, peer.sends] for peer in call.peers],
    }


def _plain_apart(value: Apart) -> dict[str, Any]:
    return {
        "state": value.state,
        "distance": "inf" if math.isinf(value.distance) else value.distance,
        "scale": value.scale,
        "noise": value.noise,
        "jump": value.jump,
        "scalar": value.is_scalar,
        "why": value.why,
    }


# -- reading ---------------------------------------------------------------------------------------


def read(path: Path) -> Iterator[OpFacts]:
    """The ops in the file of one rank, in its order.

    Raises:
        UserError: The file is not what ``RankFile`` writes.
    """
    try:
        with path.open("rb") as file:
            cursor = JsonCursor(file)
            for op in cursor.members():
                start, end, entry = cursor.skip()
                yield _facts(op, entry, (start, end))
    except (JsonError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{path} is no result of -da that can be analysed: {error}.", "Compare that rank again."
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.", "Compare again.") from None


def items_at(path: Path, place: tuple[int, int]) -> tuple[Item, ...]:
    """The rows of the op that lies at ``place`` in the file of one rank."""
    try:
        with path.open("rb") as file:
            file.seek(place[0])
            entry = parse(file.read(place[1] - place[0]))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.", "Compare again.") from None
    return tuple(
        Item(_apart(item), item["Bench Name"], item, tuple(stack) if isinstance(stack, list) else ())
        for item in entry["op_items"]
        for stack in (item.get("NPU_Stack_Info"),)
    )


def _apart(item: dict[str, Any]) -> Apart:
    found = item["difference"]
    return Apart(
        item["NPU Name"],
        Side(item["state"]),
        found["state"],
        float(found["distance"]),
        float(found["scale"]),
        float(found["noise"]),
        float(found["jump"]),
        found["scalar"],
        found["why"],
    )


def _facts(op: str, entry: dict[str, Any], place: tuple[int, int]) -> OpFacts:
    values = tuple(map(_apart, entry["op_items"]))
    plain = entry.get("communication")
    call = None
    if plain is not None:
        peers = tuple(Peer(int(rank), bool(sends)) for rank, sends in plain["peers"])
        call = Call(apis()[plain["api"]], tuple(plain["group"]), plain["root"], peers)
    return OpFacts(op, values, call, tuple(entry.get("module", ())), place)
