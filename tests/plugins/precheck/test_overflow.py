"""The overflow check: overflows that both sides have, and those that one side has alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_precheck.model import Array, Call, Outcome, Outputs
from probe_precheck.overflow import NO_FLOATS_REASON, NPU_ONLY_REASON, Overflow, OverflowResult, check_call
from probe_precheck.runner_options import RunnerOptions
from probe_pytorch.precheck.runner import PyTorchRunner

from probe_core.files.packaged import load_yaml

INF, NAN = math.inf, math.nan


def leaf(high: float, low: float, dtype: str = "torch.float16") -> dict[str, Any]:
    return {
        "type": "torch.Tensor", "dtype": dtype, "shape": [4], "requires_grad": False,
        "Max": high, "Min": low, "Mean": 0.0, "Norm": 1.0,
    }  # fmt: skip


def record(inputs: list[Any], output: Any) -> dict[str, Any]:
    return {"input_args": inputs, "input_kwargs": {}, "output": [output]}


EXP = record([leaf(30.0, 29.0)], leaf(INF, 1.0))


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., OverflowResult]:
    def run(name: str, fields: dict[str, Any], **instead: Callable[..., Any]) -> OverflowResult:
        runner = PyTorchRunner({f"Torch.{api}": function for api, function in instead.items()})
        runner.open(RunnerOptions(tmp_path / "dump.json", "cpu"))
        return check_call(runner, Call(name, 0, fields))

    return run


def test_overflow_of_the_dtype_is_normal(check: Any) -> None:
    result = check("Torch.exp.0", EXP)  # the reference is finite in float32
    assert result == OverflowResult("Torch.exp.0", Overflow.NORMAL, True, True, True)


def test_nan_of_both_sides_is_normal(check: Any) -> None:
    fields = record([leaf(-1.0, -2.0, "torch.float32")], leaf(NAN, NAN, "torch.float32"))
    assert check("Torch.log.0", fields).overflow is Overflow.NORMAL


def test_overflow_of_the_device_alone_is_abnormal(check: Any) -> None:
    fields = record([leaf(2.0, 1.0)], leaf(INF, INF))
    result = check("Torch.exp.0", fields, exp=lambda x: torch.full_like(x, INF))
    assert (result.overflow, result.device, result.reference) == (Overflow.ABNORMAL, True, False)


def test_saturating_device_is_abnormal(check: Any) -> None:
    result = check("Torch.exp.0", EXP, exp=lambda x: torch.exp(x).clamp(max=65504.0))
    assert (result.overflow, result.device, result.reference) == (Overflow.ABNORMAL, False, True)


def test_finite_call_has_no_overflow(check: Any) -> None:
    assert check("Torch.exp.0", record([leaf(1.0, 0.0)], leaf(2.7, 1.0))).overflow is Overflow.NONE


def test_recorded_overflow_may_not_come_again(check: Any) -> None:
    assert check("Torch.exp.0", record([leaf(1.0, 0.0)], leaf(INF, 1.0))).overflow is Overflow.NOT_REPRODUCED


def test_call_that_fails_is_skipped_with_its_reason(check: Any) -> None:
    result = check("Torch.exp.0", record([{"type": "str", "value": "x"}], leaf(1.0, 1.0)))
    assert result.overflow is Overflow.SKIPPED and result.reason


class FixedRunner:
    """A runner that returns given outputs."""

    def __init__(self, bench: Any, device: Any) -> None:
        self._outputs = Outputs(bench, device)

    def run(self, call: Call) -> Outcome:
        return Outcome(self._outputs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_ranges_are_those_of_the_dtypes(dtype: str) -> None:
    info = torch.finfo(getattr(torch, dtype))
    unit = info.eps / 2
    assert tuple(load_yaml("probe_precheck", "overflow.yaml")[dtype].values()) == (
        info.max,
        8 * unit,
        unit / 2,
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("factor, expected", [(0.9, Overflow.ABNORMAL), (1.0, Overflow.NORMAL), (1.1, Overflow.NORMAL)])
def test_reference_near_the_limit_of_the_dtype(dtype: str, factor: float, expected: Overflow) -> None:
    largest = torch.finfo(getattr(torch, dtype)).max
    bench = Array(torch.tensor([factor * largest], dtype=torch.float64).numpy(), "torch.float64")
    device = Array(torch.tensor([INF]).numpy(), f"torch.{dtype}")
    assert check_call(FixedRunner(bench, device), Call("Torch.mul.0", 0, {})).overflow is expected  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_largest_number_is_no_overflow(dtype: str) -> None:
    own = getattr(torch, dtype)
    largest = torch.tensor([torch.finfo(own).max], dtype=own).float().numpy()
    runner = FixedRunner(Array(largest, "torch.float64"), Array(largest, f"torch.{dtype}"))
    assert check_call(runner, Call("Torch.mul.0", 0, {})).overflow is Overflow.NONE  # type: ignore[arg-type]


def test_nested_outputs_and_other_dtypes(tmp_path: Path) -> None:
    integers = Array(torch.tensor([1]).numpy(), "torch.int64")
    empty = Array(torch.empty(0).numpy(), "torch.float32")
    bad = Array(torch.tensor([NAN]).numpy(), "torch.float32")
    call = Call("Torch.topk.0", 0, {})
    assert check_call(FixedRunner(integers, integers), call).reason == NO_FLOATS_REASON  # type: ignore[arg-type]
    result = check_call(FixedRunner({"a": [empty, bad]}, {"a": [empty, bad]}), call)  # type: ignore[arg-type]
    assert result.overflow is Overflow.NORMAL


# -- the command -----------------------------------------------------------------------------------


def write_dump(directory: Path, **calls: Any) -> Path:
    directory.mkdir()
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    data = {name.replace("__", "."): fields for name, fields in calls.items()}
    (directory / "dump.json").write_text(json.dumps({**head, "data": data}))
    return directory / "dump.json"


def test_command_lists_overflows_and_writes_a_file(tmp_path: Path, probe: Any) -> None:
    boolean = leaf(1.0, 0.0, "torch.bool") | {"Max": True, "Min": False}
    dump = write_dump(
        tmp_path / "rank0",
        Torch__exp__0__forward=EXP,
        Functional__relu__0__forward=record([leaf(1.0, -1.0)], leaf(1.0, 0.0)),
        Torch__isnan__0__forward=record([leaf(1.0, -1.0)], boolean),
        NPU__npu_linear__0__forward=record([leaf(1.0, -1.0)], leaf(1.0, 0.0)),
    )  # fmt: skip
    out = tmp_path / "out"
    code = probe(
        "run_overflow_check",
        "-api_info",
        dump,
        "-d",
        "cpu",
        "-j",
        "False",
        "-o",
        out,
        "--fail-on",
        "abnormal",
    )
    assert code == 0, probe.err
    assert probe.out.startswith(
        "4 calls: 1 no overflow, 1 normal overflow, 0 abnormal overflow, 0 not reproduced, 2 skipped"
    )
    assert "normal overflow: Torch.exp.0" in probe.out
    content = json.loads(next(out.glob("overflow_check_*.json")).read_text())
    assert [(call["name"], call["overflow"]) for call in content["calls"]] == [
        ("Torch.exp.0", "normal overflow"), ("Functional.relu.0", "no overflow"),
        ("Torch.isnan.0", "skipped"), ("NPU.npu_linear.0", "skipped"),
    ]  # fmt: skip
    assert [call["reason"] for call in content["calls"][2:]] == [NO_FLOATS_REASON, NPU_ONLY_REASON]


def test_records_of_the_task_overflow_check_are_run(tmp_path: Path, probe: Any) -> None:
    dump = write_dump(tmp_path / "rank0", Torch__exp__0__forward=EXP)
    dump.write_text(dump.read_text().replace('"statistics"', '"overflow_check"'))
    assert probe("run-overflow-check", "-i", dump, "-d", "cpu", "-o", tmp_path / "out") == 0, probe.err
    assert "normal overflow: Torch.exp.0" in probe.out
    assert probe("run-ut", "-i", dump, "-o", tmp_path / "out") == 2
    assert "holds nothing to compare" in probe.err


@pytest.mark.parametrize(
    "arguments",
    [["-i", "missing"], ["-i", "DUMP", "-d", "tpu"], ["-i", "DUMP", "--only", "Torch.sin"],
     ["-i", "DUMP", "--timeout", "nan"], ["-i", "BROKEN"], ["-i", "DUMP", "-j", "maybe"]],
)  # fmt: skip
def test_mistakes_are_one_sentence(arguments: list[str], tmp_path: Path, probe: Any) -> None:
    dump = write_dump(tmp_path / "rank0", Torch__exp__0__forward=EXP)
    broken = tmp_path / "dump.json"
    broken.write_bytes(dump.read_bytes()[:-20])
    places = {"DUMP": str(dump), "BROKEN": str(broken)}
    given = [places.get(argument, argument) for argument in arguments]
    assert probe("run-overflow-check", *given, "-o", tmp_path / "out") == 2
    assert "Traceback" not in probe.err


def test_mindspore_without_mindspore_is_one_sentence(tmp_path: Path, probe: Any) -> None:
    pytest.importorskip("probe_mindspore")
    try:
        import mindspore  # noqa: F401
    except ImportError:
        dump = write_dump(tmp_path / "rank0", Mint__exp__0__forward=EXP)
        dump.write_text(dump.read_text().replace('"pytorch"', '"mindspore"').replace("torch.float16", "Float16"))
        assert probe("run-overflow-check", "-i", dump, "-o", tmp_path / "out") == 2
        assert "mindspore" in probe.err
