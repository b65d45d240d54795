"""Copies of arguments: independent, with the memory that the arguments share, and small."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from probe_pytorch.dispatch_check.call_copy import CallCopy, SkippedCallError, TensorPlacement, check_tensors, copy_call
from probe_pytorch.dispatch_check.operators import SkipReason, iterate_tensors
from probe_pytorch.precheck.raising import DtypeConversion
from support.cases import every

LIMIT = 1 << 20
RAISED = DtypeConversion({torch.float32: torch.float64})
TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.randn(3, 4),
    "transposed": lambda: torch.randn(3, 4).t(),
    "strided": lambda: torch.randn(6, 8)[::2, 1::3],
    "expanded": lambda: torch.randn(1, 4).expand(3, 4),
    "expanded twice": lambda: torch.randn(4).expand(2, 3, 4),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "0-d": lambda: torch.tensor(3.0),
    "empty": lambda: torch.empty(0, 3),
    "bool": lambda: torch.tensor([True, False]),
    "int": lambda: torch.arange(5),
    "half": lambda: torch.randn(3).half(),
    "bfloat16": lambda: torch.randn(3, 2).bfloat16().t(),
    "double": lambda: torch.randn(3).double(),
    "not finite": lambda: torch.tensor([float("nan"), float("inf"), -0.0]),
    "negative view": lambda: torch.complex(torch.randn(3), torch.randn(3)).conj().imag,
}


def copied(*args: Any, is_writing: bool = False, limit: int = LIMIT) -> CallCopy:
    return copy_call(args, {}, list(iterate_tensors(args)), limit, is_writing=is_writing)


def built(copy: CallCopy, raising: DtypeConversion = DtypeConversion()) -> list[Any]:  # noqa: B008
    return copy.create_arguments(raising, frozenset(), [str(i) for i in range(len(copy.args))])[0]


@every("make", TENSORS.values(), [*TENSORS])
def test_arguments_have_the_values_of_the_tensors_and_their_own_memory(
    make: Callable[[], torch.Tensor],
) -> None:
    tensor = make()
    copy = pickle.loads(pickle.dumps(copied(tensor)))
    (again,) = built(copy)
    assert again.dtype is tensor.dtype and again.shape == tensor.shape
    torch.testing.assert_close(again, tensor, rtol=0, atol=0, equal_nan=True)
    (raised,) = built(copy, RAISED)
    assert raised.dtype is (torch.float64 if tensor.dtype is torch.float32 else tensor.dtype)
    torch.testing.assert_close(raised.to(tensor.dtype), tensor, rtol=0, atol=0, equal_nan=True)
    if tensor.numel() and not any(stride == 0 for stride in again.stride()):
        again.fill_(1)
        torch.testing.assert_close(built(copy)[0], tensor, rtol=0, atol=0, equal_nan=True)


def test_an_expanded_tensor_is_copied_once() -> None:
    copy = copied(torch.randn(1, 4).expand(1000, 4))
    assert [buffer.numel() for buffer in copy.buffers] == [4]


def test_arguments_that_share_memory_share_it_in_the_copy() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    first, second = built(copied(base[:2], base[1:].t(), is_writing=True), RAISED)
    first[1].fill_(-1)
    expected = base.double().clone()
    expected[1] = -1
    assert torch.equal(second, expected[1:].t())


def test_arguments_apart_in_one_storage_are_copied_alone() -> None:
    base = torch.arange(1000.0)
    copy = copied(base[:2], [base[998:], base[2:2]], is_writing=True)
    assert [buffer.numel() for buffer in copy.buffers] == [2, 2, 0]
    assert [tensor.tolist() for tensor in iterate_tensors(built(copy))] == [[0.0, 1.0], [998.0, 999.0], []]


def test_one_tensor_that_is_passed_twice_is_one_tensor_in_the_copy() -> None:
    tensor = torch.randn(3)
    first, second = built(copied(tensor, [tensor], is_writing=True))
    first.zero_()
    assert torch.equal(second[0], torch.zeros(3))


def test_arguments_of_other_dtypes_in_shared_memory_are_refused() -> None:
    base = torch.randn(4)
    with pytest.raises(SkippedCallError) as refused:
        copied(base, base.view(torch.int32), is_writing=True)
    assert refused.value.reason is SkipReason.ALIASED
    assert len(copied(base, base.view(torch.int32)).buffers) == 2  # a call that writes to none reads both


def test_copies_need_no_more_memory_than_the_limit() -> None:
    tensor = torch.randn(100)
    copied(tensor, limit=1200)  # 4 bytes of the copy and 8 of the reference for each element
    with pytest.raises(SkippedCallError) as refused:
        copied(tensor, limit=1199)
    assert refused.value.reason is SkipReason.MEMORY


def test_devices_and_dtypes_are_those_of_the_reference() -> None:
    args = (torch.device("meta"), torch.float32, torch.int64, [torch.float32], None, 1.5, "mean")
    assert built(copied(*args), RAISED) == [
        torch.device("cpu"), torch.float64, torch.int64, [torch.float64], None, 1.5, "mean",
    ]  # fmt: skip


def test_listed_arguments_keep_their_dtype() -> None:
    copy = copied(torch.randn(2), [torch.randn(2)])
    (first, second), _ = copy.create_arguments(RAISED, frozenset({"state_steps"}), ["self", "state_steps"])
    assert first.dtype is torch.float64 and second[0].dtype is torch.float32


REFUSED: dict[str, tuple[Callable[[], torch.Tensor], SkipReason]] = {
    "complex": (lambda: torch.zeros(2, dtype=torch.complex64), SkipReason.DTYPE),
    "float8": (lambda: torch.zeros(2).to(torch.float8_e5m2), SkipReason.DTYPE),
    "sparse": (lambda: torch.eye(2).to_sparse(), SkipReason.LAYOUT),
    "meta": (lambda: torch.empty(2, device="meta"), SkipReason.DEVICE),
}


@every("make, reason", REFUSED.values(), [*REFUSED])
def test_tensors_that_cannot_be_copied_have_a_reason(make: Callable[[], torch.Tensor], reason: SkipReason) -> None:
    with pytest.raises(SkippedCallError) as error:
        check_tensors([make()], {torch.Tensor})
    assert error.value.reason is reason


def test_tensor_subclasses_are_not_copied() -> None:
    with pytest.raises(SkippedCallError) as error:
        check_tensors([], {type("Own", (torch.Tensor,), {})})
    assert error.value.reason is SkipReason.SUBCLASS


def test_pickles_name_no_module_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    args = (
        torch.float32,
        torch.strided,
        torch.preserve_format,
        [torch.ones(2)],
        torch.device("cpu"),
        "mean",
        None,
    )
    module = ModuleType("own_module_of_the_program")  # pickle would look for constants of torch in all modules
    module.__dict__.update(float32=torch.float32, strided=torch.strided, preserve_format=torch.preserve_format)
    monkeypatch.setattr(sys, "modules", {"own_module_of_the_program": module, **sys.modules})
    data = pickle.dumps(copied(*args))
    assert b"own_module" not in data
    again = pickle.loads(data)
    assert again.args == (*args[:3], [TensorPlacement(0, (2,), (1,), 0)], *args[4:])
