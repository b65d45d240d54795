"""Arguments that name a device."""

from __future__ import annotations

import pytest
from probe_diagnosis.timeline.devices import is_device

from probe_core.model import Kind, Statistics, Value


def scalar(text: object, dtype: str = "<class 'str'>") -> Value:
    return Value(Kind.SCALAR, dtype, "", statistics=Statistics(text, text, text, text))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["cpu", "cpu:None", "cuda", "cuda:0", "npu:15", "Ascend", "mps"])
def test_is_device_accepts_names_of_devices(text: str) -> None:
    assert is_device(scalar(text))


@pytest.mark.parametrize("text", ["none", "cuda graph", "cuda:", "tanh", "", "mean", 0, None, True])
def test_is_device_rejects_other_scalars(text: object) -> None:
    assert not is_device(scalar(text))


def test_is_device_rejects_a_tensor() -> None:
    assert not is_device(scalar("cpu")._replace(kind=Kind.TENSOR))
