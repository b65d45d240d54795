"""Conditions that differ between both runs, ordered by how much they may change numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache

from probe_core.files.packaged import load_yaml
from probe_core.model.answers import Condition
from probe_diagnosis.conditions.file import Fact, RunConditions
from probe_diagnosis.conditions.random_states import RandomDifference, find_random_differences


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


COMPLETE_KINDS = frozenset({ConditionKind.ENVIRONMENT, ConditionKind.DEVICES, ConditionKind.VERSIONS})
"""Kinds whose facts are all known: what a run does not list is not set, used or imported there.

Each framework has devices and versions of its own, so two frameworks share the environment alone.
"""


@dataclass(frozen=True, slots=True)
class ConditionDifference:
    """A condition that differs.

    Attributes:
        kind: Its kind.
        name: Its name within the kind.
        target: Its value in the target; None if it is not set.
        golden: Its value in the golden; None if it is not set.
        random: What is known of a random state; None for other kinds.
    """

    kind: ConditionKind
    name: str
    target: Fact
    golden: Fact
    random: RandomDifference | None = None


def find_condition_differences(target: RunConditions, golden: RunConditions) -> list[ConditionDifference]:
    """Return the conditions that differ, the most influential first."""
    differences = [
        *_compare_random_states(target, golden),
        *_compare_batches(target, golden),
        *_compare_facts(target, golden),
    ]
    return sorted(differences, key=lambda difference: place_in_order(difference.kind.value, difference.name))


def sort_by_effect(conditions: Iterable[Condition]) -> list[Condition]:
    """Return conditions, the most influential first."""
    return sorted(conditions, key=lambda condition: place_in_order(condition.kind, condition.name))


def _compare_random_states(target: RunConditions, golden: RunConditions) -> Iterator[ConditionDifference]:
    for difference in find_random_differences(target, golden):
        yield ConditionDifference(ConditionKind.RANDOM, difference.generator, *difference.seeds, difference)


def _compare_batches(target: RunConditions, golden: RunConditions) -> Iterator[ConditionDifference]:
    for name, value in target.batch.items():
        golden_value = golden.batch.get(name)
        if golden_value is not None and golden_value != value:
            yield ConditionDifference(ConditionKind.BATCH, name, value, golden_value)


def _compare_facts(target: RunConditions, golden: RunConditions) -> Iterator[ConditionDifference]:
    is_same_batch = bool(target.batch) and target.batch == golden.batch
    is_same = target.framework == golden.framework
    complete = COMPLETE_KINDS if is_same else COMPLETE_KINDS & {ConditionKind.ENVIRONMENT}
    for kind in ConditionKind:
        if kind is ConditionKind.DATA and is_same_batch:
            continue  # a resumed process counts its epochs from 0
        target_facts, golden_facts = target.facts.get(kind.value), golden.facts.get(kind.value)
        if target_facts is None or golden_facts is None:
            continue
        names = (
            target_facts.keys() | golden_facts.keys() if kind in complete else target_facts.keys() & golden_facts.keys()
        )
        for name in sorted(names):
            target_fact, golden_fact = target_facts.get(name), golden_facts.get(name)
            if kind is ConditionKind.NUMERICS and name in _load_device_settings():
                target_fact, golden_fact = (_find_device_setting(run, name) for run in (target, golden))
                is_other = bool(target_fact) != bool(golden_fact)
            else:
                is_other = target_fact != golden_fact
            if is_other:
                yield ConditionDifference(kind, name, target_fact, golden_fact)


def _find_device_setting(run: RunConditions, name: str) -> Fact:
    """Return a setting that only calls on one kind of device obey; None if the run is known to have no such device.

    For example, ``cudnn_allow_tf32`` is on by default, and has no effect in a run on a CPU.
    """
    devices = run.facts.get(ConditionKind.DEVICES.value)
    is_obeyed = devices is None or _load_device_settings()[name] in devices
    return run.facts[ConditionKind.NUMERICS.value][name] if is_obeyed else None


@cache
def _load_device_settings() -> dict[str, str]:
    """Return the kind of device that obeys each setting of a device."""
    settings: dict[str, str] = load_yaml("probe_diagnosis", "conditions.yaml")["device_settings"]
    return settings


@cache
def _load_weights() -> dict[tuple[str, str], int]:
    """Return the place of each kind, and of facts with a place of their own, in the order of effects."""
    entries = load_yaml("probe_diagnosis", "conditions.yaml")["order"]
    return {tuple(str(entry).partition("/")[::2]): place for place, entry in enumerate(entries)}  # type: ignore[misc]


def place_in_order(kind: str, name: str) -> int:
    """Return the place of a condition in the order of effects; 0 may change numbers most."""
    weights = _load_weights()
    return weights.get((kind, name), weights[kind, ""])
