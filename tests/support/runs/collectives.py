"""Communication calls of several ranks, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from probe_diagnosis.collectives.check import CommunicationCheck, check_communication

from probe_core.errors import UnreadableTensor
from probe_core.model import Record, Value
from support.runs.records import record_of

FLOATS = [np.dtype(one) for one in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]
INTS = [np.dtype(one) for one in (np.int8, np.uint8, np.int16, np.int32, np.int64)]
Array = np.ndarray[Any, Any]
# -- calls of several ranks ----------------------------------------------------------------------------------


class Op(NamedTuple):
    """The reduction that a call was asked to do."""

    name: str


class Group(NamedTuple):
    """The group that a call was made in."""

    ranks: tuple[int, ...]


class Lost(NamedTuple):
    """A tensor whose data cannot be had: not recorded, or in a file that cannot be read."""

    is_recorded: bool


class Rank:
    """The calls of one rank as a run hands them out, held in memory."""

    def __init__(self) -> None:
        self.found: list[Record] = []
        self.arrays: dict[str, Array] = {}
        self.counts: dict[str, int] = {}

    def call(self, api: str, inputs: Sequence[Any], outputs: Sequence[Any], **named: Any) -> str:
        """Note a call: its arguments before it, and behind it; those by keyword stay as they are."""
        number = self.counts.get(api, 0)
        self.counts[api] = number + 1
        key = api if "." in api else f"Distributed.{api}.{number}.forward"
        fields = {
            "input_args": [self._leaf(value, f"{key}.input.{place}") for place, value in enumerate(inputs)],
            "input_kwargs": {name: self._leaf(value, f"{key}.input.{name}") for name, value in named.items()},
            "output": [
                self._leaf(value, f"{key}.output.{place}")
                for place, value in enumerate([*outputs, *list(named.values())[len(outputs) - len(inputs) :]])
            ],
        }
        self.found.append(record_of(len(self.found), key, fields))
        return key

    def _leaf(self, value: Any, name: str) -> Any:
        if isinstance(value, list):
            return [self._leaf(item, f"{name}.{place}") for place, item in enumerate(value)]
        if isinstance(value, Op):
            return {"type": "torch.distributed.ReduceOp", "value": f"RedOpType.{value.name}"}
        if isinstance(value, Group):
            return {"type": "torch.ProcessGroup", "group_ranks": list(value.ranks), "group_id": "1"}
        if isinstance(value, Lost):
            leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2]}
            return {**leaf, "data_name": f"{name}.lost.pt"} if value.is_recorded else leaf
        if isinstance(value, np.ndarray):
            self.arrays[f"{name}.pt"] = value
            leaf = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape)}
            return {**leaf, "data_name": f"{name}.pt"}
        return None if value is None else {"type": type(value).__name__, "value": value}

    def records(self) -> list[Record]:
        return self.found

    def tensor(self, value: Value) -> Array:
        try:
            return self.arrays[str(value.data_name)]
        except KeyError:
            raise UnreadableTensor("there is no such file", missing=True) from None


World = dict[int, Rank]


def world(*ranks: int) -> World:
    return {rank: Rank() for rank in ranks}


def checked(ranks: World) -> CommunicationCheck:
    return check_communication(ranks)  # type: ignore[arg-type]


def named(found: CommunicationCheck) -> list[tuple[int, str]]:
    return [(breach.rank, breach.op) for breach in found.breaches]


def values(rank: int, size: int = 6) -> Array:
    return np.arange(size, dtype=np.float32) / 3 + 10 * rank + 1


def deliver_all_reduce(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    due = sum(values(rank).astype(np.float64) for rank in group).astype(np.float32)
    for rank in group:
        ranks[rank].call("all_reduce", [values(rank)], [due.copy()], **named)
    return list(group)
