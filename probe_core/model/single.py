"""Batches made of single pairs, for metrics, policies and judges that work on batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probe_core.model.batches import ABSENT, MATCH_KINDS, PairSide, RowBatch
from probe_core.model.columns import create_columns
from probe_core.model.results import VerdictColumn
from probe_core.model.rows import Op, Pair, Verdict
from probe_core.model.values import Kind, Record, Side, Slot, Value

NO_SLOT = Slot("", Side.INPUT, "", Value(Kind.NULL, "None", "None"))
"""The value of a side without values, to which no row refers."""


def create_batch(pairs: Sequence[Pair], op: Op | None = None, verdicts: Sequence[Verdict] = ()) -> RowBatch:
    """Return a batch of one op with the given pairs, and with verdicts if there are any."""
    described = op or Op("")
    sides: list[PairSide] = []
    for slots in ([pair.target for pair in pairs], [pair.golden for pair in pairs]):
        present = tuple(slot for slot in slots if slot is not None)
        count = iter(range(len(present)))
        lines = np.array([ABSENT if slot is None else next(count) for slot in slots], int)
        # a run without values has a null value, to which no line refers
        sides.append(PairSide(create_columns([Record(0, described.key, present or (NO_SLOT,))]), lines))
    match_codes = np.array([MATCH_KINDS.index(pair.match_kind) for pair in pairs], int)
    batch = RowBatch(
        0, [described.key], np.array([0, len(pairs)]), sides[0], sides[1], match_codes, lambda key: described
    )
    batch.results.verdicts = VerdictColumn([], np.zeros(len(pairs), np.int32))
    for line, verdict in enumerate(verdicts):
        batch.verdicts[line] = verdict
    return batch
