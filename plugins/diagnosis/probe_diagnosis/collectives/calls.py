"""Recorded communication calls: their API, their group, and the ranks that they exchange values with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

from probe_core.files.packaged import load_yaml
from probe_core.model import Kind, Record, Side, Slot

KEY_PREFIXES = ("Distributed", "MintDistributed", "communication")
"""Beginnings of the keys of communication calls."""

_KEY_PATTERN = re.compile(r"(?:Distributed|MintDistributed|communication\.comm_func)\.(\w+)\.\d+\.forward$")
_NUMBERS = re.compile(r"\d+")


class Flow(str, Enum):
    """Direction in which a call moves values between ranks; see ``apis.yaml``."""

    ALL = "all"
    FROM_ROOT = "from_root"
    TO_ROOT = "to_root"
    SEND = "send"
    RECEIVE = "receive"
    EXCHANGE = "exchange"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class CommunicationApi:
    """A communication API, as described in ``apis.yaml``.

    Attributes:
        name: The name within its scope.
        arguments: Names of its arguments, in order.
        flow: Direction in which it moves values.
        fills: The argument that it overwrites; empty for none.
        gives: The argument that it sends; empty for none.
        law: Name of the rule by which ``fills`` follows from all ranks' ``gives``; empty if it has none.
    """

    name: str
    arguments: tuple[str, ...]
    flow: Flow
    fills: str = ""
    gives: str = ""
    law: str = ""


class Peer(NamedTuple):
    """One side of a transfer between two ranks.

    Attributes:
        rank: The other rank.
        sends: True if this rank sends to the other, False if it receives.
    """

    rank: int
    sends: bool


@dataclass(frozen=True, slots=True)
class CommunicationCall:
    """A communication call of one rank.

    Attributes:
        api: The API that was called.
        group: The ranks that take part, in the order of the record; empty for the default group.
        root: The rank that ``src`` or ``dst`` names; None for a call without a root.
        peers: The transfers of a send, a receive, or a list of both.
    """

    api: CommunicationApi
    group: tuple[int, ...] = ()
    root: int | None = None
    peers: tuple[Peer, ...] = ()


@cache
def load_apis() -> dict[str, CommunicationApi]:
    """Return the communication APIs by name."""
    loaded: dict[str, Any] = load_yaml(__package__, "apis.yaml")
    return {
        name: CommunicationApi(name, **{**entry, "arguments": tuple(entry["arguments"]), "flow": Flow(entry["flow"])})
        for name, entry in loaded.items()
    }


def find_api(key: str) -> CommunicationApi | None:
    """Return the communication API that the record with this key calls; None for any other record."""
    if not key.startswith(KEY_PREFIXES):
        return None
    match = _KEY_PATTERN.match(key)
    return load_apis().get(match[1]) if match else None


def get_argument_name(api: CommunicationApi, slot: Slot) -> str:
    """Return the name of the argument that an input is, or is part of; empty if it has none."""
    head = slot.path.partition(".")[0]
    if not head.isdecimal():
        return head
    return api.arguments[int(head)] if int(head) < len(api.arguments) else ""


def parse_call(record: Record) -> CommunicationCall | None:
    """Return the communication call of a record; None for any other record."""
    api = find_api(record.key)
    if api is None:
        return None
    inputs = [slot for slot in record.slots if slot.side is Side.INPUT]
    named = {get_argument_name(api, slot): slot for slot in inputs}
    group = _parse_group(named.get("group"))
    root = _find_root(named, group)
    peers: tuple[Peer, ...] = ()
    if api.flow in (Flow.SEND, Flow.RECEIVE) and root is not None:
        peers = (Peer(root, api.flow is Flow.SEND),)
    elif api.flow is Flow.EXCHANGE:
        peers = tuple(Peer(slot.value.p2p.peer, "send" in slot.value.p2p.op) for slot in inputs if slot.value.p2p)
    if root is None and api.flow in (Flow.FROM_ROOT, Flow.TO_ROOT):
        root = group[0] if group else 0
    return CommunicationCall(api, group, root, peers)


def _parse_group(slot: Slot | None) -> tuple[int, ...]:
    """Return the ranks of a group that is recorded as ``[0, 1]`` or ``tp-0-1``."""
    if slot is None or slot.value.kind is not Kind.SCALAR:
        return ()
    text = slot.value.statistics.max
    return tuple(map(int, _NUMBERS.findall(text))) if isinstance(text, str) else ()


def _find_root(named: dict[str, Slot], group: Sequence[int]) -> int | None:
    """Return the rank that ``src``, ``dst``, ``group_src`` or ``group_dst`` names; None if none was given."""
    for name in ("src", "dst"):
        number = _read_integer(named.get(name))
        if number is not None:
            return number
        position = _read_integer(named.get(f"group_{name}"))
        if position is not None:
            return group[position] if 0 <= position < len(group) else position
    return None


def _read_integer(slot: Slot | None) -> int | None:
    """Return an argument that is an integer; None for any other."""
    value = slot.value.statistics.max if slot is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_buffer(api: CommunicationApi, slot: Slot) -> bool:
    """Return True for an input that the call overwrites without reading it."""
    if slot.value.p2p is not None:
        return "recv" in slot.value.p2p.op
    return slot.side is Side.INPUT and get_argument_name(api, slot) == api.fills != api.gives
