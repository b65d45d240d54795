"""The recorder on tensors of every kind, and on objects that answer nothing."""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.programs.training import raw
from support.runs.recording import Recording, recording
from support.runs.survivals import (
    ODD,
    PLAIN_TASKS,
    alone,  # noqa: F401
    modes,
    operators_seen,
    python,
    reason_to_skip_subclasses,
    saved,
)
from torch import Tensor, nn
from torch.nn import functional as F

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(beta|prototype|deprecated|requires_grad=True):UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]
# -- tensors of every kind ------------------------------------------------------------------------


class Plain(Tensor):
    """A subclass that adds nothing."""


def fake() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return F.relu(torch.empty(2, 3)) + 1


def without_gradients() -> Any:
    with torch.no_grad():
        return F.relu(torch.ones(2, 3, requires_grad=True)) * 2


def inference() -> Any:
    with torch.inference_mode():
        return F.relu(torch.ones(2, 3) * 2)


def nested(layout: str) -> Any:
    keywords = {} if layout == "strided" else {"layout": getattr(torch, layout)}
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], **keywords) * 2


def reason_to_skip(kind: str, level: str) -> str:
    """Return why torch cannot make tensors of a kind here, or an empty string."""
    needed = {"jagged": "jagged", "uint32": "uint32", "float8": "float8_e4m3fn"}.get(kind, "")
    if needed and not hasattr(torch, needed):
        return f"this torch has no torch.{needed}"
    if level == "L2" and kind == "subclass":
        return reason_to_skip_subclasses()
    if level == "L2" and kind == "fake" and not operators_seen(fake):
        return "this torch passes no operators of a fake mode to lower dispatch modes"
    return ""


KINDS: dict[str, Callable[[], Any]] = {
    "meta": lambda: F.relu(torch.empty(2, 3, device="meta")) + 1,
    "fake": fake,
    "coo": lambda: torch.sparse.mm(torch.eye(3).to_sparse() * 2, torch.ones(3, 2)),
    "csr": lambda: torch.eye(3).to_sparse_csr() @ torch.ones(3),
    "quantised": lambda: F.relu(torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)).dequantize(),
    "nested": lambda: nested("strided"),
    "jagged": lambda: nested("jagged"),
    "subclass": lambda: F.relu(torch.ones(2, 3).as_subclass(Plain)) + 1,
    "parameter": lambda: F.relu(nn.Parameter(torch.ones(2, 3))) + 1,
    "empty": lambda: F.relu(torch.ones(0, 3)) + 1,
    "complex": lambda: (torch.ones(2, dtype=torch.complex64) * 1j).conj() + 1,
    "negative": lambda: (torch.ones(2, dtype=torch.complex64) * 1j).conj().imag * 2,
    "expanded": lambda: torch.ones(1, 2).expand(3, 2) * 2,
    "float8": lambda: torch.ones(3).to(torch.float8_e4m3fn).float(),
    "uint32": lambda: torch.ones(3, dtype=torch.uint32).long() + 1,
    "bfloat16": lambda: F.relu(torch.ones(3, dtype=torch.bfloat16)) * 3,
    "no_grad": without_gradients,
    "inference": inference,
    "half a storage": lambda: torch.arange(8.0)[5:] * 2,
    "0-d": lambda: torch.tensor(3.0) * 2,
    "vmap": lambda: torch.func.vmap(lambda v: F.softmax(v, -1).sum())(torch.ones(3, 4)),
    "grad": lambda: torch.func.grad(lambda v: F.gelu(v).sum())(torch.ones(3)),
    "both": lambda: torch.func.vmap(torch.func.grad(lambda v: (v * v).sum()))(torch.ones(3, 4)),
    "jacobian": lambda: torch.func.jacrev(lambda v: v.sin())(torch.ones(3)),
    "functional": lambda: torch.func.functional_call(
        nn.Linear(2, 2), {"weight": torch.ones(2, 2), "bias": torch.ones(2)}, torch.ones(1, 2)
    ),
}


@pytest.mark.parametrize("task", PLAIN_TASKS)
@pytest.mark.parametrize("level", ["L1", "L2"])
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_every_kind(tmp_path: Path, kind: str, level: str, task: str) -> None:
    if reason := reason_to_skip(kind, level):
        pytest.skip(reason)
    make = KINDS[kind]
    expected = make()
    with recording(tmp_path / "run", level=level, task=task) as found:
        found.start()
        result = make()
        found.stop()
        found.step()
    assert type(result) is type(expected)
    if kind not in ("meta", "fake", "nested", "jagged"):
        assert raw(result.detach()) == raw(expected.detach())
        assert result.requires_grad == expected.requires_grad
    assert modes() == (0, 0)
    assert found.records()
    if task == "tensor":
        saved(found)


