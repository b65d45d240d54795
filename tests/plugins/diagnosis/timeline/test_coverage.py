"""Counts of the compared values: what was not compared never reads as agreement."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_diagnosis.timeline.coverage import REASON_PHRASES, CoverageTally, describe_reason
from support.probe import Probe
from support.runs.answered import answered, call, compared, normal, record
from support.runs.recorded import tensor

from probe_core.model import Level

X, Y = normal(seed=1), normal(seed=2)
ADD, MUL = "Torch.add.0.forward", "Torch.mul.0.forward"


def chain(count: int, prefix: str = "") -> dict[str, Any]:
    """Calls of which each returns what it receives."""
    return {f"Torch.f{prefix}{number}.0.forward": call(X, out=X) for number in range(count)}


def verdict(report: Any) -> str:
    assert report.answer is not None
    return str(report.answer.outcome.value)


def test_agreement_names_a_call_of_one_run_only(tmp_path: Path) -> None:
    found = answered(tmp_path, chain(5) | {ADD: call(X, out=X)}, chain(5))
    assert found.answer is not None
    assert found.answer.sentence.endswith(
        "; 2 further values were recorded in one run only, the first is Torch.add.0.forward.input.0"
    )


# -- the cases that read as success ------------------------------------------------------------------


@pytest.mark.parametrize("side", ["t", "g"])
def test_tensor_files_that_were_deleted_on_one_side(side: str, tmp_path: Path, probe: Probe) -> None:
    runs = [record(tmp_path / name, chain(5)) for name in "tg"]
    shutil.rmtree(tmp_path / side / "dump_tensor_data")
    probe("compare", *runs, "-o", tmp_path / "o")
    assert probe.out.startswith("NOT COMPARABLE: none of the target's 10 floating-point tensors could be ")
    assert "All data in the comparison result meets" not in _advice(tmp_path / "o")
    assert "no suspects" not in probe.out + probe.err
    assert "  next: Copy or record the missing tensor files again, and compare again.\n" in probe.out


def test_some_tensor_files_that_were_deleted(tmp_path: Path) -> None:
    runs = [record(tmp_path / name, chain(5)) for name in "tg"]
    (tmp_path / "g" / "dump_tensor_data" / "Torch.f3.0.forward.output.0.npy").unlink()
    found = compared(tmp_path, *runs)
    assert verdict(found) == "CANNOT TELL"
    assert found.answer is not None
    assert "no compared value differs, but 1 value was not" in found.answer.sentence
    assert found.answer.coverage.compared == 9
    (missing,) = found.answer.missing
    assert missing.endswith(" (only its statistics were recorded); the first is Torch.f3.0.forward.output.0")


def test_a_run_of_modules_against_one_of_all_calls(tmp_path: Path, probe: Probe) -> None:
    """Level L0 against level mix: nothing differs in the little that both have."""
    modules = {f"Module.m{number}.Linear.forward.0": call(X, out=X) for number in range(2)}
    runs = [record(tmp_path / "t", modules | chain(30)), record(tmp_path / "g", modules)]
    assert probe("compare", *runs, "-o", tmp_path / "o") == 0
    assert probe.out.startswith("NOT COMPARABLE: only 4 of the target's 64 floating-point tensors could be ")
    assert "All data in the comparison result meets" not in _advice(tmp_path / "o")
    assert "Check that both runs are of the same model, record them with the same level and scope" in probe.out
    assert probe("compare", *runs, "-o", tmp_path / "o", "--fail-on", "suspect") == 1
    assert probe("compare", *reversed(runs), "-o", tmp_path / "o2") == 0
    assert probe.out.startswith("CANNOT TELL: no compared value differs, but only 6% of the golden's ")


def test_two_rows_of_fifteen_hundred(tmp_path: Path, probe: Probe) -> None:
    leaf = tensor()
    one, other = (
        {"Torch.start.0.forward": call(leaf, out=leaf)}
        | {f"Torch.{name}{number}.0.forward": call(leaf, out=leaf) for number in range(749)}
        for name in "ab"
    )
    runs = [record(tmp_path / name, calls, "statistics") for name, calls in (("t", one), ("g", other))]
    assert probe("compare", *runs, "-o", tmp_path / "o", "--fail-on", "error") == 1
    assert probe.out.startswith("NOT COMPARABLE: only 2 of the target's 1,500 floating-point tensors could ")
    assert "compared: 2 of 2,998 recorded values" in probe.out
    assert "All data in the comparison result meets" not in _advice(tmp_path / "o")


def _advice(directory: Path) -> str:
    return "".join(path.read_text() for path in directory.glob("advisor_*.txt"))


# -- counts -------------------------------------------------------------------------------------------


def test_all_values_count_once(tmp_path: Path) -> None:
    target = chain(2) | {ADD: call(X, 3, None, out=X), "Torch.t.0.forward": call(X, out=[X, X])}
    golden = chain(2) | {ADD: call(X, 3, None, out=X), "Torch.g.0.forward": call(X)}
    found = answered(tmp_path, target, golden)
    assert found.answer is not None
    coverage = found.answer.coverage
    assert (coverage.recorded, coverage.compared) == (4 + 3 + 3 + 1, 7)
    assert coverage.excused == {"golden_only": 1, "target_only": 3}
    assert found.answer.missing == (
        "3 values recorded in the target only; the first is Torch.t.0.forward.input.0",
        "1 value recorded in the golden only; the first is Torch.g.0.forward.input.0",
    )


def test_tensors_without_elements_and_uninitialised_memory_are_harmless(tmp_path: Path) -> None:
    empty = np.zeros((0, 3), np.float32)
    calls = [chain(2) | {"Torch.empty.0.forward": call(out=values), MUL: call(empty, out=empty)} for values in (X, Y)]
    found = answered(tmp_path, *calls)
    assert verdict(found) == "AGREE", found.answer
    assert found.answer is not None
    assert found.answer.coverage.excused == {"empty": 2, "uninitialised": 1}
    assert "; not compared: 2 values without elements and 1 value in uninitialized memory" in (found.answer.sentence)


def test_values_without_any_data_are_named(tmp_path: Path) -> None:
    bare = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [64]}
    calls = chain(3) | {ADD: call(bare, out=X)}
    found = answered(tmp_path, calls, calls, "statistics")
    assert verdict(found) == "AGREE"
    assert found.answer is not None
    assert "not compared: 1 value without a tensor, checksum or statistics in both runs" in (found.answer.sentence)
    assert found.answer.coverage.compared == 7


def test_a_value_that_one_run_has_as_none(tmp_path: Path) -> None:
    found = answered(tmp_path, chain(2) | {ADD: call(X, None, out=X)}, chain(2) | {ADD: call(X, Y, out=X)})
    assert found.answer is not None
    assert found.answer.coverage.excused == {"one_none": 1}


def test_a_row_that_fails_though_rounding_explains_it_is_no_agreement(tmp_path: Path) -> None:
    """Neither is it a cause: numbers near the smallest of their dtype, whose cosine is -1."""
    tiny = np.full(64, 1e-45, np.float32)
    found = answered(tmp_path, chain(2) | {ADD: call(X, out=-tiny)}, chain(2) | {ADD: call(X, out=tiny)})
    assert found.counts.levels[Level.ERROR] == 1
    assert verdict(found) == "CANNOT TELL"
    assert found.answer is not None
    assert "Torch.add.0.forward.output.0 is an error by the rule of the table, although no value " in (
        found.answer.sentence
    )
    assert not found.suspects


def test_a_row_that_fails_by_a_single_rounding_agrees(tmp_path: Path) -> None:
    """Large values have absolute errors above any limit."""
    large = np.linspace(1e11, 2e11, 64).astype(np.float32)
    report = answered(
        tmp_path,
        chain(2) | {ADD: call(X, out=np.nextafter(large, np.float32(0)))},
        chain(2) | {ADD: call(X, out=large)},
    )
    assert (report.counts.levels[Level.ERROR], verdict(report)) == (1, "AGREE")


def test_shares_of_floating_point_tensors() -> None:
    tally = CoverageTally(both=10, compared=6, floats=[8, 4], floats_compared=[4, 4])
    assert (tally.share, tally.least_share) == (0.5, 0.5)
    tally = CoverageTally(both=10, compared=6, floats=[4, 8], floats_compared=[4, 4])
    assert (tally.share, tally.least_share) == (1.0, 0.5)
    tally = CoverageTally(both=10, compared=6)
    assert tally.share == tally.least_share == 0.6, "of all values, where there is no floating point"
    assert CoverageTally().share == 0.0


def test_a_tally_survives_being_written() -> None:
    tally = CoverageTally(both=3, compared=2, floats=[2, 2], floats_compared=[1, 1], failing_at={"a": 0.5})
    tally.lacking["empty"] += 1
    tally.by_statistics["unreadable"] += 1
    tally.first["empty"] = "b"
    assert CoverageTally.from_plain(tally.plain()) == tally
    assert CoverageTally.from_plain(tally.plain()).format_reasons() == ("1 value without elements; the first is b",)


def test_reasons_have_words() -> None:
    assert all(REASON_PHRASES.values())
    assert describe_reason("empty") == REASON_PHRASES["empty"]
    assert describe_reason("another_reason") == "not compared (another reason)"
