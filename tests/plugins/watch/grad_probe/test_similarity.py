"""Counting of equal signs, and gaps between runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_watch import compare_gradients
from probe_watch.grad_probe import similarity
from probe_watch.grad_probe.packed import PackedWriter
from probe_watch.grad_probe.similarity import PairGap, SignAgreement, count_equal
from support.runs.gradients import write_run

from probe_core.errors import UserError

YES, NO = np.ones(4, bool), np.zeros(4, bool)


@pytest.mark.parametrize("chunk_bytes", [1, 2, 1 << 22])
def test_equal_bits_are_counted(chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "_CHUNK_BYTES", chunk_bytes)
    generator = np.random.default_rng(0)
    for total in (0, 1, 7, 8, 9, 16, 33):
        target, golden = generator.random((2, total)) < 0.5
        packed = [np.packbits(side, bitorder="little") for side in (target, golden)]
        agreement = count_equal(*packed, total)
        assert agreement == SignAgreement(int((target == golden).sum()), total)
        assert agreement.similarity == (float((target == golden).mean()) if total else 0.0)


def test_bits_behind_the_last_element_do_not_count() -> None:
    assert count_equal(np.array([0xFF], np.uint8), np.array([0x07], np.uint8), 3) == SignAgreement(3, 3)


def pair(target: dict[str, Any], golden: dict[str, Any], tmp_path: Path, name: str = "a") -> Any:
    """Return the pair in step 1; in step 0 both runs have all parameters."""
    whole = dict.fromkeys({**target, **golden, name: YES}, YES)
    runs = [write_run(tmp_path / run, [whole, arrays]) for run, arrays in (("t", target), ("g", golden))]
    comparison = compare_gradients(*runs, tmp_path / "out")
    (series,) = [s for s in comparison.ranks[0].series if s.parameter == name]
    return series.pairs[1]


def test_gaps_have_reasons(tmp_path: Path) -> None:
    assert pair({"a": YES}, {"b": YES}, tmp_path / "1").gap is PairGap.TARGET_ONLY
    assert pair({"b": YES}, {"a": YES}, tmp_path / "2").gap is PairGap.GOLDEN_ONLY
    assert pair({"b": YES}, {"b": YES}, tmp_path / "3").gap is PairGap.NEITHER
    shapes = pair({"a": YES}, {"a": np.ones((2, 2), bool)}, tmp_path / "4")
    assert (shapes.gap, shapes.detail) == (PairGap.SHAPE, "[4] and [2, 2]")
    dtype = pair({"a": YES}, {"a": np.ones(4)}, tmp_path / "5")
    assert dtype.gap is PairGap.UNREADABLE and "float64 instead of signs" in dtype.detail
    assert pair({"a": YES}, {"a": NO}, tmp_path / "6").agreement == SignAgreement(0, 4)


def test_the_summary_counts_all_elements(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / n, [{"a": YES, "b": np.full(12, v)}]) for n, v in (("t", True), ("g", False))]
    comparison = compare_gradients(*runs)
    assert comparison.ranks[0].compute_summary(0) == SignAgreement(4, 16)


def test_ranks_steps_and_parameters_that_one_run_lacks_are_named(tmp_path: Path) -> None:
    target = write_run(tmp_path / "t", [{"a": YES, "x": YES}] * 3)
    write_run(tmp_path / "t", [{"a": YES}], rank=5)
    golden = write_run(tmp_path / "g", [{"a": YES, "y": YES}] * 2)
    comparison = compare_gradients(target, golden)
    assert (comparison.skipped_ranks, comparison.skipped_steps) == ((5,), {0: 1})
    rank = comparison.ranks[0]
    assert (rank.steps, rank.target_only, rank.golden_only) == ((0, 1), ("x",), ("y",))


def test_directories_of_ranks_can_be_compared(tmp_path: Path) -> None:
    target = write_run(tmp_path / "t", [{"a": YES}], rank=3)
    golden = write_run(tmp_path / "g", [{"a": YES}], rank=3)
    assert compare_gradients(target / "rank3", golden / "rank3").ranks[0].rank == 3


def damaged(path: Path) -> Path:
    file = path / "rank0" / "step0" / "a.npy"
    file.write_bytes(file.read_bytes()[:-2])
    return path


def old(path: Path) -> Path:
    (path / "rank0" / "step0" / "a.npy").rename(path / "rank0" / "step0" / "a.pt")
    return path


def pickled(path: Path) -> Path:
    np.save(path / "rank0" / "step0" / "a.npy", np.array([{}]), allow_pickle=True)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damaged, "a.npy is cut off"),
        (old, "a.pt is a file of msprobe 1.0.4, which probe does not load"),
        (pickled, "Python objects"),
        (lambda path: (path / "rank0" / "step0" / "a.npy").unlink(), "no file of its signs"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(change: Any, message: str, tmp_path: Path) -> None:
    target = write_run(tmp_path / "t", [{"a": YES, "b": YES}])
    golden = write_run(tmp_path / "g", [{"a": YES, "b": YES}])
    change(target)
    comparison = compare_gradients(target, golden, tmp_path / "out")
    (case,) = comparison.as_json()["not_compared"]
    assert case["parameter"] == "a" and comparison.main is None
    for run in (target, golden):
        (run / "rank0" / "step0" / "b.npy").unlink()
    with pytest.raises(UserError, match=message):
        compare_gradients(target, golden)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", 'has no column "param_name"'),
        (b"a,b\n1,2", 'has no column "param_name"'),
        (b"\xff\xfe", "not a csv in UTF-8"),
        (b'param_name,norm\n"a,1', "not a csv in UTF-8"),
    ],
)
def test_a_wrong_csv_is_one_sentence(content: bytes, message: str, tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, [{"a": YES}]) for name in ("t", "g")]
    (runs[1] / "rank0" / "grad_summary_0.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        compare_gradients(*runs)


def test_a_packed_file_that_another_recorder_did_not_replace_is_not_used(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, [{"a": YES}]) for name in ("t", "g")]
    writer = PackedWriter(runs[0] / "rank0", 0, {"a": (4,)})
    writer.add("a", NO)
    writer.commit()
    assert compare_gradients(*runs).main is None


def test_a_damaged_packed_file_is_named(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, [{"a": YES, "b": YES}]) for name in ("t", "g")]
    (runs[0] / "rank0" / "step0" / "a.npy").unlink()
    (runs[0] / "rank0" / "grad_directions_0.safetensors").write_bytes(b"\xff" * 20)
    comparison = compare_gradients(*runs)
    (case,) = comparison.as_json()["not_compared"]
    assert case["parameter"] == "a" and "is cut off" in case["detail"]
    assert comparison.sentence == (
        "AGREE: all compared gradient signs of 1 parameter in 1 step are equal; 1 parameter not compared in all steps"
    )


def test_rows_of_a_strange_csv_are_tolerated(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, [{"a": YES}]) for name in ("t", "g")]
    (runs[1] / "rank0" / "grad_summary_0.csv").write_text("param_name,norm\na,x,9,9\n\nb\n../../x,1\n")
    comparison = compare_gradients(*runs, tmp_path / "out")
    assert comparison.main is None and comparison.ranks[0].golden_only == ("b", "../../x")


@pytest.mark.parametrize(
    ("target", "golden", "message"),
    [
        ("missing", "g", "cannot be read"),
        ("file", "g", "cannot be read"),
        ("empty", "g", "holds no gradients"),
        (
            "other_rank",
            "g",
            "no rank in common: the target has 1 rank \\(7\\), the golden run 1 rank \\(0\\)",
        ),
        ("other_step", "g", "no step in common"),
        ("l0", "g", "grad_level L0"),
        ("other_model", "g", "no parameter in common"),
    ],
)
def test_runs_without_anything_in_common(target: str, golden: str, message: str, tmp_path: Path) -> None:
    write_run(tmp_path / "g", [{"a": YES}])
    (tmp_path / "file").write_text("")
    (tmp_path / "empty" / "rank0").mkdir(parents=True)
    write_run(tmp_path / "other_rank", [{"a": YES}], rank=7)
    later = write_run(tmp_path / "other_step", [{"a": YES}]) / "rank0"
    (later / "grad_summary_0.csv").rename(later / "grad_summary_1.csv")
    (later / "step0").rename(later / "step1")
    plain = write_run(tmp_path / "l0", [{}]) / "rank0" / "step0"
    plain.rmdir()
    write_run(tmp_path / "other_model", [{"z": YES}])
    with pytest.raises(UserError, match=message) as caught:
        compare_gradients(tmp_path / target, tmp_path / golden)
    assert caught.value.fix
