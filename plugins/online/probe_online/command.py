"""Run-ut as a receiver: what is done in place of the check of a recorded run."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probe_precheck.api import Status
from probe_precheck.settings import Settings
from probe_recording.sending.message import (
    PREFIX,
    FrameError,
    FrameKind,
    FrameLimits,
    encode_frame,
    parse_frame,
    parse_prefix,
)
from probe_recording.sending.tls import create_sender_context, format_connection_error

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


# -- question for the state of a receiver that runs (``--status``) ----------------------------------


STATUS_TIMEOUT_SECONDS = 15.0
MAX_STATUS_VALUES = 1 << 23
"""Values in the status of a receiver, which the user asks for. Thousands of sessions fit."""


def read_status(host: str, port: int, tls: Path | None) -> dict[str, Any]:
    """Return the state of the receiver at an address.

    Raises:
        UserError: There is none, or it does not answer as one.
    """
    try:
        with socket.create_connection((host, port), STATUS_TIMEOUT_SECONDS) as plain:
            if tls is None:
                return _request_status(plain)
            with create_sender_context(tls).wrap_socket(plain, server_hostname=host) as secured:
                return _request_status(secured)
    except (OSError, FrameError, EOFError) as error:
        why = "it closed the connection" if isinstance(error, EOFError) else format_connection_error(error)
        raise UserError(
            f"The receiver at {host}:{port} does not tell its state: {why}.",
            "Check the address, and give --tls if the receiver has it.",
        ) from None


def _request_status(connection: socket.socket) -> dict[str, Any]:
    for part in encode_frame(FrameKind.STATUS, {}):
        connection.sendall(part)
    prefix = parse_prefix(_read(connection, PREFIX.size), FrameLimits(body=0))
    return parse_frame(prefix, _read(connection, prefix.size), MAX_STATUS_VALUES).head


def _read(connection: socket.socket, size: int) -> bytearray:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(1 << 16, size - len(data)))
        if not part:
            raise EOFError
        data += part
    return data
