"""The fixture ``probe_golden`` in tests that pytest runs."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from _pytest.pytester import SysModulesSnapshot
from support.cases import every

pytest_plugins = ["pytester"]

BLOCK = """
import torch
from torch import nn


class Block(nn.Module):
    scale = 1.0

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.scale * self.down(torch.relu(self.up(self.norm(x))))
"""
TEST = """
import torch
from block import Block


def test_block(probe_golden):
    model = Block()
    with probe_golden.record(model):
        model(torch.randn(4, 8)).sum().backward()
"""
GOLDEN = Path("goldens/test_it/test_block.json")
OFFLINE = ("-p", "no:cacheprovider", "-p", "no:xdist")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory with a model and a test of it."""
    pytester.makepyfile(block=BLOCK, test_it=TEST)
    monkeypatch.setattr(SysModulesSnapshot, "restore", lambda _: None)  # torch cannot be imported twice
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # files of the same second would not be compiled anew
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest in the project, whose modules are imported anew."""
    for name in ("block", "test_it", "test_steps"):
        sys.modules.pop(name, None)
    return project.runpytest_inprocess(*OFFLINE, *arguments, no_reraise_ctrlc=True)


def test_missing_golden_fails_with_the_command_that_writes_it(project: pytest.Pytester) -> None:
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        "The golden file goldens/test_it/test_block.json is missing.",
        "Write it, and commit it: pytest test_it.py::test_block --probe-update",
    ])  # fmt: skip


def test_golden_is_written_with_the_option_and_passes_from_then_on(project: pytest.Pytester) -> None:
    written = run(project, "--probe-update")
    written.assert_outcomes(passed=1)
    written.stdout.fnmatch_lines(["probe: 1 test: golden files written"])
    content = (project.path / GOLDEN).read_bytes()
    run(project).assert_outcomes(passed=1)
    run(project, "--probe-update").assert_outcomes(passed=1)
    assert (project.path / GOLDEN).read_bytes() == content


def test_failure_names_verdict_line_and_commands(project: pytest.Pytester) -> None:
    run(project, "--probe-update").assert_outcomes(passed=1)
    project.makepyfile(block=BLOCK.replace("scale = 1.0", "scale = 1.5"))
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        "The values differ from the golden goldens/test_it/test_block.json (cpu, torch *).",
        "DIVERGED: Tensor.__mul__.0.forward was called with a different argument *1.5 against 1.0*",
        "*block.py, line 13, in forward, return x + self.scale *",
        "Show more: probe compare *",
        "If the change is intended, write the golden anew: pytest test_it.py::test_block --probe-update",
    ])  # fmt: skip


def test_rounding_passes_and_a_note_names_the_version_of_the_golden(project: pytest.Pytester) -> None:
    run(project, "--probe-update").assert_outcomes(passed=1)
    golden = project.path / GOLDEN
    golden.write_text(re.sub('"torch": "[^"]+"', '"torch": "2.0.0"', golden.read_text()))
    project.makepyfile(
        block=BLOCK.replace("self.down(torch.relu(self.up(", "self.down(torch.relu((1 + 1e-7) * self.up(")
    )
    result = run(project)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["probe: 1 test: compared with the golden of cpu, torch 2.0.0, because there is no golden of *"]
    )


def test_damaged_golden_fails_with_the_fix_and_is_written_anew(project: pytest.Pytester) -> None:
    golden = project.path / GOLDEN
    golden.parent.mkdir(parents=True)
    golden.write_text("<<<<<<< ours")
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*test_block.json is not valid JSON*", "Restore it from version control, or write it anew: *"]
    )
    run(project, "--probe-update").assert_outcomes(passed=1)
    run(project).assert_outcomes(passed=1)


def test_golden_that_cannot_be_written_fails_with_the_fix(project: pytest.Pytester) -> None:
    (project.path / GOLDEN).mkdir(parents=True)
    result = run(project, "--probe-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        "*test_block.json* cannot be written: *",
        "Make the path a file in a directory that you can write to, and write the golden: pytest *",
    ])  # fmt: skip


def test_golden_in_a_read_only_directory_fails_with_the_fix(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_directory = os.mkdir

    def refuse(path: str, *arguments: Any, **options: Any) -> None:  # permissions do not stop an administrator
        if "goldens" in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        make_directory(path, *arguments, **options)

    monkeypatch.setattr(os, "mkdir", refuse)
    result = run(project, "--probe-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([
        '"*goldens/test_it" cannot be written: Permission denied.',
        "Make the path a file in a directory that you can write to, and write the golden: pytest *",
    ])  # fmt: skip


@every("runs", [1, 2, 4])
def test_interrupted_update_leaves_the_golden_as_it_was(runs: int, project: pytest.Pytester) -> None:
    project.makepyfile(block=BLOCK, test_it=TEST)
    run(project, "--probe-update").assert_outcomes(passed=1)
    content = (project.path / GOLDEN).read_bytes()
    count = "import itertools\n\nCOUNT = itertools.count(1)\n"
    interrupt = f"    if next(COUNT) == {runs}:\n        raise KeyboardInterrupt\n"
    project.makepyfile(test_it=f"{count}{TEST}{interrupt}", block=BLOCK.replace("scale = 1.0", "scale = 1.5"))
    assert run(project, "--probe-update").ret == pytest.ExitCode.INTERRUPTED
    assert [path.name for path in (project.path / GOLDEN).parent.iterdir()] == [GOLDEN.name]
    assert (project.path / GOLDEN).read_bytes() == content


def test_dropout_and_a_function_without_result_have_repeatable_goldens(project: pytest.Pytester) -> None:
    calls = "probe_golden.check(torch.nn.Dropout().train(), x)\n    assert probe_golden.check(lambda: [x.add(1)] and None) is None"
    project.makepyfile(test_it=f"import torch\n\n\ndef test_block(probe_golden):\n    x = torch.ones(4)\n    {calls}\n")
    run(project, "--probe-update").assert_outcomes(passed=1)
    run(project).assert_outcomes(passed=1)


STEPS = """
import pytest
import torch
from block import Block


