"""Conditions that differ between both runs, ordered by how much they may change numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache

from probe_core.files.packaged import load_yaml
from probe_core.model.answers import Condition
from probe_diagnosis.conditions.file import Fact, RunConditions
from probe_diagnosis.conditions.random_states import RandomDifference, random_differences


class ConditionKind(str, Enum):
    """Kinds of conditions.

    The last four are not in ``conditions.json``; ``probe config-check`` collects and compares them.
    """

    RANDOM = "random_state"
    BATCH = "batch"
    DATA = "data"
    NUMERICS = "numerics"
    LAYOUT = "layout"
    VERSIONS = "versions"
    DEVICES = "devices"
    ENVIRONMENT = "environment"
    SOURCE = "source"
    HYPERPARAMETER = "hyperparameter"
    WEIGHTS = "weights"
    BATCH_STATISTICS = "batch_statistics"
    RANDOM_CALLS = "random_calls"


COMPLETE = frozenset({ConditionKind.ENVIRONMENT, ConditionKind.DEVICES, ConditionKind.VERSIONS})
"""Kinds whose facts are all known: what a run does not list is not set, used or imported there.

Each framework has devices and versions of its own, so two frameworks share the environment alone.
"""


@dataclass(frozen=True, slots=True)
class ConditionDifference:
    """A condition that differs.

    Attributes:
        kind: Its kind.
        name: Its name within the kind.
        target: Its value in the target; None for none.
        golden: Its value in the golden; None for none.
        random: What is known of a random state; None for other kinds.
    """

    kind: ConditionKind
    name: str
    target: Fact
    golden: Fact
    random: RandomDifference | None = None


def condition_differences(target: RunConditions, golden: RunConditions) -> list[ConditionDifference]:
    """Return the conditions that differ, those first that may change numbers most."""
    found = [*_random(target, golden), *_batch(target, golden), *_facts(target, golden)]
    return sorted(found, key=lambda one: place_in_order(one.kind.value, one.name))


def in_order_of_effect(conditions: Iterable[Condition]) -> list[Condition]:
    """Return conditions, those first that may change numbers most."""
    return sorted(conditions, key=lambda one: place_in_order(one.kind, one.name))


def _random(target: RunConditions, golden: RunConditions) -> Iterator[ConditionDifference]:
    for one in random_differences(target, golden):
        yield ConditionDifference(ConditionKind.RANDOM, one.generator, *one.seeds, one)


def _batch(target: RunConditions, golden: RunConditions) -> Iterator[ConditionDifference]:
    for name, value in target.batch.items():
        other = golden.batch.get(name)
        if other is not None and other != value:
            yield ConditionDifference(ConditionKind.BATCH, name, value, other)


def _facts(target: RunConditions, golden: RunConditions) -> Iterator[ConditionDifference]:
    is_same_batch = bool(target.batch) and target.batch == golden.batch
    is_same = target.framework == golden.framework
    complete = COMPLETE if is_same else COMPLETE & {ConditionKind.ENVIRONMENT}
    for kind in ConditionKind:
        if kind is ConditionKind.DATA and is_same_batch:
            continue  # a resumed process counts its epochs anew
        own, others = target.facts.get(kind.value), golden.facts.get(kind.value)
        if own is None or others is None:
            continue
        names = own.keys() | others.keys() if kind in complete else own.keys() & others.keys()
        for name in sorted(names):
            if own.get(name) != others.get(name):
                yield ConditionDifference(kind, name, own.get(name), others.get(name))


@cache
def _weights() -> dict[tuple[str, str], int]:
    """Return the place of each kind, and of facts with a place of their own, in the order of effects."""
    entries = load_yaml("probe_diagnosis", "conditions.yaml")["order"]
    return {tuple(str(entry).partition("/")[::2]): place for place, entry in enumerate(entries)}  # type: ignore[misc]


def place_in_order(kind: str, name: str) -> int:
    """Return the place of a condition in the order of effects; 0 may change numbers most."""
    weights = _weights()
    return weights.get((kind, name), weights[kind, ""])
