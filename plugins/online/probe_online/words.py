"""Output of a receiver: the verdict, the summary, and the progress as lines or as a table."""

from __future__ import annotations

import sys
import time

from probe_precheck.api import Status

from probe_core import console
from probe_core.errors import format_count, format_list, make_printable
from probe_online.accounts import WORST, SessionAccount
from probe_online.console import TerminalLines
from probe_online.files import ResultDirectory
from probe_online.ledger import Ledger
from probe_online.settings import ReceptionPlace

LINE_INTERVAL_SECONDS = 60.0
"""Seconds between two progress lines if the output is not a terminal."""
FRAME_INTERVAL_SECONDS = 0.5
"""Seconds between two drawings of the table."""
SPEED_INTERVAL_SECONDS = 2.0
"""Minimum seconds over which the speed in the table is measured."""
MAX_SHOWN_APIS = 8
"""Maximum number of APIs in the table."""
MAX_SHOWN_SENDERS = 8
"""Maximum number of sessions, or ranks, in a clause of the verdict."""
_COLORS = {Status.ERROR: "red", Status.WARNING: "yellow", Status.PASS: "green", Status.SKIP: None}
_STATUS_TEXTS = {Status.ERROR: "error", Status.WARNING: "warning", Status.PASS: "pass", Status.SKIP: "SKIP"}
"""Texts of the statuses, spelled as in the result tables."""


def format_verdict(ledger: Ledger) -> str:
    """Return the first sentence of the summary: the first call in error, and the calls whose verdict is unknown."""
    first, errors = ledger.find_first_error(), ledger.count_calls(Status.ERROR)
    judged = sum(ledger.count_calls(status) for status in (Status.ERROR, Status.WARNING, Status.PASS))
    if first is not None:
        session_name = _format_session_name(first.rank, first.session, ledger)
        position = "the only call" if errors == 1 else f"the first of {format_count(errors, 'call')}"
        clauses = [f"{session_name}, step {first.step}: {make_printable(first.name)} is {position} in error"]
        clauses.append(_count_with_verb(judged, "judged"))
    elif not judged:
        clauses = ["no call was judged"]
    else:
        warned = ledger.count_calls(Status.WARNING)
        clauses = [f"no call of {judged:,} judged is in error" + (f", {warned:,} with a warning" if warned else "")]
    elsewhere_count = sum(
        session_account.elsewhere
        for _, rank_account in ledger.iterate_ranks()
        for session_account in rank_account.sessions.values()
    )
    if elsewhere_count:
        clauses.append(f"{format_count(elsewhere_count, 'further call')} went to other receivers, which report on them")
    if skipped := ledger.count_calls(Status.SKIP):
        clauses.append(f"{_count_with_verb(skipped, 'skipped')} (reasons in the result file)")
    if gaps := describe_gaps(ledger):
        clauses.append(f"INCOMPLETE: {', '.join(gaps)}")
    return f"probe: {'; '.join(clauses)}"


def describe_gaps(ledger: Ledger) -> list[str]:
    """Return a clause for each group of calls that the verdict does not cover."""
    dropped = sum((rank_account.dropped.total() for _, rank_account in ledger.iterate_ranks()))
    missing = sum(rank_account.unknown for _, rank_account in ledger.iterate_ranks())
    lost = sum(rank_account.lost for _, rank_account in ledger.iterate_ranks())
    clauses = []
    if dropped:
        clauses.append(f"{_count_with_verb(dropped, 'dropped')} by the training")
    if missing:
        clauses.append(f"{format_count(missing, 'call')} did not arrive or {_choose_verb(missing)} not judged")
    if lost:
        clauses.append(f"{format_count(lost, 'call')} crashed the process that ran {'it' if lost == 1 else 'them'}")
    if vanished_senders := ledger.list_vanished_senders():
        names = [_format_session_name(*sender, ledger) for sender in vanished_senders]
        clauses.append(f"{format_list(names, MAX_SHOWN_SENDERS)} sent no final message")
    if absent := ledger.list_absent_ranks():
        ranks = "rank" if len(absent) == 1 else "ranks"
        clauses.append(f"{ranks} {format_list(absent, MAX_SHOWN_SENDERS)} never connected")
    return clauses


def _choose_verb(count: int) -> str:
    return "was" if count == 1 else "were"


def _count_with_verb(count: int, participle: str) -> str:
    return f"{format_count(count, 'call')} {_choose_verb(count)} {participle}"


def _format_session_name(rank: int, session: str, ledger: Ledger) -> str:
    """Return the name of a session. If its rank has no other session, this is the name of the rank."""
    rank_account = ledger.ranks[rank]
    if len(rank_account.sessions) == 1 or session not in rank_account.sessions:
        return f"rank {rank}"
    return f"rank {rank} in session {rank_account.get_session_number(session)} ({session[:8]})"


def print_summary(ledger: Ledger, files: ResultDirectory) -> None:
    """Print the verdict, the summary of each session, and the paths of the result files."""
    sentence = format_verdict(ledger)
    first = ledger.find_first_error()
    is_passed = first is None and not describe_gaps(ledger) and ledger.count_calls(Status.PASS)
    color = "red" if first is not None else "green" if is_passed else "yellow"
    console.show(console.style(sentence, fg=color, bold=True))
    if first is not None and first.message:
        console.show(f"  {make_printable(first.message)}")
    for rank, rank_account in ledger.iterate_ranks():
        if len(rank_account.sessions) > 1:
            console.show(f"  rank {rank} has {len(rank_account.sessions)} sessions; each was judged separately")
        for session, account in rank_account.sessions.items():
            _show_account(_format_session_name(rank, session, ledger), account)
    for path in files.paths:
        console.show(f"  wrote {path}")
    console.show(f"  wrote {ledger.path}")


