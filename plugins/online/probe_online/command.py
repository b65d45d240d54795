"""Run-ut as a receiver: what is done in place of the check of a recorded run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probe_precheck import Settings, Status

from probe_core.cli import console
from probe_core.cli.main import FINISHED, FOUND, INTERRUPTED, LOST, MISTAKE
from probe_core.errors import UserError
from probe_core.files.claim import time_stamp
from probe_core.plugins.manager import Manager
from probe_online import settings as online
from probe_online import words
from probe_online.run import Received, ReceptionPlan, receive
from probe_online.status import status_at

_WITHOUT_EFFECT = {
    "dump": "--input", "resume": "--result-csv-path", "distinct": "--filter-api", "only": "--only",
    "save_error_data": "--save-error-data",
}  # fmt: skip
"""Options of run-ut that have no effect on calls that arrive, by their names."""
_TAKEN = ("output", "devices", "timeout", "release", "language", "standards", "seed", "jit_compile")
DEFAULT_FRAMEWORK = "pytorch"


class Online:
    """Receiver of the online pre-check (``probe_precheck.Receiver``)."""

    def receive(
        self,
        manager: Manager,
        given: Mapping[str, Any],
        settings: Settings,
        config: Path | None,
        values: Mapping[str, Any],
    ) -> int:
        """Judge calls until the trainings end, or print the state of another receiver.

        Raises:
            UserError: An option has a wrong value or no effect, or the receiver cannot work.
        """
        if "status" in values:
            host, port = online.host_and_port(values["status"], "--status")
            console.show_json(status_at(host, port, Path(values["tls"]) if "tls" in values else None))
            return FINISHED
        for name, option in _WITHOUT_EFFECT.items():
            if given.get(name):
                raise UserError(f"{option} has no effect on calls that a training sends.", "Leave it out.")
        if settings.online is not None and not {"listen", "watch"} & values.keys():
            order = online.from_config(settings.online, f"The configuration {config}", values)
        else:
            order = online.from_options(values)
        plan = ReceptionPlan(
            order,
            given["framework"] or DEFAULT_FRAMEWORK,
            time_stamp=time_stamp(),
            workers=online.workers(values, max(given["workers"], len(given["devices"]))),
            settings=settings,
            **{name: given[name] for name in _TAKEN},
        )
        received = receive(plan, manager, words.Speaker(order.place))
        words.summary(received.ledger, received.files)
        return _exit_code(received, given["fail_on"])


def _exit_code(received: Received, fail_on: str | None) -> int:
    ledger = received.ledger
    levels = {"error": (Status.ERROR,), "warning": (Status.ERROR, Status.WARNING)}.get(fail_on or "", ())
    if any(ledger.total(status) for status in levels):
        return FOUND
    if received.interrupted:
        return INTERRUPTED
    if words.unknown(ledger):
        return LOST
    if fail_on and not any(ledger.total(status) for status in (Status.ERROR, Status.WARNING, Status.PASS)):
        console.error("--fail-on cannot be judged: no call was judged.", "The lines above say why.")
        return MISTAKE
    return FINISHED


ONLINE = Online()
