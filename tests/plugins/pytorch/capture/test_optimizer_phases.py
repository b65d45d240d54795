"""Samples of parameters before and after a step of an optimizer."""

from __future__ import annotations

import math

import torch
from probe_pytorch.capture.optimizer_phases import MAX_SAMPLED_ELEMENTS, ParameterSamples
from torch import Tensor


def count(before: list[Tensor], after: dict[int, Tensor]) -> dict[str, list[int]]:
    """Return the counts of parameters, some of which are changed in place to the values in ``after``."""
    samples = ParameterSamples(before)
    with torch.no_grad():
        for number, value in after.items():
            before[number].data = value
    return samples.count_unchanged([(str(number), value) for number, value in enumerate(before)])


def test_elements_that_a_step_leaves_unchanged_are_counted() -> None:
    values = [
        torch.ones(4),
        torch.ones(3),
        torch.ones(2, dtype=torch.bfloat16),
        torch.tensor([math.nan, 1.0]),
    ]
    counts = count(values, {0: torch.tensor([1.0, 2.0, 1.0, 3.0]), 2: torch.zeros(2, dtype=torch.bfloat16)})
    assert counts == {"0": [2, 4], "1": [3, 3], "2": [0, 2], "3": [1, 2]}


def test_samples_are_copies() -> None:
    values = [torch.zeros(5)]
    samples = ParameterSamples(values)
    values[0].add_(1)
    assert samples.count_unchanged([("a", values[0])]) == {"a": [0, 5]}


def test_parameters_of_another_size_are_left_out() -> None:
    values = [torch.ones(4), torch.ones(3), torch.ones(5)]
    assert count(values, {1: torch.ones(2)}) == {"0": [4, 4], "2": [5, 5]}
    assert count([torch.ones(2)], {0: torch.ones(3)}) == {}


def test_parameters_without_comparable_elements_are_left_out() -> None:
    values = [
        torch.empty(0),
        torch.ones(2, device="meta"),
        torch.ones(4, 4).t()[1:],
        torch.eye(2).to_sparse(),
    ]
    assert count(values, {}) == {}
    assert ParameterSamples(()).count_unchanged([("a", torch.ones(2))]) == {}


def test_large_parameters_are_sampled_in_all_columns() -> None:
    large = torch.zeros(512, 64)
    samples = ParameterSamples([large])
    large[:, 5] = 1
    (unchanged, size) = samples.count_unchanged([("a", large)])["a"]
    assert MAX_SAMPLED_ELEMENTS // 2 < size <= 2 * MAX_SAMPLED_ELEMENTS and 0 < size - unchanged < size / 8
