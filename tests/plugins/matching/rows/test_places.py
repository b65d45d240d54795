"""Files of samples and tokens, and the places that two batches have in common."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from probe_matching.rows.places import BatchSize, find_common_places, read_tokens, select_places

from probe_core.errors import UserError


def written(path: Path, shape: list[int], runs: list[list[int]]) -> Path:
    """Write a file of samples and tokens."""
    path.write_text(json.dumps({"schema": 1, "shape": shape, "runs": runs}))
    return path


def picked(places: Any) -> list[tuple[int, list[int]]]:
    """Return the row and the places of each sample."""
    return [(pick.row, pick.tokens.tolist()) for pick in places.picks]


def test_common_places_pair_tokens_of_padded_and_packed_batches(tmp_path: Path) -> None:
    padded = written(tmp_path / "a.json", [2, 4], [[-1, 0, 1], [5, 0, 3], [7, 0, 2], [-1, 0, 2]])
    packed = written(tmp_path / "b.json", [1, 5], [[7, 0, 3], [5, 1, 2]])
    target, golden = find_common_places(read_tokens(padded), read_tokens(packed))
    assert target.batch == BatchSize(2, 4) and golden.batch == BatchSize(1, 5)
    assert picked(target) == [(0, [2, 3]), (1, [0, 1])]
    assert picked(golden) == [(0, [3, 4]), (0, [0, 1])]
    assert not target.is_whole and not golden.is_whole


def test_common_places_pair_whole_rows_by_their_samples(tmp_path: Path) -> None:
    files = [
        written(tmp_path / name, [3], [[s, 0, 1] for s in own]) for name, own in (("a", (4, 1, 9)), ("b", (9, 4, 2)))
    ]
    target, golden = find_common_places(*map(read_tokens, files))
    assert [pick.row for pick in target.picks] == [0, 2] and [pick.row for pick in golden.picks] == [1, 0]
    assert target.batch == BatchSize(3) and target.picks[0].tokens is None


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"schema": 2}', '{"schema": 1, "problem": "lengths add up to 3"}',
     '{"schema": 1, "shape": [2, 2], "runs": [[0, 0, 3]]}', '{"schema": 1, "shape": [2, 2], "runs": [[0, 0]]}',
     '{"schema": 1, "shape": [99999999, 99999999], "runs": []}', '{"schema": 1, "shape": [0], "runs": []}',
     '{"schema": 1, "shape": [2, 2], "runs": [[0, 0, 9223372036854775807], [0, 0, 1]]}',
     '{"schema": 1, "shape": [1, 2], "runs": [[0, 0, 1], [0, 0, 1]]}',
     '{"schema": 1, "shape": [1], "runs": [["x", 0, 1]]}'],
)  # fmt: skip
def test_read_tokens_refuses_damaged_files(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokens.json").write_text(content)
    with pytest.raises(UserError, match="does not list samples and tokens"):
        read_tokens(tmp_path / "tokens.json")


def test_read_tokens_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read") as caught:
        read_tokens(tmp_path / "tokens.json")
    assert "debugger.tokens" in caught.value.fix


@pytest.mark.parametrize(
    ("both", "words"),
    [
        ([[[1], [[0, 0, 1]]], [[1], [[1, 0, 1]]]], "no sample and token in common"),
        ([[[1], [[0, 0, 1]]], [[1, 2], [[0, 0, 2]]]], "Only one of both runs"),
        ([[[2, 1], [[0, 0, 1], [0, 1, 1]]], [[1, 2], [[0, 0, 2]]]], "in several rows"),
    ],
)
def test_common_places_refuses_batches_that_do_not_belong_together(tmp_path: Path, both: Any, words: str) -> None:
    files = [written(tmp_path / f"{n}.json", *own) for n, own in enumerate(both)]
    with pytest.raises(UserError, match=words):
        find_common_places(*map(read_tokens, files))


def test_chosen_places_refuses_rows_that_a_batch_does_not_have() -> None:
    with pytest.raises(UserError, match="no row 3: it holds 2"):
        select_places((BatchSize(1), BatchSize(2)), ((0,), (3,)))
    with pytest.raises(UserError, match="leaves 4 rows"):
        select_places((BatchSize(4), BatchSize(2)), ((), (1,)))
