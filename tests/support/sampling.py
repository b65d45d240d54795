"""Samples of long lists of cases: a few always run, all of them with ``make.py test --all``."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

SLOW = "PROBE_TEST_SLOW"
"""The environment variable that is set while the tests marked slow are among those chosen; pytest sets it itself."""
EVERY = "PROBE_TEST_EVERY"
"""The environment variable that lets slow tests take each of many thousand places instead of a sample."""


def sampled(
    cases: Iterable[Any], share: float, always: Callable[[Any], bool] = lambda case: False, seed: int = 1
) -> list[Any]:
    """Return all cases as parameters of a test, those outside a seeded sample marked slow.

    Args:
        cases: Values of ``parametrize``; a tuple is the values of several arguments.
        share: The part of the cases, from 0 to 1, that always runs.
        always: Names cases that run in addition.
        seed: Chooses another sample.
    """
    listed = list(cases)
    chosen = set(random.Random(seed).sample(range(len(listed)), round(share * len(listed))))
    found = []
    for number, case in enumerate(listed):
        values = case if isinstance(case, tuple) else (case,)
        slow = number not in chosen and not always(case)
        found.append(pytest.param(*values, marks=[pytest.mark.slow] * slow))
    return found


def examples(count: int) -> int:
    """Return the number of examples of a property: all with ``make.py test --all``, else a third, but 25 if there are."""
    return count if os.environ.get(SLOW) else max(min(count, 25), -(-count // 3))


def places(count: int, share: int, seed: str) -> Sequence[int]:
    """Return ``share`` of the numbers from 1 to ``count`` in order; all if ``PROBE_TEST_EVERY`` is set."""
    numbers = range(1, count + 1)
    if os.environ.get(EVERY) or share >= count:
        return numbers
    return sorted(random.Random(seed).sample(numbers, share))
