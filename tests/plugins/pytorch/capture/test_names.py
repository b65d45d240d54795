"""Names of calls in a run: the canonical ones, by real calls through the recorder, on the torch at hand."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from support.runs.names import (
    CALLS,
    ODD,
    SYNONYMS,
    A,
    B,
    Run,
    X,
    names,
    run,  # noqa: F401
)
from support.runs.recording import recording
from torch.nn import functional as F


@pytest.mark.parametrize("label", CALLS)
def test_name(label: str, run: Run) -> None:
    assert names(run[label]) == CALLS[label][1]


@pytest.mark.parametrize("label", SYNONYMS)
def test_synonyms_are_called_by_the_common_name(label: str, run: Run) -> None:
    assert names(run[label]) == ["Torch.mm"]
    assert names(run["torch.mm"]) == ["Torch.mm"]


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("normal_", (), ["Tensor.normal_"]),
        ("xavier_normal_", (), ["Tensor.normal_"]),
        ("constant_", (1.0,), ["Tensor.fill_"]),
        ("ones_", (), ["Tensor.fill_"]),
        ("uniform_", (), []),  # Tensor.uniform_ is not listed
        ("kaiming_uniform_", (), []),
    ],
)
def test_functions_of_init_are_recorded_by_what_they_call(
    function: str, arguments: tuple[Any, ...], expected: list[str], tmp_path: Path
) -> None:
    plain, recorded = torch.empty(3, 3), torch.nn.Parameter(torch.empty(3, 3))
    torch.manual_seed(0)
    getattr(torch.nn.init, function)(plain, *arguments)
    torch.manual_seed(0)
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        getattr(torch.nn.init, function)(recorded, *arguments)
        found.stop()
    assert [name.rpartition(".0.")[0] for name in found.records()] == expected
    assert torch.equal(plain, recorded)


def test_each_name_counts_from_zero(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        for _ in range(2):
            found.start()
            for _ in range(2):
                F.relu(A + B)
            F.relu(A)
            found.stop()
            found.step()
    for step in range(2):
        assert list(found.records(step)) == [
            "Tensor.__add__.0.forward", "Functional.relu.0.forward", "Tensor.__add__.1.forward",
            "Functional.relu.1.forward", "Functional.relu.2.forward",
        ]  # fmt: skip


def test_a_call_that_raises_is_no_record(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        with pytest.raises(RuntimeError):
            torch.mm(A, X)
        torch.mm(A, B)
        found.stop()
    assert list(found.records()) == ["Torch.mm.0.forward"]


def scaled(scale: int) -> bool:
    value = torch.rand(3)
    scale * value
    found = weakref.ref(value)
    del value
    return found() is None


def test_recording_keeps_no_variable_alive(tmp_path: Path) -> None:
    assert scaled(2)
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        freed = scaled(2)
        found.stop()
    assert list(found.records()) == ["Tensor.__mul__.0.forward"]
    assert freed


# -- calls that a name does not show -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "label",
    [pytest.param(n, marks=pytest.mark.xfail(strict=True, reason=why)) for n, (_, _, why) in ODD.items()],
)
def test_operators_in_disguise(label: str, run: Run) -> None:
    """Msprobe wraps the methods that the language calls, whoever calls them."""
    assert names(run[f"odd {label}"]) == ODD[label][1]
