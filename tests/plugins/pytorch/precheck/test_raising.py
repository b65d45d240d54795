"""Dtypes that both sides compute in: raising, HF32, autocast (docs/standards.md#raised-precision)."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from probe_pytorch.precheck.raising import (
    DtypeConversion,
    find_conversion,
    list_autocast_candidates,
    list_float_dtypes,
    narrow_to_autocast,
    wrap_definition,
)
from probe_pytorch.precheck.rebuild import Arguments, round_to_hf32
from support.cases import every
from support.runs.prechecked import ERROR, SKIP, Checked, Prechecked, call, leaf, live, written
from support.runs.recorded import forward
from torch import nn
from torch.nn import functional as F

F16, BF16, F32, F64, I64 = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64


def raised(
    api: str, *dtypes: torch.dtype, autocast: torch.dtype | None = None, nested: bool = False
) -> list[torch.dtype]:
    """Return the dtypes that the reference computes in, one argument of each dtype."""
    tensors = [torch.ones(2, dtype=dtype) for dtype in dtypes]
    arguments = Arguments([], {"tensors": [tuple(tensors)]}) if nested else Arguments(list(tensors), {})
    raising = find_conversion(api, arguments, autocast)
    return [raising.convert_tensor(tensor).dtype for tensor in tensors]


# the rule of 5.2


@every(
    "dtypes, expected",
    [
        ([F16], [F32]),
        ([BF16], [F32]),
        ([F32], [F64]),
        ([F64], [F64]),
        ([F32, F32, I64], [F64, F64, I64]),
        ([F16, I64, torch.bool], [F32, I64, torch.bool]),
        ([I64, torch.bool], [I64, torch.bool]),
        ([F16, F32], [F32, F32]),
        ([BF16, F32, I64], [F32, F32, I64]),
        ([F16, BF16], [F32, F32]),
        ([F32, F64], [F32, F64]),
        ([torch.complex64], [torch.complex64]),
        ([], []),
    ],
)
@every("nested", [False, True])
def test_one_dtype_is_raised_by_a_step_and_several_to_float32(
    dtypes: list[torch.dtype], expected: list[torch.dtype], nested: bool
) -> None:
    assert raised("add", *dtypes, nested=nested) == expected


def test_type_as_is_never_raised() -> None:
    assert raised("type_as", F16) == [F16]
    assert raised("type_as", F32, BF16) == [F32, BF16]


@pytest.mark.parametrize("api", ["conv1d", "conv2d"])
def test_float32_convolutions_are_not_raised(api: str) -> None:
    assert raised(api, F32, F32) == [F32, F32]
    assert raised(api, F16, F16) == [F32, F32]
    assert raised("conv3d", F32) == [F64]


def test_a_dtype_argument_is_raised_with_the_tensors() -> None:
    assert find_conversion("sum", Arguments([torch.ones(2, dtype=BF16)], {}), None).convert_dtype(BF16) is F32
    assert find_conversion("sum", Arguments([torch.ones(2)], {}), None).convert_dtype(F32) is F64
    assert find_conversion("sum", Arguments([torch.ones(2)], {}), None).convert_dtype(I64) is I64


def test_dtype_keywords_live(tmp_path: Path) -> None:
    """The device's output is of the recorded dtype, the reference's of the raised one."""

    def program() -> None:
        x = torch.randn(3, 4)
        torch.sum(x, dim=0, dtype=torch.float32)
        F.softmax(x.half(), dim=-1, dtype=torch.float32)
        torch.arange(4, dtype=torch.float32)

    calls = live(tmp_path / "run", program)
    assert [calls["Torch.sum.0"].dtypes(side) for side in ("device", "bench")] == [["float32"], ["float64"]]
    assert calls["Functional.softmax.0"].dtypes() == ["float32"]
    assert calls["Torch.arange.0"].dtypes("bench") == ["float32"]  # nothing to raise by


def test_a_dtype_by_position_live(tmp_path: Path) -> None:
    calls = live(tmp_path / "run", lambda: torch.softmax(torch.randn(3, 4).bfloat16(), -1, torch.float32))
    assert calls["Torch.softmax.0"].dtypes() == ["float32"]


# HF32


def hf32_by_hand(number: float) -> float:
    """The guide's formula on Python's own integers; the sign and the exponent are part of the number."""
    (bits,) = struct.unpack("<i", struct.pack("<f", number))
    rounded = (((bits >> 11) + 1) >> 1) << 12
    (found,) = struct.unpack("<f", struct.pack("<I", rounded & 0xFFFFFFFF))
    return float(found)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_hf32_is_the_formula(numbers: list[float]) -> None:
    found = round_to_hf32(torch.tensor(numbers)).tolist()
    assert found == [hf32_by_hand(number) for number in numbers]


@given(st.floats(width=32, min_value=2.0**-120, max_value=2.0**120), st.booleans())
def test_hf32_has_eleven_bits_of_mantissa(number: float, negative: bool) -> None:
    """Rounded to the nearest number whose significand has 11 bits after the leading one, never further off."""
    number = -number if negative else number
    (found,) = round_to_hf32(torch.tensor([number])).tolist()
    fraction, _ = math.frexp(found)
    scaled = fraction * 2**12
    assert scaled == int(scaled)
    assert abs(found - number) <= 2.0 ** (math.frexp(number)[1] - 13)


def test_hf32_keeps_its_argument_and_any_stride() -> None:
    x = torch.randn(4, 6)
    before = x.clone()
    assert torch.equal(round_to_hf32(x.T), round_to_hf32(x).T)
    assert torch.equal(x, before)
    assert round_to_hf32(torch.tensor([0.0, 1.0, -2.5, math.inf])).tolist() == [0.0, 1.0, -2.5, math.inf]


def test_a_convolution_is_run_on_hf32_on_both_sides(tmp_path: Path) -> None:
    torch.manual_seed(1)
    x, w = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 2, 2)
    found = live(tmp_path / "run", lambda: F.conv2d(x, w))["Functional.conv2d.0"]
    expected = F.conv2d(round_to_hf32(x), round_to_hf32(w)).numpy()
    assert (found.arrays("device")[0] == expected).all()
    assert (found.arrays("bench")[0] == expected).all()
    assert found.dtypes("bench") == ["float32"]


# autocast


class Small(nn.Module):
    """Layers of every policy of autocast, with weights that half precision rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 12), nn.Linear(12, 6)
        self.norm = nn.LayerNorm(12)
        self.conv = nn.Conv1d(1, 3, 3)
        nn.init.normal_(self.norm.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.first(x))
        y = y + self.conv(x.unsqueeze(1)).flatten(1)[:, :12]
        y = torch.softmax(torch.matmul(y, y.T), -1) @ y
        return F.mse_loss(self.second(y), torch.zeros(4, 6))


