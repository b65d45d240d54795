"""The plugin of docs/plugins.md is made as the page says, installed, used and tested."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "plugins.md"
LABEL = "Accuracy Reached or Not"
NAMES = ("hooks", "reader", "matcher", "policy", "judge", "reporter", "executor")


def test_the_plugin_of_the_page(tmp_path: Path) -> None:
    package, site = tmp_path / "probe-mine" / "probe_mine", tmp_path / "site"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "pyproject.toml").write_text(blocks(PAGE, "toml")[0])
    *modules, tests = blocks(PAGE, "python")
    for name, code in zip(NAMES, modules, strict=True):
        assert f"`probe_mine/{name}.py`" in PAGE.read_text("utf-8")
        (package / f"{name}.py").write_text(code)
    (tmp_path / "test_mine.py").write_text(tests)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
         "--target", site, package.parent], check=True)  # fmt: skip
    for side, name, number in (("target", "add", 5), ("golden", "sum", 4)):
        (tmp_path / side).mkdir()
        calls = {
            "Functional.relu.0.forward": {"input": [[1, 2]], "output": [[1, 2]]},
            f"Functional.{name}.0.forward": {"input": [[1, 2]], "output": [[3, number]]},
            "Functional.dropout.0.forward": {"input": [[1, 2]], "output": [[0, number]]},
        }
        (tmp_path / side / "run.json").write_text(json.dumps({"calls": calls}))

    environment = {**os.environ, "PYTHONPATH": str(site), "PROBE_PLUGINS": "mine,metrics,reporters"}
    for line in blocks(PAGE, "bash")[0].splitlines():
        command = [sys.executable, "-m", "probe_core.cli", *shlex.split(line)[1:]]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
    head, *rows = (
        line.split("\t") for line in next((tmp_path / "out").glob("*.tsv")).read_text("utf-8").splitlines()
    )
    found = {row[head.index("NPU Name")]: row for row in rows}
    different = found["Functional.add.0.forward.output.0"]
    assert different[head.index("Bench Name")] == "Functional.sum.0.forward.output.0"
    equal = {name: row[head.index("Bitwise equal")] for name, row in found.items()}
    assert equal.pop("Functional.add.0.forward.output.0") == "False" and different[head.index(LABEL)] == "No"
    assert equal.pop("Functional.dropout.0.forward.output.0") == "False" and set(equal.values()) == {"True"}
    assert "1 differ, 0 to check, 4 agree, 1 not measured" in done.stdout  # the judge skips the mask

    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True)  # fmt: skip
    assert tested.returncode == 0, tested.stdout
    assert re.search(r"35 passed", tested.stdout), tested.stdout
