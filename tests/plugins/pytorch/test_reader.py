"""Names of arguments, from a table that holds the signatures of PyTorch's functions."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from probe_pytorch.reader import find_argument_name, load_signatures
from support.cases import every
from support.runs.answer_files import read_answer
from support.runs.answered import call, normal, record

KNOWN = {
    "Functional.batch_norm.0.forward input.7": "eps",
    "Functional.layer_norm.3.forward input.1.0": "normalized_shape[0]",
    "Functional.dropout.0.forward input.1": "p",
    "Torch.softmax.0.forward input.1": "dim",
    "Tensor.softmax.0.forward input.1": "dim",
    "Tensor.__mul__.18.forward input.1": "other",
    "Tensor.__rsub__.18.forward input.1": "other",
    "Tensor.__iadd__.18.forward input.1": "other",
    "Tensor.add_.2.forward input.1": "other",
    "Tensor.transpose.0.forward input.2": "dim1",
    "Torch.matmul.0.forward input.1": "other",
    "Functional.linear.0.forward input.2": "bias",
}
UNKNOWN = [
    "Tensor.view.0.forward input.1",
    "Torch.batch_norm.0.forward output.0",
    "Functional.nothing.0.forward input.1",
    "Functional.linear.0.forward input.9",
    "Functional.max_pool2d.0.forward input.ceil_mode",
    "Module.fc.Linear.forward.0 input.0",
    "NPU.npu_fusion_attention.0.forward input.3",
]


@every("call", KNOWN)
def test_arguments_that_are_known(call: str) -> None:
    assert find_argument_name(*call.split()) == KNOWN[call]


@pytest.mark.parametrize("call", UNKNOWN)
def test_arguments_that_are_not(call: str) -> None:
    assert find_argument_name(*call.split()) == ""


def test_no_overload_contradicts_the_table() -> None:
    """The second argument of max is a dimension or another tensor, so that it has no name."""
    assert find_argument_name("Torch.max.0.forward", "input.1") == ""


def test_the_table_is_that_of_the_installed_pytorch() -> None:
    """Of functions written in Python, as far as this version has them."""
    functional = pytest.importorskip("torch.nn.functional")
    checked = 0
    for name, names in load_signatures().items():
        scope, _, function = name.partition(".")
        function = getattr(functional, function, None)
        if scope != "Functional" or not inspect.isfunction(function):
            continue
        parameters = list(inspect.signature(function).parameters.values())
        if any(one.kind is one.VAR_POSITIONAL for one in parameters):
            continue
        own = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
        assert list(names)[: len(own)] == own[: len(names)], name
        checked += 1
    assert checked > 40


def test_the_answer_names_the_argument(tmp_path: Path, probe: Any) -> None:
    x, y = normal(seed=1), normal(seed=2)
    key, first = "Functional.batch_norm.0.forward", "Torch.abs.0.forward"
    for side, eps, out in (("t", 1e-3, x), ("g", 1e-5, y)):
        calls = {first: call(y, out=x), key: call(x, x, x, x, x, True, 0.1, eps, out=out)}
        path = record(tmp_path / side, calls, "statistics")
        path.write_text(path.read_text().replace('"mindspore"', '"pytorch"'))
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "o") == 0
    assert f"{key} was called with a different argument (eps, input.7: 0.001 against 1e-05)" in probe.out
    (cause,) = read_answer(tmp_path / "o")["causes"]
    assert (cause["argument"], cause["argument_name"]) == ("input.7", "eps")
    assert cause["producers"]["input.0"] == first
    assert "argument_name" not in cause["evidence"]
