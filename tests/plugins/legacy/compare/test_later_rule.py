"""Groups of ptdbg_ascend 3.0 to 6.0 match by names, dtypes and shapes; Aten operators by what they are."""

from __future__ import annotations

import pytest
from probe_legacy.compare.dump import Release
from probe_legacy.compare.groups import OldRow, RowGroup, align_groups
from probe_legacy.compare.later_rule import AlikeTensorsRule

HALF, SINGLE, BRAIN = "torch.float16", "torch.float32", "torch.bfloat16"


def group(call: str, dtype: str = SINGLE, shape: tuple[int, ...] = (2,), sides: str = "io") -> RowGroup:
    joint = "." if ".forward" in call or ".backward" in call else "_"
    names = {"i": f"{call}{joint}input.0", "o": f"{call}{joint}output"}
    return RowGroup([OldRow(names[side], dtype, list(shape), (), 0) for side in sides])


def matches(one: RowGroup, two: RowGroup, release: Release = Release.V4, *, fuzzy: bool = False) -> bool:
    pairs = list(align_groups([one], [two], AlikeTensorsRule(release, fuzzy=fuzzy)))
    assert len(pairs) == 1
    return pairs[0][1] is not None


CALL = "Torch_relu_0_forward"


@pytest.mark.parametrize(
    ("dtypes", "in_3", "in_4"),
    [
        ((HALF, HALF), True, True),
        ((HALF, SINGLE), True, True),
        ((SINGLE, HALF), True, True),
        ((HALF, BRAIN), False, True),
        ((BRAIN, SINGLE), False, False),
        ((SINGLE, "torch.float64"), False, False),
    ],
)
def test_dtypes(dtypes: tuple[str, str], in_3: bool, in_4: bool) -> None:
    for release, expected in ((Release.V3, in_3), (Release.V4, in_4), (Release.V6, in_4)):
        assert matches(*(group(CALL, dtype) for dtype in dtypes), release) is expected


def test_shapes_and_names() -> None:
    assert not matches(group(CALL, shape=(2,)), group(CALL, shape=(3,)))
    assert not matches(group(CALL), group("Torch_relu_1_forward"))
    assert not matches(group(CALL), group(CALL, sides="o"))


@pytest.mark.parametrize(("one", "two", "expected"), [
    ("Torch_relu_0_forward", "Torch_relu_12_forward", True),
    ("Torch.relu.0.forward", "Torch.relu.12.forward", True),
    ("Tensor___getitem___0_forward", "Tensor___getitem___3_forward", True),
    ("Torch_relu_0_forward", "Torch_relu_0_backward", False),
    ("Torch_relu_0_forward", "Torch_relu__0_forward", False),
    ("Torch_conv2d_0_forward", "Torch_conv3d_0_forward", False),
])  # fmt: skip
def test_numbers_of_calls_may_differ_if_asked(one: str, two: str, expected: bool) -> None:
    assert matches(group(one), group(two), fuzzy=True) is expected


@pytest.mark.parametrize(("aten", "api", "expected"), [
    ("Aten_add.Tensor_0_forward", "Torch_add_5_forward", True),
    ("Aten_convolution_0_forward", "Functional_conv2d_0_forward", True),
    ("Aten__log_softmax_0_forward", "Functional_log_softmax_0_forward", True),
    ("Aten_native_layer_norm_0_forward", "Torch_layer_norm_0_forward", True),
    ("Aten_convolution_0_forward", "Functional_linear_0_forward", False),
    ("Aten_relu_0_forward", "Torch_relu_0_backward", False),
])  # fmt: skip
def test_aten_operators_match_those_that_call_them(aten: str, api: str, expected: bool) -> None:
    one, two = group(aten), group(api, shape=(7,), sides="iio")
    assert matches(one, two) is matches(two, one) is expected
    assert not matches(one, two, Release.V3)  # from 4.0 on


def test_aten_operators_match_themselves_by_name() -> None:
    assert matches(group("Aten_relu_0_forward"), group("Aten_relu_0_forward"))
    assert not matches(group("Aten_relu_0_forward"), group("Aten_relu_1_forward"))
