"""Settings of a receiver: the options of the command line, and the fields of a config.json."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe_recording.sending.message import FrameLimits

from probe_core.errors import UserError

SENDER_TIMEOUT_SECONDS = 600.0
"""Seconds that a sender may be gone without its last message."""
MAX_BODY_BYTES = 1 << 30
"""Bytes of the largest call that is accepted."""
MAX_WINDOW_CALLS = 256
MESSAGE_LIMITS = FrameLimits(head=1 << 20, body=0)
"""Limits of the frames of a sender that are not calls."""
DEFAULT_MAX_AGE_DAYS = 7.0
"""Days after which the files of a training that writes nothing are removed from a shared directory."""
MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class ReceptionPlace:
    """Place where calls arrive: a port of this machine, or a shared directory.

    Attributes:
        host: The address to listen at; empty for none.
        port: The port; 0 for any free one.
        tls: The directory with the certificates; None for plain text.
        directory: The shared directory; None for none.
        consent: The source of the consent to plain text: a config file or ``--insecure``; empty for none.
    """

    host: str = ""
    port: int = 0
    tls: Path | None = None
    directory: Path | None = None
    consent: str = ""


@dataclass(frozen=True, slots=True)
class ReceiverSettings:
    """Order for a receiver.

    Attributes:
        place: The place where calls arrive.
        ranks: The ranks whose calls are judged; None for all.
        patience: The seconds that a sender may be gone without its last message.
        most_body: Bytes of the largest call that is accepted.
        window: Bytes of calls that may be in work.
        calls: The number of calls that may be in work.
        days: The age at which files of a shared directory are removed.
    """

    place: ReceptionPlace
    ranks: frozenset[int] | None = None
    patience: float = SENDER_TIMEOUT_SECONDS
    most_body: int = MAX_BODY_BYTES
    window: int = MAX_BODY_BYTES
    calls: int = MAX_WINDOW_CALLS
    days: float = DEFAULT_MAX_AGE_DAYS


def parse_host_and_port(text: str, option: str) -> tuple[str, int]:
    """Return the parts of ``HOST:PORT``; an IPv6 address may be in brackets.

    Raises:
        UserError: It has another form.
    """
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > MAX_PORT:
        raise UserError(f'{option} "{text}" is no HOST:PORT.', f"For example {option} 127.0.0.1:6006.")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return True for an address that other machines cannot reach."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_receiver_options(values: Mapping[str, Any]) -> ReceiverSettings:
    """Return the order that the options give.

    Raises:
        UserError: An option has a wrong value or contradicts another, or consent to plain text is missing.
    """
    if "listen" in values and "watch" in values:
        raise UserError("--listen and --watch exclude each other.", "Give one of them.")
    return _create_settings(_place(values), None, values)


def count_workers(values: Mapping[str, Any], default: int) -> int:
    """Return the number of processes."""
    return int(_number(values, "workers", default))


def _create_settings(
    place: ReceptionPlace, ranks: frozenset[int] | None, values: Mapping[str, Any]
) -> ReceiverSettings:
    most_body = int(_number(values, "most_body", MAX_BODY_BYTES))
    window = int(_number(values, "window", max(MAX_BODY_BYTES, most_body)))
    if window < most_body:
        raise UserError(
            f"--window {window} is less than the largest call, {most_body} bytes.",
            "Give --most-body as well.",
        )
    if place.directory is None and "max_age" in values:
        raise UserError("--max-age has no effect with an address: no files are shared.", "Leave it out.")
    days = _number(values, "max_age", DEFAULT_MAX_AGE_DAYS)
    patience = _number(values, "patience", SENDER_TIMEOUT_SECONDS)
    return ReceiverSettings(place, ranks, patience, most_body, window, days=days)


def _place(values: Mapping[str, Any]) -> ReceptionPlace:
    if "watch" in values:
        for name in ("tls", "insecure"):
            if name in values:
                raise UserError(
                    f"--{name} has no effect with --watch: nothing is sent over a network.", "Leave it out."
                )
        return ReceptionPlace(directory=Path(values["watch"]))
    if "listen" not in values:
        raise UserError(
            "Options of a receiver are given without a place where calls arrive.",
            "Give --listen HOST:PORT or --watch DIR.",
        )
    host, port = parse_host_and_port(values["listen"], "--listen")
    tls = Path(values["tls"]) if "tls" in values else None
    if tls is None and not is_loopback(host) and "insecure" not in values:
        raise UserError(
            f"--listen {host}:{port} would take tensors over the network in plain text, from anyone.",
            "Give --tls DIR with server.key and server.crt, or --insecure to do it nevertheless.",
        )
    return ReceptionPlace(host, port, tls, consent="--insecure" if "insecure" in values else "")


def _number(values: Mapping[str, Any], name: str, default: float) -> float:
    option = f"--{name.replace('_', '-')}"
    if name not in values:
        return default
    try:
        number = float(values[name])
    except ValueError:
        number = math.nan
    if not (number >= (0 if name == "patience" else 1) and math.isfinite(number)):
        raise UserError(f'{option} "{values[name]}" is no number above 0.', f"For example {option} 600.")
    return number


def parse_receiver_config(fields: Mapping[str, Any], subject: str, values: Mapping[str, Any]) -> ReceiverSettings:
    """Return the order that the fields of a config.json give, by the documents' rules.

    Args:
        fields: The section ``run_ut``.
        subject: The subject of messages, such as "The configuration config.json".
        values: The options of the command line, which give the limits.

    Raises:
        UserError: A field has a wrong value.
    """
    ranks = fields.get("rank_list", [0])
    if not isinstance(ranks, list) or not all(type(rank) is int and rank >= 0 for rank in ranks) or not ranks:
        raise UserError(f"{subject}: rank_list must be a list of non-negative integers.", "For example [0, 1].")
    shared = _read_text(fields, "nfs_path", subject)
    if shared:
        return _create_settings(ReceptionPlace(directory=Path(shared)), frozenset(ranks), values)
    host, port, tls = _read_text(fields, "host", subject), fields.get("port"), _read_text(fields, "tls_path", subject)
    if not host:
        raise UserError(f"{subject} has is_online and neither nfs_path nor host.", 'For example "host": "127.0.0.1".')
    if type(port) is not int or not 1 <= port <= MAX_PORT:
        raise UserError(f"{subject}: port must be a whole number from 1 to {MAX_PORT}.", "For example 6006.")
    return _create_settings(
        ReceptionPlace(host, port, Path(tls) if tls else None, consent=subject), frozenset(ranks), values
    )


def _read_text(fields: Mapping[str, Any], key: str, subject: str) -> str:
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise UserError(f"{subject}: {key} must be a text.", 'For example "".')
    return value or ""
