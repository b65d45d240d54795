"""A communication call on record: what it does, in which group, and with whom."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from probe_core.model import Kind, Record, Side, Slot

SCOPES = ("Distributed", "MintDistributed", "communication")
_KEY = re.compile(r"(?:Distributed|MintDistributed|communication\.comm_func)\.(\w+)\.\d+\.forward$")
_NUMBERS = re.compile(r"\d+")


class Flow(str, Enum):
    """Who learns from whom in a call."""

    ALL = "all"
    FROM_ROOT = "from_root"
    TO_ROOT = "to_root"
    SEND = "send"
    RECEIVE = "receive"
    EXCHANGE = "exchange"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Api:
    """A communication API, as ``apis.yaml`` describes it."""

    name: str
    arguments: tuple[str, ...]
    flow: Flow
    fills: str = ""
    gives: str = ""
    law: str = ""


class Peer(NamedTuple):
    """One side of a transfer between two ranks: the other rank, and whether we send to it."""

    rank: int
    sends: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A communication call of one rank.

    Attributes:
        api: What was called.
        group: The ranks that take part, ascending as recorded; empty where the default group was meant.
        root: The rank that ``src`` or ``dst`` names; None where there is none.
        peers: The transfers that a send, a receive or a list of both makes.
    """

    api: Api
    group: tuple[int, ...] = ()
    root: int | None = None
    peers: tuple[Peer, ...] = ()


@cache
def apis() -> dict[str, Api]:
    """The communication APIs by name."""
    import yaml

    loaded: dict[str, Any] = yaml.safe_load(files(__package__).joinpath("apis.yaml").read_text("utf-8"))
    return {
        name: Api(name, tuple(one.pop("arguments")), Flow(one.pop("flow")), **one)
        for name, one in loaded.items()
    }


def api_of(key: str) -> Api | None:
    """The communication API that a record is a call of; None for any other record."""
    if not key.startswith(SCOPES):
        return None
    found = _KEY.match(key)
    return apis().get(found[1]) if found else None


def argument_of(api: Api, slot: Slot) -> str:
    """The name of the argument that an input is, or belongs to."""
    head = slot.path.partition(".")[0]
    if not head.isdecimal():
        return head
    return api.arguments[int(head)] if int(head) < len(api.arguments) else ""


def call_of(record: Record) -> Call | None:
    """The communication call that a record is; None for any other record."""
    api = api_of(record.key)
    if api is None:
        return None
    inputs = [slot for slot in record.slots if slot.side is Side.INPUT]
    named = {argument_of(api, slot): slot for slot in inputs}
    group = _group(named.get("group"))
    root = _root(named, group)
    peers: tuple[Peer, ...] = ()
    if api.flow in (Flow.SEND, Flow.RECEIVE) and root is not None:
        peers = (Peer(root, api.flow is Flow.SEND),)
    elif api.flow is Flow.EXCHANGE:
        peers = tuple(
            Peer(slot.value.p2p.peer, "send" in slot.value.p2p.op) for slot in inputs if slot.value.p2p
        )
    if root is None and api.flow in (Flow.FROM_ROOT, Flow.TO_ROOT):
        root = group[0] if group else 0
    return Call(api, group, root, peers)


def _group(slot: Slot | None) -> tuple[int, ...]:
    """The ranks of a group, written ``[0, 1]`` or ``tp-0-1``."""
    if slot is None or slot.value.kind is not Kind.SCALAR:
        return ()
    text = slot.value.statistics.max
    return tuple(map(int, _NUMBERS.findall(text))) if isinstance(text, str) else ()


def _root(named: dict[str, Slot], group: Sequence[int]) -> int | None:
    for name in ("src", "dst"):
        number = _number(named.get(name))
        if number is not None:
            return number
        inside = _number(named.get(f"group_{name}"))
        if inside is not None:
            return group[inside] if 0 <= inside < len(group) else inside
    return None


def _number(slot: Slot | None) -> int | None:
    value = slot.value.statistics.max if slot is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_buffer(api: Api, slot: Slot) -> bool:
    """True for an input that the call overwrites without looking at it."""
    if slot.value.p2p is not None:
        return "recv" in slot.value.p2p.op
    return slot.side is Side.INPUT and argument_of(api, slot) == api.fills != api.gives
