"""Runs whose ranks are numbered differently, compared from the command line and from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

RUN = (
    '{"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null, "data": '
    '{"Torch.relu.0.forward": {"input_args": [{"type": "torch.Tensor", "dtype": "torch.float32", '
    '"shape": [2], "Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 1.0, "requires_grad": false}], '
    '"input_kwargs": {}, "output": []}}}'
)


@pytest.fixture
def renumbered(tmp_path: Path) -> tuple[str, str]:
    """Two runs of two ranks that have no number in common."""
    for name in ("target/rank0", "target/rank1", "golden/rank7", "golden/rank11"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "dump.json").write_text(RUN)
    return str(tmp_path / "target"), str(tmp_path / "golden")


def test_compare_pairs_other_rank_numbers_in_order(probe: Any, renumbered: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    probe("compare", *renumbered, "-o", out, "--format", "csv", "-j", "1")
    assert "note: The ranks are paired in order: 0 with 7, 1 with 11." in probe.err
    tables = sorted(file.name.rpartition("_")[0] for file in out.glob("compare_result_*.csv"))
    assert tables == ["compare_result_rank0-rank7", "compare_result_rank1-rank11"]
    assert probe("compare", *renumbered, "-o", out, "--pair-ranks", "number") == 2
    assert "no rank in common" in probe.err


def test_compare_distributed_pairs_other_rank_numbers_in_order(renumbered: Any, tmp_path: Path) -> None:
    from probe_pytorch import compare_distributed

    reports = compare_distributed(*renumbered, str(tmp_path / "out"), is_print_compare_log=False)
    assert [report.label for report in reports] == ["rank0-rank7", "rank1-rank11"]
