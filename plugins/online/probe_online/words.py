"""Words of a receiver: the verdict, the summary behind it, and lines or a table while it runs."""

from __future__ import annotations

import sys
import time

from probe_precheck import Status

from probe_core.cli import console
from probe_core.errors import printable
from probe_online.accounts import WORST, SessionAccount
from probe_online.console import Redrawn
from probe_online.files import ResultDirectory
from probe_online.ledger import Ledger
from probe_online.settings import Place

LINE_EVERY = 60.0
"""Seconds between two lines in a pipe."""
FRAME_EVERY = 0.5
SHOWN = 8
"""APIs that the table shows."""
_COLOURS = {Status.ERROR: "red", Status.WARNING: "yellow", Status.PASS: "green", Status.SKIP: None}
_WORDS = {Status.ERROR: "error", Status.WARNING: "warning", Status.PASS: "pass", Status.SKIP: "SKIP"}
"""Words of the statuses, as the tables spell them."""


def count(number: int, word: str = "call") -> str:
    """Return a number with its noun."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def verdict(ledger: Ledger) -> str:
    """Return the sentence that comes first: the first call in error, and what is not known."""
    first, errors = ledger.first(), ledger.total(Status.ERROR)
    judged = sum(ledger.total(status) for status in (Status.ERROR, Status.WARNING, Status.PASS))
    gaps = unknown(ledger)
    if first is not None:
        place = _name_of(first.rank, first.session, ledger)
        what = f"{place}, step {first.step}: {printable(first.name)} is "
        what += "the only call" if errors == 1 else f"the first of {count(errors)}"
        what += f" in error, of {count(judged)} judged"
    elif not judged:
        what = "no call was judged, so nothing is known of any"
    else:
        warned = ledger.total(Status.WARNING)
        what = f"no call of {judged:,} judged is in error" + (
            f", {warned:,} with a warning" if warned else ""
        )
    if elsewhere := sum(one.elsewhere for _, own in ledger.each() for one in own.sessions.values()):
        what += f"; {count(elsewhere)} more went to other receivers, whose verdicts tell of them"
    if skipped := ledger.total(Status.SKIP):
        what += f"; {skipped:,} more {'has' if skipped == 1 else 'have'} a SKIP row with the reason"
    return f"probe: {what}" + (f"; NOT ALL IS KNOWN: {', '.join(gaps)}" if gaps else "")


def unknown(ledger: Ledger) -> list[str]:
    """Return what keeps a verdict from holding for all calls."""
    dropped = sum((found.dropped.total() for _, found in ledger.each()))
    missing = sum(found.unknown for _, found in ledger.each())
    lost = sum(found.lost for _, found in ledger.each())
    vanished = ledger.vanished()
    parts = []
    if dropped:
        parts.append(f"{count(dropped)} {'was' if dropped == 1 else 'were'} dropped by the training")
    if missing:
        parts.append(f"{count(missing)} did not arrive or {'was' if missing == 1 else 'were'} not judged")
    if lost:
        parts.append(f"{count(lost)} ended the process that ran {'it' if lost == 1 else 'them'}")
    if vanished:
        names = ", ".join(_name_of(*one, ledger) for one in vanished[:SHOWN])
        more = f" and {len(vanished) - SHOWN} more" if len(vanished) > SHOWN else ""
        parts.append(f"{names}{more} ended without {'its' if len(vanished) == 1 else 'their'} last message")
    if absent := ledger.absent():
        more = f" and {len(absent) - SHOWN} more" if len(absent) > SHOWN else ""
        parts.append(f"rank {', '.join(map(str, absent[:SHOWN]))}{more} never connected")
    return parts


def _name_of(rank: int, session: str, ledger: Ledger) -> str:
    """Return the name of a session: that of its rank if the rank has no other one."""
    own = ledger.ranks[rank]
    if len(own.sessions) == 1 or session not in own.sessions:
        return f"rank {rank}"
    return f"rank {rank} in session {own.number_of(session)} ({session[:8]})"


def summary(ledger: Ledger, files: ResultDirectory) -> None:
    """Print the verdict, and the summary behind it."""
    sentence = verdict(ledger)
    is_good = ledger.first() is None and not unknown(ledger) and ledger.total(Status.PASS)
    colour = "red" if ledger.first() is not None else "green" if is_good else "yellow"
    console.show(console.style(sentence, fg=colour, bold=True))
    first = ledger.first()
    if first is not None and first.message:
        console.show(f"  {printable(first.message)}")
    for rank, own in ledger.each():
        if len(own.sessions) > 1:
            console.show(f"  rank {rank} has {len(own.sessions)} sessions; each was judged separately")
        for session, account in own.sessions.items():
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
            console.show(f"    {_WORDS[status]}: {_apis(account.verdicts[status])}")
    if account.dropped:
        console.show(f"    dropped by the training: {_apis(account.dropped)}")
    if account.left_out:
        console.show(f"    left out by the lists: {_apis(account.left_out)}")
    if not account.ended:
        console.show(
            f"    it ended without its last message; {count(account.settled)} of it were judged or left out, "
            "and the others are not known"
        )


def _apis(counts: dict[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    more = f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return ", ".join(f"{printable(api)} {number:,}" for api, number in ordered[:SHOWN]) + more


class Speaker:
    """Voice of a receiver: a table that is drawn again on a terminal, quiet lines in a pipe.

    Args:
        place: The place where calls arrive.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._is_live = sys.stderr.isatty()
        self._next = 0.0
        self._lines = Redrawn()
        self._began = time.monotonic()
        self._before = (0, self._began)
        self._shown = -1

    def began(self, address: str, files: ResultDirectory, earlier: int | None) -> None:
        """Say where calls are expected, and how they travel."""
        place = self._place
        if earlier is not None:
            console.note(
                f"probe goes on with online_{files.time_stamp}.json: {count(earlier)} judged earlier"
            )
        console.note(f"probe waits for calls at {address}, and writes to {files.directory}")
        if place.directory is None and place.tls is None and place.consent:
            console.warn(
                f"Calls arrive in PLAIN TEXT from anyone who reaches {address} ({place.consent} allows it): "
                "tensors can be read on the way, and verdicts forged."
            )

    def said(self, sentence: str) -> None:
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
        done = sum(found.judged for _, found in ledger.each())
        speed = (done - self._before[0]) / max(now - self._before[1], 1e-3)
        if self._is_live:
            self._next = now + FRAME_EVERY
            if now - self._before[1] > 2.0:
                self._before = (done, now)
            self._lines.draw(_table(ledger, done, speed))
        elif now - self._began >= LINE_EVERY and done != self._shown:
            self._next, self._shown = now + LINE_EVERY, done
            self._before = (done, now)
            console.note(_line(ledger, done, speed))