def small(dtype: torch.dtype) -> Callable[[], None]:
    """A training step under autocast."""
    torch.manual_seed(2)
    model, x = Small(), torch.randn(4, 8)

    def program() -> None:
        with torch.autocast("cpu", dtype):
            loss = model(x)
        loss.backward()

    return program


def skip_without_autocast(dtype: torch.dtype) -> None:
    """Skip a test on a torch without autocast to a dtype on the CPU."""
    try:
        with torch.autocast("cpu", dtype):
            F.linear(torch.ones(2, 2), torch.ones(2, 2))
    except RuntimeError as error:
        pytest.skip(f"this torch has no such autocast: {error}")


def recorded_dtypes(found: Checked) -> list[str]:
    """The dtypes of the outputs as the record has them."""
    return [output["dtype"].removeprefix("torch.") for output in found.call.forward["output"]]


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_a_run_under_autocast(tmp_path: Path, dtype: torch.dtype, task: str) -> None:
    """Every call runs, gives out what the run gave out, and none is far off."""
    skip_without_autocast(dtype)
    calls = live(tmp_path / "run", small(dtype), task)
    apis = {name.split(".")[1] for name in calls.calls}
    assert apis >= {"linear", "matmul", "softmax", "conv1d", "layer_norm", "mse_loss", "__matmul__"}
    for name in calls.calls:
        found = calls[name]
        assert SKIP not in found.statuses, (name, found.text)
        assert found.dtypes() == recorded_dtypes(found), name
        if task == "tensor":
            assert found.result.forward is not ERROR, (name, found.text)


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_the_gradient_of_a_weight_is_judged_in_the_dtype_of_autocast(tmp_path: Path, dtype: torch.dtype) -> None:
    """It was computed in half precision and widened: float32's limits would make it an error."""
    skip_without_autocast(dtype)
    found = live(tmp_path / "run", small(dtype))["Functional.linear.0"]
    kind = str(dtype).removeprefix("torch.")
    details = {detail.name.rpartition("backward.")[2]: detail for detail in found.result.details}
    assert details["output.1"].device_dtype == f"torch.{kind}"
    assert details["output.1"].bench_dtype == "torch.float32"
    assert found.result.backward is not ERROR


