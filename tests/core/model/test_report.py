"""Suspects: which rows are named first, and which are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_diagnosis.frames import find_own_frame
from probe_recording.reading.construct import read_construct
from support.runs.comparing import compare
from support.runs.recorded import forward, scalar, tensor, write_run, write_tensor_run

from probe_core.model import Level
from probe_core.model.answers import Outcome
from probe_core.model.plan import Plan
from probe_core.model.report import Report
from probe_core.plugins.manager import Manager

GOOD, BAD = tensor(value=1.0), tensor(value=9.0)


def report(tmp_path: Path, target: dict[str, Any], golden: dict[str, Any], construct: str = "") -> Report:
    paths = [write_run(tmp_path / side, data) for side, data in (("t", target), ("g", golden))]
    (tmp_path / "t" / "construct.json").write_text(construct or "{}")
    plan = Plan(paths[0], paths[1], tmp_path / "o", "0", formats=("csv",))
    (found,) = compare(plan, Manager())
    return found


def named(found: Report) -> list[tuple[str, str]]:
    return [(one.op, one.why.split(" (")[0]) for one in found.suspects]


def outcome(found: Report) -> Outcome:
    assert found.answer is not None
    return found.answer.outcome


OWN = "returns values that differ, although the statistics of its inputs agree"
TAKEN_IN = "receives values that differ, and no earlier difference explains them"


def test_an_op_that_differs_although_its_inputs_agree(tmp_path: Path) -> None:
    target = {
        "Torch.a.0.forward": forward(GOOD, output=[GOOD]),
        "Torch.b.0.forward": forward(GOOD, output=[BAD]),
        "Torch.c.0.forward": forward(BAD, output=[BAD]),
    }
    golden = {key: forward(GOOD, output=[GOOD]) for key in target}
    found = report(tmp_path, target, golden)
    assert named(found) == [("Torch.b.0.forward", OWN)] and outcome(found) is Outcome.DIVERGED
    assert found.answer is not None and found.answer.causes[0].consequences == ("Torch.c.0.forward",)


def test_the_first_that_takes_in_other_values_and_no_later_one(tmp_path: Path) -> None:
    target = {f"Torch.{name}.0.forward": forward(BAD, output=[BAD]) for name in "abc"}
    golden = {key: forward(GOOD, output=[GOOD]) for key in target}
    assert named(report(tmp_path, target, golden)) == [("Torch.a.0.forward", TAKEN_IN)]


def test_another_argument(tmp_path: Path) -> None:
    found = report(
        tmp_path,
        {"Torch.mul.0.forward": forward(GOOD, scalar(0.0625), output=[BAD])},
        {"Torch.mul.0.forward": forward(GOOD, scalar(0.25), output=[GOOD])},
    )
    assert named(found) == [("Torch.mul.0.forward", "was called with a different argument")]
    (cause,) = found.answer.causes if found.answer else ()
    assert cause.reason.code == "argument" and cause.row == "Torch.mul.0.forward.output.0"
    assert cause.evidence["argument"] == "Torch.mul.0.forward.input.1"
    assert "(other, input.1: 0.0625 against 0.25) and returns values that differ" in cause.reason.detail


def test_a_gradient_noted_early_hides_no_forward_call(tmp_path: Path) -> None:
    """Recorders note a parameter's gradient beside the forward call of its module."""
    gradient = "Module.x.Linear.parameters_grad"
    target = {gradient: {"weight": [BAD]}, "Torch.a.0.forward": forward(BAD, output=[BAD])}
    golden = {gradient: {"weight": [GOOD]}, "Torch.a.0.forward": forward(GOOD, output=[GOOD])}
    assert [op for op, _ in named(report(tmp_path, target, golden))] == ["Torch.a.0.forward"]


def test_the_optimizer_is_not_the_first(tmp_path: Path) -> None:
    """Its calls are forward calls too, but they take in what the backward calls gave out."""
    target = {
        "Torch.a.0.forward": forward(GOOD, output=[GOOD]),
        "Torch.a.0.backward": {"input": [GOOD], "output": [BAD]},
        "Tensor.add_.0.forward": forward(BAD, output=[BAD]),
    }
    golden = {
        "Torch.a.0.forward": forward(GOOD, output=[GOOD]),
        "Torch.a.0.backward": {"input": [GOOD], "output": [GOOD]},
        "Tensor.add_.0.forward": forward(GOOD, output=[GOOD]),
    }
    assert [op for op, _ in named(report(tmp_path, target, golden))] == ["Torch.a.0.backward"]


