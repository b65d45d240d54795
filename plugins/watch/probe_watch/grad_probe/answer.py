"""The content of ``grad_answer.json`` (docs/gradients.md#result-files)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from probe_watch.grad_probe import sentences
from probe_watch.grad_probe.rules import GradientSuspect, load_rules
from probe_watch.grad_probe.similarity import RankComparison

SCHEMA = 1


def convert_to_json(
    ranks: Sequence[RankComparison], suspects: Sequence[GradientSuspect], main: GradientSuspect | None
) -> dict[str, Any]:
    """Return the verdict, its numbers and its limits."""
    return {
        "schema": SCHEMA,
        "verdict": "AGREE" if main is None else "SUSPICIOUS",
        "sentence": sentences.format_verdict(ranks, main),
        "finding": None if main is None else _convert_suspect(main),
        "findings": [_convert_suspect(suspect) for suspect in suspects],
        "limits": asdict(load_rules()),
        "ranks": [_convert_rank(rank) for rank in ranks],
        "not_compared": [
            {"parameter": name, "reason": pair.gap and pair.gap.value, "detail": pair.detail, "steps": count}
            for name, pair, count in sentences.list_uncompared(ranks)
        ],
    }


def _convert_suspect(suspect: GradientSuspect) -> dict[str, Any]:
    agreement, previous = suspect.pair.agreement, suspect.previous
    return {
        "rule": suspect.rule.value,
        "rank": suspect.rank,
        "step": suspect.step,
        "parameter": suspect.parameter,
        "similarity": agreement and agreement.similarity,
        "previous_similarity": previous and previous.similarity,
        "equal_signs": agreement and agreement.equal,
        "elements": agreement and agreement.total,
        "target_norm": _number(suspect.pair.target_norm),
        "golden_norm": _number(suspect.pair.golden_norm),
    }


def _convert_rank(rank: RankComparison) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "steps": list(rank.steps),
        "parameters": len(rank.series),
        "target_only": list(rank.target_only),
        "golden_only": list(rank.golden_only),
    }


def _number(value: float | None) -> float | str | None:
    """Return a number as JSON can express it: NaN and infinities as texts."""
    return value if value is None or math.isfinite(value) else repr(value)
