"""The readers of the older tools' files: forms of rows, damaged files, and numbers of calls that were not counted."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from probe_legacy.plugin import probe_readers
from probe_legacy.reading import run as run_module
from probe_legacy.reading.lines import HOOKS, PICKLE, PTDBG, detect_format
from probe_legacy.reading.names import drop_number, parse_ptdbg_name, parse_unnumbered_name
from probe_legacy.reading.reader import HooksReader, PtdbgReader
from support.runs.older_dumps import dumps, hooks_row, open_dump, ptdbg_row, write_rows  # noqa: F401

from probe_core.errors import UnreadableTensor, UserError
from probe_core.model import Mode, Side, Statistics
from probe_core.plugins.manager import PluginWarning
from probe_core.plugins.specs import ReaderSpec
from probe_core.testing import ReaderConformance

THREE = [1.0, -1.0, 0.25]


class Conforming(ReaderConformance):
    """The conformance tests, but for files that are cut off: the older tools left them, and all else counts."""

    @pytest.fixture(autouse=True)
    def _record(self, dumps: Path) -> None:
        type(self).record_file = dumps / self.file

    file: ClassVar[str]

    def test_truncated_file_is_refused(self, tmp_path: Path) -> None:
        cut = tmp_path / self.record_file.name
        cut.write_bytes(self.record_file.read_bytes()[:-20])
        assert "is cut off" in self.reader().open(cut).header.unfinished


class TestPtdbg(Conforming):
    spec: ClassVar[ReaderSpec] = probe_readers()[0]
    file = "ptdbg23_conv_all/npu/ptdbg_dump_v2.3/rank0/npu_dump.pkl"


class TestHooks(Conforming):
    spec: ClassVar[ReaderSpec] = probe_readers()[1]
    file = "hooks_rc3_conv/npu.pkl"


@pytest.mark.parametrize(
    ("name", "key", "side", "path"),
    [
        ("Functional_conv2d_1_forward_input.0", "Functional.conv2d.1.forward", Side.INPUT, "0"),
        ("Tensor___getitem___0_forward_output", "Tensor.__getitem__.0.forward", Side.OUTPUT, "0"),
        ("Tensor_add__12_backward_output.1.0", "Tensor.add_.12.backward", Side.OUTPUT, "1.0"),
        ("NPU_npu_dtype_cast_0_forward_input.0", "NPU.npu_dtype_cast.0.forward", Side.INPUT, "0"),
        ("VF_lstm_0_forward_stack_info", "VF.lstm.0.forward", None, "0"),
        ("Functional.conv2d.0.forward.input.0", "Functional.conv2d.0.forward", Side.INPUT, "0"),
        ("Module_Conv2d_3_forward_input.0", "Module.Conv2d.forward.3", Side.INPUT, "0"),
        ("layers.0.fc.Linear.7.forward.output", "Module.layers.0.fc.Linear.forward.7", Side.OUTPUT, "0"),
        ("my_block_2_backward_input.0", "Module.my_block.backward.2", Side.INPUT, "0"),
    ],
)
def test_names_of_ptdbg(name: str, key: str, side: Side | None, path: str) -> None:
    parts = parse_ptdbg_name(name)
    assert parts is not None and parts[0].format_key(parts[0].number) == key
    assert parts[1] == (f"{side.value}.{path}" if side else "stack_info")


@pytest.mark.parametrize("name", ["", "x", "Torch_relu_forward_input.0", "Torch_relu_0_forward_input.x", "a" * 900])
def test_names_that_are_none_of_ptdbg(name: str) -> None:
    assert parse_ptdbg_name(name) is None


def test_gradients_of_hooks_are_named_the_other_way_round() -> None:
    named = {
        name: parse_unnumbered_name(drop_number(name))
        for name in ("12_Torch_relu_backward_input.0", "Torch_relu_backward_output")
    }
    assert [parts[1] for parts in named.values() if parts] == ["output.0", "input.0"]
    forward = parse_unnumbered_name(drop_number("Torch_relu_forward_input.0"))
    assert forward is not None and forward[1] == "input.0"


def test_modules_of_6_are_counted_by_module_and_not_by_class(tmp_path: Path) -> None:
    names = [f"{name}.forward.output" for name in ("a.Linear.0", "b.Linear.1", "a.Linear.2")]
    run = open_dump(write_rows(tmp_path / "d.pkl", *[ptdbg_row(name, THREE) for name in names]))
    assert list(run.names()) == [
        "Module.a.Linear.forward.0",
        "Module.b.Linear.forward.0",
        "Module.a.Linear.forward.1",
    ]


# -- forms of rows ---------------------------------------------------------------------------------


def test_checksums_of_6_make_a_run_of_checksums(tmp_path: Path) -> None:
    row = ["Torch.relu.0.forward.output", 0, "0badcafe", "torch.float32", [2], []]
    run = open_dump(write_rows(tmp_path / "d.pkl", row))
    value = run.record(0).slots[0].value
    assert run.mode is Mode.MD5 and value.checksum == "0badcafe" and value.statistics == Statistics()


def test_rows_without_statistics_and_numbers(tmp_path: Path) -> None:
    rows = [
        ["Torch_relu_0_forward_stack_info", [["train.py", "3", "step", "y = relu(x)"]]],
        ["Torch_relu_0_forward_input.0", 101, [], "torch.float32", [2, 3]],
        ["Torch_relu_0_forward_input.1", 101, [], "<class 'int'>", "[]", [-1, -1, -1]],
        ["Torch_relu_0_forward_input.2", 101, [], "<class 'bool'>", "[]", [True, True, True]],
        ["Torch_relu_0_forward_output", 101, [], "torch.bool", [2], [[], [], [], "Nan"]],
    ]
    run = open_dump(write_rows(tmp_path / "d.pkl", *rows))
    tensor, number, truth, output = (slot.value for slot in run.record(0).slots)
    assert tensor.statistics == output.statistics == Statistics()
    assert number.statistics == Statistics(-1, -1, -1, -1) and number.dtype == "<class 'int'>"
    assert truth.statistics == Statistics("True", "True", "True", "True")
    assert run.stack_of("Torch.relu.0.forward") == ("File train.py, line 3, in step, \n y = relu(x)",)


def test_a_row_written_twice_counts_once_with_its_last_values(tmp_path: Path) -> None:
    rows = [ptdbg_row("Torch_exp_0_forward_output", [number] * 3) for number in (1.0, 2.0)]
    run = open_dump(write_rows(tmp_path / "d.pkl", *rows))
    assert [slot.value.statistics.max for slot in run.record(0).slots] == [2.0] and len(run) == 1


def test_values_of_a_call_are_in_order_whatever_the_order_of_rows(tmp_path: Path) -> None:
    names = ["Torch_add_0_forward_output", "Torch_exp_0_forward_input.0", "Torch_add_0_forward_input.0"]
    run = open_dump(write_rows(tmp_path / "d.pkl", *[ptdbg_row(name, THREE) for name in names]))
    assert list(run.names()) == ["Torch.add.0.forward", "Torch.exp.0.forward"]
    assert [slot.side for slot in run.record(0).slots] == [Side.INPUT, Side.OUTPUT]


def test_later_rows_are_parsed_again_and_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"Torch_exp_{number}_forward_{side}" for number in range(20) for side in ("input.0", "output")]
    path = write_rows(tmp_path / "d.pkl", *[ptdbg_row(name, THREE) for name in names])
    whole = [list(open_dump(path).records()), open_dump(path).signatures]
    monkeypatch.setattr(run_module, "MAX_CACHED_SLOTS", 7)
    run = open_dump(path)
    assert [list(run.records()), run.signatures] == whole
    path.write_text(path.read_text().replace("torch.float32", "torch.float 2"))
    with pytest.raises(UserError, match="was changed while it was read"):
        run.record(19)


def test_arrays_that_contradict_their_row_are_unreadable(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "d.pkl", ptdbg_row("Torch_exp_0_forward_output", THREE, shape=(3,)))
    (tmp_path / "d").mkdir()
    np.save(tmp_path / "d" / "Torch_exp_0_forward_output.npy", np.zeros(4, np.float32))
    run = open_dump(path)
    assert run.mode is Mode.TENSOR
    with pytest.raises(UnreadableTensor, match=r"holds the shape \[4\]"):
        run.tensor(run.record(0).slots[0].value)


# -- calls of torch_npu.hooks --------------------------------------------------------------------


def calls(run: Any) -> list[str]:
    return list(run.names())


def test_calls_are_counted_and_backward_calls_take_the_numbers_of_their_forward_calls(tmp_path: Path) -> None:
    step = [
        *(hooks_row(f"Torch_exp_forward_{side}", 1.0, 2.0) for side in ("input.0", "output")),
        *(hooks_row(f"Torch_exp_forward_{side}", 1.0, 2.0) for side in ("input.0", "output")),
        *(hooks_row(f"Torch_exp_backward_{side}.0", 1.0, 2.0) for side in ("input", "output")),
        *(hooks_row(f"Torch_exp_backward_{side}.0", 1.0, 2.0) for side in ("input", "output")),
    ]
    run = open_dump(write_rows(tmp_path / "d.pkl", *step, *step))
    assert calls(run) == [
        f"Torch.exp.{number}" for number in ("0.forward", "1.forward", "1.backward", "0.backward",
                                             "2.forward", "3.forward", "3.backward", "2.backward")
    ]  # fmt: skip


def test_a_gradient_goes_to_the_call_whose_output_has_its_shape(tmp_path: Path) -> None:
    rows = [
        hooks_row("Torch_exp_forward_output", 1.0, 2.0),
        hooks_row("Torch_sum_forward_output", 3.0),
        hooks_row("Torch_exp_forward_output", 1.0, 2.0, 3.0),
        hooks_row("Torch_exp_backward_output.0", 1.0, 2.0),
        hooks_row("Torch_sum_backward_output.0", 1.0),
        hooks_row("Torch_exp_backward_output.0", 1.0, 2.0, 3.0),
        hooks_row("Torch_sum_backward_output.0", 1.0),
    ]
    run = open_dump(write_rows(tmp_path / "d.pkl", *rows))
    assert calls(run)[3:] == ["Torch.exp.0.backward", "Torch.sum.0.backward", "Torch.exp.1.backward",
                              "Torch.sum.1.backward"]  # fmt: skip


@pytest.mark.parametrize("size", [1, 4, 10, 12, 13, 14, 40])
def test_samples_are_told_from_whole_tensors(tmp_path: Path, size: int) -> None:
    values = [float(number) for number in range(size)]
    sample = [*values[:10], values[-1], 0.0, sum(values) / size]
    for name, row in (("whole", values), ("sample", sample)):
        run = open_dump(
            write_rows(tmp_path / name / "d.pkl", hooks_row("Torch_exp_forward_output", *row, shape=(size,)))
        )
        assert run.mode is (Mode.TENSOR if name == "whole" else Mode.STATISTICS), name
        assert run.record(0).slots[0].value.statistics[:3] == pytest.approx((values[-1], 0.0, sum(values) / size))


def test_numbers_left_as_text_are_those_of_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = ["1e999, -0.0, 5e-324", "3, 1, 2", "NaN, -Infinity, 1E+2", "true, false, 0.1", "2.5, 1, NaN"]
    rows = [
        f'["{number}_Torch_exp_forward_output", [{"0.3, " * 10}{end}], "torch.float32", [20]]'
        for number, end in enumerate(ends)
    ]
    more = [
        hooks_row("Torch_sin_forward_output", 0.1, 2.0),
        ["Torch_sin_backward_input", 0.7],
        ["Torch_cos_forward_input", 7],
    ]
    path = write_rows(tmp_path / "d.pkl", *rows, *more)
    read = repr(list(open_dump(path).records()))
    assert "Statistics(max=3, min=1, mean=2" in read and "Statistics(max=inf, min=-0.0, mean=5e-324" in read
    monkeypatch.setattr("probe_legacy.reading.lines.SHORT", 0)
    assert repr(list(open_dump(path).records())) == read


@pytest.mark.parametrize("end", ['"1.0", 0.0, 0.5', "1.0, null, 0.5", "1.0, 0.0, [0.5]", "1.0, 0.0, 01.5"])
def test_a_sampled_row_ends_with_three_numbers(tmp_path: Path, end: str) -> None:
    row = f'["Torch_exp_forward_output", [{"0.3, " * 10}{end}], "torch.float32", [20]]'
    with pytest.raises(UserError, match=r"line 1 (has no list of numbers|is not valid JSON)"):
        HooksReader().open(write_rows(tmp_path / "d.pkl", row))


def test_integers_and_truths_have_their_dtype_again(tmp_path: Path) -> None:
    rows = [
        ["Torch_x_forward_input.0", [1.0, 3.0], "torch.int64", [2]],
        ["Torch_x_forward_output", [1.0, 0.0], "torch.bool", [2]],
    ]
    run = open_dump(write_rows(tmp_path / "d.pkl", *rows))
    dtypes = [run.tensor(slot.value).dtype.name for slot in run.record(0).slots]
    assert dtypes == ["int64", "bool"]


# -- files ---------------------------------------------------------------------------------------


def test_blank_lines_are_left_out_and_a_cut_line_is_said(tmp_path: Path) -> None:
    row = ptdbg_row("Torch_exp_0_forward_output", THREE)
    path = write_rows(tmp_path / "d.pkl", "", row, "", '["Torch_exp_1_forw', end="")
    run = open_dump(path)
    assert calls(run) == ["Torch.exp.0.forward"]
    assert run.header.unfinished == "line 4 of d.pkl is cut off or damaged"


def test_a_damaged_line_within_is_left_out_with_a_warning(tmp_path: Path) -> None:
    rows = [ptdbg_row(f"Torch_exp_{number}_forward_output", THREE) for number in range(2)]
    path = write_rows(tmp_path / "d.pkl", rows[0], '["Torch_exp_1_forw', "{}", rows[1])
    with pytest.warns(PluginWarning, match=r"skipped 2 damaged lines; the first is line 2, which is not valid"):
        run = open_dump(path)
    assert len(run) == 2 and not run.header.unfinished


DAMAGED = {
    "no list": "{}",
    "one field": '["Torch_exp_0_forward_output"]',
    "a path": ["../Torch_exp_0_forward_output", 1, [], "torch.float32", [2], THREE],
    "no shape": ["Torch_exp_0_forward_output", 1, [], "torch.float32", "[2]", THREE],
    "a negative size": ["Torch_exp_0_forward_output", 1, [], "torch.float32", [-2], THREE],
    "no dtype": ["Torch_exp_0_forward_output", 1, [], 32, [2], THREE],
    "texts for statistics": ["Torch_exp_0_forward_output", 1, [], "torch.float32", [2], ["a", "b", "c"]],
    "seven fields": ["Torch_exp_0_forward_output", 1, [], "torch.float32", [2], THREE, 1],
    "deep": '["Torch_exp_0_forward_output", 1, ' + "[" * 100_000,
    "digits": '["Torch_exp_0_forward_output", 1, ' + "9" * 10_000 + "]",
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_file_of_damaged_rows_is_refused(tmp_path: Path, kind: str) -> None:
    path = write_rows(tmp_path / "d.pkl", DAMAGED[kind])
    with pytest.raises(UserError, match=r"holds no row of ptdbg_ascend or torch_npu[.]hooks: line 1 "):
        PtdbgReader().open(path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is empty"):
        PtdbgReader().open(write_rows(tmp_path / "d.pkl", ""))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_real_pickle_is_refused_and_never_opened(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "d.pkl"
    path.write_bytes(pickle.dumps(["Torch_exp_forward_output", np.zeros(3), "torch.float32", [3]], protocol))
    assert detect_format(path) == PICKLE and HooksReader().sniff(path) > 0
    with pytest.raises(UserError, match="probe never opens one"):
        HooksReader().open(path)


def test_formats_are_told_by_their_first_lines(tmp_path: Path) -> None:
    row = hooks_row("Torch_exp_forward_output", 1.0)
    assert detect_format(write_rows(tmp_path / "a.pkl", "", row)) == HOOKS
    assert detect_format(write_rows(tmp_path / "b.pkl", ["Torch_exp_0_forward_stack_info", []])) == PTDBG
    assert detect_format(write_rows(tmp_path / "c.pkl", ["Torch_exp_forward_stack_info.0", "FrameInfo()"])) == HOOKS
    assert detect_format(write_rows(tmp_path / "d.pkl", ["Torch_exp_forward_input.3", 1])) == HOOKS
    assert detect_format(write_rows(tmp_path / "e.pkl", "some text", "{}")) is None
    assert detect_format(tmp_path) is None and detect_format(tmp_path / "none") is None


def test_reading_is_silent_about_sound_files(dumps: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in dumps.rglob("*.pkl"):
            open_dump(path).close()
