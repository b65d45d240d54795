"""Explanations of recordings without records, and of entries of ``list`` that match no record."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from probe_core.errors import format_count
from probe_core.store.names import BACKWARD, FORWARD, GRADIENT_PART, format_key, has_module_scope
from probe_recording.settings.config import Config
from probe_recording.settings.name_selector import NameSelector

MAX_LISTED_NAMES = 3
"""Number of calls that a sentence lists if none of them has a name similar to the one searched for."""

MAX_COUNTED_CALLS = 10_000
"""Largest number of calls of one name that are compared with ``list``."""

MIN_NAME_SIMILARITY = 0.6
"""Smallest similarity of names, from 0 to 1, that ``difflib`` considers close."""

_COUNT_AND_PHASE = re.compile(r"(\.(?:forward|backward))?(?:\.\d+)?(\.(?:forward|backward))?$")


class EmptyReason(Enum):
    """The reason why nothing was recorded, from the first condition of a recording to the last."""

    DISABLED = auto()
    NOT_STARTED = auto()
    STOPPED_FIRST = auto()
    REFUSED = auto()
    NOTHING_SAVED = auto()
    RANK_ABSENT = auto()
    STEP_NOT_REACHED = auto()
    REQUEST_ABSENT = auto()
    NO_OVERFLOW = auto()
    COMPILED = auto()
    NO_CALLS = auto()
    NO_MATCH = auto()
    OUT_OF_SCOPE = auto()
    NO_BACKWARD = auto()


@dataclass(frozen=True, slots=True)
class UnmatchedEntry:
    """An entry of ``list`` that selected no record.

    Attributes:
        entry: The entry.
        nearest: The names that resemble it most; other recorded names if none does.
        is_similar: True if the first of them resembles it.
    """

    entry: str
    nearest: tuple[str, ...] = ()
    is_similar: bool = False


@dataclass(frozen=True, slots=True)
class EmptyRecording:
    """An explanation of a step or a run without records.

    Attributes:
        reason: The reason.
        config: The settings of the recording.
        last_step: The last step that the program reached.
        process_count: The number of processes of the run.
        unmatched: Entries of ``list`` without records.
    """

    reason: EmptyReason
    config: Config
    last_step: int = 0
    process_count: int = 1
    unmatched: tuple[UnmatchedEntry, ...] = ()

    def format_clause(self) -> str:
        """Return a clause that follows "nothing was recorded: "."""
        config = self.config
        match self.reason:
            case EmptyReason.DISABLED:
                return 'the configuration sets "dump_enable" to false.'
            case EmptyReason.NOT_STARTED:
                return "start() was never called."
            case EmptyReason.STOPPED_FIRST:
                return "stop() was called before start(), and start() was not called later."
            case EmptyReason.NOTHING_SAVED:
                return 'save() was never called, and level "debug" records nothing else.'
            case EmptyReason.RANK_ABSENT:
                ranks = _format_numbers(config.ranks, "rank")
                return f"the configuration selects {ranks}, and the run has {_format_processes(self.process_count)}."
            case EmptyReason.STEP_NOT_REACHED:
                steps = _format_numbers(config.steps, "step")
                verb = _choose_was_or_were(config.steps)
                return f"{steps} {verb} selected, and the program ended in step {self.last_step}."
            case EmptyReason.REQUEST_ABSENT:
                return f'no call of start() received scheduled_tokens with the request "{config.request}" (request_id).'
            case EmptyReason.NO_OVERFLOW:
                return "no recorded call had nan or an infinity."
            case EmptyReason.COMPILED:
                return (
                    f'level {config.level} with "compile": "{config.compile}" saw no call, and the program '
                    "compiled code. To record the calls in it, set TORCH_COMPILE_DISABLE=1."
                )
            case EmptyReason.NO_MATCH:
                return "; ".join(format_unmatched_entry(entry, config.level) for entry in self.unmatched) + "."
            case EmptyReason.OUT_OF_SCOPE:
                first, last = config.scope
                return f'no call was made between "{first}" and "{last}", the names in "scope".'
            case EmptyReason.NO_BACKWARD:
                return "no backward pass ran, and the configuration selects backward records only."
            case EmptyReason.NO_CALLS:
                return f"the program made no call that level {config.level} records."
            case EmptyReason.REFUSED:
                return "start() reported why it cannot record."


def format_unmatched_entry(unmatched: UnmatchedEntry, level: str) -> str:
    """Return a clause on an entry of ``list`` without records."""
    text = f'no record has a name that matches "{unmatched.entry}" in "list"'
    if unmatched.is_similar:
        return f"{text} (the nearest name is {unmatched.nearest[0]})"
    if unmatched.nearest:
        return f"{text} (level {level} has names such as {', '.join(unmatched.nearest)})"
    return text


def find_unmatched(entries: Sequence[str], calls: Mapping[str, int]) -> tuple[UnmatchedEntry, ...]:
    """Return the entries of ``list`` that match none of the calls.

    Args:
        entries: The entries.
        calls: The number of calls in a step by their names without count and phase, such as
            ``Functional.linear``.
    """
    names = list(_iterate_record_names(calls))
    unmatched = (entry for entry in entries if not any(map(NameSelector((entry,)).is_selected, names)))
    return tuple(_create_unmatched_entry(entry, calls) for entry in unmatched)


def _create_unmatched_entry(entry: str, calls: Mapping[str, int]) -> UnmatchedEntry:
    called = [prefix for prefix, count in calls.items() if count]
    prefix = _COUNT_AND_PHASE.sub("", entry)
    similar = difflib.get_close_matches(prefix, called, 1, MIN_NAME_SIMILARITY)
    if similar:
        return UnmatchedEntry(entry, (_format_last_record(similar[0], calls[similar[0]]),), True)
    return UnmatchedEntry(entry, tuple(_format_last_record(name, calls[name]) for name in called[:MAX_LISTED_NAMES]))


def _format_last_record(prefix: str, count: int) -> str:
    """Return the name of the last forward record of a call or a module."""
    return format_key(prefix, count - 1, FORWARD)


def _iterate_record_names(calls: Mapping[str, int]) -> Iterable[str]:
    """Yield the names of all records that the calls may have."""
    for prefix, count in calls.items():
        for number in range(min(count, MAX_COUNTED_CALLS)):
            for phase in (FORWARD, BACKWARD):
                yield format_key(prefix, number, phase)
        if has_module_scope(prefix) and count:
            yield f"{prefix}.{GRADIENT_PART}"


def _format_numbers(numbers: Iterable[int], noun: str) -> str:
    listed = sorted(numbers)
    text = ", ".join(map(str, listed[:MAX_LISTED_NAMES])) + (", …" if len(listed) > MAX_LISTED_NAMES else "")
    return f"{noun}{'s' if len(listed) > 1 else ''} {text}"


def _choose_was_or_were(numbers: Iterable[int]) -> str:
    return "was" if len(list(numbers)) == 1 else "were"


def _format_processes(count: int) -> str:
    return "one process, of rank 0" if count == 1 else f"{format_count(count, 'rank')}, 0 to {count - 1}"
