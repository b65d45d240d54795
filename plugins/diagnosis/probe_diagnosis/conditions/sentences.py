"""Conditions as text for the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from probe_core.errors import counted
from probe_core.model.answers import Condition
from probe_diagnosis.conditions.differences import ConditionDifference, ConditionKind
from probe_diagnosis.conditions.file import Fact
from probe_diagnosis.conditions.random_states import RandomDifference, Since

SUBJECTS = {
    ConditionKind.NUMERICS: "the setting {name}",
    ConditionKind.LAYOUT: "the layout of processes ({name})",
    ConditionKind.VERSIONS: "the version of {name}",
    ConditionKind.DEVICES: "the device ({name})",
    ConditionKind.ENVIRONMENT: "the environment variable {name}",
    ConditionKind.DATA: "the position in the data ({name})",
    ConditionKind.BATCH: "the batch ({name})",
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
        Condition(one.kind.value, one.name, _plain(one.target), _plain(one.golden), sentence(one), step, rank)
        for one in differences
    )


def sentence(one: ConditionDifference) -> str:
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


def random_subject(one: RandomDifference) -> str:
    """Return the generator of a random state that differs, with both seeds if they differ."""
    if one.is_seed:
        return f"the random seed of {one.generator} differs ({one.seeds[0]} against {one.seeds[1]})"
    return f"the random state of {one.generator} differs"


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
    """Yield the sentences on the first conditions, and the number of the others.

    Args:
        conditions: The conditions that differ, those first that may change numbers most.
        count: The largest number of lines.
    """
    shown = count if len(conditions) <= count else count - 1
    yield from (one.text for one in conditions[:shown])
    if len(conditions) > shown:
        rest = conditions[shown:]
        names = ", ".join(dict.fromkeys(f"{one.kind} {one.name}" for one in rest[:4]))
        more = ", …" if len(rest) > 4 else ""
        yield f"{counted(len(rest), 'more condition')} differ{'s' if len(rest) == 1 else ''}: {names}{more}"
