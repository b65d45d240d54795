"""The overflow check writes the files that ptdbg_ascend wrote, and ends the program with its error."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.runs.older_calls import conv, ptdbg, rows_of, step_of  # noqa: F401
from support.runs.older_dumps import dumps, open_dump  # noqa: F401
from support.runs.older_net import Conv

from probe_core.errors import UserError

RANK = "ptdbg_dump_v2.3/rank0"
CONV = f"ptdbg23_conv_all/bench/{RANK}/bench_dump"


@pytest.fixture
def program(dumps: Path) -> tuple[Conv, Any]:
    """The convolutional program with a weight that is infinite."""
    model, step = conv(dumps / CONV), step_of(dumps / CONV)
    with torch.no_grad():
        model.fc.weight[0, 0] = torch.inf
    return model, step


@pytest.mark.parametrize(("folder", "count"), [("n1", 1), ("n3_filter_off", 3)])
def test_files_are_those_of_the_tool(
    ptdbg: Any,
    dumps: Path,
    program: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    folder: str,
    count: int,
) -> None:
    model, step = program
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(model, ptdbg.overflow_check, overflow_nums=count)
    if folder.endswith("off"):
        ptdbg.set_overflow_check_switch("ON", filter_switch="OFF")
    with pytest.raises(ValueError) as caught:
        step(model)
    made = sorted((tmp_path / RANK).glob("*.pkl"))
    wanted = sorted((dumps / "ptdbg23_overflow" / folder / RANK).glob("*.pkl"))
    assert str(caught.value) == f"[overflow {count} times]: dump file is saved in '{made[-1]}'."
    told = capsys.readouterr().out.splitlines()
    assert len(made) == len(wanted) == len(told) == count
    for number, (own, other) in enumerate(zip(made, wanted)):
        assert re.fullmatch(r"Overflow_info_\d{8}_\d{6}_\d\.pkl", own.name)
        rows, theirs = rows_of(own), rows_of(other)
        assert rows[0][0] == theirs[0][0] and rows[0][1] and rows[1:] == theirs[1:]
        call = rows[0][0].removesuffix("_stack_info")
        assert told[number] == (
            f"[overflow {number + 1} times]: module name :'{call}' is overflow and dump file is saved in '{own}'."
        )
        arrays = {path.name for path in own.with_suffix("").iterdir()}
        assert arrays == {path.name for path in other.with_suffix("").iterdir()}
        assert open_dump(own).names()


def test_an_overflow_of_the_backward_is_found(ptdbg: Any, tmp_path: Path) -> None:
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.register_hook(torch.nn.ReLU(), ptdbg.overflow_check, overflow_nums=2)
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    torch.sqrt(x).sum().backward()
    (file,) = (tmp_path / RANK).glob("*.pkl")
    stack, *rows = rows_of(file)
    assert stack[0] == "Torch_sqrt_0_backward_stack_info"
    assert [row[0] for row in rows] == ["Torch_sqrt_0_backward_input.0", "Torch_sqrt_0_backward_output.0"]
    assert np.isinf(np.load(file.with_suffix("") / "Torch_sqrt_0_backward_output.0.npy")).tolist() == [
        True,
        False,
    ]
    assert x.grad is not None and x.grad.isinf().any()


@pytest.mark.parametrize("switch", ["ON", "OFF"])
def test_memory_without_values_is_allocated_while_calls_are_checked(ptdbg: Any, tmp_path: Path, switch: str) -> None:
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.set_overflow_check_switch(switch)
    ptdbg.register_hook(torch.nn.ReLU(), ptdbg.overflow_check)
    assert torch.empty(2).shape == (2,)


def test_nothing_is_checked_while_the_switch_is_off(ptdbg: Any, program: Any, tmp_path: Path) -> None:
    model, step = program
    ptdbg.set_dump_path(tmp_path / "d.pkl")
    ptdbg.set_overflow_check_switch("OFF")
    ptdbg.register_hook(model, ptdbg.overflow_check)
    step(model)
    assert not list((tmp_path / RANK).iterdir())
    ptdbg.set_overflow_check_switch("ON")
    with pytest.raises(ValueError, match="overflow 1 times"):
        step(model)


def test_version_4_names_the_call(ptdbg: Any, program: Any, tmp_path: Path) -> None:
    model, step = program
    ptdbg.set_version("4.0")
    ptdbg.set_dump_path(tmp_path)
    ptdbg.register_hook(model, ptdbg.overflow_check)
    with pytest.raises(ValueError, match=r"Functional_linear_0_forward_1\.pkl"):
        step(model)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"overflow_nums": 0}, "overflow_nums must be a positive integer"),
        ({"rank": -1}, "rank must be a non-negative integer"),
        ({"dump_mode": "some"}, "dump_mode cannot be 'some'"),
        ({"dump_mode": "acl"}, "needs dump_config"),
        ({"steps": 1}, "takes no steps"),
    ],
)
def test_a_wrong_keyword_of_register_hook_is_named(ptdbg: Any, keywords: Any, words: str) -> None:
    with pytest.raises(UserError) as caught:
        ptdbg.register_hook(torch.nn.ReLU(), ptdbg.overflow_check, **keywords)
    assert words in caught.value.what and caught.value.fix


def test_what_is_no_model_or_no_hook_is_named(ptdbg: Any) -> None:
    with pytest.raises(UserError, match=r"must be a torch\.nn\.Module"):
        ptdbg.register_hook("model", ptdbg.overflow_check)
    with pytest.raises(UserError, match="knows no"):
        ptdbg.register_hook(torch.nn.ReLU(), print)
    for hook in (ptdbg.overflow_check, ptdbg.acc_cmp_dump):
        with pytest.raises(UserError, match="is not called"):
            hook("name")
