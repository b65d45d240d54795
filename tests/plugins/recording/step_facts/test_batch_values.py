"""The tensors of a batch, and the hash of an array against a computation with Python's integers."""

from __future__ import annotations

from collections import UserDict

import ml_dtypes
import numpy as np
import pytest
from probe_recording.step_facts.batch_values import (
    BLOCK,
    CHUNK_BLOCKS,
    chunk_weight,
    create_batch_entry,
    hash_array,
    iterate_batch_tensors,
)
from support.references.batch_hash import MASK, hash_of_bits


@pytest.mark.parametrize("size", [0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 3, 3 * BLOCK + 1])
def test_hash_is_the_weighted_sum(size: int) -> None:
    values = np.random.RandomState(size).randint(-(2**31), 2**31 - 1, size).astype(np.int32)
    assert hash_array(values) == hash_of_bits(values.tolist())


def test_large_arrays_are_hashed_in_chunks() -> None:
    size = BLOCK * CHUNK_BLOCKS
    first = np.zeros(size + 5, np.uint8)
    second = first.copy()
    first[size - 1], second[size] = 1, 1
    assert len({hash_array(first), hash_array(second), hash_array(np.zeros(size + 5, np.uint8))}) == 3


def test_order_and_strides() -> None:
    base = (np.arange(24) * 7 % 5).reshape(4, 6).astype(np.float32)
    assert hash_array(base.T) == hash_array(np.ascontiguousarray(base.T)) != hash_array(base)
    assert hash_array(base[:, ::2]) == hash_array(base[:, ::2].copy())


def test_hashing_changes_no_value() -> None:
    values = np.arange(BLOCK + 1, dtype=np.float64)
    before = values.copy()
    hash_array(values)
    assert np.array_equal(values, before)


def test_arrays_without_readable_bits_have_no_hash() -> None:
    assert hash_array(np.array([object()])) is None
    assert hash_array(np.array(["abc"])) is None
    assert hash_array(np.zeros(3, ml_dtypes.bfloat16)) == hash_array(np.zeros(3, np.int16))


def test_weights_of_chunks_fit_64_bits() -> None:
    for number in range(5):
        assert -(2**63) <= chunk_weight(number) < 2**63
        assert chunk_weight(number) & MASK == (2 * number + 1) * 0xD6E8FEB86659FD93 & MASK


def test_batch_tensors_have_the_places_of_arguments() -> None:
    one, two, three = np.zeros(1), np.zeros(2), np.zeros(3)
    found = dict(iterate_batch_tensors((one, [5, (two,)]), {"mask": {"a": three}, "flag": True}, np.ndarray))
    assert list(found) == ["input.0", "input.1.1.0", "input.mask.a"]
    assert [tensor.size for tensor in found.values()] == [1, 2, 3]


def test_batch_tensors_of_a_container_in_itself_end() -> None:
    endless: list[object] = [np.zeros(1)]
    endless.append(endless)
    assert len(list(iterate_batch_tensors(endless, {}, np.ndarray))) < 20


def test_batch_entry_holds_dtype_shape_and_hash() -> None:
    assert create_batch_entry("float32", (2, np.int64(3)), -1) == "float32[2, 3] ffffffffffffffff"


def test_tensors_in_mappings_of_any_class_are_found() -> None:
    batch = UserDict(ids=np.zeros(2), nested=[np.ones(3), "text"])
    found = dict(iterate_batch_tensors([batch], {"mask": np.ones(1)}, np.ndarray))
    assert set(found) == {"input.0.ids", "input.0.nested.0", "input.mask"}
