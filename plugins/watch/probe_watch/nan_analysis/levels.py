"""Levels of calls by what is not finite in them (docs/nan-analyze.md#levels)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from probe_core.files.packaged import load_yaml
from probe_core.model.columns import FLOAT, INTEGER, SIDES, TENSOR, Array, ValueColumns
from probe_core.store.names import drop_count
from probe_watch.nan_analysis.non_finite import NORM_INDEX, NonFinite

_IS_SOURCE = np.array([side.is_source for side in SIDES])


class CallLevelKind(str, Enum):
    """Levels of a call."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"


class Scene(str, Enum):
    """Conditions that give a call its level, in the order in which they are tried."""

    ONLY_OUTPUT = "input normal, output anomaly"
    BOTH = "input anomaly, output anomaly"
    ONLY_INPUT = "input anomaly, output normal"
    MUTATION = "numeric mutation"

    @property
    def level(self) -> CallLevelKind:
        """The level of a call of this scene."""
        return _LEVELS[self]


_LEVELS = {
    Scene.ONLY_OUTPUT: CallLevelKind.CRITICAL,
    Scene.BOTH: CallLevelKind.HIGH,
    Scene.ONLY_INPUT: CallLevelKind.MEDIUM,
    Scene.MUTATION: CallLevelKind.HIGH,
}


class CallLevel(NamedTuple):
    """The scene of one call.

    Attributes:
        number: The index of the call in its run.
        scene: The scene.
        kinds: What is not finite among its values: ``nan``, ``inf``, ``-inf``.
        ratio: The largest norm of the outputs divided by that of the inputs; None except for a mutation.
    """

    number: int
    scene: Scene
    kinds: tuple[str, ...]
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class LevelRules:
    """The content of ``rules.yaml``.

    Attributes:
        mutation: Ratio of norms above which a norm counts as mutated.
        ignore: Positions that are left out, by group, by the name of the API.
    """

    mutation: float
    ignore: dict[str, dict[str, frozenset[str]]]


@cache
def load_rules() -> LevelRules:
    """Return the rules of levels."""
    loaded: dict[str, Any] = load_yaml(__package__, "rules.yaml")
    ignore = {
        api: {group: frozenset(positions) for group, positions in groups.items()}
        for api, groups in loaded["ignore"].items()
    }
    return LevelRules(float(loaded["mutation"]), ignore)


def find_levels(values: ValueColumns, non_finite: NonFinite) -> list[CallLevel]:
    """Return the calls of a run that have a level, in the order of the record."""
    is_tensor, is_source = values.kind == TENSOR, _IS_SOURCE[values.side]
    is_any = non_finite.any & is_tensor
    inputs, outputs = (_has_any(values, is_any & side) for side in (is_source, ~is_source))
    ratios = _compute_norm_ratios(values, is_tensor, is_source)
    levels: list[CallLevel] = []
    for number in np.flatnonzero(inputs | outputs | (ratios > load_rules().mutation)).tolist():
        if inputs[number] or outputs[number]:
            lines = [line for line in _list_lines(values, number) if is_any[line]]
            if not _is_ignored(values, number, lines):
                kinds = sorted(frozenset().union(*map(non_finite.list_kinds, lines)))
                levels.append(CallLevel(number, _find_scene(inputs[number], outputs[number]), tuple(kinds)))
        else:
            levels.append(CallLevel(number, Scene.MUTATION, (), float(ratios[number])))
    return levels


def _find_scene(has_input: bool, has_output: bool) -> Scene:
    if has_input:
        return Scene.BOTH if has_output else Scene.ONLY_INPUT
    return Scene.ONLY_OUTPUT


def _list_lines(values: ValueColumns, number: int) -> range:
    return range(values.starts[number], values.starts[number + 1])


def _has_any(values: ValueColumns, wanted: Array) -> Array:
    """Return True for records with a wanted line."""
    has_any = np.zeros(len(values.keys), bool)
    has_any[values.record_of[wanted]] = True
    return has_any


def _compute_norm_ratios(values: ValueColumns, is_tensor: Array, is_source: Array) -> Array:
    """Return the largest output norm of each call divided by its largest input norm; 0 if either is missing.

    Norms of nan are left out. If the largest input norm is 0, the output norm stands for the ratio.
    """
    is_number = (values.types[:, NORM_INDEX] == FLOAT) | (values.types[:, NORM_INDEX] == INTEGER)
    norms = np.where(is_number, values.numbers[:, NORM_INDEX], np.nan)
    largest: list[Array] = []
    for side in (is_source, ~is_source):
        wanted = is_tensor & side & ~np.isnan(norms)
        of_calls = np.full(len(values.keys), -1.0)
        np.maximum.at(of_calls, values.record_of[wanted], norms[wanted])
        largest.append(of_calls)
    received, returned = largest
    with np.errstate(all="ignore"):
        ratios = np.where(received == 0, returned, returned / received)
    is_known = (received >= 0) & (returned >= 0) & ~np.isnan(ratios)
    return np.where(is_known, ratios, 0.0)


def _is_ignored(values: ValueColumns, number: int, lines: list[int]) -> bool:
    """Return True if a rule leaves out all values of a call that are not finite, in each group it names."""
    api = drop_count(values.keys[number]).removesuffix(".forward")
    groups = load_rules().ignore.get(api)
    if groups is None:
        return False
    for line in lines:
        _, side, path = values.places[values.place[line]]
        head = path.partition(".")[0]
        group = "output" if not side.is_source else "args" if head.isdecimal() else "kwargs"
        if group in groups and head not in groups[group]:
            return False
    return True
