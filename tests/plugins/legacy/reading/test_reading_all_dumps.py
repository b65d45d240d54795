"""Every dump that the tools wrote: rows, names, dtypes, shapes, statistics and data, told from the files themselves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.runs.older_dumps import dumps, open_dump  # noqa: F401
from support.runs.older_dumps_check import Checked, check_folder, main

from probe_core.model import Slot
from probe_core.model.run import Run

ROWS = {  # rows of values by file, counted by hand
    "hooks_300_sample_conv/cpu.pkl": 77,
    "hooks_300_sample_conv/npu.pkl": 77,
    "hooks_50_full_xfmr_fp16/cpu.pkl": 165,
    "hooks_50_full_xfmr_fp16/npu.pkl": 165,
    "hooks_50_overflow/Overflow_info_20261120_220613.pkl": 11,
    "hooks_edge_cases/cpu.pkl": 24,
    "hooks_edge_cases/empty_cpu.pkl": 2,
    "hooks_edge_cases/empty_npu.pkl": 2,
    "hooks_edge_cases/multi_cpu.pkl": 5,
    "hooks_edge_cases/multi_npu.pkl": 5,
    "hooks_edge_cases/npu.pkl": 24,
    "hooks_edge_cases/sync_cpu.pkl": 12,
    "hooks_edge_cases/sync_npu.pkl": 14,
    "hooks_rc3_conv/cpu.pkl": 107,
    "hooks_rc3_conv/npu.pkl": 107,
    "ptdbg23_conv_all/bench/ptdbg_dump_v2.3/rank0/bench_dump.pkl": 67,
    "ptdbg23_conv_all/npu/ptdbg_dump_v2.3/rank0/npu_dump.pkl": 67,
    "ptdbg23_conv_api_stack/bench/ptdbg_dump_v2.3/rank0/api_stack_bench_dump.pkl": 67,
    "ptdbg23_conv_api_stack/npu/ptdbg_dump_v2.3/rank0/api_stack_npu_dump.pkl": 67,
    "ptdbg23_modes/api_list/ptdbg_dump_v2.3/rank0/d.pkl": 27,
    "ptdbg23_modes/apistack_bwd/ptdbg_dump_v2.3/rank0/api_stack_d.pkl": 32,
    "ptdbg23_modes/bwd/ptdbg_dump_v2.3/rank0/d.pkl": 32,
    "ptdbg23_modes/fwd/ptdbg_dump_v2.3/rank0/d.pkl": 35,
    "ptdbg23_modes/list/ptdbg_dump_v2.3/rank0/d.pkl": 6,
    "ptdbg23_modes/range/ptdbg_dump_v2.3/rank0/d.pkl": 12,
    "ptdbg23_modes/stack0/ptdbg_dump_v2.3/rank0/d.pkl": 0,
    "ptdbg23_modes/stack1/ptdbg_dump_v2.3/rank0/d.pkl": 0,
    "ptdbg23_modes/stack2/ptdbg_dump_v2.3/rank0/d.pkl": 0,
    "ptdbg23_modes/two_steps/ptdbg_dump_v2.3/rank0/d.pkl": 24,
    "ptdbg23_npu_ops_lstm/npu/ptdbg_dump_v2.3/rank0/d.pkl": 45,
    "ptdbg23_overflow/n1/ptdbg_dump_v2.3/rank0/Overflow_info_20261120_215150_1.pkl": 4,
    "ptdbg23_overflow/n3_filter_off/ptdbg_dump_v2.3/rank0/Overflow_info_20261120_215202_1.pkl": 4,
    "ptdbg23_overflow/n3_filter_off/ptdbg_dump_v2.3/rank0/Overflow_info_20261120_215202_2.pkl": 3,
    "ptdbg23_overflow/n3_filter_off/ptdbg_dump_v2.3/rank0/Overflow_info_20261120_215202_3.pkl": 2,
    "ptdbg23_truncated/bench/bench_dump.pkl": 18,
    "ptdbg23_truncated/npu/npu_dump.pkl": 65,
    "ptdbg23_unmatched/bench/ptdbg_dump_v2.3/rank0/bench_dump.pkl": 69,
    "ptdbg23_unmatched/npu/ptdbg_dump_v2.3/rank0/npu_dump.pkl": 65,
    "ptdbg32_summary_only/bench/ptdbg_dump_v3.2/rank0/dump.pkl": 77,
    "ptdbg40_branch/bench/ptdbg_dump_v4.0.T2/rank19778/dump.pkl": 398,
    "ptdbg40_branch/npu/ptdbg_dump_v4.0.T2/rank19831/dump.pkl": 374,
    "ptdbg60_all/bench/ptdbg_dump_v6.0/step0/rank120405/api_stack_dump.pkl": 73,
    "ptdbg60_all/npu/ptdbg_dump_v6.0/step0/rank120514/api_stack_dump.pkl": 69,
    "ptdbg60_module/d/ptdbg_dump_v6.0/step0/rank122062/dump.pkl": 11,
    "ptdbg60_overflow/d/ptdbg_dump_v6.0/step0/rank21388/Functional_linear_0_forward_1.pkl": 4,
    "ptdbg60_overflow/d/ptdbg_dump_v6.0/step0/rank21388/Functional_log_softmax_0_forward_2.pkl": 3,
    "ptdbg60_overflow/d/ptdbg_dump_v6.0/step0/rank21388/Functional_nll_loss_0_forward_3.pkl": 3,
    "ptdbg60_steps/d/ptdbg_dump_v6.0/step0/rank121258/dump.pkl": 73,
    "ptdbg60_steps/d/ptdbg_dump_v6.0/step2/rank121258/dump.pkl": 73,
    "ptdbg60_summary/bench/ptdbg_dump_v6.0/step0/rank120754/api_stack_dump.pkl": 73,
    "ptdbg60_summary/npu/ptdbg_dump_v6.0/step0/rank120850/api_stack_dump.pkl": 69,
    "ptdbg_att_unit_test_data/npu_test.pkl": 8,
}
FOLDERS = sorted({name.partition("/")[0] for name in ROWS})


def slots_of(run: Run) -> list[Slot]:
    return [slot for record in run.records() for slot in record.slots]


def test_no_dump_is_left_out(dumps: Path) -> None:
    assert {str(path.relative_to(dumps)) for path in dumps.rglob("*.pkl")} == set(ROWS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_rows_are_those_of_the_files(dumps: Path, folder: str) -> None:
    checked = check_folder(dumps / folder)
    counted = [count for name, count in ROWS.items() if name.startswith(f"{folder}/")]
    assert checked.differences == ()
    assert (checked.files, checked.rows) == (len(counted), sum(counted))


@pytest.mark.parametrize("name", ROWS)
def test_a_run_has_as_many_values_as_its_file_has_rows(dumps: Path, name: str) -> None:
    run = open_dump(dumps / name)
    assert len(slots_of(run)) == ROWS[name] == run.starts[-1]


def test_the_table_of_all_folders(dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(dumps) == 0
    head, *lines, total = capsys.readouterr().out.splitlines()
    assert head.split() == ["folder", "tool", "and", "version", "files", "rows", "stacks", "differences"]
    assert total == "0 differences"
    assert {line.split()[0] for line in lines} == {path.name for path in dumps.iterdir() if path.is_dir()}
    assert "ptdbg40_branch               ptdbg_ascend 4.0.T2          2   772      0           0" in lines


def other_statistics(file: Path) -> None:
    first, *rest = file.read_text().splitlines()
    row = json.loads(first)
    row[5] = [9.0, 0.0, 0.0]
    file.write_text("\n".join([json.dumps(row), *rest]))


def other_tensor(file: Path) -> None:
    path = sorted(file.with_suffix("").iterdir())[0]
    np.save(path, np.load(path) + 1)


def twice(file: Path) -> None:
    file.write_text(file.read_text() * 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_statistics, "are not those of the tensor"),
        (other_tensor, "are not those of the tensor"),
        (twice, "are not read"),
    ],
)
def test_the_check_finds_what_differs(dumps: Path, tmp_path: Path, change: Callable[[Path], None], said: str) -> None:
    source = dumps / "ptdbg23_conv_all/bench/ptdbg_dump_v2.3/rank0"
    shutil.copytree(source, tmp_path / "ptdbg23", copy_function=shutil.copyfile)
    change(tmp_path / "ptdbg23" / "bench_dump.pkl")
    checked: Checked = check_folder(tmp_path / "ptdbg23")
    assert any(said in text for text in checked.differences)


def test_what_is_known_of_single_dumps(dumps: Path) -> None:
    run = open_dump(dumps / "ptdbg40_branch/npu/ptdbg_dump_v4.0.T2/rank19831/dump.pkl")
    assert sum("detach" in slot.name for slot in slots_of(run)) == 308
    run = open_dump(dumps / "ptdbg60_module/d/ptdbg_dump_v6.0/step0/rank122062/dump.pkl")
    assert run.header.level == "L0"
    assert list(run.names()) == [
        "Module.l0.Linear.forward.0", "Module.l1.Linear.forward.0",
        "Module.l1.Linear.backward.0", "Module.l0.Linear.backward.0",
    ]  # fmt: skip
    run = open_dump(dumps / "ptdbg23_conv_api_stack/bench/ptdbg_dump_v2.3/rank0/api_stack_bench_dump.pkl")
    stack = run.stack_of("Functional.conv2d.0.forward")
    assert stack is not None and stack[2] == (
        "File /site-packages/torch/nn/modules/conv.py, line 560, in _conv_forward, \n return F.conv2d("
    )
    run = open_dump(dumps / "ptdbg23_modes/stack1/ptdbg_dump_v2.3/rank0/d.pkl")
    assert len(run) == 0
