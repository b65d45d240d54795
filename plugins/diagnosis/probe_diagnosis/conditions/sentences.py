"""Conditions as text for the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from probe_core.errors import counted
from probe_core.model.answers import Condition
from probe_diagnosis.conditions.differences import ConditionDifference, ConditionKind
from probe_diagnosis.conditions.file import Fact
from probe_diagnosis.conditions.random_states import RandomDifference, Since

MAX_NAMED = 3
"""Largest number of conditions of one kind that a line names."""

SUBJECTS = {
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

SOURCES = {
    "script": "the name of the script",
    "script_hash": "the content of the script",
    "commit": "the commit of the script's repository",
    "changes": "the uncommitted changes in the script's repository",
}
"""Subjects of sentences on the script, by the name of the fact."""

OPAQUE = frozenset({"script_hash", "changes"})
"""Facts whose values are hashes, which a sentence leaves out."""

MISSING = {ConditionKind.ENVIRONMENT: "not set", ConditionKind.VERSIONS: "not imported"}
"""Texts for a value that a run does not have."""


def conditions_of(differences: Sequence[ConditionDifference], step: str, rank: int) -> tuple[Condition, ...]:
    """Return the conditions that differ with a sentence on each, in the same order."""
    return tuple(
        Condition(
            one.kind.value,
            one.name,
            _plain(one.target),
            _plain(one.golden),
            condition_sentence(one),
            step,
            rank,
        )
        for one in differences
    )


def condition_sentence(one: ConditionDifference) -> str:
    """Return a sentence on a condition that differs, without a full stop."""
    if one.random is not None:
        return _random(one.random)
    if one.kind is ConditionKind.BATCH:
        heads = [str(value).rpartition(" ")[0] for value in (one.target, one.golden)]
        if heads[0] == heads[1]:
            return (
                f"the batch differs: {one.name} of the model, {heads[0]}, holds other values or another order"
            )
        return f"the batch differs: {one.name} of the model is {heads[0]} against {heads[1]}"
    if one.kind is ConditionKind.SOURCE:
        subject = SOURCES.get(one.name, one.name)
    else:
        subject = SUBJECTS[one.kind].format(name=one.name)
    if one.name in OPAQUE:
        return f"{subject} differs" if one.name == "script_hash" else f"{subject} differ"
    values = [_shown(value, one.kind) for value in (one.target, one.golden)]
    return f"{subject} differs: {values[0]} against {values[1]}"


def random_subject(*differences: RandomDifference) -> str:
    """Return the generators whose random states differ, with both random seeds if they differ."""
    seeds = [one for one in differences if one.is_seed]
    others = [one.generator for one in differences if not one.is_seed]
    clauses = [
        f"the random seed of {one.generator} differs ({one.seeds[0]} against {one.seeds[1]})" for one in seeds
    ]
    if others:
        noun, verb = ("state", "differs") if len(others) == 1 else ("states", "differ")
        clauses.append(f"the random {noun} of {' and '.join(others)} {verb}")
    return " and ".join(clauses)


def _random(one: RandomDifference) -> str:
    """Return a sentence on a random state, with the point from which it differs."""
    if one.is_seed:
        return random_subject(one)
    places = {
        Since.START: "from the start of the step",
        Since.FORWARD: "when the model is called",
        Since.END: "at the end of the step",
        Since.DRAW: f"after {one.op}" + (f", which the {one.only_in} alone calls" if one.only_in else ""),
        Since.CALL: f"before {one.op}" + (f", and was equal after {one.after}" if one.after else ""),
    }
    return f"{random_subject(one)} {places[one.since]}"


def _plain(value: Fact) -> str:
    return "" if value is None else str(value)


def _shown(value: Fact, kind: ConditionKind) -> str:
    return MISSING.get(kind, "none") if value is None else str(value)


def lines(conditions: Sequence[Condition], count: int) -> Iterator[str]:
    """Yield a line for each kind of conditions, and the number of the conditions that they do not show.

    Args:
        conditions: The conditions that differ, those first that may change numbers most.
        count: The largest number of lines.
    """
    kinds: dict[str, list[Condition]] = {}
    for one in conditions:
        kinds.setdefault(one.kind, []).append(one)
    groups = list(kinds.values())
    shown = count if len(groups) <= count else count - 1
    for group in groups[:shown]:
        yield group[0].text if len(group) == 1 else _joined(group)
    rest = [one for group in groups[shown:] for one in group]
    if rest:
        names = ", ".join(f"{one.kind} {one.name}" for one in rest[:MAX_NAMED])
        more = ", …" if len(rest) > MAX_NAMED else ""
        yield f"{counted(len(rest), 'more condition')} differ{'s' if len(rest) == 1 else ''}: {names}{more}"


def _joined(group: Sequence[Condition]) -> str:
    """Return the sentences on conditions of one kind as one, the first few of them."""
    more = f"; {len(group) - MAX_NAMED} more" if len(group) > MAX_NAMED else ""
    return "; ".join(one.text for one in group[:MAX_NAMED]) + more
