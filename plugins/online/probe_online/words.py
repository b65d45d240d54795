"""Words of a receiver: the verdict, the summary behind it, and lines or a table while it runs."""

from __future__ import annotations

import sys
import time

from probe_precheck import Status

from probe_core.cli import console
from probe_core.errors import make_printable
from probe_online.accounts import WORST, SessionAccount
from probe_online.console import TerminalLines
from probe_online.files import ResultDirectory
from probe_online.ledger import Ledger
from probe_online.settings import ReceptionPlace

LINE_INTERVAL_SECONDS = 60.0
"""Seconds between two lines in a pipe."""
FRAME_INTERVAL_SECONDS = 0.5
MAX_SHOWN_APIS = 8
"""APIs that the table shows."""
_COLOURS = {Status.ERROR: "red", Status.WARNING: "yellow", Status.PASS: "green", Status.SKIP: None}
_WORDS = {Status.ERROR: "error", Status.WARNING: "warning", Status.PASS: "pass", Status.SKIP: "SKIP"}
"""Words of the statuses, as the tables spell them."""


def count(number: int, noun: str = "call") -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_verdict(ledger: Ledger) -> str:
    """Return the sentence that comes first: the first call in error, and what is not known."""
    first, errors = ledger.find_first_error(), ledger.count_calls(Status.ERROR)
    judged = sum(ledger.count_calls(status) for status in (Status.ERROR, Status.WARNING, Status.PASS))
    gaps = describe_gaps(ledger)
    if first is not None:
        place = _name_of(first.rank, first.session, ledger)
        text = f"{place}, step {first.step}: {make_printable(first.name)} is "
        text += "the only call" if errors == 1 else f"the first of {count(errors)}"
        text += f" in error, of {count(judged)} judged"
    elif not judged:
        text = "no call was judged, so nothing is known of any"
    else:
        warned = ledger.count_calls(Status.WARNING)
        text = f"no call of {judged:,} judged is in error" + (f", {warned:,} with a warning" if warned else "")
    if elsewhere := sum(
        session_account.elsewhere
        for _, rank_account in ledger.iterate_ranks()
        for session_account in rank_account.sessions.values()
    ):
        text += f"; {count(elsewhere)} more went to other receivers, whose verdicts tell of them"
    if skipped := ledger.count_calls(Status.SKIP):
        text += f"; {skipped:,} more {'has' if skipped == 1 else 'have'} a SKIP row with the reason"
    return f"probe: {text}" + (f"; NOT ALL IS KNOWN: {', '.join(gaps)}" if gaps else "")


def describe_gaps(ledger: Ledger) -> list[str]:
    """Return what keeps a verdict from holding for all calls."""
    dropped = sum((rank_account.dropped.total() for _, rank_account in ledger.iterate_ranks()))
    missing = sum(rank_account.unknown for _, rank_account in ledger.iterate_ranks())
    lost = sum(rank_account.lost for _, rank_account in ledger.iterate_ranks())
    vanished = ledger.list_vanished_senders()
    parts = []
    if dropped:
        parts.append(f"{count(dropped)} {'was' if dropped == 1 else 'were'} dropped by the training")
    if missing:
        parts.append(f"{count(missing)} did not arrive or {'was' if missing == 1 else 'were'} not judged")
    if lost:
        parts.append(f"{count(lost)} ended the process that ran {'it' if lost == 1 else 'them'}")
    if vanished:
        names = ", ".join(_name_of(*sender, ledger) for sender in vanished[:MAX_SHOWN_APIS])
        more_text = f" and {len(vanished) - MAX_SHOWN_APIS} more" if len(vanished) > MAX_SHOWN_APIS else ""
        parts.append(f"{names}{more_text} ended without {'its' if len(vanished) == 1 else 'their'} last message")
    if absent := ledger.list_absent_ranks():
        more_text = f" and {len(absent) - MAX_SHOWN_APIS} more" if len(absent) > MAX_SHOWN_APIS else ""
        parts.append(f"rank {', '.join(map(str, absent[:MAX_SHOWN_APIS]))}{more_text} never connected")
    return parts


def _name_of(rank: int, session: str, ledger: Ledger) -> str:
    """Return the name of a session: that of its rank if the rank has no other one."""
    rank_account = ledger.ranks[rank]
    if len(rank_account.sessions) == 1 or session not in rank_account.sessions:
        return f"rank {rank}"
    return f"rank {rank} in session {rank_account.number_of(session)} ({session[:8]})"


def print_summary(ledger: Ledger, files: ResultDirectory) -> None:
    """Print the verdict, and the summary behind it."""
    sentence = format_verdict(ledger)
    is_good = ledger.find_first_error() is None and not describe_gaps(ledger) and ledger.count_calls(Status.PASS)
    colour = "red" if ledger.find_first_error() is not None else "green" if is_good else "yellow"
    console.show(console.style(sentence, fg=colour, bold=True))
    first = ledger.find_first_error()
    if first is not None and first.message:
        console.show(f"  {make_printable(first.message)}")
    for rank, rank_account in ledger.iterate_ranks():
        if len(rank_account.sessions) > 1:
            console.show(f"  rank {rank} has {len(rank_account.sessions)} sessions; each was judged separately")
        for session, account in rank_account.sessions.items():
            _show_account(_name_of(rank, session, ledger), account)
    for path in files.paths:
        console.show(f"  wrote {path}")
    console.show(f"  wrote {ledger.path}")


