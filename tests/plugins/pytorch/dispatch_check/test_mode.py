"""Places in the program, and forward calls of autograd nodes."""

from __future__ import annotations

import inspect
import sys

import torch
from probe_pytorch import compat, compat_dispatch
from probe_pytorch.dispatch_check.findings import CallOrigin
from probe_pytorch.dispatch_check.mode import (
    MAX_FORWARD_CALLS,
    ForwardCall,
    ForwardCalls,
    normalize_operator_name,
    read_stack,
)
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

Node = compat_dispatch.Node


class Inner(nn.Module):
    def forward(self, found: list[CallOrigin]) -> torch.Tensor:
        found.append(read_stack(sys._getframe()).origin)
        return torch.ones(1)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Inner()])
        self.hidden = [Inner()]

    def forward(self, found: list[CallOrigin]) -> None:
        self.parts[0](found)
        self.hidden[0](found)
        found.append(read_stack(sys._getframe()).origin)


def test_the_path_is_within_the_outermost_module() -> None:
    found: list[CallOrigin] = []
    Outer()(found)
    assert [(one.module, one.module_class) for one in found] == [
        ("parts.0", "Inner"), ("", "Inner"), ("", "Outer"),
    ]  # fmt: skip
    assert all(one.file == __file__ for one in found)


def test_the_line_is_that_of_the_program() -> None:
    frame = inspect.currentframe()
    assert frame is not None
    origin = read_stack(frame).origin
    assert (origin.file, origin.line, origin.module_class) == (__file__, frame.f_lineno - 1, "")
    assert read_stack(None).origin == CallOrigin()


def test_modules_that_get_another_part_are_named_again() -> None:
    found: list[CallOrigin] = []
    outer = Outer()
    outer(found)
    outer.parts.append(Inner())
    outer.parts = nn.ModuleList([outer.parts[1]])
    outer(found)
    assert found[3].module == "parts.0"


def call(name: str) -> ForwardCall:
    return ForwardCall(f"Aten.{name}.0", normalize_operator_name(name), CallOrigin())


def test_nodes_have_the_call_that_made_them() -> None:
    calls = ForwardCalls()
    calls.note(3, 4, call("addmm"))
    calls.note(4, 6, call("_log_softmax"))
    found = {
        Node("AddmmBackward0", 3, False): "Aten.addmm.0",
        Node("LogSoftmaxBackward0", 5, False): "Aten._log_softmax.0",
        Node("AddmmBackward0", 5, False): None,  # the number of another thread
        Node("AddmmBackward0", 9, False): None,
        Node("OwnBackward", 3, True): "Aten.addmm.0",
        Node("torch::autograd::AccumulateGrad", 3, False): None,
    }
    for node, name in found.items():
        forward = calls.find_call(node)
        assert (None if forward is None else forward.name) == name, node
    assert calls.find_call(None) is None


def test_names_of_nodes_may_be_shorter_than_those_of_operators() -> None:
    calls = ForwardCalls()
    calls.note(0, 1, call("nll_loss_forward"))
    assert calls.find_call(Node("NllLossBackward0", 0, False)) is not None


def test_few_nodes_are_remembered() -> None:
    calls = ForwardCalls()
    for number in range(MAX_FORWARD_CALLS + 10):
        calls.note(number, number + 1, call("mm"))
    assert calls.find_call(Node("MmBackward0", 9, False)) is None
    assert calls.find_call(Node("MmBackward0", 10, False)) is not None


class Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[tuple[str, Node | None, bool]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        in_engine = read_stack(sys._getframe().f_back).is_in_engine
        self.nodes.append((func.overloadpacket.__name__, compat_dispatch.running_node(), in_engine))
        return func(*args, **(kwargs or {}))


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return x * 2

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return gradient * 2


def test_torch_2_1_to_2_15_tell_the_running_node() -> None:
    x = torch.ones(2, requires_grad=True)
    number = compat.get_sequence_number()
    with Seen() as seen:
        Twice.apply(x).exp().sum().backward()
    forward = [node for name, node, _ in seen.nodes[:2]]
    assert forward == [None, None]
    nodes = {node.name: node for name, node, _ in seen.nodes if node is not None and name == "mul"}
    assert nodes["ExpBackward0"] == Node("ExpBackward0", number + 1, False)
    assert nodes["TwiceBackward"] == Node("TwiceBackward", number, True)
    in_engine = {node.name: is_in for name, node, is_in in seen.nodes if node is not None and name == "mul"}
    assert in_engine == {
        "ExpBackward0": True,
        "TwiceBackward": False,
    }  # code of the program runs in its backward


def test_torch_2_1_to_2_15_tell_kernels_of_the_cpu() -> None:
    for name in (
        "aten::mm",
        "aten::add_.Tensor",
        "aten::gelu",
        "aten::sum.dim_IntList",
    ):
        assert compat_dispatch.has_cpu_kernel(name), name
    assert not compat_dispatch.has_cpu_kernel("aten::_scaled_dot_product_efficient_attention")


def test_torch_2_1_to_2_15_call_modules_by_known_code() -> None:
    assert compat_dispatch.MODULE_CALL
    assert compat_dispatch.find_calling_module(sys._getframe()) is None
