"""Streams of calls on two sides, and their alignment."""

from __future__ import annotations

import json
from bisect import bisect_right
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from probe_matching.aligned import AlignmentMatcher
from probe_recording.reading.run import DumpRun

from probe_core.matching.matching import NO_PARTNER, Matching
from probe_core.matching.row_order import RowOrder
from probe_core.model import MatchKind
from probe_core.model.plan import Plan
from support.runs.orders import all_pairs
from support.runs.recorded import forward, tensor, write_run

PLAN = Plan(Path("t"), Path("g"), Path("o"), "0")
Data = dict[str, Any]
Pairs = list[tuple[str, str]]


class Found(NamedTuple):
    """The records that pair, outside of regions; the regions; the rows that are judged at their ends."""

    pairs: dict[str, str]
    regions: list[tuple[list[str], list[str]]]
    ends: Pairs


def opened(directory: Path, data: Data, parents: dict[str, str] | None = None) -> DumpRun:
    path = write_run(directory, data)
    if parents:
        (directory / "construct.json").write_text(json.dumps({key: parents.get(key) for key in data}))
    return DumpRun(path, "pytorch", lambda path: np.zeros(1))


def align(
    directory: Path,
    target: Data,
    golden: Data,
    our_parents: dict[str, str] | None = None,
    their_parents: dict[str, str] | None = None,
) -> Found:
    """Both runs aligned; what must hold of every matching is asserted."""
    ours = opened(directory / "t", target, our_parents)
    theirs = opened(directory / "g", golden, our_parents if their_parents is None else their_parents)
    matching = AlignmentMatcher().match(ours, theirs, PLAN)
    found = look(matching, ours, theirs)
    ours.close()
    theirs.close()
    return found


def look(matching: Matching, ours: DumpRun, theirs: DumpRun) -> Found:
    used = [partner for partner in matching.partners if partner != NO_PARTNER]
    assert len(used) == len(set(used)), "each golden row stands in one row"
    apart = [{index for region in matching.regions for index in region[side]} for side in (0, 1)]
    for side in (0, 1):
        assert sum(len(region[side]) for region in matching.regions) == len(apart[side])
    pairs: dict[str, str] = {}
    for index, name in enumerate(ours.names()):
        own = matching.partners[ours.starts[index] : ours.starts[index + 1]]
        partners = {bisect_right(theirs.starts, number) - 1 for number in own if number != NO_PARTNER}
        if index not in apart[0]:
            assert len(partners) == 1, name
            (partner,) = partners
            assert partner not in apart[1]
            pairs[name] = theirs.names()[partner]
        else:
            assert partners <= apart[1], name
    assert len(set(pairs.values())) == len(pairs), "each golden call stands in one pair"
    assert apart[0] | {ours.find(name) for name in pairs} == set(range(len(ours)))
    assert apart[1] | {theirs.find(name) for name in pairs.values()} == set(range(len(theirs)))
    rows = all_pairs(RowOrder(matching, ours, theirs))
    regions = [
        (
            [ours.names()[index] for index in region.target],
            [theirs.names()[index] for index in region.golden],
        )
        for region in matching.regions
    ]
    ends = [
        (pair.target.name, pair.golden.name)
        for pair in rows
        if pair.target and pair.golden and pair.match_kind is MatchKind.REGION
    ]
    return Found(pairs, regions, ends)


def call(name: str, value: float = 1.0, shape: list[int] | None = None, **fields: Any) -> Data:
    """A forward call; its input and its output hold ``value``."""
    return {f"{name}.forward": forward(tensor(shape, value, **fields), output=[tensor(shape, value, **fields)])}


def backward(name: str, value: float = 1.0) -> Data:
    return {f"{name}.backward": {"input": [tensor(value=value)], "output": [tensor(value=value)]}}


def module(path: str, kind: str = "Linear", number: int = 0, value: float = 1.0) -> Data:
    return {f"Module.{path}.{kind}.forward.{number}": forward(tensor(value=value), output=[tensor(value=value)])}


def run(*calls: Data) -> Data:
    return {key: record for one in calls for key, record in one.items()}


# -- regions -----------------------------------------------------------------------------------------


def op(key: str, inputs: list[Any], outputs: list[Any]) -> Data:
    return {f"{key}.forward": forward(*inputs, output=outputs)}