def test_steps(probe_golden):
    for _ in range(3):
        assert probe_golden.check(torch.nn.functional.softmax, torch.randn(4, 8), dim=-1).shape == (4, 8)


def test_no_step(probe_golden):
    pass


def test_no_call(probe_golden):
    probe_golden.check(len, "abc")


def test_no_function(probe_golden):
    probe_golden.check(1)


def test_nested(probe_golden):
    with probe_golden.record():
        probe_golden.check(torch.ones, 1)


def test_assertion(probe_golden):
    probe_golden.check(torch.relu, torch.ones(1))
    assert False


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Block()


def test_shared_model(probe_golden, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        with probe_golden.record(model):
            model(torch.randn(4, 8)).pow(2).sum().backward()
            optimizer.step()


@pytest.mark.parametrize("is_recorded", [True, False])
def test_bits(request, is_recorded):
    golden = request.getfixturevalue("probe_golden") if is_recorded else None
    torch.manual_seed(0)
    model, x = Block(), torch.randn(4, 8)
    output = golden.check(model, x) if golden else model(x)
    torch.manual_seed(0)
    assert torch.equal(output, Block()(torch.randn(4, 8)))
"""


def test_use_and_misuse(project: pytest.Pytester) -> None:
    project.makepyfile(test_steps=STEPS)
    written = run(project, "--probe-update", "test_steps.py")
    written.assert_outcomes(passed=4, failed=5)
    written.stdout.fnmatch_lines_random([
        "The test uses probe_golden, but records nothing with it.",
        "probe_golden recorded no call of torch.",
        "probe_golden.check() needs a function or a model, not int.",
        "probe_golden records already, and steps cannot be nested.",
    ])  # fmt: skip
    names = {path.name for path in (project.path / "goldens" / "test_steps").iterdir()}
    assert {"test_steps.json", "test_shared_model.json"} < names and len(names) == 3
    passing = [f"test_steps.py::test_{name}" for name in ("steps", "shared_model", "bits")]
    run(project, *passing).assert_outcomes(passed=4)
    project.makepyfile(test_steps=STEPS.replace("range(3)", "range(2)"))
    result = run(project, "test_steps.py::test_steps")
    result.stdout.fnmatch_lines(
        ["The test recorded 2 steps with probe_golden, and its golden *test_steps.json contains 3."]
    )


def test_test_that_does_not_repeat_has_no_golden(project: pytest.Pytester) -> None:
    project.makepyfile(test_it=TEST.replace("torch.randn(4, 8)", "torch.randn(4, 8) + next(COUNT)"))
    path = project.path / "test_it.py"
    path.write_text(
        path.read_text().replace("import torch\n", "import itertools\nimport torch\n\nCOUNT = itertools.count()\n", 1)
    )
    result = run(project, "--probe-update")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["The golden file was not written: *", "Make the test repeatable: *"])
    assert not (project.path / GOLDEN).exists()


def test_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, pytest_probe.plugin; print(*{'torch', 'numpy', 'probe_core', 'probe_recording'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.slow
def test_files_are_written_and_compared_by_several_workers(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it=TEST.replace(
            "def test_block(probe_golden)",
            "import pytest\n\n\n@pytest.mark.parametrize('n', range(6))\ndef test_block(probe_golden, n)",
        )
    )
    project.runpytest_subprocess("-n", "2", "--probe-update").assert_outcomes(passed=6)
    result = project.runpytest_subprocess("-n", "2")
    result.assert_outcomes(passed=6)
    assert len([*(project.path / "goldens" / "test_it").iterdir()]) == 6


def test_call_in_another_dtype_fails_although_its_values_agree(project: pytest.Pytester) -> None:
    half = BLOCK.replace(
        "return x + self.scale",
        "x = torch.softmax(x.bfloat16(), -1, {dtype}).bfloat16()\n        return x + self.scale",
    )
    half = half.replace("self.norm(x)", "self.norm(x.float())")
    project.makepyfile(block=half.replace("{dtype}", "torch.float32"))
    run(project, "--probe-update").assert_outcomes(passed=1)
    project.makepyfile(block=half.replace("{dtype}", "torch.bfloat16"))
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["The values agree within rounding, but calls have other arguments or dtypes*", "AGREE: *"]
    )
