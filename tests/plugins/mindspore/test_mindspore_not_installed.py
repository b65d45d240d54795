"""Without MindSpore: one sentence says how to install it, and every other command works."""

from __future__ import annotations

import importlib.util
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support import DATA
from support.programs import preloaded

HIDE = """
import importlib.util
from pathlib import Path
from probe_core.errors import UserError
from probe_precheck.runner_options import RunnerOptions
from probe_mindspore.precheck.runner import MindSporeRunner

find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == {module!r} else find(name, *more)
try:
    MindSporeRunner().open(RunnerOptions(Path("dump.json")))
except UserError as error:
    print(error.what, error.fix)
"""
PROBE = "import sys; from probe_core.cli import main; sys.exit(main())"

needs_none = pytest.mark.skipif(
    (lambda spec: spec is not None and spec.origin is not None)(importlib.util.find_spec("mindspore")),
    reason="MindSpore is installed here",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs")
    zipfile.ZipFile(DATA / "precheck-mindspore.zip").extractall(directory)
    return directory


@needs_none
def test_the_pre_check_says_how_to_install_it(run: Path, tmp_path: Path) -> None:
    dump = run / "ms_mix_tensor" / "dump.json"
    line = [sys.executable, "-c", PROBE, "run_ut", "--framework", "mindspore", "-api_info", str(dump)]
    done = preloaded.run([*line, "-o", str(tmp_path / "out")], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "needs mindspore, which is not installed" in done.stderr
    assert "pip install mindspore==2.10.0" in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.glob("out/*.csv"))


@pytest.mark.parametrize("module", ["mindspore", "torch"])
def test_either_framework_may_be_missing(module: str, tmp_path: Path) -> None:
    if module == "torch":
        (tmp_path / "mindspore").mkdir()
        (tmp_path / "mindspore" / "__init__.py").touch()
    code = HIDE.format(module=module)
    said = preloaded.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert f"needs {module}, which is not installed. Install it with: pip install {module}" in said.stdout


def test_a_directory_of_that_name_is_no_mindspore(tmp_path: Path) -> None:
    if (spec := importlib.util.find_spec("mindspore")) is not None and spec.origin is not None:
        pytest.skip("MindSpore is installed here")
    (tmp_path / "mindspore").mkdir()
    code = HIDE.format(module="nothing")
    said = preloaded.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "needs mindspore, which is not installed" in said.stdout


@needs_none
def test_every_other_command_works(run: Path, tmp_path: Path, probe: Callable[..., int]) -> None:
    target, golden = run / "msbug_mix_tensor", run / "ms_mix_tensor"
    assert probe("compare", target, golden, "-o", tmp_path, "--format", "jsonl") == 0
    (path,) = tmp_path.glob("*compare_result*.jsonl")
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert len(rows) > 100
    assert probe("plugins") == 0
    assert probe("--help") == 0
    assert "mindspore" not in sys.modules or sys.modules["mindspore"].__file__ is None
