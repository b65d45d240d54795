"""Descriptions and JSON leaves of tensors by the compiled extension, against the same in Python."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from probe_pytorch import statistics
from probe_pytorch.statistics import TENSOR, LeafEncoder, describe, measure
from probe_pytorch.storage.host_bytes import CHECKSUMS, Checksum
from probe_pytorch.values import TorchCollector
from probe_recording.api import TensorLeaf
from probe_recording.values.leaves import encode as encode_tree
from torch import Tensor

pytestmark = pytest.mark.skipif(statistics._tally is None, reason="the extension is not built")

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8]  # fmt: skip
LANES = 16
encode = LeafEncoder().encode


def expected_json(tensor: Tensor, checksum: Checksum | None = None) -> str:
    digest = None if checksum is None else checksum(tensor)
    leaf = TensorLeaf(TENSOR, str(tensor.dtype), list(tensor.shape), tensor.requires_grad, measure(tensor), digest)
    return encode_tree(leaf)


def make_tensor(dtype: torch.dtype, *shape: int) -> Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(1)) * 50).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_encode_equals_the_leaf_made_in_python(dtype: torch.dtype) -> None:
    base = make_tensor(dtype, 6, 5, 48)
    views = [
        base,
        base.permute(2, 0, 1),
        base[2:4],
        base[1, :, :],
        base[0, :, :32],
        base.reshape(-1, 48)[::2],
    ]
    for tensor in views:
        assert encode(tensor) == expected_json(tensor), (dtype, tensor.shape, tensor.stride())


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a busy machine the first draw takes seconds
@given(st.lists(st.floats(width=64) | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324]), min_size=1))
def test_encode_writes_any_float_as_json_does(values: list[float]) -> None:
    tensor = torch.tensor(values, dtype=torch.float64)
    assert encode(tensor) == expected_json(tensor)


@given(rows=st.integers(1, 5), blocks=st.integers(1, 3), gap=st.integers(0, 9))
def test_rows_with_gaps_have_the_statistics_of_a_copy(rows: int, blocks: int, gap: int) -> None:
    tensor = make_tensor(torch.float32, rows, blocks * LANES + gap)[:, : blocks * LANES]
    description = describe(tensor)
    assert description is not None and description[3] == measure(tensor.contiguous())


def freed(tensor: Tensor) -> Tensor:
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(0, 3), torch.ones(3, dtype=torch.complex64), torch.eye(3).to_sparse(), torch.ones(3, device="meta"),
     freed(torch.ones(4)), freed(torch.ones(8)[2:6]), torch.ones(2, dtype=torch.complex64).conj().imag,
     torch.ones((1,) * 17)],
    ids=["empty", "complex", "sparse", "meta", "freed", "freed view", "negated", "17 dimensions"],
)  # fmt: skip
def test_other_tensors_are_left_to_python(tensor: Tensor) -> None:
    assert describe(tensor) is None and encode(tensor) is None


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool], ids=str)
def test_single_values_and_gaps_equal_the_leaf_made_in_python(dtype: torch.dtype) -> None:
    base = make_tensor(dtype, 4, 5, 48)
    views = [
        base[0, 0, 0],
        base[:, :, 3:20],
        base[:, ::2, ::3],
        base[:, :1, :1].expand(4, 3, 7),
        base[1, 2],
        base.mT,
    ]
    for tensor in views:
        assert encode(tensor) == expected_json(tensor), (dtype, tensor.shape, tensor.stride())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 1e300])
def test_single_floats_are_given_four_times(value: float) -> None:
    tensor = torch.tensor(value, dtype=torch.float64)
    assert encode(tensor) == expected_json(tensor)


# -- checksums -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHECKSUMS)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool], ids=str)
def test_checksum_is_that_of_the_bytes_in_row_major_order(dtype: torch.dtype, name: str) -> None:
    base = make_tensor(dtype, 4, 5, 48)
    encoder = LeafEncoder(CHECKSUMS[name])
    for tensor in (base, base.mT, base[:, ::2, 3:20], base[:, :1], base[0, 0, 0], base[:1].expand(4, 5, 48)):
        assert encoder.encode(tensor) == expected_json(tensor.contiguous(), CHECKSUMS[name])


def test_equal_bytes_have_cached_statistics_with_the_shape_and_gradient_of_each_tensor() -> None:
    measured: list[memoryview] = []
    checksum = Checksum(lambda content: measured.append(content) or "same", is_unique=True)  # type: ignore[func-returns-value]
    encoder = LeafEncoder(checksum)
    first, second = torch.zeros(2, 3), torch.ones(6, requires_grad=True)
    assert encoder.encode(first) == expected_json(first, checksum)
    text = encoder.encode(second)
    assert text is not None and '"shape": [6], "Max": 0.0' in text and '"requires_grad": true' in text
    others = [torch.ones(7), torch.ones(6, dtype=torch.float64), torch.tensor(3), torch.tensor([3])]
    assert [encoder.encode(tensor) for tensor in others] == [expected_json(tensor, checksum) for tensor in others]


def test_values_changed_in_place_have_new_statistics() -> None:
    encoder, tensor = LeafEncoder(CHECKSUMS["xxh3"]), torch.zeros(30_000)
    for value in (1.0, 0.0):
        tensor.data.fill_(value)  # the version counter of the tensor stays the same
        assert encoder.encode(tensor) == expected_json(tensor, CHECKSUMS["xxh3"])


def test_statistics_are_not_cached_by_a_checksum_that_may_be_equal_by_accident() -> None:
    checksum = Checksum(lambda _: "same", is_unique=False)
    encoder = LeafEncoder(checksum)
    for tensor in (torch.zeros(3), torch.ones(3)):
        assert encoder.encode(tensor) == expected_json(tensor, checksum)


def test_error_of_a_checksum_is_raised() -> None:
    def fail(_: object) -> str:
        raise ValueError("no checksum")

    with pytest.raises(ValueError, match="no checksum"):
        LeafEncoder(Checksum(fail, is_unique=True)).encode(torch.ones(3))


# -- groups of values ----------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from([torch.ones(2, 3), torch.tensor(3), torch.arange(5), torch.nn.Parameter(torch.ones(4))]),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=6,
)  # fmt: skip


@given(st.lists(VALUES, max_size=4), st.dictionaries(st.text(max_size=4), VALUES, max_size=3))
def test_groups_equal_the_trees_made_in_python(args: list[Any], kwargs: dict[str, Any]) -> None:
    collector, slow = TorchCollector(encodes=True), TorchCollector()
    texts = collector.encode_groups(tuple(args), kwargs)
    if texts is not None:
        expected = slow.arguments(tuple(args), "", None), slow.keywords(kwargs, "", None)
        assert list(texts) == list(map(encode_tree, expected))


@pytest.mark.parametrize(
    "group",
    [(1, {}), ({1},), (torch.Size([2]),), (1 << 70,), ("\u20ac",), ('"',), {"dtype": torch.float32}, {"device": "cpu"},
     {"a b\n": 1}, ([[[[[[[[[1]]]]]]]]],), ([0] * 2000,), (torch.ones(0),), (torch.ones(2, dtype=torch.complex64),)],
    ids=str,
)  # fmt: skip
def test_other_groups_are_left_to_python(group: Any) -> None:
    assert TorchCollector(encodes=True).encode_groups(group) is None


def test_a_container_in_itself_is_left_to_python() -> None:
    values: list[Any] = [1]
    values.append(values)
    assert TorchCollector(encodes=True).encode_groups((values,)) is None


def test_each_group_reads_values_again() -> None:
    tensor = torch.zeros(3)
    collector = TorchCollector(encodes=True)
    before = collector.encode_groups((tensor, tensor))
    tensor.data.fill_(1.0)
    after = collector.encode_groups((tensor, tensor))
    assert before is not None and after is not None
    assert before[0].count('"Max": 0.0') == 2 and after[0].count('"Max": 1.0') == 2


def test_each_value_has_a_leaf_of_its_own() -> None:
    values = [torch.ones(2), None, 3, torch.eye(2).to_sparse(), torch.nn.Parameter(torch.zeros(1))]
    leaves = TorchCollector(encodes=True).leaves(values)
    assert list(map(encode_tree, leaves)) == [encode_tree(TorchCollector().tree(value, "")) for value in values]


def test_tensors_inside_a_transform_are_left_to_python() -> None:
    seen: list[object] = []
    torch.func.vmap(lambda x: (seen.append(describe(x)), x)[1])(torch.ones(2, 3))
    assert seen == [None]


def test_wrong_arguments_raise_type_errors() -> None:
    for arguments in ((), (1, 2), (torch.ones(2), [], torch.strided, bool), (torch.ones(2), {}, 1, 2, None, [])):
        with pytest.raises(TypeError):
            statistics._tally.encode(*arguments)
        with pytest.raises(TypeError):
            statistics._tally.encode_all(*arguments)
        with pytest.raises(TypeError):
            statistics._tally.encode_each(*arguments)
    with pytest.raises(AttributeError):
        statistics._tally.describe(object(), {}, torch.strided, bool)
