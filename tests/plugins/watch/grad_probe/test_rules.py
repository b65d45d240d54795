"""The reading rule of compared gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
from probe_watch.grad_probe.rules import GradientSuspect, RuleKind, find_first_suspect, find_main_suspect, load_rules
from probe_watch.grad_probe.sentences import format_percent
from probe_watch.grad_probe.similarity import GradientPair, PairGap, ParameterSeries, SignAgreement

NAN, INF = math.nan, math.inf
RULES = load_rules()


def agreement(*equal: int, total: int = 100) -> list[GradientPair]:
    return [GradientPair(SignAgreement(count, total), None, "", 1.0, 1.0) for count in equal]


def norms(*pairs: tuple[float | None, float | None]) -> list[GradientPair]:
    return [GradientPair(SignAgreement(4, 4), None, "", *pair) for pair in pairs]


def gaps(*kinds: PairGap) -> list[GradientPair]:
    return [GradientPair(None, kind) for kind in kinds]


def found(pairs: list[GradientPair]) -> tuple[RuleKind, int] | None:
    series = ParameterSeries("a", dict(enumerate(pairs, start=10)))
    suspect = find_first_suspect(series, 0, RULES)
    return suspect and (suspect.rule, suspect.step)


FIRST, DROP, NORM = RuleKind.FIRST_SIMILARITY, RuleKind.SIMILARITY_DROP, RuleKind.NORM
FINITE, SIDED = RuleKind.NON_FINITE, RuleKind.ONE_SIDED


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (agreement(97, 97), None),
        (agreement(96), (FIRST, 10)),
        (agreement(100, 97, 94, 91, 88), None),  # exactly 0.03 less from step to step
        (agreement(97, 94, 90), (DROP, 12)),
        (agreement(100, 50, 100), (DROP, 11)),
        (agreement(100, 96, 0), (DROP, 11)),
        ([*agreement(100), *gaps(PairGap.NEITHER), *agreement(96)], (DROP, 12)),
        ([*gaps(PairGap.NEITHER), *agreement(96)], (FIRST, 11)),
        (agreement(0, 0, total=0), None),
        ([*agreement(0, total=0), *agreement(100)], None),
        ([*agreement(100), *gaps(PairGap.TARGET_ONLY)], (SIDED, 11)),
        ([*gaps(PairGap.GOLDEN_ONLY), *agreement(100)], (SIDED, 10)),
        (gaps(PairGap.SHAPE, PairGap.UNREADABLE, PairGap.NO_SIGNS), None),
        (norms((1.0, 1.0), (1.0, 99.0)), None),
        (norms((1.0, 1.0), (1.0, 101.0)), (NORM, 11)),
        (norms((1.0, 1.0), (0.0, 1.0)), (NORM, 11)),
        (norms((1.0, 1.0), (0.0, 1e-8)), None),  # negligible beside the norm of the first step
        (norms((0.0, 0.0)), None),
        (norms((0.0, 1e-30)), (NORM, 10)),
        (norms((None, 1.0), (1.0, None)), None),
        (norms((NAN, NAN), (INF, INF), (NAN, INF)), None),
        (norms((1.0, 1.0), (NAN, 1.0)), (FINITE, 11)),
        (norms((1.0, INF)), (FINITE, 10)),
    ],
)
def test_the_first_broken_rule(pairs: list[GradientPair], expected: Any) -> None:
    assert found(pairs) == expected


def suspect(parameter: str, step: int, rank: int = 0) -> GradientSuspect:
    return GradientSuspect(FIRST, rank, step, parameter, agreement(0)[0])


def test_the_main_suspect_is_the_earliest() -> None:
    assert find_main_suspect([]) is None
    late, early = suspect("a", 5), suspect("b", 4, rank=1)
    assert find_main_suspect([late, early]) is early
    other_rank = suspect("c", 4, rank=0)
    assert find_main_suspect([early, other_rank]) is other_rank


def test_of_several_parameters_the_last_module_is_named() -> None:
    names = ["net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"]
    main = find_main_suspect([suspect(name, 3) for name in names])
    assert main is not None and main.parameter == "net.2.weight"


@pytest.mark.parametrize(
    ("equal", "total", "text"),
    [
        (4, 4, "100 %"), (0, 4, "0 %"), (1, 3, "33.3 %"), (9_999, 10_000, "99.99 %"),
        (10**9 - 1, 10**9, "99.9999 %"), (0, 0, "0 %"),
    ],
)  # fmt: skip
def test_only_equal_signs_are_100_percent(equal: int, total: int, text: str) -> None:
    assert format_percent(SignAgreement(equal, total)) == text
