"""Facts about one rank of one run, without a golden: which of its values are searched for."""

from __future__ import annotations

import math

import numpy as np

from probe_core.model.columns import NULL, SCALAR, TENSOR, Array
from probe_core.model.run import Run
from probe_diagnosis.collectives.calls import KEY_PREFIXES, parse_call
from probe_diagnosis.timeline.compared_calls import Basis
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.value_table import (
    DIFFERS_CODE,
    IS_SCALAR,
    NO_NAME,
    NO_QUANTITY,
    SAME_CODE,
    UNJUDGED_CODE,
    ValueTable,
)


def collect_run_facts(run: Run, rank: int, is_wanted: Array, is_unknown: Array) -> RankFacts:
    """Return the calls of a run, with the wanted values in place of values that differ.

    A search for the first difference then finds the first wanted value.

    Args:
        run: The run.
        rank: The number of the rank.
        is_wanted: True for each line of ``run.values`` that the search looks for.
        is_unknown: True for lines of which it is not known if they are wanted.
    """
    facts = RankFacts(rank)
    values, keys = run.values, run.names()
    counts = np.diff(np.asarray(values.starts))
    within = [run.construct.ancestors(key) for key in keys]
    facts.ops.extend(keys, within, counts.tolist(), _build_table(run, is_wanted, is_unknown), np.arange(len(values)))
    for number, key in enumerate(keys):
        if key.startswith(KEY_PREFIXES) and (call := parse_call(run.record(number))) is not None:
            facts.ops.communication[number] = call
    return facts


def _build_table(run: Run, is_wanted: Array, is_unknown: Array) -> ValueTable:
    """Return the values of a run as lines that differ or do not, by infinity or by nothing.

    Nothing is rounded, so no module counts as one whose outputs agree: a value within it is not withdrawn.
    """
    values = run.values
    table = ValueTable(len(values))
    lines = table.lines
    codes = np.array([table.suffixes.encode(suffix) for suffix, _, _ in values.places] or [0], np.int32)
    lines["suffix"], lines["side"] = codes[values.place], values.side
    for line, name in values.names.items():
        lines["suffix"][line], table.names[line] = NO_NAME, name
    lines["row"], lines["quantity"] = np.arange(len(values)), NO_QUANTITY
    lines["state"] = np.where(is_wanted, DIFFERS_CODE, np.where(is_unknown, UNJUDGED_CODE, SAME_CODE))
    lines["state"][values.kind == NULL] = UNJUDGED_CODE
    lines["distance"], lines["scale"] = np.where(is_wanted, math.inf, 0.0), 1.0
    lines["flags"] = np.where(values.kind == TENSOR, 0, IS_SCALAR)
    lines["basis"] = np.where(values.kind == SCALAR, Basis.SCALAR, Basis.TENSOR)
    return table
