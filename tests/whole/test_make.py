"""The verbs of make.py: how environments are set up, and what is reported meanwhile."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from support import ROOT


@pytest.fixture
def make() -> types.ModuleType:
    """Return make.py as a module."""
    spec = importlib.util.spec_from_file_location("make", ROOT / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def replace_pip(home: Path, program: str) -> None:
    """Put a stand-in for the Python of the environment ``home`` there, and mark pip as installed."""
    directory = home / "bin"
    directory.mkdir(parents=True)
    (directory / "pip").touch()
    python = directory / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)


def test_steps_of_pip_are_printed_while_it_works(make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replace_pip(tmp_path, 'echo "Collecting torch"; echo "Requirement already satisfied: click"; echo "$@"')
    make.environment(tmp_path, "torch")
    printed = capsys.readouterr().out
    assert f"Installing packages into {tmp_path}\n  pip: Collecting torch\n" in printed
    assert "--quiet" not in printed and "satisfied" not in printed


def test_failing_pip_ends_the_verb_with_its_code(make: Any, tmp_path: Path) -> None:
    replace_pip(tmp_path, "exit 7")
    with pytest.raises(SystemExit, match="7"):
        make.environment(tmp_path, "torch")


def test_missing_ensurepip_is_reported_with_its_package(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's Python has the module venv without it, and a half-made environment must not count as complete."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    monkeypatch.setattr(make.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="apt-get install python3-venv"):
        make.environment(tmp_path, "click")


def test_reasons_of_skipped_tests_are_printed(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[Any, ...]] = []
    monkeypatch.setattr(make, "run", lambda *command, **_: commands.append(command))
    for arguments in ([], ["--all"]):
        monkeypatch.setattr(sys, "argv", ["make.py", "test", *arguments])
        make.pytest(Path("python"))
    assert all("-rs" in command for command in commands)
    assert "not registry" in commands[1]


def test_python_that_is_too_old_is_refused_in_one_sentence() -> None:
    program = (
        "import runpy, sys; sys.version_info = (3, 9, 0); sys.argv = ['make.py', 'demo']; "
        f"runpy.run_path({str(ROOT / 'make.py')!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("probe needs Python 3.10 or later")


@pytest.mark.parametrize("arguments", [[], ["tests/plugins/pytorch"], ["1.13"]])
def test_torch_asks_for_a_version(arguments: list[str], make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["make.py", "torch", *arguments])
    with pytest.raises(SystemExit, match=r"make\.py torch 2\.6\.0"):
        make.torch()


@pytest.mark.parametrize("version, numpy", [("2.1.0", "numpy==1"), ("2.15.0", "numpy==2")])
def test_torch_is_tested_with_wheels_and_the_numpy_that_it_was_made_for(
    version: str, numpy: str, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[str] = []
    tested: list[tuple[Any, ...]] = []
    monkeypatch.setattr(make, "environment", lambda home, *requirements: installed.extend(requirements))
    monkeypatch.setattr(make, "build", lambda: [Path("probe_core.whl"), Path("probe_dask.whl")])
    monkeypatch.setattr(make, "pip_install", lambda home, *arguments: installed.extend(map(str, arguments)))
    monkeypatch.setattr(make, "pytest", lambda *arguments, **_: tested.append(arguments))
    monkeypatch.setattr(sys, "argv", ["make.py", "torch", version])
    make.torch()
    assert f"torch=={version}" in installed and "probe_core.whl" in installed and "probe_dask.whl" not in installed
    assert [line for line in installed if line.startswith("torch==")] == [f"torch=={version}"]
    assert any(line.startswith(numpy) for line in installed)
    assert f".venv-torch-{version}" in str(tested[0][0]) and ROOT / "tests/plugins/pytorch" in tested[0]


def test_release_needs_a_dated_section_of_the_changelog(
    make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "probe_core").mkdir()
    (tmp_path / "probe_core" / "__init__.py").write_text('__version__ = "0.2.0"\n')
    monkeypatch.setattr(make, "ROOT", tmp_path)
    monkeypatch.setattr(make.subprocess, "run", lambda *_, **__: types.SimpleNamespace(stdout=b""))
    done: list[str] = []
    monkeypatch.setattr(make, "dist", lambda: done.append("dist"))
    monkeypatch.setattr(make, "run", lambda *command: done.append(command[1]))
    (tmp_path / "CHANGELOG.md").write_text("## Unreleased\n\n## 0.2.0\n")
    with pytest.raises(SystemExit, match="no section"):
        make.release()
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [0.2.0] - 2026-11-24\n")
    make.release()
    assert done == ["dist", "tag"]


@pytest.mark.parametrize("verb", ["check", "lint", "bench", "distributions"])
def test_verb_without_an_environment_names_the_first_step(
    verb: str, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(make, "HOME", tmp_path / ".venv")
    monkeypatch.setattr(make, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    monkeypatch.setattr(sys, "argv", ["make.py", verb])
    with pytest.raises(SystemExit) as stop:
        make.VERBS[verb]()
    assert stop.value.code == 2
    assert "Run python3 make.py test first" in capsys.readouterr().err
