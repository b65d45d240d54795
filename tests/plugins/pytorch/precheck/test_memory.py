"""Memory that calls need, estimated before they run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_precheck.api import Call, Unbuildable
from probe_pytorch.precheck.memory import MemoryEstimator, MemoryNeed, estimate_memory
from probe_pytorch.precheck.raising import DtypeConversion, find_conversion
from probe_pytorch.precheck.rebuild import Arguments
from support.runs.prechecked import PASS, SKIP, Prechecked, live
from support.runs.run_calls import bare, put  # noqa: F401

HUGE = 10**13
"""Number of elements that no machine has memory for."""


def need_of(function: Callable[..., Any], *positional: Any, backward: bool = False, **keywords: Any) -> MemoryNeed:
    """Return the memory that a call needs, with the reference in float64."""
    arguments = Arguments(list(positional), keywords)
    raising = find_conversion(function.__name__, arguments, None)
    return estimate_memory(function, arguments, function.__name__, raising, with_gradients=backward)


def drawn(*shape: int, dtype: str = "torch.float32") -> dict[str, Any]:
    """Return the description of a tensor whose values are made up."""
    return {"type": "torch.Tensor", "dtype": dtype, "shape": list(shape), "Max": 1.0, "Min": -1.0,
            "Mean": 0.0, "Norm": 1.0, "requires_grad": False}  # fmt: skip


def number(value: float) -> dict[str, Any]:
    return {"type": type(value).__name__, "value": value}


BEYOND = {
    "Torch.full": ([[number(HUGE)], number(1.0)], {}),
    "Aten.full": ([[number(HUGE)], number(1.0)], {}),
    "Torch.cdist": ([drawn(10**7, 1), drawn(10**7, 1)], {}),
    "Torch.as_strided": ([drawn(4), [number(HUGE)], [number(0)]], {}),
    "Tensor.expand": ([drawn(1), number(HUGE)], {}),
    "Tensor.resize_": ([drawn(1), number(HUGE)], {}),
    "Tensor.repeat": ([drawn(1), number(HUGE)], {}),
    "Functional.pad": ([drawn(1), [number(HUGE), number(0)]], {}),
    "Functional.interpolate": ([drawn(1, 1, 4)], {"size": number(HUGE)}),
}


@pytest.mark.parametrize("name", BEYOND)
def test_run_refuses_results_that_exceed_the_memory(bare: Prechecked, name: str) -> None:
    positional, keywords = BEYOND[name]
    fields = {"input_args": positional, "input_kwargs": keywords, "output": [drawn(1)]}
    bare.calls[f"{name}.0"] = Call(f"{name}.0", 0, fields)
    found = bare[f"{name}.0"]
    assert found.statuses == (SKIP, None)
    assert "need" in found.text and "of memory, and one call may use" in found.text


def test_run_counts_the_result_written_to_an_out_argument(bare: Prechecked) -> None:
    """The result of broadcasting, 2 MB and 4 MB in float64, is written to an empty ``out``, which is resized."""
    x, y = torch.ones(500, 1), torch.ones(1, 1000)
    name = put(bare, "Torch.add.0", x, y, out=torch.empty(0))
    bare.runner._max_call_bytes = 5_000_000
    assert "need 6.0 MB of memory, and one call may use 5.0 MB" in bare[name].text
    bare.runner._max_call_bytes = 7_000_000
    assert bare[name].statuses == (PASS, None)


def test_run_refuses_a_backward_that_exceeds_the_memory(tmp_path: Path) -> None:
    """The gradient of a sum is as large as its input, its result is not."""

    def program() -> None:
        torch.ones(100_000, requires_grad=True).sum().backward()

    calls = live(tmp_path / "run", program)
    calls.runner._max_call_bytes = 4_000_000
    assert "of memory, and one call may use 4.0 MB" in calls["Tensor.sum.0"].text
    calls.runner._max_call_bytes = 8_000_000
    assert calls["Tensor.sum.0"].statuses == (PASS, PASS)


def test_replay_refuses_results_that_exceed_the_memory(tmp_path: Path) -> None:
    calls = live(tmp_path / "run", lambda: torch.cdist(torch.ones(100, 2), torch.ones(100, 2)))
    calls.runner._max_call_bytes = 50_000
    with pytest.raises(Unbuildable, match=r"and one call may use 50,000 bytes"):
        calls.runner.replay(calls.calls["Torch.cdist.0"])
    calls.runner._max_call_bytes = 500_000
    assert calls.runner.replay(calls.calls["Torch.cdist.0"]).forward


def test_run_sent_refuses_results_that_exceed_the_memory(bare: Prechecked) -> None:
    fields = {"input_args": [[number(HUGE)], number(1.0)], "input_kwargs": {}, "output": [drawn(HUGE)]}
    with pytest.raises(Unbuildable, match="of memory, and one call may use"):
        bare.runner.run_sent(Call("Torch.full.0", 0, fields), lambda value: pytest.fail("nothing is read"))


def test_memory_need_counts_both_sides_with_copies() -> None:
    """An input of 4,000 bytes: its copies are 4,000 and 8,000, and so are the results."""
    need = need_of(torch.exp, torch.ones(1000))
    assert need == MemoryNeed(inputs=4000, raised_inputs=8000, reference=16_000)
    assert (need.device, need.replayed, need.compared) == (8000, 20_000, 28_000)
    assert need_of(torch.full, [1000], 1.0).compared == 8000
    assert need_of(torch.empty_strided, [2], [999]).compared == 8016
    assert need_of(torch.as_strided, torch.ones(4), [1000], [0]).reference == 8032


def test_memory_need_counts_memory_once_that_results_share() -> None:
    assert need_of(torch.split, torch.ones(1000), 10).reference == 8000
    assert need_of(torch.relu_, torch.ones(1000)).reference == 8000


def test_memory_need_counts_intermediate_results_while_they_are_held() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            x = x + 1
        return x.sum()

    assert 24_000 <= need_of(chain, torch.ones(1000)).reference <= 25_000


def test_memory_need_counts_the_operators_before_one_without_meta_kernel() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x + 1).nonzero()

    assert need_of(function, torch.ones(1000)).reference == 16_000


def test_memory_need_computes_nothing() -> None:
    """Tensors of the call keep their values, and the random state of a generator is not used."""
    x = torch.ones(3, requires_grad=True)
    need_of(torch.relu_, x.detach())
    need_of(torch.exp, x, backward=True)
    assert x.grad is None and x.tolist() == [1, 1, 1]


def test_memory_need_takes_the_dtypes_of_the_reference() -> None:
    x = torch.ones(1000, dtype=torch.float16)
    arguments = Arguments([x], {})
    for wide, size in ((torch.float32, 4000), (torch.float64, 8000)):
        raising = DtypeConversion({torch.float16: wide})
        need = estimate_memory(torch.exp, arguments, "exp", raising, with_gradients=False)
        assert (need.reference, need.device) == (2 * size, 4000)


def test_estimator_estimates_calls_once_that_differ_in_values_only() -> None:
    estimator = MemoryEstimator()
    names: list[str] = []

    def need(x: torch.Tensor, count: int, *, backward: bool = False) -> int:
        arguments = Arguments([x, count], {})
        raising = find_conversion("repeat", arguments, None)
        return estimator.need("Tensor.repeat", repeat, arguments, raising, with_gradients=backward).reference

    def repeat(x: torch.Tensor, count: int) -> torch.Tensor:
        names.append("repeat")
        return x.repeat(count)

    assert need(torch.ones(10), 3) == need(torch.zeros(10), 3) == 320 and len(names) == 1
    for changed in ((torch.ones(20), 3), (torch.ones(10), 4), (torch.ones(10).half(), 3)):
        assert need(*changed) != 320 or changed[0].dtype is torch.float16
    assert len(names) == 4
    assert need(torch.ones(10, requires_grad=True), 3, backward=True) > 320 and len(names) == 5


def test_failed_allocation_is_a_sentence(bare: Prechecked, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        return torch.empty(HUGE)

    name = put(bare, "Torch.exp.0", torch.ones(2))
    monkeypatch.setattr(bare.runner, "_find_functions", lambda *_: (failing, torch.exp, ()))
    assert bare[name].text == "There is not enough memory to run it. SKIP."


def test_failed_allocation_of_a_backward_leaves_the_forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = live(tmp_path / "run", lambda: torch.ones(3, requires_grad=True).exp().sum().backward())
    monkeypatch.setattr("probe_pytorch.precheck.execution.run_backward", lambda *_: torch.empty(HUGE))
    found = calls["Tensor.exp.0"]
    assert found.statuses == (PASS, SKIP)
    assert "There is not enough memory to run it. SKIP." in found.text
