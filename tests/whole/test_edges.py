"""Each edge of the recorded edge cases as the guide and the decisions say, cell by cell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT
from support.runs.answer_files import read_answer

DOCS = ROOT / "docs"
SIX = (
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
)
LABEL = "Accuracy Reached or Not"
POSITIONS = "The Position of inf or nan in NPU and bench Tensor do not match."
SHAPE = "Shape of NPU and bench Tensor do not match. Skipped."
DTYPE = "Dtype of NPU and bench Tensor do not match."
EMPTY = "This is empty data, can not compare."
ZERO_D = (
    "This is type of 0-d tensor, can not calculate 'Cosine', 'EucDist', 'One Thousandth Err Ratio' "
    "and 'Five Thousandths Err Ratio'."
)
SCALAR = "Scalar of NPU and bench do not match."
UNMATCHED = "No bench data matched. Bench api/module unmatched."
SAME = (1.0, 0.0, 0.0, 0.0, 1.0, 1.0)

TENSOR: dict[str, tuple[Any, str, str]] = {
    # row: the six metrics (one text for all six), Accuracy Reached or Not, Err_message
    "Torch.abs.0.forward.input.0": ("N/A", "No", POSITIONS),
    "Torch.abs.1.forward.input.0": (SAME, "Yes", ""),
    "Torch.abs.2.forward.output.0": (SAME, "Yes", ""),
    "Torch.abs.3.forward.output.0": ("N/A", "No", POSITIONS),
    "Torch.exp.1.forward.input.0": ("unsupported", "None", EMPTY),
    "Torch.empty.0.forward.output.0": ("unsupported", "None", EMPTY),
    "Torch.exp.2.forward.input.0": ("shape unmatched", "Unmatched", SHAPE),
    "Torch.neg.0.forward.input.0": ("shape unmatched", "Unmatched", SHAPE),
    "Torch.sigmoid.0.forward.input.0": (SAME, "Yes", "Requires_grad inconsistent."),
    "Torch.sqrt.0.forward.input.0": (SAME, "Yes", ""),
    "Torch.sqrt.1.forward.input.0": (SAME, "Yes", ""),
    "Torch.sqrt.2.forward.input.0": (SAME, "Yes", ""),
    "Torch.stack.0.forward.kwargs.tensors.1": (SAME, "Yes", ""),
    "Functional.pad.0.forward.input.value": ("unsupported", "None", SCALAR),
    "Functional.pad.0.forward.input.mode": ("unsupported", "None", ""),
    "Tensor.__add__.1.forward.input.1": ("unsupported", "None", f"{SCALAR} {DTYPE}"),
    "Functional.softmax.0.forward.output.0": (SAME, "Yes", ""),
    "Torch.mul.0.forward.output.0": (SAME, "Yes", ""),
    "Torch.mul.2.forward.output.0": ("N/A", "No", POSITIONS),
    "Torch.add.0.forward.output.0": (SAME, "Yes", ""),
    "Torch.add.2.forward.output.0": (SAME, "Yes", ""),
    "Torch.cos.0.forward.input.0": ("unsupported", "None", UNMATCHED),
    "Torch.sin.0.forward.output.0": ("unsupported", "None", "No NPU data matched."),
    "Tensor.__setitem__.0.forward.output.0": ("unsupported", "None", UNMATCHED),
    "Tensor.__setitem__.0.forward.input.1": ("unsupported", "None", UNMATCHED),
    "Torch.empty.1.forward.output.0": (
        "unsupported",
        "None",
        "No bench data matched. NPU does not have data file.",
    ),
}
CELLS: dict[str, dict[str, Any]] = {
    "Torch.exp.0.forward.output.0": {
        "Cosine": "unsupported", "EucDist": "unsupported", "One Thousandth Err Ratio": "unsupported",
        "MaxAbsErr": 0.004484176636, "MaxRelativeErr": 0.001000555116, LABEL: "None", "Err_message": ZERO_D,
    },
    "Torch.neg.1.forward.output.0": {
        "MaxAbsErr": 0.002187490463, "Five Thousandths Err Ratio": 1.0, LABEL: "Yes", "Err_message": DTYPE,
    },
    "Torch.sum.0.forward.output.0": {"MaxAbsErr": 3.0, "MaxRelativeErr": 1.0, LABEL: "No"},
    "Torch.add.3.forward.output.0": {"MaxAbsErr": 1.0, "MaxRelativeErr": 0.5, LABEL: "Yes"},
    "Torch.logical_not.0.forward.output.0": {"MaxAbsErr": 1.0, "MaxRelativeErr": 1.0, LABEL: "No"},
    "Torch.mul.1.forward.output.0": {
        "Cosine": "Nan", "MaxRelativeErr": "inf", "One Thousandth Err Ratio": 0.0, LABEL: "Yes",
        "Err_message": "Cannot compare by Cosine Similarity, All the data is Zero in Bench dump data.",
    },
    "Torch.add.1.forward.output.0": {
        "MaxAbsErr": 10016.0, "MaxRelativeErr": 10016 / 49984, "EucDist": 10016 * 3**0.5, LABEL: "No",
    },
    "Torch.tanh.0.forward.output.0": {
        "Cosine": "unsupported", "MaxAbsErr": 4.196167e-05, "One Thousandth Err Ratio": 1.0, LABEL: "None",
        "Err_message": "This is a 1-d tensor of length 1.",
    },
    "Torch.cos.0.forward.input.0": {"Bench Name": "N/A", "Requires_grad Consistent": "N/A"},
    "Torch.sin.0.forward.input.0": {
        "NPU Name": "N/A", "NPU Dtype": "N/A", "NPU max": "N/A", "Requires_grad Consistent": "N/A",
        "Bench max": 1.0, "NPU_Stack_Info": "N/A", "Data_name": "['N/A', 'Torch.sin.0.forward.input.0.pt']",
    },
    "Torch.abs.1.forward.input.0": {"NPU max": "Nan", "Bench l2norm": "Nan"},
    "Torch.full.1.forward.output.0": {"NPU max": "inf", "NPU min": "inf"},
    "Functional.softmax.0.forward.input.dtype": {"NPU Dtype": "<class 'str'>", "NPU max": "torch.float64"},
}  # fmt: skip


@pytest.fixture(scope="module")
def edge_rows(runs: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    from support.runs.results import read_jsonl

    from probe_core.cli.main import run

    base, out = runs("tensor_L1_edge"), tmp_path_factory.mktemp("edges")
    assert (
        run(
            [
                "compare",
                *(str(base / side) for side in ("npu_dump", "bench_dump")),
                "-o",
                str(out),
                "--format",
                "jsonl",
            ]
        )
        == 0
    )
    rows = read_jsonl(out)
    return {row["Bench Name"] if row["NPU Name"] == "N/A" else row["NPU Name"]: row for row in rows}


@pytest.mark.parametrize("name", TENSOR)
def test_metrics_label_and_message(name: str, edge_rows: Any) -> None:
    six, label, message = TENSOR[name]
    row = edge_rows[name]
    assert tuple(row[column] for column in SIX) == ((six,) * 6 if isinstance(six, str) else pytest.approx(six))
    assert (row[LABEL], row["Err_message"]) == (label, message)


@pytest.mark.parametrize("name", CELLS)
def test_cells(name: str, edge_rows: Any) -> None:
    for column, value in CELLS[name].items():
        want = pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
        assert edge_rows[name][column] == want, column


def test_stack_stands_on_the_first_row_of_each_op(edge_rows: Any) -> None:
    """The frames on the first row of an op, N/A on the others."""
    first = edge_rows["Torch.abs.1.forward.input.0"]["NPU_Stack_Info"]
    assert first.startswith("['File ") and "\\n" in first
    assert edge_rows["Torch.abs.1.forward.output.0"]["NPU_Stack_Info"] == "N/A"


@pytest.mark.parametrize("case", ["tensor_L1_edge", "md5_L1_edge"])
def test_a_call_with_another_argument_is_not_said_to_agree(case: str, runs: Any, probe: Any, tmp_path: Path) -> None:
    """Arguments of causes behind the first differ as well, however far apart the runs are by then."""
    base = runs(case)
    assert probe("compare", base / "npu_dump", base / "bench_dump", "-o", tmp_path) == 0, probe.err
    causes = {cause["op"]: cause for cause in read_answer(tmp_path)["steps"][0]["ranks"][0]["causes"]}
    arguments = {
        "Tensor.__add__.0.forward": "input.1",
        "Tensor.__add__.1.forward": "input.1",
        "Functional.pad.0.forward": "input.value",
    }
    assert {op: causes[op]["argument"] for op in arguments} == arguments
    for op in arguments:
        assert causes[op]["statement"].startswith("was called with a different argument ("), op
        assert "agree" not in causes[op]["statement"], op


def test_the_pages_made_from_the_code_are_up_to_date() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(DOCS)!r}); import make_reference, contextlib, io, json\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    made = {name: make().rstrip() + chr(10) for name, make in make_reference.PAGES.items()}\n"
        "print(json.dumps(made))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    made = json.loads(done.stdout)
    assert {"edges.md", "reference.md", "from-msprobe.md", "answer.schema.json"} <= made.keys()
    stale = [name for name, text in made.items() if (DOCS / name).read_text("utf-8") != text]
    assert stale == [], "run: python docs/make_reference.py"
