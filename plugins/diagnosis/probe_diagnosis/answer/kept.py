"""Facts about one rank, collected row by row: all that its verdict and that over all ranks rest on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from probe_diagnosis.answer.coverage import Tally
from probe_diagnosis.answer.facts_of_op import facts_from, plain_facts
from probe_diagnosis.difference.facts import OpFacts


@dataclass(slots=True)
class RankFacts:
    """Facts about one rank.

    Attributes:
        rank: The number of the rank.
        ops: The facts about all ops.
        tally: The values that were compared, and those that were not.
        target_only: The ops that only the target has, or that do not line up.
        golden_only: The same of the golden.
    """

    rank: int = 0
    ops: list[OpFacts] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    target_only: dict[str, None] = field(default_factory=dict)
    golden_only: dict[str, None] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return the facts as JSON data."""
        return {
            "rank": self.rank,
            "ops": plain_facts(self.ops),
            "tally": self.tally.plain(),
            "target_only": list(self.target_only),
            "golden_only": list(self.golden_only),
        }

    @classmethod
    def of(cls, plain: Any) -> RankFacts:
        """Return the facts that ``plain`` returned.

        Raises:
            LookupError, TypeError, ValueError: The data is something else.
        """
        return cls(
            int(plain["rank"]),
            facts_from(plain["ops"]),
            Tally.of(plain["tally"]),
            dict.fromkeys(plain["target_only"]),
            dict.fromkeys(plain["golden_only"]),
        )
