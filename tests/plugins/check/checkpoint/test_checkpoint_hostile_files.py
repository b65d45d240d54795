"""Hostile checkpoints: each is refused in one sentence with exit code 2, and nothing in it runs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from support.runs.hostile_checkpoints import hostile_checkpoints

MOST_SECONDS = 60.0
"""Time for a single file, far above what any needs, to notice work without bounds."""


@pytest.mark.skipif(os.name == "nt", reason="named pipes and links")
def test_hostile_checkpoints_are_refused(tmp_path: Path, probe: Any) -> None:
    marker = tmp_path / "marker"
    good = tmp_path / "good.pt"
    torch.save({"weight": torch.ones(2, 3)}, good)
    accepted, count = [], 0
    for number, (name, write) in enumerate(hostile_checkpoints(marker)):
        room = tmp_path / str(number)
        room.mkdir()
        path = write(room)
        start = time.monotonic()
        code = probe("checkpoint", path, good, "-o", room / "out.json")
        assert not marker.exists(), f"{name} ran"
        assert time.monotonic() - start < MOST_SECONDS, name
        lines = probe.err.splitlines()
        is_refused = code == 2 and "Traceback" not in probe.err and lines[-2].startswith("error: ")
        if not is_refused or not lines[-1].startswith("  ") or (room / "out.json").exists():
            accepted.append((name, code, probe.out[:200], probe.err[-600:]))
        count += 1
    assert count >= 200
    assert not accepted, f"{len(accepted)} of {count}: {accepted[:12]}"
