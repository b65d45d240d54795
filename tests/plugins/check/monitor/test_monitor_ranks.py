"""Monitored trainings of two processes: gradients before and after their reduction, collective operations."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import TESTS
from support.runs.monitors import configuration, rows, run_of

PROGRAM = TESTS / "support" / "programs" / "monitored_ranks.py"


def run_ranks(tmp_path: Path, *arguments: str, **fields: Any) -> list[str]:
    """Run both ranks, and return what they printed on stderr."""
    config = configuration(tmp_path / "config.json", **fields)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {
        **os.environ, "MONITOR_OUTPUT_DIR": str(tmp_path / "run"), "WORLD_SIZE": "2", "MASTER_PORT": port,
        "MASTER_ADDR": "127.0.0.1",
    }  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(config), *arguments],
            env={**common, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = []
    for process in processes:
        output, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
        assert output == "[6.0, 6.0]\n"
        errors.append(error)
    return errors


def norms(output: Path, file: str, rank: int) -> dict[str, float]:
    return {row["name"]: float(row["norm"]) for row in rows(output, file, rank)}


def test_unreduced_gradients_differ_between_ranks_and_reduced_ones_do_not(tmp_path: Path) -> None:
    run_ranks(tmp_path, wg_distribution=True, cc_distribution={"enable": True, "cc_pre_hook": True})
    output = tmp_path / "run"
    first, second = (norms(output, "grad_unreduced_1-1.csv", rank) for rank in (0, 1))
    assert first.keys() == second.keys() == {"module.weight", "module.bias"} and first != second
    assert norms(output, "grad_reduced_1-1.csv", 0) == norms(output, "grad_reduced_1-1.csv", 1) != first
    calls = norms(output, "other_1-1.csv", 1)
    assert calls["all_reduce.pre_0"] == pytest.approx(2**0.5 * (2 + 3), abs=2e-6)
    assert calls["all_reduce.post_0"] == pytest.approx(2**0.5 * (3 + 6), abs=2e-6)


def test_only_the_first_rank_of_dp_group_writes_reduced_gradients(tmp_path: Path) -> None:
    run_ranks(tmp_path, "dp_group", wg_distribution=True)
    names = [{file.name for file in run_of(tmp_path / "run", rank).iterdir()} for rank in (0, 1)]
    assert "grad_reduced_0-0.csv" in names[0]
    assert names[1] == {f"grad_unreduced_{step}-{step}.csv" for step in range(3)}


def test_communication_without_a_process_group_is_refused(tmp_path: Path) -> None:
    from support.runs.monitors import train

    from probe_core.errors import UserError

    with pytest.raises(UserError, match="cc_distribution"):
        train(tmp_path / "run", cc_distribution={"enable": True})