def test_the_reference_of_a_linear_layer_under_autocast(tmp_path: Path) -> None:
    """Inputs are rounded by autocast, and the product is exact to float32."""
    torch.manual_seed(3)
    x, w = torch.randn(5, 8), torch.randn(3, 8)

    def program() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            F.linear(x, w)

    found = live(tmp_path / "run", program)["Functional.linear.0"]
    expected = x.bfloat16().double() @ w.bfloat16().double().T
    assert abs(found.arrays("bench")[0] - expected.numpy()).max() < 1e-5
    assert found.dtypes() == ["bfloat16"]


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_what_autocast_raises_to_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    """Guide 5.2: the recorded output's dtype differs from the one dtype of the inputs."""
    skip_without_autocast(dtype)
    logits = torch.randn(4, 6).to(dtype)

    def program() -> None:
        with torch.autocast("cpu", dtype):
            F.cross_entropy(logits, torch.tensor([0, 1, 2, 3]))

    found = live(tmp_path / "run", program)["Functional.cross_entropy.0"]
    assert found.dtypes() == ["float32"]


def test_what_autocast_computes_in_float32_is_not_rounded(tmp_path: Path) -> None:
    """Float32 class weights beside half-precision logits: autocast raises the logits, and rounds nothing."""
    torch.manual_seed(4)
    logits, weights = torch.randn(4, 6).bfloat16(), torch.rand(6) + 0.1

    def program() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            F.cross_entropy(logits, torch.tensor([0, 1, 2, 3]), weights, reduction="none")

    found = live(tmp_path / "run", program)["Functional.cross_entropy.0"]
    assert found.dtypes() == ["float32"]
    expected = F.cross_entropy(logits.double(), torch.tensor([0, 1, 2, 3]), weights.double(), reduction="none")
    assert abs(found.arrays("bench")[0] - expected.numpy()).max() < 1e-5


@pytest.mark.parametrize(
    "dtypes, recorded, expected",
    [
        ([F32], [F32], [None]),
        ([BF16], [BF16], [None]),
        ([F32], [BF16], [None, BF16]),
        ([F32, BF16], [BF16], [None, BF16]),
        ([F32, F16], [F32], [None, F16]),
        ([F32, F16, BF16], [F32], [None, F16, BF16]),
        ([I64], [I64], [None]),
        ([], [BF16], [None]),
        ([BF16], [F32], [None, BF16]),
    ],
)
def test_what_a_run_may_have_been_under(
    dtypes: list[torch.dtype], recorded: list[torch.dtype], expected: list[torch.dtype | None]
) -> None:
    """No autocast is tried first: a plain call that mixes dtypes or changes them is as good an explanation."""
    arguments = Arguments([torch.ones(2, dtype=dtype) for dtype in dtypes], {})
    assert list_float_dtypes(arguments) == {dtype for dtype in dtypes if dtype.is_floating_point}
    floats = [dtype for dtype in recorded if dtype.is_floating_point]
    assert list_autocast_candidates(arguments, floats) == expected


