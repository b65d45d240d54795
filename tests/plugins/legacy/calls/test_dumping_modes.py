"""The modes of ``set_dump_switch`` select the rows that ptdbg_ascend 2.3 wrote in the same modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.runs.older_calls import branch, conv, ptdbg, rows_of, step_of  # noqa: F401
from support.runs.older_dumps import dumps  # noqa: F401

from probe_core.errors import UserError

RANK = "ptdbg_dump_v2.3/rank0"
CONV = f"ptdbg23_conv_all/bench/{RANK}/bench_dump"
RANGE = ["Functional_conv2d_1_forward", "Functional_linear_0_forward"]
MODES: dict[str, dict[str, Any]] = {
    "list": {"mode": "list", "scope": ["Functional_conv2d_1_forward", "Torch_relu_1_backward"]},
    "range": {"mode": "range", "scope": RANGE},
    "stack0": {"mode": "stack"},
    "stack1": {"mode": "stack", "scope": ["Torch_relu"]},
    "stack2": {"mode": "stack", "scope": ["Torch_relu_1_forward", "Functional_linear_0_forward"]},
    "api_list": {"mode": "api_list", "api_list": ["relu", "Conv2d"]},
    "fwd": {"dump_mode": "forward"},
    "bwd": {"dump_mode": "backward"},
    "apistack_bwd": {"mode": "api_stack", "dump_mode": "backward"},
}


def shown(rows: list[Any]) -> list[Any]:
    """Rows without statistics, and call stacks by their names alone."""
    return [row[:5] if len(row) > 2 else row[0] for row in rows]


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_writes_the_rows_of_the_tool(ptdbg: Any, dumps: Path, tmp_path: Path, mode: str) -> None:
    model, step = conv(dumps / CONV), step_of(dumps / CONV)
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON", **MODES[mode])
    step(model)
    ptdbg.set_dump_switch("OFF")
    (made,) = (tmp_path / RANK).glob("*.pkl")
    (wanted,) = (dumps / "ptdbg23_modes" / mode / RANK).glob("*.pkl")
    assert made.name == wanted.name
    assert shown(rows_of(made)) == shown(rows_of(wanted))
    arrays = [path.name for path in made.with_suffix("").glob("*")]
    assert sorted(arrays) == sorted(path.name for path in wanted.with_suffix("").glob("*"))
    assert made.with_suffix("").exists() is wanted.with_suffix("").exists()


def test_frames_name_the_lines_of_the_program(ptdbg: Any, dumps: Path, tmp_path: Path) -> None:
    """The tool's frames begin with its own; probe's begin with the line that made the call."""
    model, step = conv(dumps / CONV), step_of(dumps / CONV)
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON", mode="stack", scope=["Torch_relu_1"])
    step(model)
    ptdbg.set_dump_switch("OFF")
    forward, backward = rows_of(tmp_path / RANK / "d.pkl")
    assert forward[1][0][0].endswith("older_net.py") and forward[1][0][2] == "forward"
    assert forward[1][0][3] == "x = torch.relu(self.conv2(F.max_pool2d(x, 2)))"
    assert all(len(frame) == 4 and frame[1].isdigit() for frame in forward[1])
    assert any("backward()" in frame[3] for frame in backward[1])


def test_calls_are_counted_on_in_later_iterations(ptdbg: Any, dumps: Path, tmp_path: Path) -> None:
    model, step = conv(dumps / CONV), step_of(dumps / CONV)
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
    for _ in range(2):
        ptdbg.set_dump_switch("ON", mode="api_list", api_list=["relu"])
        step(model)
        ptdbg.set_dump_switch("OFF")
    made, wanted = tmp_path / RANK / "d.pkl", dumps / "ptdbg23_modes/two_steps" / RANK / "d.pkl"
    assert shown(rows_of(made)) == shown(rows_of(wanted))
    assert {path.stem for path in made.with_suffix("").iterdir()} == {row[0] for row in rows_of(made)}


def test_a_second_range_opens_anew(ptdbg: Any, tmp_path: Path) -> None:
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(torch.nn.ReLU(), ptdbg.acc_cmp_dump)
    for number in (0, 1):
        ptdbg.set_dump_switch("ON", mode="range", scope=[f"Torch_exp_{number}_forward", f"Torch_cos_{number}_forward"])
        for call in (torch.sin, torch.exp, torch.tan, torch.cos, torch.sin):
            call(torch.tensor([1.0]))
        ptdbg.set_dump_switch("OFF")
    names = [row[0] for row in rows_of(tmp_path / RANK / "d.pkl") if row[0].endswith("output")]
    assert names == [f"Torch_{op}_{number}_forward_output" for number in (0, 1) for op in ("exp", "tan", "cos")]


def test_calls_are_counted_while_the_switch_is_off(ptdbg: Any, dumps: Path, tmp_path: Path) -> None:
    model, step = conv(dumps / CONV), step_of(dumps / CONV)
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
    step(model)
    ptdbg.set_dump_switch("ON", mode="api_list", api_list=["relu"])
    step(model)
    ptdbg.set_dump_switch("OFF")
    wanted = rows_of(dumps / "ptdbg23_modes/two_steps" / RANK / "d.pkl")
    assert shown(rows_of(tmp_path / RANK / "d.pkl")) == shown(wanted[len(wanted) // 2 :])


def test_the_switch_off_of_a_list_prints_the_number_of_calls(
    ptdbg: Any, dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, step = conv(dumps / CONV), step_of(dumps / CONV)
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON", **MODES["list"])
    step(model)
    ptdbg.set_dump_switch("OFF", mode="list")
    assert capsys.readouterr().out == "The number of matched dump is 2\n"


def test_without_the_filter_all_tensors_and_numbers_are_written(ptdbg: Any, tmp_path: Path) -> None:
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(torch.nn.ReLU(), ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON", filter_switch="OFF")
    x = torch.tensor([1, 2, 3])
    torch.add(x, 2)
    torch.mul(x, 0.5)
    torch.eq(x, 2)
    torch.sum(x)
    ptdbg.set_dump_switch("OFF")
    rows = rows_of(tmp_path / RANK / "d.pkl")
    assert rows == [
        ["Torch_add_0_forward_input.0", 1, [], "torch.int64", [3], [3.0, 1.0, 2.0]],
        ["Torch_add_0_forward_input.1", 1, [], "<class 'int'>", "[]", [2, 2, 2]],
        ["Torch_add_0_forward_output", 1, [], "torch.int64", [3], [5.0, 3.0, 4.0]],
        ["Torch_mul_0_forward_input.0", 1, [], "torch.int64", [3], [3.0, 1.0, 2.0]],
        ["Torch_mul_0_forward_input.1", 1, [], "<class 'float'>", "[]", [0.5, 0.5, 0.5]],
        ["Torch_mul_0_forward_output", 1, [], "torch.float32", [3], [1.5, 0.5, 1.0]],
        ["Torch_eq_0_forward_input.0", 1, [], "torch.int64", [3], [3.0, 1.0, 2.0]],
        ["Torch_eq_0_forward_input.1", 1, [], "<class 'int'>", "[]", [2, 2, 2]],
        ["Torch_eq_0_forward_output", 1, [], "torch.bool", [3], [[], [], []]],
        ["Torch_sum_0_forward_input.0", 1, [], "torch.int64", [3], [3.0, 1.0, 2.0]],
        ["Torch_sum_0_forward_output", 1, [], "torch.int64", [], [6.0, 6.0, 6.0]],
    ]
    assert np.load(tmp_path / RANK / "d/Torch_add_0_forward_input.1.npy") == 2


def test_version_4_writes_its_own_format(ptdbg: Any, dumps: Path, tmp_path: Path) -> None:
    """Its dump also holds calls of detach that it made itself, and their backward."""
    bench = dumps / "ptdbg40_branch/bench"
    arrays = dumps / f"ptdbg23_unmatched/bench/{RANK}/bench_dump"
    model, step = branch(arrays), step_of(arrays)
    ptdbg.set_version("4.0")
    ptdbg.set_dump_path(tmp_path)
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON")
    step(model)
    ptdbg.set_dump_switch("OFF")
    (file,) = bench.rglob("*.pkl")
    wanted = [row for row in rows_of(file) if not row[0].startswith("Tensor_detach_")]
    own = rows_of(tmp_path / "ptdbg_dump_v4.0/rank0/dump.pkl")
    assert shown(own) == shown(wanted)
    assert [len(row[5]) for row in own] == [len(row[5]) for row in wanted]
    ptdbg._dumping.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["ptdbg_dump_v4.0"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("MAYBE",), "switch cannot be 'MAYBE'"),
        (("ON", "some"), "mode cannot be 'some'"),
        (("ON", "range", ["a"]), "needs 2 names in scope, not 1"),
        (("ON", "list"), "needs 1 or more names in scope, not 0"),
        (("ON", "stack", ["a", "b", "c"]), "needs 0 to 2 names in scope, not 3"),
        (("ON", "acl", []), "needs 1 names in scope, not 0"),
        (("ON", "acl", ["Torch_relu_0_forward"]), "needs the configuration"),
        (("ON", "api_list"), "needs names in api_list"),
        (("ON", "list", "relu"), "scope must be a list of names"),
        (("ON", "all", [], [], "MAYBE"), "filter_switch cannot be 'MAYBE'"),
        (("ON", "all", [], [], "ON", ["forward"]), "dump_mode cannot be"),
    ],
)
def test_a_wrong_argument_is_named(ptdbg: Any, tmp_path: Path, arguments: Any, words: str) -> None:
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(torch.nn.ReLU(), ptdbg.acc_cmp_dump)
    with pytest.raises(UserError) as caught:
        ptdbg.set_dump_switch(*arguments)
    assert words in caught.value.what and caught.value.fix
