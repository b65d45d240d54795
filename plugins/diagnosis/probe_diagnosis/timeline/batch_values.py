"""Differences of the values of a batch, by the verdicts of the policy of first differences."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from probe_core.model import SEVERITIES, Drift, Level, MatchKind
from probe_core.model.batches import MATCH_KINDS, PairSide, RowBatch
from probe_core.model.columns import FLOAT, NULL, TENSOR, Array
from probe_core.model.dtypes import get_dtype_kind
from probe_core.model.results import VerdictColumn
from probe_diagnosis.timeline.compared_calls import POLICY_NAME, Basis, DifferenceKind, describe_none
from probe_diagnosis.timeline.devices import is_device
from probe_diagnosis.timeline.evidence import format_evidence_texts
from probe_diagnosis.timeline.value_table import (
    BECOMES_NON_FINITE,
    DIFFERS_CODE,
    HAS_MASKED_DIFFERENCE,
    HAS_NON_FINITE,
    IS_EQUAL,
    IS_IN_REGION,
    IS_SCALAR,
    IS_SOURCE,
    NO_NAME,
    NO_QUANTITY,
    REQUIRES_OTHER_GRADIENT,
    SAME_CODE,
    UNJUDGED_CODE,
    ValueTable,
)


def build_value_table(batch: RowBatch) -> ValueTable:
    """Return the differences of the values of a batch after all judges, one line per row."""
    table = ValueTable(len(batch))
    lines, sides = table.lines, (batch.target, batch.golden)
    has_target = batch.target.is_present
    is_null, is_tensor = ([side.column("kind") == code for side in sides] for code in (NULL, TENSOR))
    lines["side"] = np.where(has_target, batch.target.column("side"), batch.golden.column("side"))
    _set_names(table, batch)
    is_scalar = ~np.where(has_target, *is_tensor)
    policy = batch.results.further.get(POLICY_NAME)
    if policy is None:
        lines["state"], lines["flags"] = UNJUDGED_CODE, np.where(is_scalar, IS_SCALAR, 0)
        return table
    table.texts, lines["quantity"] = _collect_evidence(policy)
    is_skipped = _mark_skipped(batch, policy, table)
    has_one_null = batch.is_matched & ~is_skipped & (is_null[0] != is_null[1])
    is_judged = batch.is_matched & ~is_skipped & ~has_one_null
    differs = is_judged & (policy.levels == SEVERITIES[Level.ERROR])
    _excuse_devices(batch, table, differs)
    is_of_region = batch.match_codes == MATCH_KINDS.index(MatchKind.REGION)
    is_in_region = differs & is_of_region
    lines["state"] = np.where(is_judged, np.where(differs, DIFFERS_CODE, SAME_CODE), UNJUDGED_CODE)
    lines["state"][is_in_region] = UNJUDGED_CODE
    lines["kind"] = np.where(differs & ~batch.have_equal_extents, DifferenceKind.SHAPE, DifferenceKind.VALUE)
    has_drift = is_judged & policy.has_drift
    _set_distances(lines, policy, is_judged, has_drift)
    is_equal = np.where(is_scalar, ~has_drift & (lines["state"] == SAME_CODE), _has_reason(policy, "equal"))
    is_measured = is_judged & ~is_scalar
    is_rare = [is_measured & _is_rare(side) for side in sides]
    lines["flags"] = _combine_flags({
        IS_SCALAR: is_scalar,
        BECOMES_NON_FINITE: is_rare[0] & ~is_rare[1],
        HAS_NON_FINITE: is_rare[0] | is_rare[1],
        HAS_MASKED_DIFFERENCE: is_measured & _has_reason(policy, "masked"),
        IS_EQUAL: is_judged & is_equal,
        IS_IN_REGION: is_in_region,
        REQUIRES_OTHER_GRADIENT: is_measured & ~is_of_region & batch.requires_grad_differs,
    })  # fmt: skip
    lines["basis"] = _choose_basis(batch, is_judged, is_scalar)
    _set_dtypes(table, batch, is_measured)
    _set_nulls(table, batch, has_one_null, is_null[0])
    return table


def _mark_skipped(batch: RowBatch, policy: VerdictColumn, table: ValueTable) -> Array:
    """Return True for rows in which there is nothing to judge, by the policy or by a judge, which states the reason."""
    is_skipped: Array = policy.levels == SEVERITIES[Level.SKIP]
    for line, changes in batch.changes.items():
        if batch.verdicts[line].level is Level.SKIP:
            is_skipped[line] = True
            table.texts[line] = changes[-1].reason.detail
    return is_skipped


def _excuse_devices(batch: RowBatch, table: ValueTable, differs: Array) -> None:
    """Take back that arguments differ that are devices on both sides."""
    for line in np.flatnonzero(differs & batch.scalars_differ).tolist():
        if all(slot is not None and is_device(slot.value) for slot in batch.pair(line)[:2]):
            differs[line] = False
            table.texts.pop(line, None)


def _combine_flags(wanted: Mapping[int, Array]) -> Array:
    """Return the bits of each line from the lines of each bit."""
    flags = np.zeros(len(next(iter(wanted.values()))), np.uint8)
    for bit, has_bit in wanted.items():
        flags[has_bit] |= bit
    return flags


def _set_names(table: ValueTable, batch: RowBatch) -> None:
    """Set the row names of all lines."""
    has_target = batch.target.is_present
    for side, wanted in ((batch.target, has_target), (batch.golden, ~has_target)):
        places, is_renamed = side.columns.places, bool(side.columns.names)
        codes = np.array([table.suffixes.encode(suffix) for suffix, _, _ in places] or [0], np.int32)
        table.lines["suffix"][wanted] = codes[side.column("place")[wanted]]
        if side is batch.target and not is_renamed:
            continue  # each name begins with that of its op
        lines = np.flatnonzero(wanted)
        ops = np.searchsorted(batch.starts, lines, "right") - 1
        names = side.columns.row_names(side.lines[lines])
        for line, op, name in zip(lines.tolist(), ops.tolist(), names):
            if name != batch.ops[op] + table.suffixes[table.lines["suffix"][line]]:
                table.lines["suffix"][line] = NO_NAME
                table.names[line] = name


def _collect_evidence(policy: VerdictColumn) -> tuple[dict[int, str], Array]:
    """Return the evidence of rows that is not a distance, and the quantities of the others."""
    quantity = np.full(len(policy.codes), NO_QUANTITY, np.uint8)
    has_text = _has_reason(policy, "evidence")
    is_far = _has_reason(policy, "drift") & ~has_text & policy.has_drift
    if policy.drifts is not None:
        quantity[is_far] = policy.drifts[is_far, Drift._fields.index("quantity")].astype(np.uint8)
    texts = {line: "; ".join(format_evidence_texts(policy[line])) for line in np.flatnonzero(has_text).tolist()}
    return texts, quantity


def _has_reason(policy: VerdictColumn, code: str) -> Array:
    """Return True for rows whose verdict has a reason with this code."""
    return policy.map_verdicts(lambda verdict: any(reason.code == code for reason in verdict.reasons))


def _set_distances(lines: Array, policy: VerdictColumn, is_judged: Array, has_drift: Array) -> None:
    """Set the distances of judged lines: those of the verdicts, or inf for a difference without a size."""
    lines["quantity"][~is_judged] = NO_QUANTITY
    lines["distance"] = np.where(lines["state"] == DIFFERS_CODE, math.inf, 0.0)
    lines["scale"] = np.where(is_judged, 1.0, 0.0)
    if policy.drifts is not None:
        for field, name in (("difference", "distance"), ("scale", "scale"), ("noise", "noise"), ("jump", "jump")):
            column = policy.drifts[:, Drift._fields.index(field)]
            lines[name] = np.where(has_drift, column, lines[name])


def _is_rare(side: PairSide) -> Array:
    """Return True for values whose recorded maximum or minimum is nan or inf; their mean is then as well."""
    types, numbers = side.column("types"), side.column("numbers")
    is_plain = (types[:, 2] == FLOAT) & np.isfinite(numbers[:, 2])
    is_rare: Array = ~is_plain & ((types[:, :2] == FLOAT) & ~np.isfinite(numbers[:, :2])).any(axis=1)
    return is_rare


def _choose_basis(batch: RowBatch, is_judged: Array, is_scalar: Array) -> Array:
    """Return the codes of the data that values were judged by."""
    basis = np.full(len(batch), Basis.STATISTICS, np.uint8)
    sides = batch.target, batch.golden
    has_checksums = batch.is_matched & batch.have_same_dtypes
    for side in sides:
        has_checksums &= side.column("has_checksum")
    if has_checksums.any():
        is_exact = np.array([get_dtype_kind(dtype) in ("int", "bool") for dtype in batch.target.columns.dtypes])
        exact = is_exact[batch.target.column("dtype")]
        codes = np.where(exact, Basis.EXACT_CHECKSUM, Basis.CHECKSUM)
        basis = np.where(has_checksums, codes, basis)
    if len(batch.ops) and batch.op(0).by_tensor:
        by_tensor = batch.verdicts.map_verdicts(lambda verdict: verdict.measured)
        for side in sides:
            by_tensor = by_tensor & (side.column("data") >= 0)
        basis = np.where(by_tensor, Basis.TENSOR, basis)
    basis[is_scalar] = Basis.SCALAR
    basis[~is_judged] = Basis.NONE
    return basis


def _set_dtypes(table: ValueTable, batch: RowBatch, wanted: Array) -> None:
    """Note both dtypes of lines where they are of floating point and differ."""
    tables = batch.target.columns.dtypes, batch.golden.columns.dtypes
    codes = batch.target.column("dtype"), batch.golden.column("dtype")
    for line in np.flatnonzero(wanted & ~batch.have_same_dtypes).tolist():
        target, golden = (names[code[line]] for names, code in zip(tables, codes))
        if get_dtype_kind(target) == get_dtype_kind(golden) == "float":
            table.dtypes[line] = f"{target} against {golden}"


def _set_nulls(table: ValueTable, batch: RowBatch, wanted: Array, is_of_target: Array) -> None:
    """Set values that one run recorded as None: they differ if a call receives them."""
    lines = table.lines
    is_trained = (batch.target.column("grad") == 1) | (batch.golden.column("grad") == 1)
    for line in np.flatnonzero(wanted).tolist():
        fields = lines[line]
        fields["state"] = DIFFERS_CODE if IS_SOURCE[fields["side"]] else UNJUDGED_CODE
        fields["distance"], fields["scale"], fields["flags"] = math.inf, 1.0, IS_SCALAR
        fields["kind"] = DifferenceKind.NONE
        fields["noise"] = fields["jump"] = 0.0
        fields["basis"] = Basis.PARAMETER if is_trained[line] else Basis.NONE
        slot = batch.pair(line)[1 if is_of_target[line] else 0]
        assert slot is not None
        table.texts[line] = describe_none(slot.value, is_none_of_target=bool(is_of_target[line]))
