"""Items of a pack, their levels, and the result of comparing one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Union

from probe_diagnosis.conditions.differences import ConditionDifference

Cell = Union[None, bool, int, float, str]


class PackItem(str, Enum):
    """Parts of a configuration; the values are the names of the sheets, in their order."""

    ENVIRONMENT = "env"
    PACKAGES = "pip"
    DATASET = "dataset"
    WEIGHTS = "weights"
    HYPERPARAMETERS = "hyperparameters"
    RANDOM = "random"
    CONDITIONS = "conditions"


class DifferenceLevel(str, Enum):
    """Severities of differences."""

    PASS = "pass"
    WARNING = "warning"
    ERROR = "error"


SEVERITY = {DifferenceLevel.PASS: 0, DifferenceLevel.WARNING: 1, DifferenceLevel.ERROR: 2}


def find_worst_level(levels: Iterable[DifferenceLevel]) -> DifferenceLevel:
    """Return the most serious level."""
    return max(levels, key=SEVERITY.__getitem__, default=DifferenceLevel.PASS)


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """A difference between two configurations.

    Attributes:
        item: The item to which it belongs.
        level: How serious it is.
        condition: Its kind, name and values; the target is CMP and the golden is BENCH.
        step: The number of the forward call (micro-step); None if it does not belong to one.
        rank: The number of the rank; None if it does not belong to one.
        place: The place in the order of effects; the smallest may change numbers most.
        statistic: The statistic that the values are; empty if they are none.
    """

    item: PackItem
    level: DifferenceLevel
    condition: ConditionDifference
    place: int
    step: int | None = None
    rank: int | None = None
    statistic: str = ""


@dataclass(frozen=True, slots=True)
class ItemResult:
    """The result of comparing an item.

    Attributes:
        item: The item.
        columns: The headers of its table.
        rows: The rows of its table.
        differences: The rows that differ.
        is_compared: False if both packs have the item, but nothing in it could be compared.
    """

    item: PackItem
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    differences: tuple[ConfigDifference, ...]
    is_compared: bool = True

    @property
    def level(self) -> DifferenceLevel:
        """The level of its worst row."""
        return find_worst_level(difference.level for difference in self.differences)


class GapKind(str, Enum):
    """Reasons why something was not compared."""

    ONE_SIDED_ITEM = "one_sided_item"
    ONE_SIDED_FILE = "one_sided_file"
    ONE_SIDED_STEPS = "one_sided_steps"
    DAMAGED_CONDITIONS = "damaged_conditions"


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that was not compared.

    Attributes:
        kind: The reason.
        item: The item.
        side: The side that has it, ``bench`` or ``cmp``; for damaged files, the side of the file.
        names: Files, or steps and ranks.
    """

    kind: GapKind
    item: PackItem
    side: str
    names: tuple[str, ...] = ()