def test_backward_calls_only_where_no_forward_call_is_suspect(tmp_path: Path) -> None:
    target = {"Torch.a.0.backward": {"input": [GOOD], "output": [BAD]}}
    golden = {"Torch.a.0.backward": {"input": [GOOD], "output": [GOOD]}}
    assert named(report(tmp_path, target, golden))[0][0] == "Torch.a.0.backward"
    bad, good = forward(GOOD, output=[BAD]), forward(GOOD, output=[GOOD])
    before = {"Torch.b.0.forward": bad, **target}, {"Torch.b.0.forward": good, **golden}
    assert [op for op, _ in named(report(tmp_path / "2", *before))] == ["Torch.b.0.forward"]
    behind = {**target, "Torch.b.0.forward": bad}, {**golden, "Torch.b.0.forward": good}  # an optimizer's
    both = [op for op, _ in named(report(tmp_path / "3", *behind))]
    assert both == ["Torch.a.0.backward"], "statistics do not show that the inputs of the other agree"


def test_calls_that_may_be_mispaired_are_no_suspects(tmp_path: Path) -> None:
    """One call more in the target: the k-th no longer meets the k-th, and -f is offered."""
    target = {f"Torch.relu.{n}.forward": forward(tensor(value=v), output=[tensor(value=v)])
              for n, v in enumerate((9.0, 1.0, 2.0))}  # fmt: skip
    golden = {f"Torch.relu.{n}.forward": forward(tensor(value=v), output=[tensor(value=v)])
              for n, v in enumerate((1.0, 2.0))}  # fmt: skip
    found = report(tmp_path, target, golden)
    assert found.suspects == ()
    assert "such as Torch.relu.forward" in found.notes[0] and "-f pairs calls in their order" in found.notes[0]
    assert outcome(found) is Outcome.AGREE, "once calls are aligned, all that both runs made agrees"
    assert found.answer is not None and "2 further values were recorded in one run only" in found.answer.sentence


def test_the_module_is_named_and_modules_around_it_are_left_out(tmp_path: Path) -> None:
    keys = (
        "Torch.a.0.forward",
        "Module.m.in.Inner.forward.0",
        "Module.m.Outer.forward.0",
        "Module.n.Other.forward.0",
        "Torch.z.0.forward",
    )
    target = {key: forward(GOOD, output=[BAD]) for key in keys}
    golden = {key: forward(GOOD, output=[GOOD]) for key in keys}
    construct = (
        '{"Torch.a.0.forward": "Module.m.in.Inner.forward.0", '
        '"Module.m.in.Inner.forward.0": ["Module.m.Outer.forward.0", 1], "Module.m.Outer.forward.0": null}'
    )
    found = report(tmp_path, target, golden, construct)
    assert [one.op for one in found.suspects] == ["Torch.a.0.forward"]
    assert found.suspects[0].module == "Module.m.in.Inner.forward.0"
    causes = found.answer.causes if found.answer else ()
    assert causes[0].consequence_count == 4
    assert "Module.n.Other.forward.0" in causes[0].consequences, "a module may depend on what is not recorded"


# -- drift: calls that part beyond rounding though no row fails -----------------------------------


WIDE = np.random.default_rng(0).normal(size=400)
ARRAY = WIDE.astype(np.float32)


def drifting(tmp_path: Path, *calls: tuple[str, float, float], dtype: Any = np.float32) -> list[str]:
    """The suspects of calls whose input and output are off by these relative amounts."""
    runs = []
    for side in (1, 0):
        arrays = {
            f"Torch.{name}.0.forward": ([(WIDE * (1 + side * before)).astype(dtype)], [(WIDE * (1 + side * after)).astype(dtype)])
            for name, before, after in calls
        }  # fmt: skip
        runs.append(write_tensor_run(tmp_path / str(side), arrays))
    (found,) = compare(Plan(runs[0], runs[1], tmp_path / "o", "0", formats=("csv",)), Manager())
    assert not found.counts.levels[Level.ERROR]
    assert (outcome(found) is Outcome.AGREE) is (not found.suspects)
    return [f"{one.row.split('.')[1]} {one.why.split(',')[0]}" for one in found.suspects]


def test_an_output_that_jumps_although_no_row_fails(tmp_path: Path) -> None:
    """A wrong factor of 0.8 % has cosine 1 and a small error: the table's rule says Yes."""
    assert drifting(tmp_path, ("a", 0, 0), ("norm", 0, 8e-3), ("b", 8e-3, 8e-3)) == ["norm returns values that differ"]


def test_the_first_input_that_is_apart(tmp_path: Path) -> None:
    assert drifting(tmp_path, ("a", 0, 0), ("b", 1e-3, 1e-3), ("c", 1e-3, 1e-3)) == ["b receives values that differ"]


@pytest.mark.parametrize("dtype, amount", [(np.float32, 5e-6), (np.float16, 2e-3), (np.float64, 1e-14)])
def test_rounding_is_no_suspect(dtype: Any, amount: float, tmp_path: Path) -> None:
    assert drifting(tmp_path, ("a", 0, amount), ("b", amount, amount), dtype=dtype) == []


@pytest.mark.parametrize("dtype, amount", [(np.float32, 2e-5), (np.float16, 8e-3), (np.float64, 1e-12)])
def test_more_than_rounding_is(dtype: Any, amount: float, tmp_path: Path) -> None:
    assert drifting(tmp_path, ("a", 0, amount), dtype=dtype) == ["a returns values that differ"]


