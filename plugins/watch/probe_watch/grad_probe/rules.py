"""The reading rule: which steps of which parameters are suspicious (docs/gradients.md#reading-rule)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import Any

from probe_core.files.packaged import load_yaml
from probe_watch.grad_probe.similarity import GradientPair, PairGap, ParameterSeries, SignAgreement


class RuleKind(str, Enum):
    """The rule that a gradient breaks."""

    ONE_SIDED = "one_sided"
    NON_FINITE = "non_finite"
    NORM = "norm"
    FIRST_SIMILARITY = "first_similarity"
    SIMILARITY_DROP = "similarity_drop"


@dataclass(frozen=True, slots=True)
class GradientRules:
    """The limits of the reading rule.

    Attributes:
        first_similarity: The lowest similarity of the first step.
        similarity_drop: The largest fall of the similarity from one step to the next.
        norm_ratio: The largest ratio of the norms of both runs.
        negligible_norm: The limit, relative to the largest norm of the parameter, below which norms are not
            compared.
    """

    first_similarity: float
    similarity_drop: float
    norm_ratio: float
    negligible_norm: float


@dataclass(frozen=True, slots=True)
class GradientSuspect:
    """A gradient that breaks a rule.

    Attributes:
        rule: The rule.
        rank: The number of the rank.
        step: The number of the step.
        parameter: The name of the parameter.
        pair: The gradient in both runs.
        previous: Its agreement in the previous step; None in the first step.
    """

    rule: RuleKind
    rank: int
    step: int
    parameter: str
    pair: GradientPair
    previous: SignAgreement | None = None


@cache
def load_rules() -> GradientRules:
    """Return the limits of ``rules.yaml``."""
    data: Mapping[str, Any] = load_yaml("probe_watch.grad_probe", "rules.yaml")
    similarity, norm = data["similarity"], data["norm"]
    return GradientRules(similarity["first"], similarity["drop"], norm["ratio"], norm["negligible"])


def find_first_suspect(series: ParameterSeries, rank: int, rules: GradientRules) -> GradientSuspect | None:
    """Return the first gradient of a parameter that breaks a rule; None if there is none."""
    norms = [norm for pair in series.pairs.values() for norm in (pair.target_norm, pair.golden_norm) if norm]
    negligible = rules.negligible_norm * max(filter(math.isfinite, norms), default=0.0)
    previous: SignAgreement | None = None
    for step, pair in series.pairs.items():
        rule = _find_broken_rule(pair, previous, rules, negligible)
        if rule is not None:
            return GradientSuspect(rule, rank, step, series.parameter, pair, previous)
        if pair.agreement is not None and pair.agreement.total:
            previous = pair.agreement
    return None


def _find_broken_rule(
    pair: GradientPair, previous: SignAgreement | None, rules: GradientRules, negligible: float
) -> RuleKind | None:
    if pair.gap in (PairGap.TARGET_ONLY, PairGap.GOLDEN_ONLY):
        return RuleKind.ONE_SIDED
    target, golden = pair.target_norm, pair.golden_norm
    if target is not None and golden is not None:
        if math.isfinite(target) != math.isfinite(golden):
            return RuleKind.NON_FINITE
        if math.isfinite(target) and _is_different(target, golden, rules.norm_ratio, negligible):
            return RuleKind.NORM
    agreement = pair.agreement
    if agreement is None or not agreement.total:
        return None
    if previous is None:
        is_low = agreement.exact < Fraction(str(rules.first_similarity))
        return RuleKind.FIRST_SIMILARITY if is_low else None
    is_drop = previous.exact - agreement.exact > Fraction(str(rules.similarity_drop))
    return RuleKind.SIMILARITY_DROP if is_drop else None


def _is_different(target: float, golden: float, ratio: float, negligible: float) -> bool:
    smaller, larger = sorted((target, golden))
    return larger > negligible and larger > ratio * smaller


def find_main_suspect(suspects: Iterable[GradientSuspect]) -> GradientSuspect | None:
    """Return the suspect that the verdict names; None if there are none.

    It is in the earliest step with a suspect, and on the lowest rank there. If several parameters remain, it belongs
    to the module that is last in the model, because the backward pass reaches this module first.

    Args:
        suspects: The first suspect of each parameter, in the order of the model.
    """
    listed = list(suspects)
    if not listed:
        return None
    earliest = min((suspect.step, suspect.rank) for suspect in listed)
    candidates = [suspect for suspect in listed if (suspect.step, suspect.rank) == earliest]
    module = _get_module(candidates[-1])
    return next(suspect for suspect in candidates if _get_module(suspect) == module)


def _get_module(suspect: GradientSuspect) -> str:
    return suspect.parameter.rpartition(".")[0]
