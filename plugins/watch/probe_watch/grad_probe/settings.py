"""The section ``grad_probe`` of config.json (docs/gradients.md#fields)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Union

from probe_recording.api import Fields

LEVELS = ("L0", "L1", "L2")
DIRECTION_FILES = ("both", "npy", "packed")
FIELDS = ("grad_level", "param_list", "bounds", "direction_files")
MIN_BOUND, MAX_BOUND = -(2**63), 2**63 - 1

Bound = Union[int, float]


@dataclass(frozen=True, slots=True)
class GradSettings:
    """The settings of grad_probe.

    Attributes:
        level: The data to write, one of ``LEVELS``.
        parameters: Names of the parameters to observe; empty for all.
        bounds: Ends of the intervals in which elements are counted at level L2, ascending.
        direction_files: The files that hold the signs of gradients, one of ``DIRECTION_FILES``.
    """

    level: str = "L1"
    parameters: tuple[str, ...] = ()
    bounds: tuple[Bound, ...] = (-1, 0, 1)
    direction_files: str = "both"

    @property
    def has_checksum(self) -> bool:
        """True if the checksum of each gradient is written."""
        return self.level == "L0"

    @property
    def has_directions(self) -> bool:
        """True if the signs of gradients are written."""
        return self.level != "L0"

    @property
    def has_intervals(self) -> bool:
        """True if the shares of elements in intervals are written."""
        return self.level == "L2"

    @property
    def writes_npy(self) -> bool:
        """True if each parameter has a ``.npy`` file of its signs."""
        return self.has_directions and self.direction_files != "packed"

    @property
    def writes_packed(self) -> bool:
        """True if each step has a file of packed signs."""
        return self.has_directions and self.direction_files != "npy"


def parse(section: Fields) -> GradSettings:
    """Return the settings that a section describes.

    Raises:
        UserError: A field has a wrong value.
    """
    return GradSettings(
        level=section.choice("grad_level", LEVELS, "L1"),
        parameters=section.names("param_list", "layer1.weight"),
        bounds=_parse_bounds(section),
        direction_files=section.choice("direction_files", DIRECTION_FILES, "both"),
    )


def _parse_bounds(section: Fields) -> tuple[Bound, ...]:
    value = section.value("bounds")
    if value is None:
        return GradSettings().bounds
    example = 'For example "bounds": [-1, 0, 1].'
    if not isinstance(value, list):
        raise section.wrong("bounds", f"must be a list of numbers, not {value!r:.40}", example)
    for bound in value:
        if type(bound) not in (int, float) or math.isnan(bound):
            raise section.wrong("bounds", f"must hold numbers only, not {bound!r:.40}", example)
        if not MIN_BOUND <= bound <= MAX_BOUND:
            raise section.wrong("bounds", f"must hold numbers in the range of int64, not {bound!r:.40}", example)
    for lower, upper in itertools.pairwise(value):
        if not lower < upper:
            raise section.wrong("bounds", f"must ascend without duplicates, but {upper} follows {lower}", example)
    return tuple(value)
