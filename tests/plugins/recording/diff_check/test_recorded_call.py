"""The rule by which two records agree."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from probe_recording.diff_check.recorded_call import Agreement, drop_data_names

KEY = "Functional.relu.0.forward"


def tensor(mean: float = 0.5, **fields: Any) -> dict[str, Any]:
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "Max": 2.0, "Min": -1.0, "Mean": mean}
    return {**leaf, "Norm": 3.0, "requires_grad": False, **fields}


def text(*outputs: Any, **arguments: Any) -> str:
    return json.dumps({"input_args": [tensor()], "input_kwargs": arguments, "output": list(outputs)})


@pytest.fixture(scope="module")
def agreement() -> Agreement:
    return Agreement()


@pytest.mark.parametrize(
    ("target", "golden", "agrees"),
    [
        (tensor(), tensor(), True),
        (tensor(0.5 + 1e-6), tensor(), True),
        (tensor(0.501), tensor(), False),
        (tensor(requires_grad=True), tensor(), True),
        (tensor(dtype="torch.bfloat16"), tensor(), False),
        (tensor(shape=[2, 2]), tensor(), False),
        (tensor(math.nan, Max=math.nan, Min=math.nan, Norm=math.nan), tensor(), False),
        (*(tensor(math.nan, Max=math.nan, Min=math.nan, Norm=math.nan),) * 2, True),
        (tensor(Max=math.inf), tensor(Max=math.inf), True),
        (tensor(Max=math.inf), tensor(Max=-math.inf), False),
        (tensor(-0.0), tensor(0.0), True),
        (tensor(0.5 + 1e-6, md5="00000001"), tensor(md5="00000001"), True),
        (tensor(md5="00000002"), tensor(md5="00000001"), False),
        (tensor(md5="00000002"), tensor(), True),
        (tensor(shape=[0], Max=None, Min=None, Mean=None, Norm=None), tensor(shape=[0], Max=None, Min=None,
                                                                          Mean=None, Norm=None), True),
        (tensor(dtype="torch.int64", Max=3, Min=1), tensor(dtype="torch.int64", Max=4, Min=1), False),
        (tensor(dtype="torch.bool", Max=True, Min=False, Mean=None, Norm=None),
         tensor(dtype="torch.bool", Max=True, Min=True, Mean=None, Norm=None), False),
        (None, tensor(), False),
        (None, None, True),
    ],
)  # fmt: skip
def test_is_met_of_two_outputs(agreement: Agreement, target: Any, golden: Any, agrees: bool) -> None:
    assert agreement.is_met(KEY, text(target), text(golden)) is agrees


def test_is_met_ignores_the_layout_of_the_json(agreement: Agreement) -> None:
    assert agreement.is_met(KEY, text(tensor()), json.dumps(json.loads(text(tensor())), indent=2, sort_keys=True))


def test_is_met_compares_arguments(agreement: Agreement) -> None:
    number = {"type": "int", "value": 3}
    assert agreement.is_met(KEY, text(tensor(), dim=number), text(tensor(), dim=number))
    assert not agreement.is_met(KEY, text(tensor(), dim=number), text(tensor(), dim={**number, "value": 4}))
    assert agreement.is_met(KEY, text(tensor(), dim=number), text(tensor()))  # a version may add an argument


def test_is_met_of_another_number_of_tensors(agreement: Agreement) -> None:
    assert not agreement.is_met(KEY, text(tensor(), tensor()), text(tensor()))


def test_drop_data_names_keeps_those_that_are_stored() -> None:
    record = text(tensor(data_name="a.pt"), tensor(data_name='a"b.pt'))
    assert json.loads(drop_data_names(record)) == json.loads(text(tensor(), tensor()))
    kept = json.loads(drop_data_names(record, {'a"b.pt', None}))
    assert [leaf.get("data_name") for leaf in kept["output"]] == [None, 'a"b.pt']
