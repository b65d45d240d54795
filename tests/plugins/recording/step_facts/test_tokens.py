"""The notes of ``debugger.tokens``."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from probe_recording.step_facts.tokens import BatchTokens

from probe_core.errors import UserError


def content(*arguments: Any) -> Any:
    """Return the content of the file for arguments of ``debugger.tokens``."""
    ids, positions, lengths = (*arguments, None, None)[:3]
    return json.loads(BatchTokens.from_arguments(ids, positions, lengths).format_file())


@pytest.mark.parametrize(
    ("arguments", "shape", "runs"),
    [
        (([4, 1],), [2], [[4, 0, 1], [1, 0, 1]]),
        (([4, 1], [[-1, 0, 1], [0, 1, -1]]), [2, 3], [[-1, 0, 1], [4, 0, 2], [1, 0, 2], [-1, 0, 1]]),
        (([4, 1], [[1, 1, 0, 1], [0, 1, 2, 1]], [2, 3]), [2, 4], [[-1, 0, 2], [4, 0, 2], [1, 0, 3], [-1, 0, 1]]),
        (([4, 1], [[7, 8], [3, 4]]), [2, 2], [[4, 7, 2], [1, 3, 2]]),
        (([4, 1], None, [2, 3]), [1, 5], [[4, 0, 2], [1, 0, 3]]),
        (([4, 1], [0, 1, 0, 1, 0], [2, 2]), [1, 5], [[4, 0, 2], [1, 0, 2], [-1, 0, 1]]),
        (([4, 1], [[0, 1, 0, 1]], [2, 2]), [1, 4], [[4, 0, 2], [1, 0, 2]]),
        (([[4, 4, 1], [-1, 2, 2]], [[0, 1, 0], [0, 0, 1]]), [2, 3],
         [[4, 0, 2], [1, 0, 1], [-1, 0, 1], [2, 0, 2]]),
        (([3], [[0, 1, 2]], [0]), [1, 3], [[-1, 0, 3]]),
        (([4, 1], [np.array([7, 8]), np.array([3, 4])]), [2, 2], [[4, 7, 2], [1, 3, 2]]),
    ],
)  # fmt: skip
def test_text_lists_the_sample_and_token_of_each_place(arguments: Any, shape: Any, runs: Any) -> None:
    expected = {"schema": 1, "shape": shape, "runs": runs}
    assert content(*arguments) == expected
    assert content(*(None if item is None else np.array(item) for item in arguments)) == expected


@pytest.mark.parametrize(
    "arguments",
    [([4, 1], [[1, 1, 1], [0, 1, 2]], [2, 3]), ([4], [[0, 0, 0]], [1]), ([4, 1], [0, 1], [2, 2]),
     ([4], None, [-1]), ([4], [[0, 1]], [3])],
)  # fmt: skip
def test_text_states_the_problem_of_contradicting_arguments(arguments: Any) -> None:
    assert content(*arguments).keys() == {"schema", "problem"}


@pytest.mark.parametrize(
    "arguments",
    [(None,), ([],), (3,), ([[[1]]],), ([[1, 2]],), ([1, 2], [0, 1, 2]), ([1, 2], None, [3]),
     ([1], [[[0]]]), ([[1, 2]], [[0, 1]], [1]), ([1, 2], [[0, 1], [0]]), ([1, 2], [[0], [0], [0]], [1, 1])],
)  # fmt: skip
def test_shapes_that_do_not_belong_together_are_refused(arguments: Any) -> None:
    with pytest.raises(UserError, match=r"tokens\(\)"):
        content(*arguments)


def test_a_note_keeps_copies() -> None:
    ids = np.array([1, 2])
    tokens = BatchTokens.from_arguments(ids, None, None)
    ids[:] = 9
    assert json.loads(tokens.format_file())["runs"] == [[1, 0, 1], [2, 0, 1]]


def test_a_note_keeps_copies_of_arrays_in_a_list() -> None:
    ids = [np.array(1), np.array(2)]
    tokens = BatchTokens.from_arguments(ids, None, None)
    ids[0][...] = 9
    assert json.loads(tokens.format_file())["runs"] == [[1, 0, 1], [2, 0, 1]]
