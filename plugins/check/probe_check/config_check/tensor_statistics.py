"""Comparison of the statistics of inputs and weights at each forward call."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from probe_diagnosis import ConditionDifference, ConditionKind, place_in_order

from probe_check.config_check.items import Cell, ConfigDifference, Item, ItemResult, Level, worst
from probe_check.config_check.pack import STATISTICS, Pack, Place, Statistics, Tree

RELATIVE_COLUMNS = tuple(f"{name}_relative_diff" for name in STATISTICS)
INPUT_COLUMNS = ("step", "rank", "tag", "equal", *RELATIVE_COLUMNS)
WEIGHT_COLUMNS = ("step", "rank", "weight_name", "equal", *RELATIVE_COLUMNS)
ONLY_BENCH, ONLY_CMP = "only bench have", "only cmp have"
ABSENT, PRESENT = "absent", "present"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tensor in both packs; None in one that lacks it."""

    name: str
    bench: Statistics | None
    cmp: Statistics | None

    @property
    def is_equal(self) -> bool:
        return self.bench is not None and self.cmp is not None and all(map(_same, *self._values()))

    def _values(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        assert self.bench is not None and self.cmp is not None
        return self.bench.values(), self.cmp.values()

    def relative_differences(self) -> tuple[float | None, ...]:
        """Return |bench - cmp| / |bench| of each statistic.

        None stands for a zero in bench, and for a result of nan.
        """
        if self.bench is None or self.cmp is None:
            return (None,) * len(STATISTICS)
        return tuple(map(_relative, *self._values()))

    def first_difference(self) -> tuple[str, Cell, Cell]:
        """Return the first statistic that differs, and its values in bench and cmp."""
        if self.bench is None or self.cmp is None:
            return ("", ABSENT, PRESENT) if self.bench is None else ("", PRESENT, ABSENT)
        triples = zip(STATISTICS, *self._values())
        return next((name, bench, cmp) for name, bench, cmp in triples if not _same(bench, cmp))


def _same(bench: float, cmp: float) -> bool:
    return bench == cmp or (math.isnan(bench) and math.isnan(cmp))


def _relative(bench: float, cmp: float) -> float | None:
    if bench == 0:
        return None
    difference = abs(bench - cmp) / abs(bench)
    return None if math.isnan(difference) else difference


def compare_inputs(bench: Pack, cmp: Pack) -> ItemResult:
    """Return the statistics of the inputs of the model at forward calls that both packs have."""
    rows: list[tuple[Cell, ...]] = []
    differences: list[ConfigDifference] = []
    for place in _common(bench, cmp, Item.DATASET):
        for entry in _input_entries(bench.inputs(place), cmp.inputs(place), ""):
            rows.append((*place, entry.name, entry.is_equal, *entry.relative_differences()))
            if not entry.is_equal:
                kind = ConditionKind.BATCH_STATISTICS
                differences.append(_difference(Item.DATASET, kind, Level.ERROR, place, entry))
    level = worst(one.level for one in differences)
    is_compared = bool(_common(bench, cmp, Item.DATASET))
    return ItemResult(Item.DATASET, level, INPUT_COLUMNS, tuple(rows), tuple(differences), is_compared)


def _common(bench: Pack, cmp: Pack, item: Item) -> list[Place]:
    return sorted({*bench.places(item)} & {*cmp.places(item)})


def _input_entries(bench: Tree, cmp: Tree, tag: str) -> Iterator[_Entry]:
    """Yield the tensors of nested inputs; a branch that one pack lacks is an entry of its own."""
    if isinstance(bench, Statistics) or isinstance(cmp, Statistics):
        both = (one if isinstance(one, Statistics) else None for one in (bench, cmp))
        yield _Entry(tag, *both)
        return
    own, others = bench or {}, cmp or {}
    for name, value in own.items():
        inner = f"{tag}.{name}" if tag else name
        if name in others:
            yield from _input_entries(value, others[name], inner)
        else:
            yield _Entry(inner, _any_statistics(value), None)
    for name, value in others.items():
        if name not in own:
            yield _Entry(f"{tag}.{name}" if tag else name, None, _any_statistics(value))


def _any_statistics(value: Tree) -> Statistics:
    """Return the statistics of a branch that one pack lacks, which are not shown."""
    return value if isinstance(value, Statistics) else Statistics(math.nan, math.nan, math.nan, math.nan)


def compare_weights(bench: Pack, cmp: Pack) -> ItemResult:
    """Return the statistics of the weights at the forward calls of BENCH.

    A forward call that CMP lacks has rows, too, but is not counted as a difference of the weights.
    """
    rows: list[tuple[Cell, ...]] = []
    differences: list[ConfigDifference] = []
    shared = set(cmp.places(Item.WEIGHTS))
    for place in bench.places(Item.WEIGHTS):
        weights = bench.weights(place)
        others = cmp.weights(place) if place in shared else {}
        for entry in _weight_entries(weights, others):
            rows.append((*place, entry.name, _equality(entry), *entry.relative_differences()))
            if place in shared and not entry.is_equal:
                is_one_sided = entry.bench is None or entry.cmp is None
                level = Level.WARNING if is_one_sided else Level.ERROR
                differences.append(_difference(Item.WEIGHTS, ConditionKind.WEIGHTS, level, place, entry))
    level = worst(one.level for one in differences)
    is_compared = bool(_common(bench, cmp, Item.WEIGHTS))
    return ItemResult(Item.WEIGHTS, level, WEIGHT_COLUMNS, tuple(rows), tuple(differences), is_compared)


def _weight_entries(bench: Mapping[str, Statistics], cmp: Mapping[str, Statistics]) -> Iterator[_Entry]:
    for name in (*bench, *(name for name in cmp if name not in bench)):
        yield _Entry(name, bench.get(name), cmp.get(name))


def _equality(entry: _Entry) -> Cell:
    if entry.bench is None:
        return ONLY_CMP
    return ONLY_BENCH if entry.cmp is None else entry.is_equal


def _difference(item: Item, kind: ConditionKind, level: Level, place: Place, entry: _Entry) -> ConfigDifference:
    statistic, bench, cmp = entry.first_difference()
    condition = ConditionDifference(kind, entry.name, cmp, bench)
    effect = place_in_order(kind.value, entry.name)
    return ConfigDifference(item, level, condition, effect, *place, statistic=statistic)
