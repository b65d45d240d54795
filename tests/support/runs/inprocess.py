"""A receiver of sent calls in a thread of the tests' process, whose workers start quickly."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from probe_online import words
from probe_online.ledger import Ledger
from probe_online.run import ReceptionPlan, ReceptionResult, receive
from probe_online.settings import ReceiverSettings, ReceptionPlace

from probe_core.plugins.manager import Manager

SLOW = 120.0


class Receiver:
    """``receive`` in a thread.

    Args:
        place: Where calls arrive.
        output: The directory of the result files.
        fields: Fields of ``ReceiverSettings`` that differ, and ``settings`` of the plan.
    """

    def __init__(self, place: ReceptionPlace, output: Path, **fields: Any) -> None:
        settings = {"settings": fields.pop("settings")} if "settings" in fields else {}
        fields.setdefault("patience", 60.0)
        self.heard: list[str] = []
        self.address = ("", 0)
        self.ledger: Ledger | None = None
        self.received: ReceptionResult | None = None
        self.problem: BaseException | None = None
        self._began = threading.Event()
        self._plan = ReceptionPlan(
            ReceiverSettings(place, **fields), "pytorch", output, _stamp(output), ("cpu",), language="en", **settings
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._began.wait(SLOW) and self.problem is None, self.problem

    def _run(self) -> None:
        try:
            self.received = receive(self._plan, Manager(), self)
        except BaseException as error:
            self.problem = error
        finally:
            self._began.set()

    def report_start(self, address: str, files: object, earlier_call_count: int | None) -> None:
        """Note the address."""
        host, _, port = address.rpartition(":")
        self.address = host, int(port) if port.isdecimal() else 0
        self._began.set()

    def report_refusal(self, sentence: str) -> None:
        """Note a sentence."""
        self.heard.append(sentence)

    def show(self, ledger: Ledger) -> None:
        """Note the ledger."""
        self.ledger = ledger

    def finish(self) -> None:
        """Do nothing, as there is no table."""

    def verdict(self) -> str:
        """Wait for its end; return its first line."""
        self._thread.join(SLOW)
        assert self.received is not None, self.problem
        return words.format_verdict(self.received.ledger)


def _stamp(output: Path) -> str:
    return f"20260101{len(list(output.glob('online_*.json'))) if output.exists() else 0:06d}"


@contextmanager
def receiving(output: Path, **fields: Any) -> Iterator[Receiver]:
    """A receiver, on a free port of this machine unless ``place`` says another place."""
    place = fields.pop("place", ReceptionPlace("127.0.0.1", 0))
    made = Receiver(place, output, **fields)
    yield made
    made._thread.join(SLOW)
    assert not made._thread.is_alive(), "the receiver does not end"
