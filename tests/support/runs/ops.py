"""Ops of one or several ranks, for the search of the first difference."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from probe_diagnosis.collectives.calls import CommunicationCall, Flow, Peer, load_apis
from probe_diagnosis.difference.search import Node, search
from probe_diagnosis.timeline.compared_calls import ComparedCall, ValueComparison, ValueState

from probe_core.model import Side

NOISE, COARSE, JUMP = 2.0**-17, 2.0**-5, 10.0
FAULT = 1e4
"""A difference, in multiples of what rounding explains."""
# -- making ops --------------------------------------------------------------------------------


def value(times: float = 0.0, *, scale: float = 1.0, noise: float = NOISE, **fields: Any) -> ValueComparison:
    """A tensor that is ``times`` what rounding explains apart."""
    state = ValueState.DIFFERS if times > 1 else ValueState.SAME
    plain = {"row": "", "side": Side.INPUT, "evidence": f"rms {times:g} apart" if times > 1 else ""}
    return ValueComparison(state=state, distance=times * (noise or 1.0) * scale, scale=scale, noise=noise, jump=JUMP,
                 **{**plain, **fields})  # fmt: skip


def argument(differs: bool = True) -> ValueComparison:
    """A scalar argument."""
    scalar = ValueComparison("", Side.INPUT, ValueState.SAME, 0.0, 1.0, is_scalar=True)
    return (
        scalar._replace(state=ValueState.DIFFERS, distance=math.inf, evidence="1.05 against 1.0") if differs else scalar
    )


UNSET = ValueComparison("", Side.INPUT, ValueState.UNJUDGED, evidence="not computed yet")
Valued = Any
"""A value, or how many times what rounding explains it is apart."""


def op(name: str, inputs: Sequence[Valued] = (0,), outputs: Sequence[Valued] = (0,), **fields: Any) -> ComparedCall:
    """An op with these inputs and outputs."""
    values = []
    for side, found in ((Side.INPUT, inputs), (Side.OUTPUT, outputs)):
        for place, one in enumerate(found):
            made = one if isinstance(one, ValueComparison) else value(one)
            values.append(made._replace(row=f"{name}.{side.value}.{place}", side=side))
    return ComparedCall(name, tuple(values), **fields)


def torch(name: str, inputs: Sequence[Valued] = (0,), outputs: Sequence[Valued] = (0,), **fields: Any) -> ComparedCall:
    return op(f"Torch.{name}.0.forward", inputs, outputs, **fields)


def call(
    api: str, inputs: Sequence[Valued] = (0,), outputs: Sequence[Valued] = (0,), group: Sequence[int] = (),
    root: int | None = None, peers: Sequence[tuple[int, bool]] = (), number: int = 0,
) -> ComparedCall:  # fmt: skip
    found = CommunicationCall(load_apis()[api], tuple(group), root, tuple(Peer(*peer) for peer in peers))
    return op(f"Distributed.{api}.{number}.forward", inputs, outputs, communication=found)


def named(*ranks: Sequence[ComparedCall]) -> list[tuple[int, str]]:
    """Return the named ops of ranks 0, 1, …: rank and name, earliest first."""
    return told(dict(enumerate(ranks)))


def told(ranks: dict[int, Sequence[ComparedCall]]) -> list[tuple[int, str]]:
    return [(node.rank, short(node)) for node in search(ranks).first]


def short(node: Node) -> str:
    """``relu`` of ``Torch.relu.0.forward``; other names whole."""
    parts = node.call.op.split(".")
    return parts[1] if parts[0] in ("Torch", "Distributed") else node.call.op


def why(*ranks: Sequence[ComparedCall]) -> str:
    """Return the reason of the only op that is named."""
    (node,) = search(dict(enumerate(ranks))).first
    return node.why


BAD = torch("bad", [0], [FAULT])
BEHIND = torch("behind", [FAULT], [FAULT])
GOOD = torch("good")
# -- in a group ------------------------------------------------------------------------------------


ALL = sorted(name for name, api in load_apis().items() if api.flow is Flow.ALL)
FROM_ROOT = sorted(name for name, api in load_apis().items() if api.flow is Flow.FROM_ROOT)
TO_ROOT = sorted(name for name, api in load_apis().items() if api.flow is Flow.TO_ROOT)
# -- what is missing -------------------------------------------------------------------------------


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail instead of hanging."""

    def late(*_: Any) -> None:
        raise AssertionError(f"no end within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- what a call is, by its record -------------------------------------------------------------------


def number(value: int) -> dict[str, Any]:
    return {"type": "int", "value": value}
