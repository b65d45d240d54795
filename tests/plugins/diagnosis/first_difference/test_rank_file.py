"""Contents of the files of ``probe compare -da``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_diagnosis.first_difference.rank_file import read_rank_file
from support.runs.differences import GOOD, Analysis, analyze, named, written  # noqa: F401
from support.runs.recorded import forward, scalar, tensor, write_run, write_tensor_run

from probe_core.errors import UserError

# -- what the files say ------------------------------------------------------------------------


def test_values_of_all_sorts_are_valid_json(analyze: Analysis, written: Any) -> None:
    nan, inf = float("nan"), float("inf")
    odd = [
        tensor(value=nan), tensor(value=inf), tensor(value=-inf), tensor(value=10**400), tensor([0], None),
        tensor(md5=None), None, scalar(nan), scalar(inf), scalar("中文 \ud800 \"'\\"), scalar(True), [], {},
        {"type": "slice", "value": [None, 3, None]}, {"type": "torch.Size", "value": [2, 3]},
        {"type": "ellipsis", "value": "..."}, {"deep": [{"er": [tensor()]}]}, tensor(Max=True, Min=False),
    ]  # fmt: skip
    ops = {f"Torch.名{n}.0.forward": forward(one, output=[one]) for n, one in enumerate(odd)}
    plain = {key: forward(tensor(), output=[tensor()]) for key in ops}
    for both in (written([ops], [ops]), written([ops], [plain]), written([plain], [ops])):
        assert len(named(analyze(*both))) <= 1
        assert list(analyze.rank()) == list(ops)


def test_tensors_of_all_sorts_are_valid_json(analyze: Analysis, tmp_path: Path) -> None:
    plain = np.arange(4, dtype=np.float64)
    odd = [
        plain * np.nan,
        plain * 1e300,
        plain * 5e-324,
        np.array(np.inf),
        plain > 1,
        plain * 1j,
        plain + 2**60,
    ]
    for side, arrays in (("t", odd), ("g", [np.roll(array, 1) if array.ndim else array for array in odd])):
        write_tensor_run(tmp_path / side, {f"Mint.a{n}.0.forward": ([one], [one]) for n, one in enumerate(arrays)})
    analyze(tmp_path / "t", tmp_path / "g")
    states = {op: [item["difference"]["state"] for item in entry["op_items"]]
              for op, entry in analyze.rank().items()}  # fmt: skip
    assert set(states["Mint.a1.0.forward"]) == {"differs"}
    assert set(states["Mint.a3.0.forward"]) == {"same"}


def test_the_largest_numbers_are_valid_json(analyze: Analysis, tmp_path: Path) -> None:
    """A mask filled with the least number of float64."""
    mask = np.full(64, np.finfo(np.float64).min)
    for side in ("t", "g"):
        write_tensor_run(tmp_path / side, {"Mint.a.0.forward": ([mask], [mask])})
    assert analyze(tmp_path / "t", tmp_path / "g") == {}


def test_tensors_are_judged_by_their_data(analyze: Analysis, tmp_path: Path) -> None:
    """Two elements changed places: no statistic tells. And none that is wrong is believed."""
    array = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    write_tensor_run(tmp_path / "t", {"Mint.a.0.forward": ([array], [array[::-1].copy()])})
    golden = write_tensor_run(tmp_path / "g", {"Mint.a.0.forward": ([array], [array])})
    found = analyze(tmp_path / "t", tmp_path / "g")
    assert named(found) == [("rank_0", "Mint.a.0.forward")]
    golden.write_text(golden.read_text().replace('"Max": 1.0', '"Max": 7.0'))
    found = analyze(tmp_path / "g", tmp_path / "g")
    assert found == {}


def test_a_damaged_tensor_file_leaves_the_statistics(analyze: Analysis, tmp_path: Path) -> None:
    array = np.ones(4, np.float32)
    for side in ("t", "g"):
        write_tensor_run(tmp_path / side, {"Mint.a.0.forward": ([array], [array * 2])})
    (tmp_path / "t/dump_tensor_data/Mint.a.0.forward.output.0.npy").write_bytes(b"no numbers")
    assert analyze(tmp_path / "t", tmp_path / "g", code=2) == {}
    output = analyze.rank()["Mint.a.0.forward"]["op_items"][1]
    assert output["difference"]["state"] == "same"


def test_rows_of_one_side_alone(analyze: Analysis, written: Any) -> None:
    more = {"Torch.mul.0.forward": forward(tensor(), output=[tensor(value=1.05), tensor(), tensor()])}
    less = {"Torch.mul.0.forward": forward(tensor(), output=[tensor()])}
    for both in ((more, less), (less, more)):
        found = analyze(*written([both[0]], [both[1]]))
        assert named(found) == [("rank_0", "Torch.mul.0.forward")]
        items = analyze.rank()["Torch.mul.0.forward"]["op_items"]
        assert [item["difference"]["state"] for item in items] == ["same", "differs", "unjudged", "unjudged"]


def test_no_row_of_the_golden_alone_gets_lost(analyze: Analysis, written: Any) -> None:
    less = {"Torch.mul.0.forward": forward(tensor(), output=[tensor(value=1.05)])}
    more = {"Torch.mul.0.forward": forward(tensor(), output=[tensor(), tensor(), tensor()])}
    (node,) = analyze(*written([less], [more]))["rank_0"]
    assert len(node["data_info"]["output"]) == 3


MORE = {
    "Torch.relu.0.forward": GOOD["Torch.relu.0.forward"],
    "Torch.cos.0.forward": forward(tensor(), output=[tensor(value=3.0)]),
    **GOOD,
}


def test_an_op_of_one_side_alone_names_nothing(analyze: Analysis, written: Any) -> None:
    for both in ((MORE, GOOD), (GOOD, MORE)):
        assert analyze(*written([both[0]], [both[1]])) == {}
        assert all(entry["is_same"] for entry in analyze.rank().values())


def test_an_op_of_the_target_alone_stands_in_its_place(analyze: Analysis, written: Any) -> None:
    analyze(*written([MORE], [GOOD]))
    assert list(analyze.rank()) == list(MORE)


def test_an_op_of_the_golden_alone_stands_for_itself(analyze: Analysis, written: Any) -> None:
    analyze(*written([GOOD], [MORE]))
    for op, entry in analyze.rank().items():
        for item in entry["op_items"]:
            assert item["api_origin_name"] == op
            assert item["Bench Name"].startswith(op)


def test_modules_and_gradients_are_where_the_run_has_them(analyze: Analysis, tmp_path: Path) -> None:
    def run(directory: Path, value: float) -> Path:
        data = {
            "Functional.linear.0.forward": forward(tensor(), output=[tensor(value=value)]),
            "Module.l.Linear.forward.0": {
                **forward(tensor(), output=[tensor(value=value)]), "parameters": {"weight": tensor()},
            },
            "Module.l.Linear.parameters_grad": {"weight": [tensor(value=value)]},
        }  # fmt: skip
        write_run(directory, data)
        around = {key: None for key in data} | {"Functional.linear.0.forward": "Module.l.Linear.forward.0"}
        (directory / "construct.json").write_text(json.dumps(around))
        return directory

    (node,) = analyze(run(tmp_path / "t", 1.05), run(tmp_path / "g", 1.0))["rank_0"]
    assert node["op_name"] == "Functional.linear.0.forward"
    assert "in Module.l.Linear.forward.0" in analyze.probe.out
    content = analyze.rank()
    assert [item["state"] for item in content["Module.l.Linear.forward.0"]["op_items"]] == [
        "input", "parameters", "output",
    ]  # fmt: skip
    (gradient,) = content["Module.l.Linear.parameters_grad"]["op_items"]
    assert (gradient["state"], gradient["NPU Name"]) == (
        "parameters_grad", "Module.l.Linear.parameters_grad.weight",
    )  # fmt: skip


def test_a_file_that_was_cut_off_is_no_file(analyze: Analysis, written: Any) -> None:
    """Wherever it ends; whole, it is read, with the place of each op."""
    target, golden = written([GOOD, GOOD], [GOOD, GOOD])
    analyze(target, golden)
    path = next(path for path in analyze.out.rglob("compare_result_rank0*.json"))
    whole = path.read_bytes()
    ops = list(json.loads(whole))
    facts = list(read_rank_file(path))
    assert [fact.op for fact in facts] == ops
    for fact in facts:
        assert json.loads(whole[slice(*fact.file_range)]) == json.loads(whole)[fact.op]
    for length in range(0, len(whole) - 2, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="is damaged"):
            list(read_rank_file(path))
