"""Kinds of tables of ptdbg_ascend 3.0 to 6.0 of which no recorded dump has one, and the release of a dump."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_legacy.compare import ptdbg_table
from probe_legacy.compare.dump import LegacyTable, Release, open_dump
from probe_legacy.compare.groups import OldRow, RowGroup, align_groups
from probe_legacy.compare.later_table import AlikeTensorsRule
from support.runs.older_dumps import dumps, write_rows  # noqa: F401

from probe_core.model import Colour

IN, OUT = "Torch_relu_{}_forward_input.0", "Torch_relu_{}_forward_output"


def row(name: str, *statistics: Any, flag: int = 0, extra: Any = (), dtype: str = "torch.float32") -> list[Any]:
    return [name, flag, extra or [], dtype, [2], list(statistics)]


def table(directory: Path, npu: list[Any], bench: list[Any], arrays: bool = False, **options: bool) -> LegacyTable:
    files = [write_rows(directory / f"{side}.pkl", *rows) for side, rows in (("n", npu), ("b", bench))]
    for file, rows in zip(files, (npu, bench)) if arrays else ():
        file.with_suffix("").mkdir()
        for name, *_, statistics in rows:
            np.save(file.with_suffix("") / f"{name}.npy", np.array(statistics[:2], np.float32))
    return ptdbg_table.create_ptdbg_table(*files, **options)


def test_the_table_of_3(tmp_path: Path) -> None:
    npu = [row(IN.format(0), 2.0, 1.0, 1.5), row(OUT.format(0), 2.0, 1.0, 1.5)]
    bench = [row(IN.format(0), 2.0, 1.0, 1.5), row(OUT.format(0), 4.0, 1.0, 2.5)]
    made = table(tmp_path, npu, bench, arrays=True)
    assert made.release is Release.V3 and made.suffix == ".csv"
    assert made.columns[6:9] == ["Cosine", "MaxAbsErr", "MaxRelativeErr"]
    assert made.columns[9:] == [
        "NPU max", "NPU min", "NPU mean", "Bench max", "Bench min", "Bench mean", "Accuracy Reached or Not", "Err_message",
    ]  # fmt: skip
    assert made.rows[0][6:9] == ["1.0", "0.000000", "0.000000"] and made.rows[0][-2:] == ["Yes", ""]
    assert made.rows[1][6:9] == ["0.976187", "2.000000", "0.500000"] and made.rows[1][-2:] == ["No", ""]


def test_statistics_of_4(tmp_path: Path) -> None:
    npu = [row(IN.format(0), 2.0, 1, [], "Nan"), row(OUT.format(9), 1.0, 0.0, 0.5, 1.0)]
    made = table(tmp_path, npu, [row(IN.format(0), 1.5, 1, [], "Nan"), row(OUT.format(9), 1.0, 0.0, 0.5, 1.0)])
    assert made.release is Release.V4 and not made.is_judged
    assert made.columns[6:10] == ["Max diff", "Min diff", "Mean diff", "L2norm diff"]
    assert made.columns[-1] == "Bench l2norm"
    assert made.rows[0][6:] == [0.5, 0.0, "Nan", "Nan", 2.0, 1.0, [], "Nan", 1.5, 1.0, [], "Nan"]


def calls(outputs: list[list[Any]]) -> list[list[Any]]:
    """Return an input row before each output row, of the same call."""
    return [given for output in outputs for given in ([output[0].replace("output", "input.0"), *output[1:]], output)]


def test_statistics_of_6_warn_of_large_differences(tmp_path: Path) -> None:
    name = "Torch.relu.{}.forward.output"
    npu = [row(name.format(n), value, 1.0, 1.0, 1.0) for n, value in enumerate((1.0, 1.9, 2.1, 1.0))]
    made = table(tmp_path, calls(npu), calls([row(name.format(n), 1.0, 1.0, 1.0, 1.0) for n in range(3)]))
    assert [cells[-2:] for cells in made.rows[1::2]] == [
        ["", ""], ["", ""], ["Warning", "Need double check api accuracy."], ["Nan", "No bench data matched."],
    ]  # fmt: skip
    assert ptdbg_table.format_advice(made).startswith("Line: 6\nSuspect Nodes: Torch.relu.2.forward.input.0\n")


def test_whole_numbers_beyond_all_dtypes_are_infinite(tmp_path: Path) -> None:
    name, most = "Torch.relu.0.forward.output", 10**4000
    npu, bench = (calls([row(name, value, 1, 2**63, 1.0)]) for value in (most, -most))
    made = table(tmp_path, npu, bench)
    assert made.rows[0][6:10] == [float("inf"), 0, 0, 0.0]
    assert made.colors == {0: Colour.RED, 1: Colour.RED}


def test_checksums_of_6(tmp_path: Path) -> None:
    name = "Torch.relu.{}.forward.output"
    npu = [row(name.format(n), extra=checksum) for n, checksum in enumerate(("0badcafe", "00000001", "00000002"))]
    bench = [row(name.format(n), extra=checksum) for n, checksum in enumerate(("0badcafe", "00000003"))]
    made = table(tmp_path, calls(npu), calls(bench))
    assert made.columns[6:] == ["NPU MD5", "BENCH MD5", "Result"] and made.suffix == ".xlsx"
    assert [cells[6:] for cells in made.rows[1::2]] == [
        ["0badcafe", "0badcafe", "Pass"], ["00000001", "00000003", "Different"], ["00000002", "Nan", "Nan"],
    ]  # fmt: skip
    assert ptdbg_table.format_advice(made).startswith("Line: 4\nSuspect Nodes: Torch.relu.1.forward.input.0\n")


def test_aten_operators_beside_their_callers(tmp_path: Path) -> None:
    """Inputs stand beside inputs and outputs beside outputs; what is too much has no partner."""
    npu = [row(f"Aten_convolution_0_forward_{place}", 2.0, 1.0, 1.0, 1.0) for place in ("input.0", "input.1", "output")]
    bench = [row(f"Functional_conv2d_0_forward_{place}", 2.0, 1.0, 1.0, 1.0) for place in ("input.0", "output")]
    made = table(tmp_path, npu, bench, arrays=True)
    assert [cells[1] for cells in made.rows] == [bench[0][0], "Nan", bench[1][0]]
    assert [cells[-1] for cells in made.rows] == [
        " Fuzzy matching data, the comparison accuracy may be affected.", "No bench data matched.",
        " Fuzzy matching data, the comparison accuracy may be affected.",
    ]  # fmt: skip


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    rows = [row(OUT.format(0), 2.0, 1.0, 1.0, 1.0)]
    made = table(tmp_path, rows, rows, arrays=True)
    (tmp_path / "b" / f"{rows[0][0]}.npy").unlink()
    made = ptdbg_table.create_ptdbg_table(tmp_path / "n.pkl", tmp_path / "b.pkl")
    assert made.rows[0][-1] == f"Dump file: {tmp_path}/b/{rows[0][0]}.npy not found."
    assert made.rows[0][6:11] == ["Nan"] * 5 and made.rows[0][-2] == "Nan"


@pytest.mark.parametrize(("name", "text"), [
    ("Functional_conv2d_0_forward_output", "This torch api may be uncertainty"),
    ("Functional_conv2d_0_forward_input.0", "1. Analyze the model"),
    ("Functional_batch_norm_0_forward_input.1", "Torch API batch_norm input not fixed"),
    ("Functional.batch_norm.0.forward.input.1", "Torch API batch_norm input not fixed"),
    ("Torch_exp_0_backward_output.0", "This is a backward API computation error."),
])  # fmt: skip
def test_advice_from_4_on(name: str, text: str) -> None:
    columns = ["NPU Name", "Accuracy Reached or Not"]
    made = LegacyTable(columns, [["a", "Yes"], [name, "No"]], Release.V4)
    assert ptdbg_table.format_advice(made).startswith(f"Line: 3\nSuspect Nodes: {name}\nExpert Advice: {text}")


RELEASES = {
    "ptdbg23_conv_all/npu": Release.V2, "ptdbg23_overflow/n1": Release.V2, "ptdbg23_modes/list": Release.V2,
    "ptdbg_att_unit_test_data": Release.V2, "ptdbg32_summary_only/bench": Release.V3,
    "ptdbg40_branch/npu": Release.V4, "ptdbg60_all/npu": Release.V6, "ptdbg60_module": Release.V6,
}  # fmt: skip


@pytest.mark.parametrize("folder", RELEASES)
def test_the_release_is_told_by_the_rows(dumps: Path, folder: str) -> None:
    (file,) = (dumps / folder).rglob("*.pkl")
    assert open_dump(file).release is RELEASES[folder]


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
