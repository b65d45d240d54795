"""Differences of values, computed row by row: the reference of the columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

from probe_diagnosis.timeline.compared_calls import (
    POLICY_NAME,
    Basis,
    DifferenceKind,
    ValueComparison,
    ValueState,
    format_scalar,
)
from probe_diagnosis.timeline.evidence import format_evidence_texts
from probe_diagnosis.timeline.floors import AXIS_CLASSES, find_class, find_floor, load_floors

from probe_core.model import Drift, Kind, Level, MatchKind, Row, Side, Value
from probe_core.model.dtypes import get_dtype_kind, is_same_dtype

NO_DRIFT = Drift(0.0, 1.0, 0.0, 0.0)


def differences_of(op: str, rows: Sequence[Row], *, by_tensor: bool) -> list[ValueComparison]:
    """Return the differences of the values of a call."""
    values = [_difference(row, by_tensor=by_tensor) for row in rows]
    return [_with_floor(op, rows, values, place) for place in range(len(rows))]


def _difference(row: Row, *, by_tensor: bool) -> ValueComparison:
    target, golden = row.pair.target, row.pair.golden
    slot = target or golden
    assert slot is not None
    is_scalar = slot.value.kind is not Kind.TENSOR
    unjudged = ValueComparison(slot.name, slot.side, ValueState.UNJUDGED, is_scalar=is_scalar)
    verdict = row.further.get(POLICY_NAME)
    if verdict is None:
        return unjudged
    why = "; ".join(format_evidence_texts(verdict))
    is_left_out = bool(row.replaced_verdicts) and row.verdict.level is Level.SKIP
    if is_left_out:
        why = row.replaced_verdicts[-1].reason.detail
    if target is None or golden is None or is_left_out or verdict.level is Level.SKIP:
        return unjudged._replace(evidence=why)
    first, second = target.value, golden.value
    if (first.kind is Kind.NULL) != (second.kind is Kind.NULL):
        return unjudged._replace(
            state=ValueState.DIFFERS if slot.side.is_source else ValueState.UNJUDGED,
            distance=math.inf,
            scale=1.0,
            is_scalar=True,
            kind=DifferenceKind.NONE,
            evidence=_none_against(first, second),
            basis=Basis.PARAMETER if first.requires_grad or second.requires_grad else Basis.NONE,
        )
    state = ValueState.DIFFERS if verdict.level is Level.ERROR else ValueState.SAME
    kind_of = (
        DifferenceKind.SHAPE if state == ValueState.DIFFERS and first.extent != second.extent else DifferenceKind.VALUE
    )
    is_in_region = row.pair.match_kind is MatchKind.REGION and state == ValueState.DIFFERS
    if is_in_region:
        state = ValueState.UNJUDGED
    drift = verdict.drift or NO_DRIFT._replace(difference=math.inf if state == ValueState.DIFFERS else 0.0)
    common = ValueComparison(slot.name, slot.side, state, *drift[:4], is_scalar=is_scalar, evidence=why,
                        is_in_region=is_in_region, kind=kind_of)  # fmt: skip
    if is_scalar:
        return common._replace(basis=Basis.SCALAR, is_equal=verdict.drift is None and state == ValueState.SAME)
    codes = [reason.code for reason in verdict.reasons]
    rare = [_is_rare(value) for value in (first, second)]
    is_recast = (
        not is_same_dtype(first.dtype, second.dtype)
        and get_dtype_kind(first.dtype) == get_dtype_kind(second.dtype) == "float"
    )
    return common._replace(
        basis=_basis(row, first, second, by_tensor=by_tensor),
        becomes_non_finite=rare[0] and not rare[1],
        has_non_finite=any(rare),
        dtypes=f"{first.dtype} against {second.dtype}" if is_recast else "",
        has_masked_difference="masked" in codes,
        is_equal="equal" in codes,
        requires_other_gradient=row.pair.requires_grad_differs and row.pair.match_kind is not MatchKind.REGION,
    )


def _none_against(target: Value, golden: Value) -> str:
    shown = ["None" if one.kind is Kind.NULL else "a tensor" if one.kind is Kind.TENSOR else format_scalar(one)
             for one in (target, golden)]  # fmt: skip
    return " against ".join(shown)


def _basis(row: Row, target: Value, golden: Value, *, by_tensor: bool) -> Basis:
    if by_tensor and row.verdict.measured and target.data_name is not None and golden.data_name is not None:
        return Basis.TENSOR
    if target.checksum is not None and golden.checksum is not None and is_same_dtype(target.dtype, golden.dtype):
        return Basis.EXACT_CHECKSUM if get_dtype_kind(target.dtype) in ("int", "bool") else Basis.CHECKSUM
    return Basis.STATISTICS


def _is_rare(value: Value) -> bool:
    mean = value.statistics.mean
    if isinstance(mean, float) and math.isfinite(mean):
        return False
    return any(isinstance(end, float) and not math.isfinite(end) for end in value.statistics[:2])


def _with_floor(op: str, rows: Sequence[Row], values: Sequence[ValueComparison], place: int) -> ValueComparison:
    value, row = values[place], rows[place]
    is_open = (
        value.state == ValueState.DIFFERS and value.side is Side.OUTPUT and not value.is_scalar and value.noise > 0
    )
    name = find_class(op)
    if not (is_open and name and 0 < value.scale < math.inf and value.distance < math.inf):
        return value
    sizes = [math.prod(_shape(other)) for other in rows]
    taken = sorted((size for other, size in zip(rows, sizes) if other.pair.side.is_source), reverse=True)
    first, second = [*taken, 1, 1][:2]
    size = max(1, sizes[place])
    along = max(_shape(row), default=1) if name in AXIS_CLASSES else 1
    length = max(1.0, along, first / size, math.sqrt(first * second / size))
    dtypes = [slot.value.dtype.rpartition(".")[2] for slot in row.pair[:2] if slot is not None]
    floor = find_floor(name, max(dtypes, key=lambda dtype: load_floors()["eps"].get(dtype, math.inf)), length)
    if value.noise < value.distance / value.scale <= floor:
        return value._replace(noise=floor, state=ValueState.SAME, evidence="")
    return value


def _shape(row: Row) -> Sequence[int]:
    slot = row.pair.target or row.pair.golden
    return () if slot is None else slot.value.shape or ()