def test_a_plain_call_that_narrows_is_not_taken_for_autocast(tmp_path: Path) -> None:
    """float32 in, bfloat16 out, by ``bfloat16()`` itself."""
    found = live(tmp_path / "run", lambda: torch.randn(9).bfloat16())["Tensor.bfloat16.0"]
    assert found.outcome.kept.autocast is None
    assert found.dtypes() == ["bfloat16"]


def test_an_old_record_without_outputs_of_mixed_dtypes(tmp_path: Path) -> None:
    """The plain call fails, so it was autocast (defect 26 of msprobe: the row was lost)."""
    skip_without_autocast(F16)
    calls = written(tmp_path / "run", {"Torch.neg.0.forward": forward(leaf(torch.ones(2)))})
    x, w = leaf(torch.randn(4, 6).half()), leaf(torch.randn(3, 6))
    calls.calls["Functional.linear.0"] = call("Functional.linear.0", x, w)
    found = calls["Functional.linear.0"]
    assert found.outcome.kept.autocast is F16
    assert found.dtypes() == ["float16"]
    assert found.result.forward is not ERROR


def test_the_first_failure_is_told_when_nothing_runs(tmp_path: Path) -> None:
    calls = written(tmp_path / "run", {"Torch.neg.0.forward": forward(leaf(torch.ones(2)))})
    calls.calls["Functional.linear.0"] = call(
        "Functional.linear.0", leaf(torch.randn(4, 6).half()), leaf(torch.randn(3, 5))
    )
    found = calls["Functional.linear.0"]
    assert found.result.forward is SKIP
    assert "same dtype" in found.text or "shapes cannot be multiplied" in found.text


# the parts


def test_narrowed_takes_only_what_loses_nothing() -> None:
    exact, fine = torch.tensor([1.5, -2.0]), torch.tensor([1.1])
    found = narrow_to_autocast([exact, (fine, None)], BF16)
    assert found[0].dtype is BF16
    assert found[1][0].dtype is F32
    assert narrow_to_autocast(exact, None) is exact


@pytest.mark.parametrize(
    "number",
    [math.inf, math.nan],
)
def test_gradients_with_inf_or_nan_are_narrowed_too(number: float) -> None:
    """bfloat16 holds both."""
    assert narrow_to_autocast(torch.tensor([number, 1.0]), BF16).dtype is BF16


def test_raising_rounds_as_autocast_did() -> None:
    raising = DtypeConversion({BF16: F32, F32: F32}, BF16)
    x = torch.tensor([1.0 + 2.0**-12])
    assert raising.convert_tensor(x).item() == 1.0
    assert raising.convert_tensor(x).dtype is F32
    assert raising.convert_tensor(x.double()).dtype is F64


def test_a_composed_operator_gives_nothing_wider_than_its_inputs() -> None:
    run = wrap_definition(lambda x, y: [x.double() * 2, (y.double(), 3)])
    first, (second, three) = run(torch.ones(2, dtype=F16), torch.ones(2, dtype=F16))
    assert (first.dtype, second.dtype, three) == (F16, F16, 3)
    mixed, _ = run(torch.ones(2, dtype=F16), torch.ones(2))
    assert mixed.dtype is F32
    double, _ = run(torch.ones(2, dtype=F64), torch.ones(2))
    assert double.dtype is F64


def test_statistics_of_halves_are_raised_too(tmp_path: Path) -> None:
    calls: Prechecked = live(tmp_path / "run", lambda: torch.exp(torch.randn(50).half()), "statistics")
    found = calls["Torch.exp.0"]
    assert (found.dtypes(), found.dtypes("bench")) == (["float16"], ["float32"])


def test_hf32_keeps_every_nan() -> None:
    payloads = torch.tensor([0x7FC00000, 0x7FFFFFFF, -1], dtype=torch.int64).to(torch.int32).view(F32)
    assert round_to_hf32(payloads).isnan().all()