def _show_account(name: str, account: SessionAccount) -> None:
    parts = [
        console.style(f"{account.verdicts[status].total():,} {_STATUS_TEXTS[status]}",
                      fg=_COLORS[status] if account.verdicts[status] else None)
        for status in WORST
    ]  # fmt: skip
    console.show(f"  {name}: {', '.join(parts)}")
    for status in (Status.ERROR, Status.WARNING):
        if account.verdicts[status]:
            console.show(f"    {_STATUS_TEXTS[status]}: {_format_apis(account.verdicts[status])}")
    if account.dropped:
        console.show(f"    dropped by the training: {_format_apis(account.dropped)}")
    if account.left_out:
        console.show(f"    left out by the lists: {_format_apis(account.left_out)}")
    if not account.ended:
        console.show(
            f"    the session sent no final message; {_count_with_verb(account.settled, 'judged or left out')}, "
            "and the verdicts on the others are unknown"
        )


def _format_apis(counts: dict[str, int]) -> str:
    counts_by_frequency = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return format_list((f"{make_printable(api)} {number:,}" for api, number in counts_by_frequency), MAX_SHOWN_APIS)


class ReceptionPrinter:
    """Printer of the progress of a receiver: a table that is redrawn on a terminal, or else single lines.

    Args:
        place: The place where calls arrive.
    """

    def __init__(self, place: ReceptionPlace) -> None:
        self._place = place
        self._is_live = sys.stderr.isatty()
        self._next_print_time = 0.0
        self._lines = TerminalLines()
        self._start_time = time.monotonic()
        self._last_count, self._last_count_time = 0, self._start_time
        self._last_printed_count = -1

    def report_start(self, address: str, files: ResultDirectory, earlier_call_count: int | None) -> None:
        """Print the address at which calls arrive, and a warning if they arrive unencrypted."""
        place = self._place
        if earlier_call_count is not None:
            earlier_calls = _count_with_verb(earlier_call_count, "judged")
            console.note(f"probe resumes online_{files.time_stamp}.json; {earlier_calls} earlier")
        console.note(f"probe waits for calls at {address}, and writes to {files.directory}")
        if place.directory is None and place.tls is None and place.consent:
            console.warn(
                f"Calls arrive in PLAIN TEXT from anyone who can reach {address} ({place.consent} allows this). "
                "Others can read the tensors and forge verdicts."
            )

    def report_refusal(self, sentence: str) -> None:
        """Print a sentence on a refused connection or message."""
        self._lines.wipe()
        console.note(sentence)

    def show(self, ledger: Ledger) -> None:
        """Redraw the table, or print a line if enough time has passed and further calls were judged."""
        now = time.monotonic()
        if now < self._next_print_time:
            return
        judged_count = sum(rank_account.judged for _, rank_account in ledger.iterate_ranks())
        speed = (judged_count - self._last_count) / max(now - self._last_count_time, 1e-3)
        if self._is_live:
            self._next_print_time = now + FRAME_INTERVAL_SECONDS
            if now - self._last_count_time > SPEED_INTERVAL_SECONDS:
                self._last_count, self._last_count_time = judged_count, now
            self._lines.draw(_format_table(ledger, judged_count, speed))
        elif now - self._start_time >= LINE_INTERVAL_SECONDS and judged_count != self._last_printed_count:
            self._next_print_time, self._last_printed_count = now + LINE_INTERVAL_SECONDS, judged_count
            self._last_count, self._last_count_time = judged_count, now
            console.note(_format_line(ledger, judged_count, speed))

    def finish(self) -> None:
        """Wipe the table."""
        self._lines.wipe()


def _format_line(ledger: Ledger, judged_count: int, speed: float) -> str:
    counts = ", ".join(f"{ledger.count_calls(status):,} {_STATUS_TEXTS[status]}" for status in WORST)
    dropped = sum(rank_account.dropped.total() for _, rank_account in ledger.iterate_ranks())
    first = ledger.find_first_error()
    first_error_text = ""
    if first is not None:
        session_name = _format_session_name(first.rank, first.session, ledger)
        first_error_text = f"; first in error: {session_name}, step {first.step}, {first.name}"
    return (
        f"{format_count(judged_count, 'call')} judged ({speed:.1f}/s), {ledger.in_work:,} in progress: {counts}, "
        f"{dropped:,} dropped{make_printable(first_error_text)}"
    )


def _format_table(ledger: Ledger, judged_count: int, speed: float) -> list[str]:
    """Return the lines of the table: the total, a line for each session, and the APIs with errors or warnings."""
    lines = [_format_line(ledger, judged_count, speed)]
    failure_counts: dict[str, list[int]] = {}
    for rank, rank_account in ledger.iterate_ranks():
        for number, account in enumerate(rank_account.sessions.values(), 1):
            numbers = "  ".join(f"{_STATUS_TEXTS[status]} {account.verdicts[status].total():,}" for status in WORST)
            state = "sending" if account.is_connected else "ended" if account.ended else "disconnected"
            name = f"{rank}" if len(rank_account.sessions) == 1 else f"{rank}, session {number}"
            lines.append(f"  rank {name:<4} {state:12} {numbers}  dropped {account.dropped.total():,}")
            for column, status in enumerate((Status.ERROR, Status.WARNING)):
                for api, call_count in account.verdicts[status].items():
                    failure_counts.setdefault(api, [0, 0])[column] += call_count
    ordered = sorted(failure_counts.items(), key=lambda item: ([-number for number in item[1]], item[0]))
    lines += [
        f"    {make_printable(api, 50):50} error {errors:,}  warning {warnings:,}"
        for api, (errors, warnings) in ordered[:MAX_SHOWN_APIS]
    ]
    return lines
