"""Sentences on a check."""

from __future__ import annotations

from collections import Counter

from probe_pytorch.dispatch_check.findings import (
    CallCounts,
    CallOrigin,
    OperatorDifference,
    OperatorDifferenceKind,
    OperatorFinding,
)
from probe_pytorch.dispatch_check.operators import SkipReason
from probe_pytorch.dispatch_check.sentences import (
    REASON_PHRASES,
    describe_agreement,
    describe_difference,
    describe_finding,
    format_counts,
)

ROUNDING = OperatorDifference(OperatorDifferenceKind.ROUNDING, 0, "torch.float32", "torch.float64", (4,), 0.3, 1e-6)
ORIGIN = CallOrigin("layers.1", "Block", "/home/me/train.py", 12)


def test_every_reason_has_a_text() -> None:
    assert set(REASON_PHRASES) == set(SkipReason)


def test_the_first_line_names_call_place_and_error() -> None:
    finding = OperatorFinding(7, "Aten.mm.3", "aten.mm.default", "backward", ROUNDING, ORIGIN, "Aten.addmm.1")
    assert describe_finding(finding) == (
        "Aten.mm.3 (backward of Aten.addmm.1), in layers.1 (Block) at train.py, line 12: its result differs from that "
        "of the CPU in float64 by a relative error of 0.3; rounding explains 1e-06"
    )
    bare = OperatorFinding(7, "Aten.mm.3", "aten.mm.default", "forward", ROUNDING)
    assert describe_finding(bare).startswith("Aten.mm.3 (forward): its result differs")
    outermost = OperatorFinding(
        7, "Aten.mm.3", "aten.mm.default", "forward", ROUNDING, CallOrigin("", "Net", "a/b.py", 3)
    )
    assert describe_finding(outermost).startswith("Aten.mm.3 (forward), in Net at b.py, line 3:")


def test_statements_on_other_differences() -> None:
    kinds = {
        OperatorDifference(
            OperatorDifferenceKind.STRUCTURE, 0
        ): "its result has another structure, shape or kind of dtype than that of the CPU",
        OperatorDifference(OperatorDifferenceKind.UNEQUAL, 1, "torch.int64", "torch.int64", (4,), 0.25): (
            "25 % of the elements of result 1 differ from those of the CPU"
        ),
        OperatorDifference(OperatorDifferenceKind.NON_FINITE, 0, "torch.float16", "torch.float32", (4,), elements=2): (
            "2 elements of its result and that of the CPU in float32 differ in nan or inf"
        ),
    }
    for difference, text in kinds.items():
        assert describe_difference(difference) == text


def test_agreement() -> None:
    assert describe_agreement(CallCounts(compared=1200)) == "All 1,200 compared calls agree with the CPU."
    assert describe_agreement(CallCounts(compared=1)) == "The only compared call agrees with the CPU."
    assert "says nothing" in describe_agreement(CallCounts())


def test_counts_name_reasons_and_other_wrong_operators() -> None:
    counts = CallCounts(
        10, 3, Counter({"aten.mm.default": 6, "aten.gelu.default": 4}),
        Counter({"aten.mm.default": 2, "aten.gelu.default": 1}),
        Counter({(SkipReason.RANDOM, f"aten.op{i}.default"): 10 - i for i in range(7)} | {(SkipReason.VIEW, "aten.t.default"): 5}),
    )  # fmt: skip
    finding = OperatorFinding(0, "Aten.mm.0", "aten.mm.default", "forward", ROUNDING)
    assert format_counts(counts, [finding]) == [
        "  10 calls of 2 operators compared, 3 wrong",
        "  other operators with wrong results: aten.gelu.default (1)",
        "  not compared: 49 calls drawing random numbers: aten.op0.default, aten.op1.default, aten.op2.default, "
        "aten.op3.default, aten.op4.default and 2 more",
    ]
