"""References: computed in higher precision, from copies, without touching the program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from probe_precheck.api import Array
from probe_precheck.model import FORWARD
from probe_pytorch import compat_dispatch
from probe_pytorch.dispatch_check.call_copy import copy_call
from probe_pytorch.dispatch_check.operators import collect_results, iterate_tensors, name_arguments, read_operator
from probe_pytorch.dispatch_check.reference import (
    DispatchedCall,
    ReferenceComputation,
    convert_to_arrays,
    isolate_computation,
)
from support.cases import every

aten = torch.ops.aten


def dispatched(overload: Any, *args: Any, **kwargs: Any) -> DispatchedCall:
    """Return a call as the mode makes it; the call itself is run here."""
    operator = read_operator(overload)
    tensors = [*iterate_tensors(args), *iterate_tensors(list(kwargs.values()))]
    copy = copy_call(args, kwargs, tensors, 1 << 30, is_writing=bool(operator.written))
    result = overload(*args, **kwargs)
    results = collect_results(overload, operator, name_arguments(overload, args, kwargs), result)
    dtypes = frozenset(str(one.dtype) for one in iterate_tensors(results) if one.is_floating_point())
    name = (operator.namespace, operator.name, overload._overloadname)
    return DispatchedCall(
        0, f"{operator.prefix}.0", name, FORWARD, copy, convert_to_arrays(results, copies=True), dtypes
    )


def computed(call: DispatchedCall) -> list[Any]:
    with isolate_computation():
        return ReferenceComputation(call).compute()


@every("dtype, above", [
    (torch.float16, "torch.float32"), (torch.bfloat16, "torch.float32"),
    (torch.float32, "torch.float64"), (torch.float64, "torch.float64"),
])  # fmt: skip
def test_the_reference_has_a_higher_precision(dtype: torch.dtype, above: str) -> None:
    x = torch.rand(4, 4).to(dtype)
    (found,) = computed(dispatched(aten.add.Tensor, x, x))
    assert found.dtype == above
    np.testing.assert_allclose(found.values, 2 * x.double().numpy(), rtol=1e-7)


def test_mixed_dtypes_are_computed_in_float64() -> None:
    call = dispatched(aten.add.Tensor, torch.ones(2).half(), torch.ones(2))
    assert computed(call)[0].dtype == "torch.float64"


def test_operators_that_decide_are_computed_in_the_dtype_of_the_device() -> None:
    x = torch.tensor([0.1])  # above 0.1 in float64
    (found,) = computed(dispatched(aten.gt.Scalar, x, 0.1))
    assert not found.values.any()
    (found,) = computed(dispatched(aten.div.Tensor_mode, torch.tensor([0.3]), 0.1, rounding_mode="floor"))
    assert found.dtype == "torch.float32"
    (found,) = computed(dispatched(aten._to_copy.default, torch.tensor([1.001]), dtype=torch.bfloat16))
    assert found.dtype == "torch.bfloat16"


def test_calls_in_place_start_from_the_values_before() -> None:
    x = torch.tensor([1.0, 2.0])
    call = dispatched(aten.add_.Tensor, x, torch.tensor([1.0, 1.0]))
    assert x.tolist() == [2.0, 3.0]
    assert computed(call)[0].values.tolist() == [2.0, 3.0]
    assert computed(call)[0].values.tolist() == [2.0, 3.0]
    y = torch.tensor([3.0])
    call = dispatched(aten.mul_.Tensor, y, y)
    assert computed(call)[0].values.tolist() == [9.0]


def test_calls_with_out_leave_the_buffer_alone() -> None:
    x, out = torch.ones(2, 2), torch.empty(2, 2)
    call = dispatched(aten.mm.out, x, x, out=out)
    out.zero_()
    assert computed(call)[0].values.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert not out.any()


def test_buffers_of_a_batch_norm_are_results() -> None:
    x = torch.randn(8, 3)
    mean, variance = torch.zeros(3), torch.ones(3)
    call = dispatched(aten.native_batch_norm.default, x, None, None, mean, variance, True, 0.1, 1e-5)
    after = mean.clone()
    found = computed(call)
    np.testing.assert_allclose(found[3].values, 0.1 * x.double().mean(0).numpy(), rtol=1e-6)
    assert torch.equal(mean, after)


def test_a_dropout_is_computed_with_the_mask_of_the_device() -> None:
    x = torch.randn(100)
    before = torch.get_rng_state()
    call = dispatched(aten.native_dropout.default, x, 0.25, True)
    after = torch.get_rng_state()
    output, mask = computed(call)
    assert torch.equal(torch.get_rng_state(), after) and not torch.equal(before, after)
    np.testing.assert_array_equal(mask.values, call.results[1].values)
    np.testing.assert_allclose(output.values, x.double().numpy() * mask.values / 0.75)
    for p, training in ((0.25, False), (1.0, True), (0.0, True)):
        call = dispatched(aten.native_dropout.default, x, p, training)
        np.testing.assert_allclose(computed(call)[0].values, call.results[0].values)


@pytest.mark.skipif(
    not compat_dispatch.has_cpu_kernel("aten::_fused_adamw_"), reason="this torch has no kernel for the CPU"
)
def test_fused_optimizers_keep_the_dtype_of_their_steps() -> None:
    parameters, gradients = [torch.randn(3)], [torch.randn(3)]
    state = [[torch.zeros(3)], [torch.zeros(3)], []]
    call = dispatched(
        aten._fused_adamw_.default, parameters, gradients, *state, [torch.tensor(1.0)], lr=0.1, beta1=0.9,
        beta2=0.99, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip
    found = computed(call)
    np.testing.assert_allclose(found[0].values, parameters[0].numpy(), rtol=1e-5)


def test_inputs_are_moved_by_at_most_their_rounding() -> None:
    x = torch.rand(50) + 1
    call = dispatched(aten.mul.Tensor, x, torch.ones(50))
    with isolate_computation():
        moved = ReferenceComputation(call).compute_perturbed()[0].values
    change = np.abs(moved / x.double().numpy() - 1)
    assert 0 < change.max() <= 2.01 * torch.finfo(torch.float32).eps / 2


def test_results_of_long_sums_are_moved_by_the_rounding_of_partial_sums() -> None:
    x = torch.cat([torch.ones(1000), -torch.ones(1000)])
    call = dispatched(aten.cumsum.default, x, 0)
    with isolate_computation():
        moved, exact = (
            ReferenceComputation(call).compute_perturbed()[0].values,
            ReferenceComputation(call).compute()[0].values,
        )
    unit = torch.finfo(torch.float32).eps / 2
    change = abs(moved - exact)[-1]  # the sum is 0, that of the magnitudes 2000
    assert 0 < change <= (0.25 * 2000 + 2000) * unit


# -- indices ---------------------------------------------------------------------------------------

INDEX_CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any], int]] = [
    (aten.sort.default, (0,), {}, 1),
    (aten.sort.stable, (), {"stable": False, "dim": 0}, 1),
    (aten.topk.default, (2, 0), {}, 1),
    (aten.argsort.default, (1,), {}, 0),
    (aten.argmax.default, (), {}, 0),
    (aten.argmax.default, (0, True), {}, 0),
    (aten.argmin.default, (1,), {}, 0),
    (aten.max.dim, (0,), {}, 1),
    (aten.min.dim, (1, True), {}, 1),
    (aten.median.dim, (0,), {}, 1),
    (aten.kthvalue.default, (2, 0), {}, 1),
    (aten.mode.default, (0,), {}, 1),
    (aten.cummax.default, (0,), {}, 1),
]


@every("overload, args, kwargs, place", INDEX_CALLS)
def test_indices_of_equal_values_are_equal(
    overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any], place: int
) -> None:
    x = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    call = dispatched(overload, x, *args, **kwargs)
    reference = ReferenceComputation(call)
    array = call.results[place]
    others = Array(np.zeros_like(array.values), array.dtype)  # another choice among equal values
    results = [others if i == place else value for i, value in enumerate(call.results)]
    found, expected = (reference.select_comparable(one)[place].values for one in (results, call.results))
    np.testing.assert_array_equal(found, expected)


@every("overload, args, kwargs, place", INDEX_CALLS)
def test_indices_of_other_values_differ(
    overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any], place: int
) -> None:
    x = torch.arange(9.0).reshape(3, 3)
    call = dispatched(overload, x, *args, **kwargs)
    reference = ReferenceComputation(call)
    array = call.results[place]
    results = [Array(np.asarray((array.values + 1) % 3), array.dtype) if i == place else value
               for i, value in enumerate(call.results)]  # fmt: skip
    found, expected = (reference.select_comparable(one)[place].values for one in (results, call.results))
    assert not np.array_equal(found, expected)


def test_indices_out_of_range_are_compared_as_they_are() -> None:
    call = dispatched(aten.argmax.default, torch.arange(3.0))
    found = ReferenceComputation(call).select_comparable([Array(np.array(99), "torch.int64")])
    assert found[0].values == 99


def test_indices_of_pooling_select_values() -> None:
    x = torch.tensor([[[[5.0, 5.0], [1.0, 2.0]]]])
    call = dispatched(aten.max_pool2d_with_indices.default, x, [2, 2])
    for index in (0, 1):
        results = [call.results[0], Array(np.array([[[[index]]]]), "torch.int64")]
        assert ReferenceComputation(call).select_comparable(results)[1].values.reshape(-1).tolist() == [5.0]


def test_internal_results_are_left_out() -> None:
    weight, indices, offsets = torch.randn(5, 2), torch.tensor([0, 1]), torch.tensor([0])
    call = dispatched(aten._embedding_bag.default, weight, indices, offsets)
    kept = ReferenceComputation(call).select_comparable(call.results)
    assert kept[0] is not None and kept[1:] == [None, None, None]