def _show_account(name: str, account: SessionAccount) -> None:
    parts = [
        console.style(f"{account.verdicts[status].total():,} {_WORDS[status]}",
                      fg=_COLOURS[status] if account.verdicts[status] else None)
        for status in WORST
    ]  # fmt: skip
    console.show(f"  {name}: {', '.join(parts)}")
    for status in (Status.ERROR, Status.WARNING):
        if account.verdicts[status]:
            console.show(f"    {_WORDS[status]}: {_format_apis(account.verdicts[status])}")
    if account.dropped:
        console.show(f"    dropped by the training: {_format_apis(account.dropped)}")
    if account.left_out:
        console.show(f"    left out by the lists: {_format_apis(account.left_out)}")
    if not account.ended:
        console.show(
            f"    it ended without its last message; {count(account.settled)} of it were judged or left out, "
            "and the others are not known"
        )


def _format_apis(counts: dict[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    more_text = f" and {len(ordered) - MAX_SHOWN_APIS} more" if len(ordered) > MAX_SHOWN_APIS else ""
    return ", ".join(f"{make_printable(api)} {number:,}" for api, number in ordered[:MAX_SHOWN_APIS]) + more_text


class ReceptionPrinter:
    """Voice of a receiver: a table that is drawn again on a terminal, quiet lines in a pipe.

    Args:
        place: The place where calls arrive.
    """

    def __init__(self, place: ReceptionPlace) -> None:
        self._place = place
        self._is_live = sys.stderr.isatty()
        self._next = 0.0
        self._lines = TerminalLines()
        self._began = time.monotonic()
        self._before = (0, self._began)
        self._shown = -1

    def report_start(self, address: str, files: ResultDirectory, earlier: int | None) -> None:
        """Say where calls are expected, and how they travel."""
        place = self._place
        if earlier is not None:
            console.note(f"probe goes on with online_{files.time_stamp}.json: {count(earlier)} judged earlier")
        console.note(f"probe waits for calls at {address}, and writes to {files.directory}")
        if place.directory is None and place.tls is None and place.consent:
            console.warn(
                f"Calls arrive in PLAIN TEXT from anyone who reaches {address} ({place.consent} allows it): "
                "tensors can be read on the way, and verdicts forged."
            )

    def report_refusal(self, sentence: str) -> None:
        """Say that something was refused."""
        self._lines.wipe()
        console.note(sentence)

    def show(self, ledger: Ledger, *, last: bool = False) -> None:
        """Draw the table again, or print a line from time to time if there is something new."""
        now = time.monotonic()
        if not last and now < self._next:
            return
        if last:
            self._lines.wipe()
            return
        done = sum(rank_account.judged for _, rank_account in ledger.iterate_ranks())
        speed = (done - self._before[0]) / max(now - self._before[1], 1e-3)
        if self._is_live:
            self._next = now + FRAME_INTERVAL_SECONDS
            if now - self._before[1] > 2.0:
                self._before = (done, now)
            self._lines.draw(_format_table(ledger, done, speed))
        elif now - self._began >= LINE_INTERVAL_SECONDS and done != self._shown:
            self._next, self._shown = now + LINE_INTERVAL_SECONDS, done
            self._before = (done, now)
            console.note(_format_line(ledger, done, speed))


def _format_line(ledger: Ledger, done: int, speed: float) -> str:
    counts = ", ".join(f"{ledger.count_calls(status):,} {_WORDS[status]}" for status in WORST)
    dropped = sum(rank_account.dropped.total() for _, rank_account in ledger.iterate_ranks())
    first = ledger.find_first_error()
    worst = ""
    if first is not None:
        place = _name_of(first.rank, first.session, ledger)
        worst = f"; first in error: {place}, step {first.step}, {first.name}"
    return (
        f"{count(done)} judged ({speed:.1f}/s), {ledger.in_work:,} in work: {counts}, "
        f"{dropped:,} dropped{make_printable(worst)}"
    )


def _format_table(ledger: Ledger, done: int, speed: float) -> list[str]:
    """Return the lines of the table: the whole, each session, and the APIs that did not pass."""
    lines = [_format_line(ledger, done, speed)]
    bad: dict[str, list[int]] = {}
    for rank, rank_account in ledger.iterate_ranks():
        for number, account in enumerate(rank_account.sessions.values(), 1):
            numbers = "  ".join(f"{_WORDS[status]} {account.verdicts[status].total():,}" for status in WORST)
            state = "sending" if account.is_connected else "ended" if account.ended else "gone"
            name = f"{rank}" if len(rank_account.sessions) == 1 else f"{rank}, session {number}"
            lines.append(f"  rank {name:<4} {state:8} {numbers}  dropped {account.dropped.total():,}")
            for place, status in enumerate((Status.ERROR, Status.WARNING)):
                for api, errors in account.verdicts[status].items():
                    bad.setdefault(api, [0, 0])[place] += errors
    ordered = sorted(bad.items(), key=lambda item: ([-number for number in item[1]], item[0]))
    lines += [
        f"    {make_printable(api, 50):50} error {errors:,}  warning {warnings:,}"
        for api, (errors, warnings) in ordered[:MAX_SHOWN_APIS]
    ]
    return lines
