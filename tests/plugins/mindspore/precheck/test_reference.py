"""Reference of MindSpore's calls, which torch computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from probe_mindspore.precheck.reference import compute_meta_outputs, estimate_memory, list_expected_dtypes
from probe_mindspore.precheck.tensors import Arguments, DType, TensorArgument


def arguments_of(*positional: Any, **keywords: Any) -> Arguments:
    return Arguments(positional, keywords)


def test_memory_need_counts_results_of_both_sides() -> None:
    """The reference computes in float64."""
    given = arguments_of(TensorArgument(np.ones(1000, np.float32), "Float32"))
    outputs = compute_meta_outputs(torch.exp, given)
    assert estimate_memory(given, outputs) == 4000 + 2 * (4000 + 4000) + 4000
    assert list_expected_dtypes(outputs) == ["Float32"]


def test_memory_need_of_factories_allocates_nothing() -> None:
    size = 10**13
    given = arguments_of((size,), 1.0, dtype=DType("Float32"))
    assert estimate_memory(given, compute_meta_outputs(torch.full, given)) == 3 * 4 * size


def test_memory_need_counts_repeated_elements() -> None:
    given = arguments_of(TensorArgument(np.ones(1, np.float32), "Float32"), (10**6,))
    assert estimate_memory(given, compute_meta_outputs(torch.broadcast_to, given)) > 12 * 10**6


def test_meta_outputs_are_none_if_shapes_depend_on_values() -> None:
    given = arguments_of(TensorArgument(np.ones(3, np.float32), "Float32"))
    assert compute_meta_outputs(torch.nonzero, given) is None
    assert list_expected_dtypes(None) == [] and estimate_memory(given, None) == 36
