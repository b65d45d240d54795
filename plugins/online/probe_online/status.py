"""Question for the state of a receiver that runs (``--status``)."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

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

from probe_core.errors import UserError

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