def test_growth_by_less_than_ten_times_is_no_jump(tmp_path: Path) -> None:
    """No call is accused; the runs cannot be said to agree either."""
    assert drifting(tmp_path, ("a", 5e-6, 4e-5)) == [
        "a is the first call whose values differ by more than rounding explains; the difference grew call by call"
    ]


def test_coarse_rounding_is_inherited(tmp_path: Path) -> None:
    """Values rounded to float16 reach the float32 calls behind it."""
    half = (ARRAY * 1.002).astype(np.float16)
    single = (ARRAY * np.float32(1.002)).astype(np.float32)
    calls = {
        "t": {"Torch.a.0.forward": ([], [half]), "Torch.b.0.forward": ([single], [single])},
        "g": {"Torch.a.0.forward": ([], [ARRAY.astype(np.float16)]), "Torch.b.0.forward": ([ARRAY], [ARRAY])},
    }
    runs = [write_tensor_run(tmp_path / side, calls[side]) for side in "tg"]
    (found,) = compare(Plan(runs[0], runs[1], tmp_path / "o", "0", formats=("csv",)), Manager())
    assert found.suspects == ()


@pytest.mark.parametrize(
    "before, named_",
    [
        ("torch.float32", ["b computes in another dtype (output.0: torch.bfloat16 against torch.float32)"]),
        ("torch.bfloat16", []),
    ],
)
def test_the_first_call_in_another_dtype(before: str, named_: list[str], tmp_path: Path) -> None:
    """A run that is of another dtype from its beginning is meant to be."""
    target = {
        "Torch.a.0.forward": forward(tensor(dtype=before)),
        "Torch.b.0.forward": forward(tensor(), output=[tensor(dtype="torch.bfloat16")] if named_ else []),
        "Torch.c.0.forward": forward(tensor(dtype="torch.bfloat16")),
    }
    golden = {key: forward(tensor(), output=[tensor()] * len(value["output"])) for key, value in target.items()}
    if not named_:
        target["Torch.b.0.forward"] = forward(tensor(dtype=before))
    found = report(tmp_path, target, golden)
    assert [f"{one.row.split('.')[1]} {one.why.split(',')[0]}" for one in found.suspects] == named_
    assert outcome(found) is Outcome.AGREE, "the values agree within rounding"


def test_a_difference_of_large_numbers_may_be_rounding(tmp_path: Path) -> None:
    """Cancellation: the output is small beside the inputs, and so is its error beside them."""
    big = ARRAY * np.float32(1e4)
    ours, theirs = (np.float32(1.0) + ARRAY, np.float32(1.0) + ARRAY * np.float32(1.0005))
    runs = [
        write_tensor_run(tmp_path / side, {"Torch.sub.0.forward": ([big], [out])})
        for side, out in (("t", ours), ("g", theirs))
    ]
    (found,) = compare(Plan(runs[0], runs[1], tmp_path / "o", "0", formats=("csv",)), Manager())
    assert outcome(found) is Outcome.AGREE and named(found) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 3}', '{"a": "b", "b": "a"}'])
def test_a_damaged_construct_file_tells_nothing(text: str, tmp_path: Path) -> None:
    path = tmp_path / "construct.json"
    path.write_text(text)
    assert len(read_construct(path).ancestors("a")) in (0, 200)


def test_the_line_of_the_users_own_code() -> None:
    frames = (
        "File /x/site-packages/msprobe/core/api_registry.py, line 94, in f, \n return g()",
        "File /x/site-packages/torch/nn/functional.py, line 1, in linear, \n return l()",
        "File /x/site-packages/transformers/llama.py, line 193, in attend, \n a = b * c",
        "File train.py, line 3, in <module>, \n model(x)",
    )
    assert Manager().record_files()  # as every comparison asks for; the readers say whose frames are left out
    assert find_own_frame(frames) == "File /x/site-packages/transformers/llama.py, line 193, in attend, a = b * c"
    assert find_own_frame(frames[:2]) == ""


def test_the_line_of_code_is_never_the_frameworks_wherever_that_is_installed() -> None:
    frames = [
        f"File {place}/{path}, line 1, in _fn, \n return fn(*args)"
        for place in ("/opt/pytorch/torch", "/home/me/lib/torch", "/usr/lib/python3/dist-packages/torch")
        for path in (
            "_dynamo/eval_frame.py",
            "nn/modules/module.py",
            "nn/functional.py",
            "_tensor.py",
            "optim/sgd.py",
        )
    ]
    frames += ["File /opt/ms/mindspore/nn/cell.py, line 1, in __call__, \n out = self.construct(x)"]
    assert find_own_frame(frames) == ""
    own = "File /home/me/torch/utils/train.py, line 2, in step, loss.backward()"
    assert find_own_frame([*frames, own]) == own