def _line(ledger: Ledger, done: int, speed: float) -> str:
    counts = ", ".join(f"{ledger.total(status):,} {_WORDS[status]}" for status in WORST)
    dropped = sum(found.dropped.total() for _, found in ledger.each())
    first = ledger.first()
    worst = ""
    if first is not None:
        place = _name_of(first.rank, first.session, ledger)
        worst = f"; first in error: {place}, step {first.step}, {first.name}"
    return (
        f"{count(done)} judged ({speed:.1f}/s), {ledger.in_work:,} in work: {counts}, "
        f"{dropped:,} dropped{printable(worst)}"
    )


def _table(ledger: Ledger, done: int, speed: float) -> list[str]:
    """Return the lines of the table: the whole, each session, and the APIs that did not pass."""
    lines = [_line(ledger, done, speed)]
    bad: dict[str, list[int]] = {}
    for rank, own in ledger.each():
        for number, account in enumerate(own.sessions.values(), 1):
            numbers = "  ".join(f"{_WORDS[status]} {account.verdicts[status].total():,}" for status in WORST)
            state = "sending" if account.is_connected else "ended" if account.ended else "gone"
            name = f"{rank}" if len(own.sessions) == 1 else f"{rank}, session {number}"
            lines.append(f"  rank {name:<4} {state:8} {numbers}  dropped {account.dropped.total():,}")
            for place, status in enumerate((Status.ERROR, Status.WARNING)):
                for api, errors in account.verdicts[status].items():
                    bad.setdefault(api, [0, 0])[place] += errors
    ordered = sorted(bad.items(), key=lambda item: ([-number for number in item[1]], item[0]))
    lines += [
        f"    {printable(api, 50):50} error {errors:,}  warning {warnings:,}"
        for api, (errors, warnings) in ordered[:SHOWN]
    ]
    return lines
