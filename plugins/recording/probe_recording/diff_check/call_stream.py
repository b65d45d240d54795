"""The calls of one module in both runs, paired while the program runs (docs/against.md#partners)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from probe_recording.diff_check.recorded_call import RecordedCall

LOOK_AHEAD = 32
"""Number of the golden's next calls among which the partner of a call is searched."""

MAX_WAITING_CALLS = 8
"""Number of calls that wait until a later call shows which of them were inserted."""


@dataclass(frozen=True, slots=True)
class GoldenCall:
    """A call or module of the golden in the forward direction: its name and its kind."""

    key: str
    kind: str


@dataclass(frozen=True, slots=True)
class PairedCall:
    """A call of the run under test with its partner.

    Attributes:
        call: The call.
        golden_key: The name of its partner; None if it has none.
        agrees: True if both agree.
    """

    call: RecordedCall
    golden_key: str | None
    agrees: bool


class CallStream:
    """The forward calls that one module made, or that no module made.

    A call pairs at once with the first of the golden's next calls of its kind that agrees with it. A call without
    such a partner waits, because it may have been inserted. Once a later call pairs, the waiting calls pair by
    their kinds with the golden's calls in between; a call that is left over was inserted.

    Args:
        golden_calls: The calls of the golden, in the order of time.
    """

    def __init__(self, golden_calls: Sequence[GoldenCall]) -> None:
        self._golden_calls = golden_calls
        self._next = 0
        self.waiting: list[RecordedCall] = []

    def take(self, call: RecordedCall, agrees: Callable[[RecordedCall, GoldenCall], bool]) -> Iterator[PairedCall]:
        """Add a call, and yield the calls that are paired now, or are known to have no partner.

        Args:
            call: The call.
            agrees: A function that compares a call with one of the golden.
        """
        kind = call.form.kind
        for place in range(self._next, min(self._next + LOOK_AHEAD, len(self._golden_calls))):
            candidate = self._golden_calls[place]
            if candidate.kind == kind and agrees(call, candidate):
                yield from self.settle(place)
                self._next = place + 1
                yield PairedCall(call, candidate.key, True)
                return
        self.waiting.append(call)
        if len(self.waiting) > MAX_WAITING_CALLS:
            yield from self.settle()

    def settle(self, end: int | None = None) -> Iterator[PairedCall]:
        """Pair the waiting calls, and yield them.

        Args:
            end: The position of the golden's call that follows them; None if that is not known.
        """
        calls, self.waiting = self.waiting, []
        start = self._next
        candidates = self._golden_calls[
            start : min(start + LOOK_AHEAD, len(self._golden_calls)) if end is None else end
        ]
        partners = pair_kinds([call.form.kind for call in calls], [candidate.kind for candidate in candidates])
        for place, call in enumerate(calls):
            partner = partners.get(place)
            if partner is not None:
                self._next = start + partner + 1
            yield PairedCall(call, None if partner is None else candidates[partner].key, False)


def pair_kinds(targets: Sequence[str], goldens: Sequence[str]) -> dict[int, int]:
    """Return the places of a longest common subsequence of two short sequences."""
    lengths = [[0] * (len(goldens) + 1) for _ in range(len(targets) + 1)]
    for i in reversed(range(len(targets))):
        for j in reversed(range(len(goldens))):
            is_same = targets[i] == goldens[j]
            lengths[i][j] = lengths[i + 1][j + 1] + 1 if is_same else max(lengths[i + 1][j], lengths[i][j + 1])
    pairs: dict[int, int] = {}
    i = j = 0
    while i < len(targets) and j < len(goldens):
        if targets[i] == goldens[j]:
            pairs[i] = j
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] > lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs
