"""The detector of docs/detector-plugin.md is made as the page says, installed, used and tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from support.runs.answered import call, record
from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "detector-plugin.md"
SOFTPLUS, NEXT = "Functional.softplus.0.forward", "Torch.mul.0.forward"


def test_the_detector_of_the_page(tmp_path: Path) -> None:
    """Its statement is the first line, in the answer file and on the page; without it, the call differs."""
    package, site = tmp_path / "probe-clipped" / "probe_clipped", tmp_path / "site"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "pyproject.toml").write_text(blocks(PAGE, "toml")[0])
    hooks, detector, tests = blocks(PAGE, "python")
    (package / "hooks.py").write_text(hooks)
    (package / "detector.py").write_text(detector)
    (package.parent / "tests").mkdir()
    (package.parent / "tests" / "test_clipped.py").write_text(tests)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
         "--target", str(site), str(package.parent)],
        check=True,
    )  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(site)}
    x = np.linspace(1, 2, 8, dtype=np.float32)
    large = x * np.float32(40_000)
    for name, returned in (("golden", large), ("target", np.minimum(large, np.float32(65504)))):
        calls = {SOFTPLUS: call(x, out=returned), NEXT: call(returned, 2.0, out=returned * 2)}
        record(tmp_path / name, calls, task="statistics")
    done = probe(environment, tmp_path, "compare", "target", "golden", "-o", "out")
    first = done.splitlines()[0]
    assert first.startswith("DIVERGED") and f"\n{first}\n" in PAGE.read_text("utf-8")
    (file,) = (tmp_path / "out").glob("answer_*.json")
    cause = json.loads(file.read_text("utf-8"))["causes"][0]
    assert (cause["kind"], cause["op"], cause["statement"]) == (
        "detector", SOFTPLUS, "returns values clipped at 65504",
    )  # fmt: skip
    assert cause["evidence"] == {"detector": "clipped", "largest": 65504.0}
    (page,) = (tmp_path / "out").glob("*.html")
    assert "returns values clipped at 65504" in page.read_text("utf-8")
    assert "values clipped at the largest number of float16" in probe(environment, tmp_path, "plugins")
    assert " 0 failed" in probe(environment, tmp_path, "plugins", "--check")
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(package.parent / "tests")],
        env=environment, check=True, cwd=tmp_path,
    )  # fmt: skip


def probe(environment: dict[str, str], directory: Path, *arguments: str) -> str:
    """Run probe in a process of its own, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "probe_core.cli", *arguments],
        env=environment, cwd=directory, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
