"""The result of a comparison of two checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from probe_check.checkpoint.measurement import Distance
from probe_check.checkpoint.model import Checkpoint, Setting
from probe_check.checkpoint.optimizer import is_optimizer_setting


class Relation(Enum):
    """The relation of a tensor to one with another name, or of another iteration."""

    SWAPPED = "swapped"
    EQUALS_OTHER = "equals_other"
    OTHER_EQUALS = "other_equals"
    TRANSPOSED = "transposed"
    EARLIER_ITERATION = "earlier_iteration"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Match:
    """A tensor of a checkpoint that has the content of another one.

    Attributes:
        relation: The kind.
        name: The name of the other tensor.
        iteration: The iteration that the other tensor belongs to; empty for that of the comparison.
    """

    relation: Relation
    name: str
    iteration: str = ""


@dataclass(frozen=True, slots=True)
class TensorPair:
    """Two tensors that were compared.

    Attributes:
        name: The name in the target.
        golden_name: The name in the golden checkpoint.
        shapes: The shapes of both tensors.
        counts: The numbers of elements of both tensors.
        types: The element types of both tensors.
        distance: The distance; None if the shapes differ.
        is_by_content: True if the names differ and the contents are equal.
        match: Another tensor with the same content, if the pair differs and there is one.
    """

    name: str
    golden_name: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    counts: tuple[int, int]
    types: tuple[str, str]
    distance: Distance | None
    is_by_content: bool = False
    match: Match | None = None

    @property
    def is_equal(self) -> bool:
        """True if shapes and all elements are equal."""
        return self.distance is not None and self.distance.is_equal


@dataclass(frozen=True, slots=True)
class SettingPair:
    """A value, other than a tensor, that differs; None if a checkpoint does not have it."""

    name: str
    target: Setting
    golden: Setting


@dataclass(frozen=True)
class CheckpointComparison:
    """The differences between two checkpoints.

    Attributes:
        target: The checkpoint under test.
        golden: The reference.
        pairs: All tensors that both have, in the order of the target.
        target_only: The names of tensors that only the target has.
        golden_only: The names of tensors that only the golden checkpoint has.
        settings: Other values that differ.
        sentence: The verdict in one line.
    """

    target: Checkpoint
    golden: Checkpoint
    pairs: tuple[TensorPair, ...]
    target_only: tuple[str, ...] = ()
    golden_only: tuple[str, ...] = ()
    settings: tuple[SettingPair, ...] = ()
    sentence: str = ""

    @property
    def differing(self) -> list[TensorPair]:
        """The pairs that differ."""
        return [pair for pair in self.pairs if not pair.is_equal]

    @property
    def optimizer_settings(self) -> list[SettingPair]:
        """The settings of optimizers that differ, such as a learning rate."""
        return [setting for setting in self.settings if is_optimizer_setting(setting.name)]

    @property
    def agrees(self) -> bool:
        """True if all tensors were compared and are equal, and so are the settings of optimizers."""
        is_complete = not (self.target_only or self.golden_only or self.target.unreadable or self.golden.unreadable)
        return is_complete and not self.optimizer_settings and all(pair.is_equal for pair in self.pairs)
