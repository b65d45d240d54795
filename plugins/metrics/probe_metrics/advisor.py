"""Advice on the first row that fails."""

from __future__ import annotations

from dataclasses import replace

from probe_core.files.packaged import load_yaml
from probe_core.model import Advice, Level, Side, Suspect
from probe_core.model.answers import Outcome
from probe_core.model.report import Report

NO_ROW = "NA"


MAX_CONDITIONS = 3
"""Largest number of conditions that differ which the advice states."""


def advise(report: Report) -> Advice:
    """Return advice on the first failing row, after the conditions that differ if the runs do not agree."""
    advice, answer = _advise(report), report.answer
    if answer is None or answer.outcome is Outcome.AGREE or not answer.conditions:
        return advice
    stated = "; ".join(condition.text for condition in answer.conditions[:MAX_CONDITIONS])
    texts = load_yaml(__package__, "advice.yaml")
    return replace(advice, text=f"{texts['conditions'].format(conditions=stated)}\n{advice.text}")


def _advise(report: Report) -> Advice:
    """Return advice on the first failing row, whose line in the sheet counts from 1 (docs/tables.md#advisor).

    Scalars and integers that differ count as failing. If no row fails by the rule of the table, the advice
    names the first suspect. The sentence that all data meet the requirements is said only if the verdict on
    the two runs is AGREE, and is followed by what was not compared; else the verdict takes its place.
    """
    suspect = report.first_failure
    if suspect is not None:
        return Advice(suspect.line, suspect.row, _describe_suspect(suspect))
    texts, levels = load_yaml(__package__, "advice.yaml"), report.counts.levels
    answer = report.answer
    suspect = next(iter(report.suspects), None)
    if suspect is not None:
        return Advice(suspect.line, suspect.row, texts["suspect"].format(why=suspect.why))
    if not report.counts.measured:
        return Advice(NO_ROW, NO_ROW, texts["nothing"])
    if levels[Level.ERROR]:
        return Advice(NO_ROW, NO_ROW, texts["differ"].format(count=levels[Level.ERROR]))
    if answer is not None and answer.outcome is not Outcome.AGREE:
        return Advice(NO_ROW, NO_ROW, "\n".join([answer.sentence, *report.problems]))
    more = [texts["not_all"].format(count=levels[Level.WARNING])] if levels[Level.WARNING] else []
    if report.regions:
        more.append(texts["regions"].format(count=len(report.regions)))
    return Advice(NO_ROW, NO_ROW, "\n".join([texts["met"], *more, *report.problems]))


def _describe_suspect(suspect: Suspect) -> str:
    texts = load_yaml(__package__, "advice.yaml")
    is_input = suspect.side.is_source
    name = suspect.row
    if suspect.side is Side.DEBUG:
        return str(texts["saved"])
    forward = "forward" in suspect.op
    if "Functional.batch_norm" in name and name.endswith("forward.input.1"):
        return str(texts["batch_norm"])
    if is_input:
        return str(texts["forward_input" if forward else "backward_input"])
    if any(api in name for api in texts["may_be_random"]):
        return str(texts["deterministic"])
    return str(texts["forward" if forward else "backward"])
