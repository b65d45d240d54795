"""Messages of free_benchmark on stderr."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from probe_recording.messages import note

from probe_core.errors import format_count, format_list
from probe_watch.free_benchmark.outcome import OutputComparison, Skip
from probe_watch.free_benchmark.settings import BenchmarkSettings, Handler
from probe_watch.free_benchmark.table import FILE

REASONS = {
    Skip.KIND: "tensors of a kind that is not supported, such as sparse tensors or subclasses",
    Skip.RANDOM: "they draw random numbers that a second run cannot draw again",
    Skip.FAILED: "an exception in the second run",
    Skip.COMPARISON: "results that cannot be compared, such as different shapes",
}


@dataclass(slots=True)
class BenchmarkCounts:
    """Numbers of the results and calls that a run examined.

    Attributes:
        outcomes: The number of compared results.
        inconsistent: The number of inconsistent results, by the name of the API.
        skipped: The number of calls that were not examined, by reason and the name of the API.
    """

    outcomes: int = 0
    inconsistent: Counter[str] = field(default_factory=Counter)
    skipped: dict[Skip, Counter[str]] = field(default_factory=dict)

    def add(self, name: str, outcome: OutputComparison) -> None:
        """Count an outcome of a call, named with its phase."""
        self.outcomes += 1
        if not outcome.consistent:
            self.inconsistent[name.rsplit(".", 2)[0]] += 1

    def skip(self, name: str, reason: Skip) -> None:
        """Count a call, named without phase, that was not examined."""
        self.skipped.setdefault(reason, Counter())[name.rpartition(".")[0]] += 1


def summarize(counts: BenchmarkCounts, settings: BenchmarkSettings, root: Path) -> None:
    """Print what a run examined and found."""
    mode = settings.mode.value
    if not counts.outcomes:
        note(f"probe: free_benchmark ({mode}) compared no call. Check step, rank, list and scope.")
    elif not counts.inconsistent:
        note(f"probe: free_benchmark ({mode}) compared {format_count(counts.outcomes, 'result')}; all agree.")
    else:
        apis = format_list([f"{api} ({count})" for api, count in counts.inconsistent.most_common()])
        total = format_count(sum(counts.inconsistent.values()), "result")
        place = "" if settings.handler is Handler.FIX else f" See {root}/step*/rank*/{FILE}."
        note(
            f"probe: free_benchmark ({mode}) compared {format_count(counts.outcomes, 'result')}; "
            f"inconsistent: {total} of {apis}.{place}"
        )
    for reason, apis_skipped in counts.skipped.items():
        total = format_count(sum(apis_skipped.values()), "call")
        note(f"probe: {total} of {format_list(list(apis_skipped))} not examined: {REASONS[reason]}.")
