"""Pairs of record files: what a comparison of two runs compares, by step and rank (docs/pairing.md#ranks)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from probe_core.exports import create_deprecated_exporter
from probe_core.store.files import DEFAULT_RECORD_FILES

RecordFiles = tuple[tuple[str, ...], ...]
"""The names of record files of each format: that of calls, then that of saved variables."""


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two record files to compare, with the name of their comparison.

    Attributes:
        target: The record file of the run under test.
        golden: The record file of the trusted run.
        part: The subdirectory of the output for the results, such as ``step0``; empty for the output itself.
        label: ``rank{n}`` if a run has several ranks, ``rank{target}-rank{golden}`` if the numbers differ,
            otherwise empty.
        rank: The number of the target's rank; 0 if unknown.
        golden_rank: The number of the golden's rank; 0 if unknown.
        one_of_two: True for a debug.json next to a dump.json that is compared as well.
    """

    target: Path
    golden: Path
    part: str = ""
    label: str = ""
    rank: int = 0
    golden_rank: int = 0
    one_of_two: bool = False

    @property
    def name(self) -> str:
        """The name of the comparison in the summary; empty if there is only one."""
        file = self.target.name if self.one_of_two else ""
        return "/".join(part for part in (self.part, self.label, file) if part)


@dataclass(slots=True)
class Pairing:
    """The record files to compare, and those without a partner.

    Attributes:
        pairs: The comparisons, by step and rank.
        missing: Sentences on the steps, ranks and files that only one side has.
        notes: Sentences on ranks that are paired in order.
        damaged: Sentences on directories that should hold a run and do not.
        formats: The names of record files.
    """

    pairs: list[RunPair] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    formats: RecordFiles = (DEFAULT_RECORD_FILES,)


__getattr__ = create_deprecated_exporter(__name__, dict.fromkeys(("find_ranks", "pair_runs"), "probe_ranks.api"))
