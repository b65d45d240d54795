"""The benchmark of known faults: its list is complete, and its score, its checks of truth and its commands work."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")

import torch
from faults.cases import Case, Cause, Line, Program
from faults.listed import CASES, chosen
from faults.record import record
from faults.score import Score, cause_of, first_lines, score
from faults.truth import Recorded, distance, falsehoods
from support.sampling import sampled
from torch import nn

FAULTS = [*(f"F{number:02}" for number in range(1, 28, 2)), *(f"T{number:02}" for number in range(1, 18, 2))]
FAULTS += [
    "image-scale",
    "image-smoothing",
    "language-rotary",
    "language-parts",
    "sound-window",
    "sound-state",
]
CONTROLS = 21
PUT_ASIDE = {
    "frozen": [f"W{number:02}" for number in range(1, 7)],
    "held": [f"X{number:02}" for number in range(1, 7)],
}


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Score]:
    """Two faults and two controls, recorded and scored."""
    directory = tmp_path_factory.mktemp("faults")
    found = []
    for case in chosen(["F01", "F25", "same-run", "channels-last"]):
        record(case, directory)
        found += score(case, directory)
    return {(one.case.name, one.task): one for one in found}


def test_the_list_is_complete() -> None:
    assert [case.name for case in CASES if not case.is_control] == FAULTS
    assert sum(case.is_control for case in CASES) == CONTROLS
    assert len({case.name for case in CASES}) == len(CASES)
    for line in (line for case in CASES for line in case.right):
        for pattern in (line.op, line.place, line.row, line.text):
            re.compile(pattern)
        assert any((line.op, line.place, line.row, line.text)), "a line that any cause matches"


@pytest.mark.parametrize("name", PUT_ASIDE)
def test_cases_put_aside_are_chosen_by_name_alone(name: str) -> None:
    names = PUT_ASIDE[name]
    assert chosen([]) == list(CASES) and not {case.name for case in CASES} & set(names)
    assert [case.name for case in chosen([name])] == names
    assert [case.name for case in chosen([names[1], "F01"])] == ["F01", names[1]]
    for line in (line for case in chosen([name]) for line in case.right):
        for pattern in (line.op, line.place, line.row, line.text):
            re.compile(pattern)
        assert any((line.op, line.place, line.row, line.text)), "a line that any cause matches"


def test_cases_put_aside_are_chosen_together() -> None:
    assert [case.name for case in chosen(["held", "W02"])] == ["W02", *PUT_ASIDE["held"]]
    with pytest.raises(SystemExit, match="No case is called W99"):
        chosen(["W99"])


class Unrecorded:
    """A recorder that keeps the model of the program alone."""

    model: nn.Module

    def start(self, model: nn.Module) -> None:
        self.model = model

    def stop(self) -> None:
        pass


def left_by(program: Program) -> dict[str, torch.Tensor]:
    """The parameters, buffers and gradients that a program leaves."""
    recorder = Unrecorded()
    program.run(recorder)
    parameters = dict(recorder.model.named_parameters())
    gradients = {f"{name}.grad": one.grad for name, one in parameters.items() if one.grad is not None}
    left = {**parameters, **dict(recorder.model.named_buffers()), **gradients}
    return {name: one.detach() for name, one in left.items()}


@pytest.mark.parametrize("name", sampled(PUT_ASIDE["held"], 0, ["X01", "X02", "X05"].__contains__))
def test_faults_put_aside_change_more_than_rounding_does(name: str) -> None:
    (case,) = chosen([name])
    golden, again, target = (left_by(case.build(wrong)) for wrong in (False, False, True))
    assert golden.keys() == again.keys() == target.keys()
    assert all(torch.equal(golden[key], again[key]) for key in golden)
    moved = [key for key, one in golden.items() if one.is_floating_point() and one.any()]
    changed = [float((golden[key] - target[key]).norm() / golden[key].norm()) for key in moved]
    assert max(changed) > 0.05


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_faults_are_named_and_controls_agree(scores: dict[tuple[str, str], Score], task: str) -> None:
    assert {name: one.word for (name, how), one in scores.items() if how == task} == {
        "F01": "right", "F25": "right", "same-run": "agree", "channels-last": "agree",
    }  # fmt: skip
    assert not any(one.false or one.unchecked for one in scores.values())


def test_a_wrong_line_is_no_right_line(scores: dict[tuple[str, str], Score]) -> None:
    first = scores["F01", "tensor"].causes[0]
    (case,) = chosen(["F01"])
    assert case.is_named_by(first)
    assert not case.is_named_by(Cause(first.op, first.row, "", ("Module.model.layers.0.self_attn",)))
    assert not case.is_named_by(Cause("Torch.matmul.2.forward", "", "", first.modules))
    assert not Line(op="mul", step=1).matches(first)
    assert not chosen(["F25"])[0].is_named_by(first)


def test_an_answer_file_comes_before_suspects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cause = {"kind": "argument", "op": "Torch.a.0.forward", "row": "r", "statement": "differs", "step": 2,
             "module": ["Module.m.C.forward.0"], "argument": "scale", "where": "a.py:1", "evidence": {"golden_op": "Torch.a.1.forward"}}  # fmt: skip

    def run(arguments: list[str]) -> int:
        output = Path(arguments[arguments.index("-o") + 1])
        output.mkdir()
        answer = {"schema": 1, "verdict": "DIVERGED", "causes": [cause]}
        (output / "answer_20261123000000.json").write_text(json.dumps(answer))
        return 0

    monkeypatch.setattr(importlib.import_module("probe_core.cli.main"), "run", run)
    expected = Cause(
        "Torch.a.0.forward", "r", "differs", ("Module.m.C.forward.0",), "scale", "a.py:1", "argument", 2, "Torch.a.1.forward"
    )  # fmt: skip
    assert first_lines(tmp_path / "target", tmp_path / "golden", tmp_path / "out") == ("DIVERGED", [expected])
    assert cause_of({"op": "x"}) == Cause("x", "", "")


def test_controls_that_do_not_agree_are_alarms() -> None:
    control = Case("c", "", lambda wrong: None)  # type: ignore[arg-type, return-value]
    fault = Case("f", "", control.build, (Line(op="a"),))
    cause = Cause("a", "", "")
    assert [Score(control, "tensor", verdict, [], 0).word for verdict in ("AGREE", "CANNOT TELL")] == [
        "agree",
        "ALARM",
    ]
    assert Score(control, "tensor", "AGREE", [cause], 0).word == "ALARM"
    words = [Score(fault, "tensor", "DIVERGED", [cause] * 3, rank).word for rank in (0, 1, 3)]
    assert [*words, Score(fault, "tensor", "DIVERGED", [], 0).word] == ["WRONG", "right", "rank 3", "SILENT"]


# -- the checks of truth ---------------------------------------------------------------------------


KEY = "Torch.add.0.forward"


def written(path: Path, scale: float, inputs: Any, output: Any) -> Path:
    """A run of one call, with its tensors in one file."""
    sides = {"input.0": inputs, "output.0": output}
    arrays = {name: np.array(np.broadcast_to(values, 4), "<f4") for name, values in sides.items()}
    header, data, leaves = {}, b"", {}
    for name, array in arrays.items():
        header[f"{KEY}.{name}"] = {"dtype": "F32", "shape": [4], "data_offsets": [len(data), len(data) + 16]}
        data += array.tobytes()
        leaves[name] = {"type": "torch.Tensor", "dtype": "torch.float32", "data_name": f"{KEY}.{name}.pt"}
    call = {
        "input_args": [leaves["input.0"], {"type": "float", "value": scale}],
        "input_kwargs": {},
        "output": [leaves["output.0"]],
    }
    (path / "dump_tensor_data").mkdir(parents=True)
    head = json.dumps(header).encode()
    content = len(head).to_bytes(8, "little") + head + data
    (path / "dump_tensor_data" / "tensors.safetensors").write_bytes(content)
    (path / "dump.json").write_text(json.dumps({"data": {KEY: call}}))
    return path


@pytest.mark.parametrize(
    ("target", "row", "statement", "is_false"),
    [
        ({"output": 2.0}, "output.0", "differs although its inputs agree", False),
        ({"inputs": 1.00001, "output": 2.0}, "output.0", "differs although its inputs agree within rounding", True),
        ({"inputs": 1.000001, "output": 2.0}, "output.0", "differs although its inputs agree within rounding", False),
        ({"scale": 2.0, "output": 2.0}, "output.0", "differs although its inputs agree", True),
        ({}, "output.0", "differs although its inputs agree", True),
        ({"output": 2.0}, "output.0", "differs by 1 of the golden's root mean square, and its inputs differ by 0", False),
        ({"output": 2.0}, "output.0", "differs by 0.5 of the golden's root mean square, and its inputs differ by 0", True),
        ({"output": 2.0}, "output.0", "differs, and its inputs differ by up to 0.1", True),
        ({"scale": 2.0}, "input.1", "is an argument that differs between the runs; 2.0 against 1.0", False),
        ({}, "input.1", "is an argument that differs between the runs", True),
        ({"output": 2.0}, "output.7", "differs", True),
        ({"output": 2.0}, "output.0", "is float16 in the target and float32 in the golden", True),
        ({}, "", "is only in the target", True),
    ],
)  # fmt: skip
def test_statements_are_held_against_the_tensors(
    tmp_path: Path, target: dict[str, float], row: str, statement: str, is_false: bool
) -> None:
    usual = {"scale": 1.0, "inputs": 1.0, "output": 1.0}
    runs = written(tmp_path / "target", **{**usual, **target}), written(tmp_path / "golden", **usual)
    assert bool(falsehoods(*runs, Cause(KEY, f"{KEY}.{row}" if row else "", statement))) is is_false
    assert falsehoods(*runs, Cause("Torch.other.0.forward", "", statement.replace("only in", "in"))) is None


MASKED, STATISTICAL = "inputs differ at most in what is masked", "the statistics of its inputs agree"
MIXED = "returns values that agree in their statistics, but not element by element: Tensor.view.0.forward"
LEAST, INF = -3.4e38, -np.inf


@pytest.mark.parametrize(
    ("statement", "target", "golden", "is_false"),
    [
        (f"differs, although its {MASKED}", [0, 1, INF, INF], [0, 1, LEAST, LEAST], False),
        (f"differs, although its {MASKED}", [0, 2, INF, INF], [0, 1, LEAST, LEAST], True),
        (f"differs, although its {MASKED}", [INF, 1, 0, INF], [0, 1, LEAST, LEAST], True),
        (f"differs, although its {MASKED}", [0, 1, 2, 3], [0, 1, 2, 4], True),
        ("differs, although its inputs agree", [0, 1, INF, INF], [0, 1, LEAST, LEAST], True),
        (f"differs, although {STATISTICAL}", [1, 2, 3, 4], [4, 3, 2, 1], False),
        (f"differs, although {STATISTICAL}", [1, 2, 3, 4], [4, 3, 2, 1.1], True),
        ("differs, although its inputs agree", [1, 2, 3, 4], [4, 3, 2, 1], True),
    ],
)
def test_statements_on_masks_and_statistics(
    tmp_path: Path, statement: str, target: Any, golden: Any, is_false: bool
) -> None:
    runs = [written(tmp_path / str(side), 1.0, one, float(side)) for side, one in enumerate((target, golden))]
    assert bool(falsehoods(*runs, Cause(KEY, f"{KEY}.output.0", statement))) is is_false


@pytest.mark.parametrize(("target", "is_false"), [([1, 2, 3, 4], True), ([4, 3, 2, 1], False), ([4, 3, 2, 1.1], True)])
def test_statements_on_values_that_are_mixed_up(tmp_path: Path, target: Any, is_false: bool) -> None:
    runs = [written(tmp_path / str(side), 1.0, 1.0, one) for side, one in enumerate((target, [1, 2, 3, 4]))]
    assert bool(falsehoods(*runs, Cause(KEY, "", MIXED))) is is_false


def test_recorded_tensors_are_read_as_they_were(tmp_path: Path) -> None:
    (case,) = chosen(["F03"])
    record(case, tmp_path, ("tensor",))
    run = Recorded(tmp_path / "F03" / "tensor" / "golden" / "step0" / "rank")
    file = run.directory / "dump_tensor_data" / "tensors.safetensors"
    safetensors: Any = pytest.importorskip("safetensors.torch")
    stored = safetensors.load_file(file)
    kinds = set()
    for op in run.data:
        for leaf in run.leaves(op).values():
            name = str((leaf or {}).get("data_name", "")).removesuffix(".pt") if isinstance(leaf, dict) else ""
            if name in stored and stored[name].dtype in (torch.bfloat16, torch.float32, torch.int64):
                kinds.add(stored[name].dtype)
                array = run.tensor(leaf)
                assert array is not None and np.array_equal(array, stored[name].to(torch.float64).numpy())
    assert kinds == {torch.bfloat16, torch.float32, torch.int64}


def test_distances() -> None:
    mask = np.array([0.0, -3.4e38])
    assert distance(mask, mask) == 0
    assert distance(np.array([0.0, -np.inf]), mask) == np.inf
    assert distance(np.array([1.0, -3.4e38]), np.array([2.0, -3.4e38])) == 0.5
    assert distance(np.zeros(2), np.zeros(3)) == np.inf
    assert distance(np.array([np.nan, 2.0]), np.array([np.nan, 1.0])) == 1