def test_what_is_told_of_tensors_without_plain_storage(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", task="tensor") as found:
        found.start()
        F.relu(torch.empty(2, 3, device="meta"))
        F.silu(torch.tensor([[0.0, -3.0], [2.0, 0.0]]).to_sparse().to_dense())
        torch.tensor([[0.0, -3.0], [2.0, 0.0]]).to_sparse().sum()
        F.gelu(torch.ones(2).as_subclass(Plain))
        with torch.inference_mode():
            F.relu(torch.ones(2) * 4)
        found.stop()
        found.step()
    records = found.records()
    (meta,) = records["Functional.relu.0.forward"]["input_args"]
    assert meta["shape"] == [2, 3] and meta["Max"] is None and "data_name" not in meta
    (sparse,) = records["Tensor.sum.0.forward"]["input_args"]
    assert (sparse["Max"], sparse["Min"], sparse["shape"]) == (
        2.0,
        -3.0,
        [2, 2],
    ) and "data_name" not in sparse
    (plain,) = records["Functional.gelu.0.forward"]["input_args"]
    assert plain["type"] == "torch.Tensor" and plain["Max"] == 1.0
    assert saved(found)["Functional.gelu.0.forward.input.0.pt"].tolist() == [1.0, 1.0]
    assert records["Functional.relu.1.forward"]["output"][0]["Max"] == 4.0


DTENSOR = """
    import json, sys
    from pathlib import Path
    import torch
    import torch.distributed as dist
    from support.runs.recording import recording
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    x = distribute_tensor(torch.arange(12.0).reshape(4, 3), mesh, [Shard(0)])
    w = torch.nn.Parameter(distribute_tensor(torch.ones(2, 3), mesh, [Replicate()]))
    names = dict(vars(dist))
    with recording(Path(sys.argv[1]), level="L1", task="tensor") as found:
        found.start()
        (x * 2)
        torch.nn.functional.linear(x, w).sum().backward()
        dist.all_reduce(torch.ones(2))
        dist.all_reduce(torch.ones(3), async_op=True).wait()
        changed = [name for name in names if vars(dist)[name] is not names[name]]
        found.stop()
        found.step()
    left = [name for name in names if vars(dist)[name] is not names[name]]
    print(json.dumps({
        "records": json.loads((found.directory(0, "rank0") / "dump.json").read_text())["data"],
        "left": left,
        "changed": changed,
        "gradient": [str(w.grad.placements), w.grad.full_tensor().tolist()],
    }))
    dist.destroy_process_group()
"""


def test_distributed_tensors(tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed.device_mesh", reason="since torch 2.2")
    done = python(DTENSOR, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    leaf = told["records"]["Tensor.__mul__.0.forward"]["input_args"][0]
    assert leaf["type"] == "torch.distributed.tensor.DTensor"
    assert leaf["shape"] == [4, 3] and leaf["Max"] == 11.0
    assert len(leaf["placements"]) == 1 and "S" in leaf["placements"][0]
    assert leaf["device_mesh"] == [0]
    assert leaf["data_name"] == "Tensor.__mul__.0.forward.input.0.pt"
    assert "Functional.linear.0.backward" in told["records"]
    assert {"Distributed.all_reduce.0.forward", "Distributed.all_reduce.1.forward"} <= told["records"].keys()
    assert told["changed"] and told["left"] == []
    assert told["gradient"][1] == [[18.0, 22.0, 26.0]] * 2


# -- objects that answer nothing ------------------------------------------------------------------


class Takes(nn.Module):
    def forward(self, x: Tensor, odd: object = None, **more: object) -> Tensor:
        return x * 2


@pytest.mark.parametrize("task", PLAIN_TASKS)
@pytest.mark.parametrize("kind", ODD)
def test_an_argument_that_answers_nothing_does_not_stop_the_training(tmp_path: Path, kind: str, task: str) -> None:
    value = ODD[kind]
    x = torch.ones(2, requires_grad=True)
    found = Recording(tmp_path / "run", level="mix", task=task)
    model = nn.Sequential(Takes())
    found.start(model)
    model[0](x, value).sum().backward()
    model[0](x, more={"a": value, 3: value})
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]
    found.stop()
    found.step()
    found.finish()
    records = found.records()
    assert records["Module.0.Takes.forward.0"]["output"][0]["Max"] == 2.0
    assert "Module.0.Takes.forward.1" in records


@pytest.mark.parametrize("kind", ODD)
def test_an_argument_that_answers_nothing_costs_itself_only(tmp_path: Path, kind: str) -> None:
    value = ODD[kind]
    found = Recording(tmp_path / "run", level="L0")
    model = nn.Sequential(Takes())
    found.start(model)
    model[0](torch.full((2,), 3.0), value)
    found.stop()
    found.finish()
    record = found.records()["Module.0.Takes.forward.0"]
    assert record["input_args"][0]["Max"] == 3.0 and len(record["input_args"]) == 2


def test_what_contains_itself_twice_is_walked_once(tmp_path: Path) -> None:
    @dataclasses.dataclass
    class Node:
        parent: Node | None = None
        children: list[Node] = dataclasses.field(default_factory=list)

    root = Node()
    root.children = [Node(root), Node(root)]

    def late(*_: object) -> None:
        raise TimeoutError

    with recording(tmp_path / "run", level="L0") as found:
        model = nn.Sequential(Takes())
        found.start(model)
        before = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        try:
            model[0](torch.ones(2), root)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        found.stop()
    assert len(found.records()["Module.0.Takes.forward.0"]["input_args"]) == 2


def test_a_number_too_long_for_python_to_print(tmp_path: Path) -> None:
    found = Recording(tmp_path / "run", level="L0")
    model = nn.Sequential(Takes())
    found.start(model)
    model[0](torch.ones(2), 10**5000)
    try:
        found.stop()
        assert "Module.0.Takes.forward.0" in found.records()
    finally:
        found.debugger._recorder._sessions.current = None
        found.finish()
