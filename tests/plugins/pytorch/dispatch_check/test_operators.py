"""Kinds of operators, from the schemas of torch."""

from __future__ import annotations

from typing import Any

import torch
from probe_pytorch.dispatch_check.operators import (
    SkipReason,
    collect_results,
    draws_random_numbers,
    name_arguments,
    read_operator,
    rules,
)
from support.cases import every

aten = torch.ops.aten


def test_rules_name_operators_of_aten() -> None:
    names = {*rules("uninitialised"), *rules("views"), *rules("masked"), *rules("writes"), *rules("exact"),
             *rules("indices"), *rules("pooled"), *rules("internal"), *rules("not_unique"), *rules("sums"),
             *rules("judged_as")["forward"], *rules("judged_as")["backward"]}  # fmt: skip
    newer = {"_fused_rms_norm", "_fused_rms_norm_backward"}  # since torch 2.9
    unknown = {name for name in names - newer if not hasattr(aten, name)}
    assert unknown <= rules_for_devices(), unknown


def rules_for_devices() -> set[str]:
    """Return the operators that a build of torch may lack."""
    return {"cudnn_batch_norm", "miopen_batch_norm", "mkldnn_rnn_layer", "_copy_from"}


@every("overload, reason", [
    (aten.mm.default, None), (aten.mm.out, None), (aten.add_.Tensor, None), (aten._foreach_add_.Scalar, None),
    (aten._fused_adamw_.default, None), (aten.native_batch_norm.default, None), (aten.copy_.default, None),
    (aten.view.default, SkipReason.VIEW), (aten.t.default, SkipReason.VIEW), (aten.detach.default, SkipReason.VIEW),
    (aten._unsafe_view.default, SkipReason.VIEW), (aten.split.Tensor, SkipReason.VIEW),
    (aten.expand.default, SkipReason.VIEW),
    (aten.empty.memory_format, SkipReason.UNINITIALISED), (aten.resize_.default, SkipReason.UNINITIALISED),
    (aten.new_empty_strided.default, SkipReason.UNINITIALISED),
    (aten._local_scalar_dense.default, SkipReason.NO_VALUES), (aten.equal.default, SkipReason.NO_VALUES),
    (aten.linalg_qr.default, SkipReason.NOT_UNIQUE),
    (torch.ops.prims.add.default, SkipReason.OTHER_NAMESPACE),
    (torch.ops.profiler._record_function_enter_new.default, SkipReason.NO_VALUES),
])  # fmt: skip
def test_reasons_of_operators(overload: Any, reason: SkipReason | None) -> None:
    assert read_operator(overload).reason is reason


def test_collectives_have_a_reason() -> None:
    if torch.distributed.is_available():
        assert read_operator(torch.ops.c10d.allreduce_.default).reason is SkipReason.COLLECTIVE


def draws(overload: Any, *args: Any, **kwargs: Any) -> bool:
    return draws_random_numbers(read_operator(overload), name_arguments(overload, args, kwargs))


def test_operators_that_draw_random_numbers() -> None:
    x = torch.zeros(1, 1, 2, 2)
    for overload in (
        aten.bernoulli_.float,
        aten.rand.default,
        aten.randperm.default,
        aten.multinomial.default,
    ):
        assert draws(overload, x)
    attention = aten._scaled_dot_product_flash_attention.default
    assert draws(attention, x, x, x, 0.5)
    assert not draws(attention, x, x, x, 0.0)
    assert not draws(aten.mm.default, x, x)
    assert not draws(aten.native_dropout.default, x, 0.5, True)  # its mask is a result


def test_results_are_what_a_call_returns_and_what_it_writes() -> None:
    x, other = torch.ones(2), torch.ones(2)

    def results(overload: Any, result: Any, *args: Any, **kwargs: Any) -> list[Any]:
        return collect_results(overload, read_operator(overload), name_arguments(overload, args, kwargs), result)

    assert [id(one) for one in results(aten.add_.Tensor, x, x, other)] == [id(x)]
    assert [id(one) for one in results(aten.add.out, other, x, x, out=other)] == [id(other)]
    assert [id(one) for one in results(aten._foreach_add_.Scalar, None, [x, other], 1)] == [id(x), id(other)]
    assert results(aten.split_copy.Tensor, [x, other], x, 1) == [x, other]
    assert results(aten._local_scalar_dense.default, 3, x) == [3]
    mean, variance = torch.zeros(2), torch.ones(2)
    batch = (torch.ones(3, 2), None, None, mean, variance, True, 0.1, 1e-5)
    found = results(aten.native_batch_norm.default, (x, other, x), *batch)
    assert [id(one) for one in found] == [id(each) for each in (x, other, x, mean, variance)]


def test_names_of_calls_are_those_of_level_l2() -> None:
    assert read_operator(aten.mm.default).prefix == "Aten.mm"
    assert read_operator(torch.ops.prims.add.default).prefix == "Aten.prims.add"
