"""The receiver that the calls of a training are sent to, and the limits of sending (docs/online.md)."""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from probe_core.errors import UserError
from probe_recording.fields import Fields, warn

FULL_QUEUE_POLICIES = ("drop", "wait")
DEFAULT_MEMORY_BYTES = 1 << 30
DEFAULT_DISK_BYTES = 16 << 30
DEFAULT_WAIT_SECONDS = 60
DEFAULT_DRAIN_SECONDS = 600
PROBE_FIELDS = frozenset({"online_memory", "online_policy", "online_wait", "online_drain", "online_disk"})
FIELDS = frozenset({"online_run_ut", "nfs_path", "host", "port", "tls_path"}) | PROBE_FIELDS
"""Fields of the section ``tensor`` that are read here; those in ``OWN`` are probe's own, not msprobe's."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_MIN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Destination:
    """The place that calls are sent to: a receiver in the network, or a shared directory.

    Attributes:
        host: The receiver's host name or address; empty for a shared directory.
        port: Its port.
        tls: The directory of certificates; None for plain text.
        shared: The shared directory; None for a receiver in the network.
        memory: Bytes of calls that may wait in memory to be sent or judged.
        disk: Bytes of calls that may wait in a shared directory.
        policy: ``drop`` to drop calls that find no room, ``wait`` to let the training wait.
        wait: Seconds that the training may wait in a step.
        drain: Seconds that the process may wait at its end until everything is acknowledged.
        consented: True if plain text was asked for beyond this machine by an option that says so.
    """

    host: str = ""
    port: int = 0
    tls: Path | None = None
    shared: Path | None = None
    memory: int = DEFAULT_MEMORY_BYTES
    disk: int = DEFAULT_DISK_BYTES
    policy: str = "drop"
    wait: float = DEFAULT_WAIT_SECONDS
    drain: float = DEFAULT_DRAIN_SECONDS
    consented: bool = False

    def __str__(self) -> str:
        if self.shared is not None:
            return str(self.shared)
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_exposed(self) -> bool:
        """True if the calls leave this machine in plain text."""
        return self.shared is None and self.tls is None and not is_loopback(self.host)


def read_destination(section: Fields) -> Destination | None:
    """Return the destination that a section describes; None unless ``online_run_ut`` is true.

    Raises:
        UserError: A field has a wrong value.
    """
    if not section.flag("online_run_ut", False):
        for name in ("host", "nfs_path"):
            if section.value(name):
                warn(f'{section.subject}: "{name}" has no effect unless "online_run_ut" is true')
        return None
    limits: dict[str, Any] = {
        "memory": _parse_size(section, "online_memory", DEFAULT_MEMORY_BYTES),
        "disk": _parse_size(section, "online_disk", DEFAULT_DISK_BYTES),
        "policy": section.choice("online_policy", FULL_QUEUE_POLICIES, "drop"),
        "wait": _parse_seconds(section, "online_wait", DEFAULT_WAIT_SECONDS),
        "drain": _parse_seconds(section, "online_drain", DEFAULT_DRAIN_SECONDS),
    }
    if shared := section.text("nfs_path", ""):
        return Destination(shared=Path(shared).absolute(), **limits)
    host = section.text("host", "").strip()
    if not host:
        raise section.wrong(
            "host",
            'is missing, and so is "nfs_path": online_run_ut needs a receiver',
            'Give "host" and "port" of the receiver, or "nfs_path", a directory that both machines share.',
        )
    port = section.value("port")
    if type(port) is not int or not 1 <= port <= 65535:
        raise section.wrong(
            "port",
            f"must be a whole number from 1 to 65535, not {port!r:.40}",
            'Give the port that the receiver listens on, for example "port": 59208.',
        )
    tls = section.text("tls_path", "")
    return Destination(host, port, Path(tls).absolute() if tls else None, **limits)


def create_destination(
    text: str, tls: str | None = None, insecure: bool = False, memory: str | None = None
) -> Destination:
    """Return the destination of ``--send-to``.

    Args:
        text: ``HOST:PORT``, or the path of a shared directory.
        tls: The directory of certificates, or None.
        insecure: True to send plain text to another machine.
        memory: The value of ``--send-memory``, or None.

    Raises:
        UserError: The text is neither, or plain text would leave this machine without ``insecure``.
    """
    limit = DEFAULT_MEMORY_BYTES if memory is None else parse_byte_count(memory)
    if limit is None or limit < _MIN_BYTES:
        raise UserError(
            f'--send-memory must be a size of at least 1 MiB, not "{memory}".',
            "For example --send-memory 2GiB.",
        )
    host, colon, port = text.rpartition(":")
    if not colon or "/" in text or not port.isdecimal():
        path = Path(text).absolute()
        if not path.is_dir():
            raise UserError(
                f'--send-to "{text}" is neither HOST:PORT nor an existing directory.',
                "Give the receiver's address, such as 192.0.2.1:59208, or a directory that both share.",
            )
        return Destination(shared=path, memory=limit)
    if not host or not 1 <= int(port) <= 65535:
        raise UserError(
            f'--send-to "{text}" is no address: it needs a host and a port from 1 to 65535.',
            "For example --send-to 127.0.0.1:59208.",
        )
    destination = Destination(
        host.strip("[]"), int(port), Path(tls).absolute() if tls else None, memory=limit, consented=insecure
    )
    if destination.is_exposed and not insecure:
        raise UserError(
            f"--send-to {text} would send the tensors of the training to another machine in plain text.",
            "Give --tls DIR, a directory with the receiver's server.crt, or --insecure to send plain text.",
        )
    return destination


class Settings(Protocol):
    """The settings of a recording that sending depends on."""

    @property
    def task(self) -> str:
        """The kind of data."""

    @property
    def level(self) -> str:
        """The kind of calls."""

    @property
    def directions(self) -> frozenset[str]:
        """Those of forward and backward that are recorded."""

    @property
    def sides(self) -> frozenset[str]:
        """Those of input and output that are recorded."""

    @property
    def asynchronous(self) -> bool:
        """True to keep data on the device."""


C = TypeVar("C", bound=Settings)


def replace_destination(config: C, destination: Destination | None, what: str) -> C:
    """Return the settings with a destination: forward calls only, and nothing beside them.

    Args:
        config: The settings.
        destination: The destination; None returns the settings unchanged.
        what: The subject that error messages begin with.

    Raises:
        UserError: The settings record something else than whole API calls.
    """
    if destination is None:
        return config
    if config.task != "tensor" or config.level not in ("L1", "mix"):
        raise UserError(
            f"{what}: calls are sent with task tensor at level L1 or mix, not with task {config.task} "
            f"at level {config.level}.",
            'Set "task": "tensor" and "level": "L1".',
        )
    if "forward" not in config.directions or config.sides != {"input", "output"}:
        raise UserError(
            f'{what}: "data_mode" leaves out a part of the forward calls, which are sent as a whole.',
            'Set "data_mode": ["all"]; gradients are not sent.',
        )
    if config.asynchronous:
        warn(f'{what}: "async_dump" has no effect on calls that are sent')
    return replace(  # type: ignore[type-var]
        config,
        online=destination,
        directions=frozenset({"forward"}),
        parameter_gradients=False,
        asynchronous=False,
        extra_info=False,
        step_phases=False,
        summary="statistics",
    )


def parse_byte_count(text: str) -> int | None:
    """Return the bytes of a size such as ``512MiB`` or ``2g``, in powers of 1024; None if it is no size."""
    match = _SIZE.fullmatch(text.strip())
    return int(float(match[1]) * _UNITS[match[2].lower()]) if match else None


def is_loopback(host: str) -> bool:
    """Return True if a host is this machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parse_size(section: Fields, name: str, default: int) -> int:
    value = section.value(name)
    size = default if value is None else parse_byte_count(value) if isinstance(value, str) else value
    if type(size) is not int or size < _MIN_BYTES:
        raise section.wrong(
            name,
            f"must be a size of at least 1 MiB, not {value!r:.40}",
            f'For example "{name}": "2GiB", or a number of bytes.',
        )
    return size


def _parse_seconds(section: Fields, name: str, default: float) -> float:
    value = section.value(name)
    seconds = default if value is None else value
    if type(seconds) not in (int, float) or not 0 <= seconds < math.inf:
        raise section.wrong(
            name,
            f"must be a non-negative number of seconds, not {value!r:.40}",
            f'For example "{name}": {default}.',
        )
    return float(seconds)
