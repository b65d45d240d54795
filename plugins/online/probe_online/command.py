"""Run-ut as a receiver: what is done in place of the check of a recorded run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probe_precheck.api import Status
from probe_precheck.settings import Settings

from probe_core import console
from probe_core.errors import UserError
from probe_core.model.plan import get_time_stamp
from probe_core.plugins.manager import Manager
from probe_core.terminal.exit_codes import (
    EXIT_DATA_LOST,
    EXIT_FINDINGS,
    EXIT_FINISHED,
    EXIT_INTERRUPTED,
    EXIT_USER_ERROR,
)
from probe_online import settings as online
from probe_online import words
from probe_online.run import ReceptionPlan, ReceptionResult, receive
from probe_online.status import read_status

_OPTIONS_WITHOUT_EFFECT = {
    "dump": "--input", "resume": "--result-csv-path", "distinct": "--filter-api", "only": "--only",
    "save_error_data": "--save-error-data",
}  # fmt: skip
"""Options of run-ut that have no effect on calls that arrive, by their names."""
_PLAN_OPTIONS = ("output", "devices", "timeout", "release", "language", "standards", "seed", "jit_compile")
DEFAULT_FRAMEWORK = "pytorch"


class Online:
    """Receiver of the online pre-check, as the kit probe-precheck calls it."""

    def receive(
        self,
        manager: Manager,
        options: Mapping[str, Any],
        settings: Settings,
        config: Path | None,
        values: Mapping[str, Any],
    ) -> int:
        """Judge calls until the trainings end, or print the state of another receiver.

        Raises:
            UserError: An option has a wrong value or no effect, or the receiver cannot work.
        """
        if "status" in values:
            host, port = online.parse_host_and_port(values["status"], "--status")
            console.show_json(read_status(host, port, Path(values["tls"]) if "tls" in values else None))
            return EXIT_FINISHED
        for name, option in _OPTIONS_WITHOUT_EFFECT.items():
            if options.get(name):
                raise UserError(f"{option} has no effect on calls that a training sends.", "Leave it out.")
        if settings.online is not None and not {"listen", "watch"} & values.keys():
            order = online.parse_receiver_config(settings.online, f"The configuration {config}", values)
        else:
            order = online.parse_receiver_options(values)
        plan = ReceptionPlan(
            order,
            options["framework"] or DEFAULT_FRAMEWORK,
            time_stamp=get_time_stamp(),
            workers=online.count_workers(values, max(options["workers"], len(options["devices"]))),
            settings=settings,
            **{name: options[name] for name in _PLAN_OPTIONS},
        )
        received = receive(plan, manager, words.ReceptionPrinter(order.place))
        words.print_summary(received.ledger, received.files)
        return _exit_code(received, options["fail_on"])


def _exit_code(received: ReceptionResult, fail_on: str | None) -> int:
    ledger = received.ledger
    levels = {"error": (Status.ERROR,), "warning": (Status.ERROR, Status.WARNING)}.get(fail_on or "", ())
    if any(ledger.count_calls(status) for status in levels):
        return EXIT_FINDINGS
    if received.interrupted:
        return EXIT_INTERRUPTED
    if words.describe_gaps(ledger):
        return EXIT_DATA_LOST
    if fail_on and not any(ledger.count_calls(status) for status in (Status.ERROR, Status.WARNING, Status.PASS)):
        console.error("--fail-on cannot be judged: no call was judged.", "The lines above say why.")
        return EXIT_USER_ERROR
    return EXIT_FINISHED


ONLINE = Online()
