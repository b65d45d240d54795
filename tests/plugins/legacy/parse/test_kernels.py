"""``probe parse vc``: two directories of dumps, compared array by array."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from probe_legacy.parse.kernels import measure
from support.probe import Probe
from support.runs import acl_dumps as acl
from support.runs.acl_dumps import acl_dumps  # noqa: F401


def rows(out: Path) -> list[dict[str, str]]:
    (path,) = out.glob("batch_compare_*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def kernel(path: Path, *values: float) -> Path:
    data = np.array(values, np.float32)
    return acl.write(path, acl.dump(acl.tensor("output", data.tobytes(), 1, 2, data.shape, data.shape)))


def test_dumps_against_converted_dumps(acl_dumps: Path, probe: Probe, tmp_path: Path) -> None:
    shutil.copytree(acl_dumps / "output", tmp_path / "raw")
    assert probe("convert", tmp_path / "raw", "-o", tmp_path / "converted") == 0
    assert probe("convert", tmp_path / "raw", "-o", tmp_path / "device", "--layout", "device") == 0
    pairs = (
        ("raw", "raw"),
        ("raw", "converted"),
        ("converted", "raw"),
        ("raw", "device"),
        ("device", "device"),
    )
    for one, two in pairs:
        out = tmp_path / f"{one}-{two}"
        assert probe("parse", "vc", "-m", tmp_path / one, "-g", tmp_path / two, "-out", out) == 0, probe.err
        assert "14 arrays compared, 14 equal, 0 without partner" in probe.out
        found = rows(out)
        assert len(found) == 14 and all(row["Md5 Consistency"] == "True" and not row["Message"] for row in found)
        assert all(row["NPU File Name"] == row["Bench File Name"] for row in found)


def test_calls_of_an_operator_are_paired_by_their_times(probe: Probe, tmp_path: Path) -> None:
    kernel(tmp_path / "m" / "Add.Add.45.0.1000", 1, 2)
    kernel(tmp_path / "m" / "Add.Add.12.0.999", 3, 4)
    kernel(tmp_path / "g" / "1" / "Add.Add.3.1.20", 1, 2)
    kernel(tmp_path / "g" / "1" / "Add.Add.7.1.9", 3, 5)
    kernel(tmp_path / "g" / "1" / "Mul.Mul.8.1.30", 1)
    assert probe("parse", "vc", "-m", tmp_path / "m", "-g", tmp_path / "g", "-out", tmp_path / "o") == 0, probe.err
    assert "2 arrays compared, 1 equal, 1 without partner" in probe.out
    first, second, alone = rows(tmp_path / "o")
    assert (first["NPU File Name"], first["Bench File Name"]) == (
        "Add.Add.12.0.999.output.0",
        "Add.Add.7.1.9.output.0",
    )
    assert (first["Mean"], first["Bench Mean"], first["Md5 Consistency"]) == ("3.5", "4.0", "False")
    assert (first["Max Abs Error"], first["Max Relative Error"]) == ("1.0", "0.2")
    assert second["Md5 Consistency"] == "True"
    assert (alone["NPU File Name"], alone["Bench File Name"]) == ("", "Mul.Mul.8.1.30.output.0")
    assert alone["Message"] == "no partner on the other side"


def test_other_shapes_and_damaged_dumps(probe: Probe, tmp_path: Path) -> None:
    kernel(tmp_path / "m" / "Add.Add.45.0.1000", 1, 2)
    kernel(tmp_path / "g" / "Add.Add.45.0.1000", 1, 2, 3)
    kernel(tmp_path / "m" / "Mul.Mul.46.0.1001", 1)
    cut = kernel(tmp_path / "g" / "Mul.Mul.46.0.1001", 1)
    cut.write_bytes(cut.read_bytes()[:-1])
    acl.write(tmp_path / "g" / "Bad.Bad.46.0.1001", b"abc")
    assert probe("parse", "vc", "-m", tmp_path / "m", "-g", tmp_path / "g", "-out", tmp_path / "o") == 0, probe.err
    messages = [row["Message"] for row in rows(tmp_path / "o")]
    assert messages[0] == "float32 [2] and float32 [3] cannot be compared" and "ends before" in messages[1]
    assert "Bad.Bad.46.0.1001 has no header." in probe.err and "ends before" in probe.err


def test_runs_of_today_are_sent_to_compare(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "dump.json").write_text("{}")
    assert probe("parse", "vc", "-m", tmp_path / "m", "-g", tmp_path / "m", "-out", tmp_path / "o") == 2
    assert "probe compare TARGET GOLDEN" in probe.err
    assert probe("parse", "vc", "-m", tmp_path / "none", "-g", tmp_path / "m", "-out", tmp_path / "o") == 2


@pytest.mark.parametrize(
    ("mine", "golden", "absolute", "relative"),
    [
        (np.array([1, 0], np.float32), np.array([1, 0], np.float32), 0, 0),
        (np.array([1], np.float32), np.array([0], np.float32), 1, 1 / np.finfo(np.float32).eps),
        (np.array([2], np.uint8), np.array([3], np.uint8), 1, 1 / 3),
        (np.array([1], np.int64), np.array([0], np.int64), 1, 1 / np.finfo(np.float64).eps),
        (np.array([np.inf, 1], np.float32), np.array([np.inf, 2], np.float32), 1, 0.5),
        (np.array([3 + 4j], np.complex64), np.array([0 + 1j], np.complex64), np.sqrt(18), np.sqrt(18)),
        (np.array([True]), np.array([False]), 1, 1 / np.finfo(np.float64).eps),
    ],
    ids=str,
)  # fmt: skip
def test_errors(mine: np.ndarray, golden: np.ndarray, absolute: float, relative: float) -> None:  # type: ignore[type-arg]
    cells = measure(mine, golden)
    assert cells[3:] == (pytest.approx(absolute), pytest.approx(relative), "")
    assert cells[2] is (mine.tobytes() == golden.tobytes())


def test_no_values_and_nan() -> None:
    assert measure(np.zeros(0), np.zeros(0)) == ("", "", True, "", "", "no values")
    assert all(np.isnan(cell) for cell in measure(np.array([np.nan]), np.array([1.0]))[3:5])  # type: ignore[arg-type, call-overload]
