"""Every dump that the tools wrote: rows, names, dtypes, shapes, statistics and data, told from the files themselves."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.older_dumps import dumps, open_dump  # noqa: F401

from probe_core.model import Kind, Mode, Slot
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
NAME = re.compile(r"(.*)[._](\d+)[._](forward|backward)[._](input|output)([.\d]*)$")
NAME_OF_HOOKS = re.compile(r"(?:\d+_)?(.*)()_(forward|backward)_(input|output)([.\d]*)$")


def slots_of(run: Run) -> list[Slot]:
    return [slot for record in run.records() for slot in record.slots]


def raw_rows(path: Path) -> list[list[Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return [row for row in rows if "stack_info" not in row[0]]


def test_no_dump_is_left_out(dumps: Path) -> None:
    assert {str(path.relative_to(dumps)) for path in dumps.rglob("*.pkl")} == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_those_of_the_file(dumps: Path, name: str) -> None:
    path = dumps / name
    run, raw = open_dump(path), raw_rows(path)
    slots = slots_of(run)
    assert len(slots) == len(raw) == ROWS[name] == run.starts[-1]
    assert not run.header.unfinished
    is_hooks = name.startswith("hooks")
    assert Counter(map(told, slots)) == Counter(expected(row, is_hooks) for row in raw)
    assert len({slot.name for slot in slots}) == len(slots)
    run.close()


def told(slot: Slot) -> tuple[Any, ...]:
    """A slot in the words of the files: op, phase, side, position, dtype, shape."""
    *parts, side, _ = slot.name[: len(slot.name) - len(slot.path)].split(".")
    key = ".".join(parts)
    module = re.match(r"Module\.(.*)\.(forward|backward)\.\d+$", key)
    api = re.match(r"(.*)\.(\d+)\.(forward|backward)$", key)
    match = module or api
    assert match is not None and side == slot.side.value
    op, phase = (module[1], module[2]) if module else (api[1], api[3])  # type: ignore[index]
    return op.replace(".", "_"), phase, side, slot.path, slot.value.dtype, slot.value.extent


def expected(row: list[Any], is_hooks: bool) -> tuple[Any, ...]:
    match = (NAME_OF_HOOKS if is_hooks else NAME).match(row[0])
    assert match is not None
    op, _, phase, side, path = match.groups()
    if is_hooks and phase == "backward":
        side = {"input": "output", "output": "input"}[side]
    if len(row) == 2:
        dtype, extent = f"<class '{type(row[1]).__name__}'>", "[]"
    else:
        dtype, extent = row[-2:] if is_hooks else row[3:5]
    op = op.removeprefix("Module_").replace(".", "_")
    return op, phase, side, path.strip(".") or "0", dtype, str(extent)


@pytest.mark.parametrize("name", [name for name in ROWS if name.startswith("ptdbg")])
def test_statistics_are_those_of_the_file_and_data_those_beside_it(dumps: Path, name: str) -> None:
    path = dumps / name
    run = open_dump(path)
    raw = {row[0]: row for row in raw_rows(path)}
    assert (run.mode is Mode.TENSOR) is path.with_suffix("").is_dir()
    unseen = set(raw)
    for slot in slots_of(run):
        value = slot.value
        if value.kind is Kind.SCALAR:
            continue
        assert value.data_name is not None
        own = value.data_name.removesuffix(".npy")
        unseen.discard(own)
        given = raw[own][5] if len(raw[own]) == 6 else []
        wanted = [None if item in ([], "Nan") else item for item in given] + [None] * (4 - len(given))
        for read, item in zip(value.statistics, wanted):
            assert read == item or (isinstance(item, float) and math.isnan(item) and math.isnan(read)), own
        if run.mode is Mode.TENSOR:
            array = run.tensor(value)
            assert np.array_equal(array, np.load(path.with_suffix("") / f"{own}.npy"), equal_nan=True)
            assert str(list(array.shape)) == value.extent
            if array.size and array.dtype.kind == "f" and wanted[0] is not None and np.isfinite(array).all():
                assert wanted[:2] == [array.max(), array.min()]
                assert wanted[2] == pytest.approx(array.mean(), rel=1e-4, abs=1e-6)
    assert all(raw[own][3].startswith("<class") for own in unseen)


@pytest.mark.parametrize("name", [name for name in ROWS if name.startswith("hooks")])
def test_values_are_those_in_the_rows(dumps: Path, name: str) -> None:
    path = dumps / name
    run, raw = open_dump(path), [row for row in raw_rows(path) if len(row) == 4]
    assert run.mode is (Mode.STATISTICS if "sample" in name else Mode.TENSOR)
    slots = {slot.value.data_name: slot for slot in slots_of(run) if slot.value.data_name}
    by_offset = [
        slot.value for _, slot in sorted((int(name.split("@")[1]), slot) for name, slot in slots.items())
    ]
    assert len(by_offset) == len(raw)
    for value, row in zip(by_offset, raw):
        if run.mode is Mode.STATISTICS:
            assert (
                list(value.statistics[:3]) == pytest.approx(row[1][-3:], rel=1e-6)
                and value.statistics.norm is None
            )
            continue
        assert value.data_name is not None and value.data_name.startswith(row[0])
        assert np.array_equal(run.tensor(value).reshape(-1), np.array(row[1], np.float32), equal_nan=True)
        if row[1] and all(map(math.isfinite, row[1])):
            assert value.statistics.max == np.float32(max(row[1]))
            assert value.statistics.norm == pytest.approx(math.hypot(*map(float, row[1])), rel=1e-5)


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
