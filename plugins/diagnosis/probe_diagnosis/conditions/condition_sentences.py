"""Conditions as text for the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from probe_core.errors import format_count
from probe_core.model.answers import Condition
from probe_diagnosis.conditions.differences import ConditionDifference, ConditionKind
from probe_diagnosis.conditions.file import Fact
from probe_diagnosis.conditions.random_states import RandomDifference, Since

MAX_NAMED_CONDITIONS = 3
"""Largest number of conditions of one kind that a line names."""

KIND_SUBJECTS = {
    ConditionKind.NUMERICS: "the setting {name}",
    ConditionKind.LAYOUT: "the layout of processes ({name})",
    ConditionKind.VERSIONS: "the version of {name}",
    ConditionKind.DEVICES: "the device ({name})",
    ConditionKind.ENVIRONMENT: "the environment variable {name}",
    ConditionKind.DATA: "the position in the data ({name})",
    ConditionKind.BATCH: "the batch ({name})",
    ConditionKind.HYPERPARAMETER: "the hyper-parameter {name}",
    ConditionKind.WEIGHTS: "the weight {name}",
    ConditionKind.BATCH_STATISTICS: "the batch ({name})",
    ConditionKind.RANDOM_CALLS: "the number of calls of {name}",
}
"""Subjects of sentences on conditions, by kind."""

SCRIPT_SUBJECTS = {
    "script": "the name of the script",
    "script_hash": "the content of the script",
    "commit": "the commit of the script's repository",
    "changes": "the uncommitted changes in the script's repository",
}
"""Subjects of sentences on the script, by the name of the fact."""

HASH_FACTS = frozenset({"script_hash", "changes"})
"""Facts whose values are hashes, which a sentence leaves out."""

MISSING_TEXTS = {ConditionKind.ENVIRONMENT: "not set", ConditionKind.VERSIONS: "not imported"}
"""Texts for a value that a run does not have."""


def create_conditions(differences: Sequence[ConditionDifference], step: str, rank: int) -> tuple[Condition, ...]:
    """Return the conditions that differ with a sentence on each, in the same order."""
    return tuple(
        Condition(
            difference.kind.value,
            difference.name,
            _format_fact(difference.target),
            _format_fact(difference.golden),
            describe_condition(difference),
            step,
            rank,
        )
        for difference in differences
    )


def describe_condition(difference: ConditionDifference) -> str:
    """Return a sentence on a condition that differs, without a full stop."""
    if difference.random is not None:
        return _describe_random_state(difference.random)
    if difference.kind is ConditionKind.BATCH:
        heads = [str(value).rpartition(" ")[0] for value in (difference.target, difference.golden)]
        if heads[0] == heads[1]:
            return f"the batch differs: {difference.name} of the model, {heads[0]}, holds other values or another order"
        return f"the batch differs: {difference.name} of the model is {heads[0]} against {heads[1]}"
    if difference.kind is ConditionKind.SOURCE:
        subject = SCRIPT_SUBJECTS.get(difference.name, difference.name)
    else:
        subject = KIND_SUBJECTS[difference.kind].format(name=difference.name)
    if difference.name in HASH_FACTS:
        return f"{subject} differs" if difference.name == "script_hash" else f"{subject} differ"
    values = [_format_value(value, difference.kind) for value in (difference.target, difference.golden)]
    return f"{subject} differs: {values[0]} against {values[1]}"


def describe_generators(*differences: RandomDifference) -> str:
    """Return the generators whose random states differ, with both random seeds if they differ."""
    seeds = [difference for difference in differences if difference.is_seed]
    others = [difference.generator for difference in differences if not difference.is_seed]
    clauses = [
        f"the random seed of {difference.generator} differs ({difference.seeds[0]} against {difference.seeds[1]})"
        for difference in seeds
    ]
    if others:
        noun, verb = ("state", "differs") if len(others) == 1 else ("states", "differ")
        clauses.append(f"the random {noun} of {' and '.join(others)} {verb}")
    return " and ".join(clauses)


def _describe_random_state(difference: RandomDifference) -> str:
    """Return a sentence on a random state, with the point from which it differs."""
    if difference.is_seed:
        return describe_generators(difference)
    places = {
        Since.START: "from the start of the step",
        Since.FORWARD: "when the model is called",
        Since.END: "at the end of the step",
        Since.DRAW: f"after {difference.op}"
        + (f", which the {difference.only_in} alone calls" if difference.only_in else ""),
        Since.CALL: f"before {difference.op}"
        + (f", and was equal after {difference.after}" if difference.after else ""),
    }
    return f"{describe_generators(difference)} {places[difference.since]}"


def _format_fact(value: Fact) -> str:
    return "" if value is None else str(value)


def _format_value(value: Fact, kind: ConditionKind) -> str:
    return MISSING_TEXTS.get(kind, "none") if value is None else str(value)


def format_lines(conditions: Sequence[Condition], count: int) -> Iterator[str]:
    """Yield a line for each kind of conditions, and the number of the conditions that they do not show.

    Args:
        conditions: The conditions that differ, those first that may change numbers most.
        count: The largest number of lines.
    """
    kinds: dict[str, list[Condition]] = {}
    for condition in conditions:
        kinds.setdefault(condition.kind, []).append(condition)
    groups = list(kinds.values())
    shown = count if len(groups) <= count else count - 1
    for group in groups[:shown]:
        yield group[0].text if len(group) == 1 else _join_sentences(group)
    rest = [condition for group in groups[shown:] for condition in group]
    if rest:
        names = ", ".join(f"{condition.kind} {condition.name}" for condition in rest[:MAX_NAMED_CONDITIONS])
        more = ", …" if len(rest) > MAX_NAMED_CONDITIONS else ""
        yield f"{format_count(len(rest), 'more condition')} differ{'s' if len(rest) == 1 else ''}: {names}{more}"


def _join_sentences(group: Sequence[Condition]) -> str:
    """Return the sentences on conditions of one kind as one, the first few of them."""
    more = f"; {len(group) - MAX_NAMED_CONDITIONS} more" if len(group) > MAX_NAMED_CONDITIONS else ""
    return "; ".join(condition.text for condition in group[:MAX_NAMED_CONDITIONS]) + more
