"""The processes of a program of several ranks, started together and waited for."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from support import TESTS
from support.programs.preloaded import PreloadedPopen

PATIENCE = 120
"""Seconds until ranks that wait for each other are given up."""


def run_ranks(command: Sequence[str], out: Path, world: int) -> None:
    """Run ``command`` once for each rank, told its place by RANK, LOCAL_RANK and WORLD_SIZE; logs lie in ``out``."""
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    ranks, logs = [], [out / f"rank{rank}.log" for rank in range(world)]
    try:
        for rank, log in enumerate(logs):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "PYTHONPATH": path}
            with log.open("wb") as file:
                ranks.append(PreloadedPopen(command, env=os.environ | place, stdout=file, stderr=subprocess.STDOUT))
        end = time.monotonic() + PATIENCE
        while any(rank.poll() is None for rank in ranks) and not any(rank.returncode for rank in ranks):
            if time.monotonic() > end:
                break
            time.sleep(0.05)
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()
    if any(rank.returncode for rank in ranks):
        ends = [
            f"rank {number} ended with {rank.returncode}: {log.read_text('utf-8', 'replace')[-3000:]}"
            for number, (rank, log) in enumerate(zip(ranks, logs))
        ]
        raise RuntimeError("\n".join(ends))
