"""Sentences about a comparison of gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from probe_recording.values.leaves import encode_number

from probe_core.errors import format_count, make_printable
from probe_watch.grad_probe.rules import GradientRules, GradientSuspect, RuleKind, load_rules
from probe_watch.grad_probe.similarity import GradientPair, PairGap, RankComparison, SignAgreement

MAX_LISTED_SUSPECTS = 5


def format_verdict(ranks: Sequence[RankComparison], main: GradientSuspect | None) -> str:
    """Return the verdict in one line."""
    if main is not None:
        where = f" on rank {main.rank}" if len(ranks) > 1 or main.rank else ""
        return f"SUSPICIOUS: {make_printable(main.parameter)} in step {main.step}{where}: {format_clause(main)}"
    lowest = find_lowest_agreement(ranks)
    missing_count = len(_find_missing_parameters(ranks))
    missing = f"; {format_count(missing_count, 'parameter')} not compared in all steps" if missing_count else ""
    scope = _format_scope(ranks)
    if lowest is None or lowest[2].equal == lowest[2].total:
        return f"AGREE: all compared gradient signs of {scope} are equal{missing}"
    rank, step, agreement, name = lowest
    where = f"{make_printable(name)} in step {step}" + (f" on rank {rank}" if len(ranks) > 1 else "")
    return f"AGREE: gradient signs of {scope}; the lowest similarity is {format_percent(agreement)}, {where}{missing}"


def _format_scope(ranks: Sequence[RankComparison]) -> str:
    """Return the number of parameters, steps and ranks of which signs were compared."""
    compared = [
        (rank.rank, step, series.parameter)
        for rank in ranks
        for series in rank.series
        for step, pair in series.pairs.items()
        if pair.agreement is not None
    ]
    rank_count, step_count, parameter_count = (len({case[n] for case in compared}) for n in range(3))
    on_ranks = f" and {format_count(rank_count, 'rank')}" if len(ranks) > 1 else ""
    return f"{format_count(parameter_count, 'parameter')} in {format_count(step_count, 'step')}{on_ranks}"


def _find_missing_parameters(ranks: Sequence[RankComparison]) -> set[str]:
    """Return the parameters that only one run has, or whose signs were not compared in some step."""
    one_sided = {name for rank in ranks for name in (*rank.target_only, *rank.golden_only)}
    return one_sided | {name for name, _, _ in list_uncompared(ranks)}


def format_clause(suspect: GradientSuspect) -> str:
    """Return what is suspicious about a gradient."""
    pair = suspect.pair
    if suspect.rule is RuleKind.ONE_SIDED:
        return f"only the {'target' if pair.gap is PairGap.TARGET_ONLY else 'golden run'} has a gradient"
    if suspect.rule is RuleKind.NON_FINITE:
        return f"the gradient norm is {_format_norms(pair)}"
    if suspect.rule is RuleKind.NORM:
        verb = "vanishes" if (pair.target_norm or 0.0) < (pair.golden_norm or 0.0) else "explodes"
        return f"the gradient {verb}: its norm is {_format_norms(pair)}"
    agreement = pair.agreement
    assert agreement is not None
    text = f"{format_percent(agreement)} of the gradient signs agree"
    return text if suspect.previous is None else f"{text}, {format_percent(suspect.previous)} in the step before"


def iterate_details(suspects: Sequence[GradientSuspect], main: GradientSuspect, rules: GradientRules) -> Iterator[str]:
    """Yield lines about the suspect that the verdict names, and other suspects of its step."""
    pair = main.pair
    if pair.agreement is not None:
        count = f"{pair.agreement.equal:,} of {pair.agreement.total:,}"
        yield f"{count} signs agree; the gradient norm is {_format_norms(pair)}."
    yield f"Rule: {format_rule(main.rule, rules)}."
    others = [s for s in suspects if s.step == main.step and s is not main]
    for suspect in others[:MAX_LISTED_SUSPECTS]:
        where = f" on rank {suspect.rank}" if suspect.rank != main.rank else ""
        yield f"Also in step {main.step}{where}: {make_printable(suspect.parameter)}, {format_clause(suspect)}."
    if len(others) > MAX_LISTED_SUSPECTS:
        yield f"Also in step {main.step}: {format_count(len(others) - MAX_LISTED_SUSPECTS, 'other gradient')}."
    later_count = len(suspects) - len(others) - 1
    if later_count:
        yield f"In later steps: {format_count(later_count, 'other gradient')}."


def format_rule(kind: RuleKind, rules: GradientRules) -> str:
    """Return a rule in words."""
    return {
        RuleKind.ONE_SIDED: "a gradient that only one run has is suspicious",
        RuleKind.NON_FINITE: "a norm that is finite in one run only is suspicious",
        RuleKind.NORM: f"norms that differ by a factor of more than {rules.norm_ratio:g} are suspicious",
        RuleKind.FIRST_SIMILARITY: f"a similarity below {rules.first_similarity:g} in the first step is suspicious",
        RuleKind.SIMILARITY_DROP: f"a similarity that falls by more than {rules.similarity_drop:g} from one "
        "step to the next is suspicious",
    }[kind]


def iterate_remarks(ranks: Sequence[RankComparison], skipped_ranks: Sequence[int], skipped_steps: int) -> Iterator[str]:
    """Yield lines about what was not compared."""
    if skipped_ranks:
        yield f"Not compared: {format_count(len(skipped_ranks), 'rank')} that only one run has."
    if skipped_steps:
        yield f"Not compared: {format_count(skipped_steps, 'step')} that one run lacks, or has no signs of."
    for side, run in (("target_only", "target"), ("golden_only", "golden run")):
        names = list(dict.fromkeys(name for rank in ranks for name in getattr(rank, side)))
        if names:
            count = format_count(len(names), "parameter")
            yield f"Not compared: {count} that only the {run} has, such as {make_printable(names[0])}."
    for name, pair, step_count in list_uncompared(ranks):
        yield f"Not compared: {make_printable(name)} in {format_count(step_count, 'step')}: {format_gap(pair)}."


def list_uncompared(ranks: Sequence[RankComparison]) -> list[tuple[str, GradientPair, int]]:
    """Return shared parameters whose signs were not compared: the first case, and the number of steps."""
    cases: dict[str, tuple[GradientPair, int]] = {}
    for rank in ranks:
        for series in rank.series:
            for pair in series.pairs.values():
                if pair.gap in (PairGap.SHAPE, PairGap.UNREADABLE, PairGap.NO_SIGNS):
                    first, count = cases.get(series.parameter, (pair, 0))
                    cases[series.parameter] = first, count + 1
    return [(name, pair, count) for name, (pair, count) in cases.items()]


def format_gap(pair: GradientPair) -> str:
    """Return the reason why the signs of a gradient were not compared."""
    if pair.gap is PairGap.SHAPE:
        return f"the shapes differ, {pair.detail}"
    if pair.gap is PairGap.NO_SIGNS:
        return "a run has no file of its signs"
    return pair.detail


def find_lowest_agreement(ranks: Sequence[RankComparison]) -> tuple[int, int, SignAgreement, str] | None:
    """Return rank, step, agreement and parameter of the lowest similarity; None if there is none."""
    cells = (
        (rank.rank, step, pair.agreement, series.parameter)
        for rank in ranks
        for series in rank.series
        for step, pair in series.pairs.items()
        if pair.agreement is not None and pair.agreement.total
    )
    return min(cells, key=lambda cell: cell[2].exact, default=None)


def format_percent(agreement: SignAgreement) -> str:
    """Return a similarity as a percentage that is 100 % only if all signs are equal."""
    value = 100 * agreement.similarity
    if agreement.equal < agreement.total and value > 99.9:
        return f"{math.floor(value * 1e4) / 1e4:g} %" if value < 99.9999 else "99.9999 %"
    return f"{value:.3g} %"


def _format_norms(pair: GradientPair) -> str:
    target, golden = (_format_norm(norm) for norm in (pair.target_norm, pair.golden_norm))
    return f"{target} in the target and {golden} in the golden run"


def _format_norm(norm: float | None) -> str:
    return "unknown" if norm is None else f"{norm:.3g}"


# -- the content of ``grad_answer.json`` (docs/gradients.md#result-files) ---------------------------


SCHEMA = 1


def convert_to_json(
    ranks: Sequence[RankComparison], suspects: Sequence[GradientSuspect], main: GradientSuspect | None
) -> dict[str, Any]:
    """Return the verdict, its numbers and its limits."""
    return {
        "schema": SCHEMA,
        "verdict": "AGREE" if main is None else "SUSPICIOUS",
        "sentence": format_verdict(ranks, main),
        "finding": None if main is None else _convert_suspect(main),
        "findings": [_convert_suspect(suspect) for suspect in suspects],
        "limits": asdict(load_rules()),
        "ranks": [_convert_rank(rank) for rank in ranks],
        "not_compared": [
            {"parameter": name, "reason": pair.gap and pair.gap.value, "detail": pair.detail, "steps": count}
            for name, pair, count in list_uncompared(ranks)
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
        "target_norm": encode_number(suspect.pair.target_norm),
        "golden_norm": encode_number(suspect.pair.golden_norm),
    }


def _convert_rank(rank: RankComparison) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "steps": list(rank.steps),
        "parameters": len(rank.series),
        "target_only": list(rank.target_only),
        "golden_only": list(rank.golden_only),
    }
