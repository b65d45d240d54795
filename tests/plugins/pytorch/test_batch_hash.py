"""The hash of a tensor's bits, against a computation with Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_pytorch.batch_hash import hash_tensor
from probe_recording.step_facts.batch_values import BLOCK, CHUNK_BLOCKS, hash_array
from support.references.batch_hash import MASK, hash_of_bits


def _hash(tensor: torch.Tensor) -> int:
    result = hash_tensor(tensor)
    assert result is not None
    return int(result) & MASK


@pytest.mark.parametrize("size", [0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 3, 3 * BLOCK + 1])
def test_hash_is_the_weighted_sum(size: int) -> None:
    values = torch.randint(-(2**31), 2**31 - 1, (size,), dtype=torch.int32)
    assert _hash(values) == hash_of_bits(values.tolist())


def test_large_tensors_are_hashed_in_chunks() -> None:
    size = BLOCK * CHUNK_BLOCKS
    first = torch.zeros(size + 5, dtype=torch.uint8)
    second = first.clone()
    first[size - 1], second[size] = 1, 1
    assert len({_hash(first), _hash(second), _hash(torch.zeros(size + 5, dtype=torch.uint8))}) == 3


@settings(deadline=None)
@given(st.lists(st.floats(width=32), min_size=2, max_size=50), st.randoms())
def test_another_order_has_another_hash(values: list[float], rng) -> None:  # type: ignore[no-untyped-def]
    shuffled = values[:]
    rng.shuffle(shuffled)
    tensors = [torch.tensor(each, dtype=torch.float32) for each in (values, shuffled)]
    bits = [tensor.view(torch.int32).tolist() for tensor in tensors]
    assert (_hash(tensors[0]) == _hash(tensors[1])) == (bits[0] == bits[1])


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16,
                                   torch.float32, torch.float64, torch.complex64, torch.complex128])  # fmt: skip
def test_strides_and_conjugates_do_not_matter(dtype: torch.dtype) -> None:
    base = (torch.arange(24) * 7 % 5 % 4).reshape(4, 6).to(dtype)
    if dtype.is_complex:
        base = base * (1 + 2j)
        assert _hash(base.conj()) == _hash(base.conj().clone().resolve_conj()) != _hash(base)
    assert _hash(base.t()) == _hash(base.t().contiguous()) != _hash(base)
    assert _hash(base[:, ::2]) == _hash(base[:, ::2].clone())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.int64, torch.complex128])
@pytest.mark.parametrize("size", [3, BLOCK + 1])
def test_hashing_changes_no_value(dtype: torch.dtype, size: int) -> None:
    values = (torch.arange(size) % 7).to(dtype)
    before = values.clone()
    _hash(values)
    assert torch.equal(values, before)


def test_signs_of_zero_and_payloads_of_nan_count() -> None:
    bits = np.array([0x7FC00000, 0x7FC00001], dtype=np.uint32).view(np.float32)
    nans = torch.from_numpy(bits)
    assert _hash(nans[:1]) != _hash(nans[1:])
    assert _hash(torch.tensor(0.0)) != _hash(torch.tensor(-0.0))


def test_tensors_without_readable_bits_have_no_hash() -> None:
    assert hash_tensor(torch.eye(3).to_sparse()) is None
    assert hash_tensor(torch.empty(3, device="meta")) is None


NUMPY_DTYPES = {
    "bool": "bool", "uint8": "uint8", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64",
    "float16": "float16", "bfloat16": "uint16", "float32": "float32", "float64": "float64",
    "complex64": "complex64", "complex128": "complex128", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8",
}  # fmt: skip
"""NumPy's dtypes with the bits of torch's, by the names of torch's."""


@pytest.mark.parametrize("name", [name for name in NUMPY_DTYPES if hasattr(torch, name)])
@pytest.mark.parametrize("size", [0, 1, 5, BLOCK - 1, 2 * BLOCK + 3])
def test_arrays_and_tensors_have_the_same_hash(name: str, size: int) -> None:
    dtype = np.dtype(NUMPY_DTYPES[name])
    raw = np.random.RandomState(size).bytes(size * dtype.itemsize)
    if name == "bool":
        raw = bytes(value & 1 for value in raw)
    array = np.frombuffer(raw, dtype).copy()
    plain = array if name == str(dtype) else array.view(f"i{dtype.itemsize}")
    tensor = torch.from_numpy(plain.copy())
    if name != str(dtype):
        tensor = tensor.view(getattr(torch, name))
    assert hash_array(array) == _hash(tensor)


def test_large_arrays_and_tensors_have_the_same_hash() -> None:
    array = np.random.RandomState(0).randint(0, 256, BLOCK * CHUNK_BLOCKS + BLOCK + 7).astype(np.uint8)
    assert hash_array(array) == _hash(torch.from_numpy(array))
