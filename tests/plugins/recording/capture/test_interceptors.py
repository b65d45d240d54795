"""Interceptors of API calls, which plugins provide for tasks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from probe_recording.api import CallInterceptor, InterceptedCall, InterceptorSpec
from probe_recording.capture.interceptors import new_interceptor
from probe_recording.settings import config
from probe_recording.specs import check_framework

from probe_core.errors import UserError


@pytest.fixture
def interceptor() -> CallInterceptor:
    return new_interceptor(config.parse({"dump_path": "run"}), "pytorch")


def test_calls_are_passed_on_with_their_names_and_arguments(interceptor: CallInterceptor) -> None:
    calls: list[InterceptedCall] = []

    def around(call: InterceptedCall) -> object:
        calls.append(call)
        with interceptor.suspend():
            torch.exp(torch.ones(1))  # not intercepted
        return call.run()

    x = torch.ones(2)
    interceptor.install(around)
    try:
        F.relu(x)
        F.relu(x, inplace=True)
        interceptor.restart_counts()
        product = torch.mul(x, other=2)
    finally:
        interceptor.remove()
    F.relu(x)
    assert product.tolist() == [2.0, 2.0]
    names = [(call.name, call.writes) for call in calls]
    assert names == [("Functional.relu.0", False), ("Functional.relu.1", True), ("Torch.mul.0", False)]
    assert calls[2].kwargs == {"other": 2} and calls[2].args[0] is x


def test_gradients_of_a_call_are_its_own(interceptor: CallInterceptor) -> None:
    received = []
    x, w = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)

    def around(call: InterceptedCall) -> object:
        is_product = call.name == "Torch.mul.0"
        if is_product:
            assert [id(tensor) for tensor in call.differentiable_inputs()] == [id(x), id(w)]
        return call.run((lambda *gradients: received.append(gradients)) if is_product else None)

    interceptor.install(around)
    try:
        (torch.mul(x, w).sum() + torch.mul(x, 100).sum()).backward()
    finally:
        interceptor.remove()
    ((outputs, inputs),) = received
    assert [g.tolist() for g in outputs] == [[1.0, 1.0]]
    assert [g.tolist() for g in inputs] == [[3.0, 4.0], [1.0, 2.0]]
    assert x.grad is not None and x.grad.tolist() == [103.0, 104.0]


def test_random_states_are_restored(interceptor: CallInterceptor) -> None:
    own = torch.Generator().manual_seed(1)
    states = interceptor.read_random_states(own)
    assert not states.have_changed()
    first = torch.rand(2), torch.rand(2, generator=own)
    assert states.have_changed()
    states.restore()
    assert not states.have_changed()
    assert torch.equal(torch.rand(2), first[0]) and torch.equal(torch.rand(2, generator=own), first[1])


def test_a_failed_call_is_not_counted(interceptor: CallInterceptor) -> None:
    names: list[str] = []

    def around(call: InterceptedCall) -> object:
        names.append(call.name)
        return call.run()

    interceptor.install(around)
    try:
        with pytest.raises(RuntimeError):
            torch.matmul(torch.ones(2), torch.ones(3))
        torch.matmul(torch.ones(2), torch.ones(2))
    finally:
        interceptor.remove()
    assert [name for name in names if "matmul" in name] == ["Torch.matmul.0"] * 2


def test_a_framework_without_interceptor_is_refused() -> None:
    with pytest.raises(UserError, match="intercepts calls of other"):
        new_interceptor(config.parse({"dump_path": "run"}), "other")


def test_an_incomplete_spec_is_refused() -> None:
    with pytest.raises(TypeError, match="needs the name"):
        check_framework(InterceptorSpec("mine", "intercepts", "a:b"))
