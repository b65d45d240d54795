"""Comparison of the statistics of inputs and weights at each forward call."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from probe_diagnosis.conditions.differences import ConditionDifference, ConditionKind, place_in_order

from probe_check.config_check.items import Cell, ConfigDifference, DifferenceLevel, ItemResult, PackItem
from probe_check.config_check.pack import STATISTICS, Pack, PackStatistics, StepRank, Tree

RELATIVE_COLUMNS = tuple(f"{name}_relative_diff" for name in STATISTICS)
INPUT_COLUMNS = ("step", "rank", "tag", "equal", *RELATIVE_COLUMNS)
WEIGHT_COLUMNS = ("step", "rank", "weight_name", "equal", *RELATIVE_COLUMNS)
ONLY_BENCH, ONLY_CMP = "only bench have", "only cmp have"
ABSENT, PRESENT = "absent", "present"


@dataclass(frozen=True, slots=True)
class _TensorEntry:
    """A tensor in both packs; None in one that lacks it."""

    name: str
    bench: PackStatistics | None
    cmp: PackStatistics | None

    @property
    def is_equal(self) -> bool:
        return self.bench is not None and self.cmp is not None and all(map(_is_same, *self._values()))

    def _values(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        assert self.bench is not None and self.cmp is not None
        return self.bench.values(), self.cmp.values()

    def compute_relative_differences(self) -> tuple[float | None, ...]:
        """Return |bench - cmp| / |bench| of each statistic.

        None stands for a zero in bench, and for a result of nan.
        """
        if self.bench is None or self.cmp is None:
            return (None,) * len(STATISTICS)
        return tuple(map(_compute_relative_difference, *self._values()))

    def find_first_difference(self) -> tuple[str, Cell, Cell]:
        """Return the first statistic that differs, and its values in bench and cmp."""
        if self.bench is None or self.cmp is None:
            return ("", ABSENT, PRESENT) if self.bench is None else ("", PRESENT, ABSENT)
        triples = zip(STATISTICS, *self._values())
        return next((name, bench, cmp) for name, bench, cmp in triples if not _is_same(bench, cmp))


def _is_same(bench: float, cmp: float) -> bool:
    return bench == cmp or (math.isnan(bench) and math.isnan(cmp))


def _compute_relative_difference(bench: float, cmp: float) -> float | None:
    if bench == 0:
        return None
    difference = abs(bench - cmp) / abs(bench)
    return None if math.isnan(difference) else difference


def compare_inputs(bench: Pack, cmp: Pack) -> ItemResult:
    """Return the statistics of the inputs of the model at forward calls that both packs have."""
    rows: list[tuple[Cell, ...]] = []
    differences: list[ConfigDifference] = []
    for place in _find_common_places(bench, cmp, PackItem.DATASET):
        for entry in _pair_inputs(bench.read_inputs(place), cmp.read_inputs(place), ""):
            rows.append((*place, entry.name, entry.is_equal, *entry.compute_relative_differences()))
            if not entry.is_equal:
                kind = ConditionKind.BATCH_STATISTICS
                differences.append(_create_difference(PackItem.DATASET, kind, DifferenceLevel.ERROR, place, entry))
    is_compared = bool(_find_common_places(bench, cmp, PackItem.DATASET))
    return ItemResult(PackItem.DATASET, INPUT_COLUMNS, tuple(rows), tuple(differences), is_compared)


def _find_common_places(bench: Pack, cmp: Pack, item: PackItem) -> list[StepRank]:
    return sorted({*bench.list_places(item)} & {*cmp.list_places(item)})


def _pair_inputs(bench: Tree, cmp: Tree, tag: str) -> Iterator[_TensorEntry]:
    """Yield the tensors of nested inputs; a branch that one pack lacks is an entry of its own."""
    if isinstance(bench, PackStatistics) or isinstance(cmp, PackStatistics):
        sides = (side if isinstance(side, PackStatistics) else None for side in (bench, cmp))
        yield _TensorEntry(tag, *sides)
        return
    bench_tree, cmp_tree = bench or {}, cmp or {}
    for name, value in bench_tree.items():
        inner = f"{tag}.{name}" if tag else name
        if name in cmp_tree:
            yield from _pair_inputs(value, cmp_tree[name], inner)
        else:
            yield _TensorEntry(inner, _get_statistics(value), None)
    for name, value in cmp_tree.items():
        if name not in bench_tree:
            yield _TensorEntry(f"{tag}.{name}" if tag else name, None, _get_statistics(value))


def _get_statistics(value: Tree) -> PackStatistics:
    """Return the statistics of a branch that one pack lacks, which are not shown."""
    return value if isinstance(value, PackStatistics) else PackStatistics(math.nan, math.nan, math.nan, math.nan)


def compare_weights(bench: Pack, cmp: Pack) -> ItemResult:
    """Return the statistics of the weights at the forward calls of BENCH.

    A forward call that CMP lacks has rows, too, but is not counted as a difference of the weights.
    """
    rows: list[tuple[Cell, ...]] = []
    differences: list[ConfigDifference] = []
    shared = set(cmp.list_places(PackItem.WEIGHTS))
    for place in bench.list_places(PackItem.WEIGHTS):
        weights = bench.read_weights(place)
        others = cmp.read_weights(place) if place in shared else {}
        for entry in _pair_weights(weights, others):
            rows.append((*place, entry.name, _format_equality(entry), *entry.compute_relative_differences()))
            if place in shared and not entry.is_equal:
                is_one_sided = entry.bench is None or entry.cmp is None
                level = DifferenceLevel.WARNING if is_one_sided else DifferenceLevel.ERROR
                differences.append(_create_difference(PackItem.WEIGHTS, ConditionKind.WEIGHTS, level, place, entry))
    is_compared = bool(_find_common_places(bench, cmp, PackItem.WEIGHTS))
    return ItemResult(PackItem.WEIGHTS, WEIGHT_COLUMNS, tuple(rows), tuple(differences), is_compared)


def _pair_weights(bench: Mapping[str, PackStatistics], cmp: Mapping[str, PackStatistics]) -> Iterator[_TensorEntry]:
    for name in (*bench, *(name for name in cmp if name not in bench)):
        yield _TensorEntry(name, bench.get(name), cmp.get(name))


def _format_equality(entry: _TensorEntry) -> Cell:
    if entry.bench is None:
        return ONLY_CMP
    return ONLY_BENCH if entry.cmp is None else entry.is_equal


def _create_difference(
    item: PackItem, kind: ConditionKind, level: DifferenceLevel, place: StepRank, entry: _TensorEntry
) -> ConfigDifference:
    statistic, bench, cmp = entry.find_first_difference()
    condition = ConditionDifference(kind, entry.name, cmp, bench)
    effect = place_in_order(kind.value, entry.name)
    return ConfigDifference(item, level, condition, effect, *place, statistic=statistic)
