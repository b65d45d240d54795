"""The result of matching two runs.

The slots of a run are numbered from its first record to its last. A matching holds the number of the golden
slot for each target slot, which takes eight bytes.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from probe_core.exports import add_alias, create_deprecated_exporter
from probe_core.model import MatchKind

NO_PARTNER = -1


class Region(NamedTuple):
    """Consecutive calls without partners on either side, as indices of their records; a side may be empty."""

    target: tuple[int, ...]
    golden: tuple[int, ...]


@dataclass(slots=True)
class Matching:
    """The pairs of target slots and golden slots.

    Attributes:
        match_kind: The way in which pairs were matched.
        partners: The number of the golden slot for each target slot, or ``NO_PARTNER``.
        mapped: The target slots that a mapping file paired instead.
        regions: The calls at which two aligned runs do not line up.
    """

    match_kind: MatchKind = MatchKind.NAME
    partners: array[int] = field(default_factory=lambda: array("q"))
    mapped: frozenset[int] = frozenset()
    regions: list[Region] = field(default_factory=list)

    @property
    def matched_count(self) -> int:
        """The number of target slots with a partner."""
        return len(self.partners) - self.partners.count(NO_PARTNER)


add_alias(Matching, "matched", "matched_count")
__getattr__ = create_deprecated_exporter(
    __name__,
    {"find_partners": "probe_core.matching.slot_pairing", "RowOrder": "probe_core.matching.row_order"},
    {"partners_of": "find_partners"},
)
