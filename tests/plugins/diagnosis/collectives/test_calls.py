"""Kinds of calls, told by their records."""

from __future__ import annotations

from typing import Any

import pytest
from probe_diagnosis.collectives.calls import CommunicationCall, Peer, load_apis, parse_call
from support.runs.ops import number
from support.runs.records import record_of

# -- what a call is, by its record -------------------------------------------------------------------


def recorded(api: str, *inputs: Any, **keywords: Any) -> CommunicationCall:
    """The call that a record of ``api`` with these arguments is."""
    fields = {"input_args": list(inputs), "input_kwargs": keywords, "output": []}
    found = parse_call(record_of(0, f"Distributed.{api}.0.forward", fields))
    assert found is not None
    return found


TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0}
GROUP = {"type": "torch.ProcessGroup", "group_ranks": [4, 5, 6]}


def test_the_group_of_a_call() -> None:
    assert recorded("all_reduce", TENSOR).group == ()
    assert recorded("all_reduce", TENSOR, group=None).group == ()
    assert recorded("all_reduce", TENSOR, group=GROUP).group == (4, 5, 6)
    assert recorded("all_reduce", TENSOR, {"type": "str", "value": "SUM"}, GROUP).group == (4, 5, 6)
    assert recorded("barrier", GROUP).group == (4, 5, 6)


@pytest.mark.parametrize(("api", "name"), [("broadcast", "src"), ("scatter", "src"), ("reduce", "dst"),
                                           ("gather", "dst")])  # fmt: skip
def test_the_root_of_a_call(api: str, name: str) -> None:
    place = load_apis()[api].arguments.index(name)
    assert recorded(api, TENSOR, **{name: number(2)}).root == 2
    assert recorded(api, *[TENSOR] * place, number(2)).root == 2
    assert recorded(api, TENSOR, **{f"group_{name}": number(2)}, group=GROUP).root == 6
    assert recorded(api, TENSOR, **{name: None, f"group_{name}": number(0)}, group=GROUP).root == 4
    assert recorded(api, TENSOR).root == 0
    assert recorded(api, TENSOR, group=GROUP).root == 4


def test_the_peers_of_a_transfer() -> None:
    assert recorded("send", TENSOR, number(3)).peers == (Peer(3, True),)
    assert recorded("isend", TENSOR, dst=number(3)).peers == (Peer(3, True),)
    assert recorded("recv", TENSOR, number(3)).peers == (Peer(3, False),)
    assert recorded("irecv", TENSOR, group_src=number(1), group=GROUP).peers == (Peer(5, False),)

    def transfer(name: str, peer: int) -> dict[str, Any]:
        return {"class_type": "torch.distributed.P2POp", "op": name, "tensor": TENSOR, "peer": peer,
                "tag": 0, "group_id": "0"}  # fmt: skip

    assert recorded("batch_isend_irecv", [transfer("isend", 1), transfer("irecv", 3)]).peers == (
        Peer(1, True), Peer(3, False),
    )  # fmt: skip


@pytest.mark.parametrize(
    "key",
    [
        "Torch.all_reduce.0.forward",
        "Distributed.nope.0.forward",
        "Distributed",
        "Distributed.all_reduce.0.backward",
        "Module.Distributed.all_reduce.0.forward",
    ],
)
def test_records_that_are_no_communication(key: str) -> None:
    assert parse_call(record_of(0, key, {"output": []})) is None
