"""Leaves as JSON."""

from __future__ import annotations

import json
import math

import pytest
from probe_recording.api import TensorLeaf
from probe_recording.values.leaves import StoredLeaf, drop_data_names, encode, encode_names, encode_number, quote


def make_leaf() -> TensorLeaf:
    return TensorLeaf("torch.Tensor", "torch.float32", [2, 3], True, (1.0, -1.0, 0.5, 2.25))


@pytest.mark.parametrize("name", ["Torch.add.0.forward.input.0.pt", 'a "b" \\ \u20ac.npy', None])
def test_a_stored_leaf_is_the_leaf_of_a_tensor_with_the_name_of_its_data(name: str | None) -> None:
    leaf = make_leaf()
    stored = StoredLeaf(leaf.text(), name)
    leaf.data_name = name
    assert encode([stored]) == encode([leaf])


def test_without_data_removes_the_names_of_stored_leaves() -> None:
    leaf = make_leaf()
    tree = {"output": [StoredLeaf(leaf.text(), "a.pt"), None]}
    drop_data_names(tree)
    assert encode(tree) == encode({"output": [leaf, None]})


@pytest.mark.parametrize("names", [{}, {"a": None}, {"Tensor.add.0.forward": "Module.a.A.forward.0", '"\u20ac"': None}])
def test_indented_names_are_those_of_json(names: dict[str, str | None]) -> None:
    assert encode_names(names) == json.dumps(names, indent=1)


@pytest.mark.parametrize("name", ["", "a.b", 'say "x"', "back\\slash", "\u20ac", "line\n"])
def test_quoted_names_are_those_of_json(name: str) -> None:
    assert quote(name) == json.dumps(name)


def test_only_numbers_that_json_lacks_become_text() -> None:
    assert [encode_number(value) for value in (math.nan, math.inf, -math.inf)] == ["nan", "inf", "-inf"]
    assert [encode_number(value) for value in (1.5, 2, True, None, "nan")] == [1.5, 2, True, None, "nan"]
