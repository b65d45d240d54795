"""Aten operators and the API operators that call them."""

from __future__ import annotations

import pytest
import torch
from probe_legacy.reading.aten import find_operators

from probe_core.files.packaged import load_yaml


@pytest.mark.parametrize(
    ("aten", "operator"),
    [
        ("relu", "relu"),
        ("relu_", "relu_"),
        ("add.Tensor", "add"),
        ("add.Tensor", "__add__"),
        ("_softmax", "softmax"),
        ("native_batch_norm", "batch_norm"),
        ("_native_batch_norm_legit_functional", "batch_norm"),
        ("cudnn_batch_norm", "batch_norm"),
        ("nll_loss_forward", "nll_loss"),
        ("max_pool2d_with_indices", "max_pool2d"),
        ("linalg_vector_norm", "norm"),
        ("special_erfcx", "erfcx"),
        ("fft_rfft2", "rfft2"),
        ("_unsafe_view", "view"),
        ("__and__", "__and__"),
        ("_adaptive_avg_pool2d", "adaptive_avg_pool2d"),
    ],
)
def test_operators(aten: str, operator: str) -> None:
    assert operator in find_operators(aten)


@pytest.mark.parametrize(("aten", "operator"), [("relu", "relu_"), ("mul", "add"), ("convolution", "linear")])
def test_others_are_not_taken_for_them(aten: str, operator: str) -> None:
    assert operator not in find_operators(aten)


def test_the_table_names_operators_that_exist() -> None:
    """Each listed Aten operator is one of PyTorch, and each name one that the tool can have wrapped."""
    names = set(dir(torch)) | set(dir(torch.Tensor)) | set(dir(torch.nn.functional))
    older = {"__div__", "__idiv__", "nll_loss2d", "solve"}
    for aten, operators in load_yaml("probe_legacy.reading", "aten.yaml")["operators"].items():
        assert hasattr(torch.ops.aten, aten), aten
        assert set(operators) <= names | older | set(dir(torch.fft)) | set(dir(torch.linalg)), aten
