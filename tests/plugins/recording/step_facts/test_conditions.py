"""The conditions of a step, and the facts about what surrounds a program."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from probe_recording.step_facts.conditions import Conditions, Draw, RandomSample, hash_host_states
from probe_recording.step_facts.environment import VARIABLES, SourceState, read_variables, read_versions


def test_text_holds_everything_that_was_added() -> None:
    conditions = Conditions()
    conditions.add_facts("versions", {"torch": "2.1"})
    conditions.add_facts("versions", {"torch": "2.2", "numpy": "2.0"})
    conditions.add_sample(RandomSample("start", {"torch": "aa"}, {"torch": 7}))
    conditions.add_sample(RandomSample("start", {"torch": "bb"}, {"torch": 8}))
    conditions.add_draws([Draw("Torch.rand.0.forward", "torch", "bb", "cc")])
    conditions.pending.append(lambda: conditions.batch.update({"input.0": "float32[2] 00"}))
    assert conditions.changed
    plain = json.loads(conditions.text("pytorch"))
    assert plain == {
        "schema": 1,
        "framework": "pytorch",
        "facts": {"versions": {"torch": "2.2", "numpy": "2.0"}},
        "random": [{"point": "start", "states": {"torch": "bb"}, "seeds": {"torch": 8}}],
        "batch": {"input.0": "float32[2] 00"},
        "draws": [["Torch.rand.0.forward", "torch", "bb", "cc"]],
    }
    assert not conditions.changed
    assert json.loads(Conditions().text("mindspore"))["draws"] == []


@pytest.mark.parametrize(
    ("name", "seed", "draw"),
    [("python", random.seed, random.random), ("numpy", np.random.seed, np.random.rand)],
)
def test_states_depend_on_the_seed_and_on_the_draws(name: str, seed, draw) -> None:  # type: ignore[no-untyped-def]
    seed(1)
    first = hash_host_states()[name]
    seed(2)
    second = hash_host_states()[name]
    draw()
    third = hash_host_states()[name]
    seed(1)
    assert hash_host_states()[name] == first
    assert len({first, second, third}) == 3


def test_reading_the_states_draws_nothing() -> None:
    random.seed(3)
    np.random.seed(3)
    expected = random.random(), np.random.rand()
    random.seed(3)
    np.random.seed(3)
    hash_host_states()
    assert (random.random(), np.random.rand()) == expected


def test_only_listed_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("MY_API_KEY", "secret")
    found = read_variables()
    assert found["OMP_NUM_THREADS"] == "3"
    assert "secret" not in found.values() and set(found) <= set(VARIABLES)


def test_versions_of_imported_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("timm")
    module.__version__ = "1.2.3"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", module)
    monkeypatch.delitem(sys.modules, "peft", raising=False)
    found = read_versions()
    assert found["timm"] == "1.2.3" and found["numpy"] == np.__version__ and "peft" not in found


def _git(directory: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=directory, check=True, capture_output=True)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a script in a repository, which is that of this process."""
    path = tmp_path / "repository" / "train.py"
    path.parent.mkdir()
    path.write_text("lr = 1\n")
    main = ModuleType("__main__")
    main.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "__main__", main)
    return path


def test_commit_and_changes_of_the_repository_of_the_script(script: Path) -> None:
    _git(script.parent, "init", "-q")
    _git(script.parent, "add", ".")
    _git(script.parent, "commit", "-q", "-m", "first")
    clean = dict(SourceState().read_facts(30))
    assert clean["script"] == "train.py" and len(str(clean["commit"])) == 40 and clean["changes"] == "none"
    script.write_text("lr = 2\n")
    changed = dict(SourceState().read_facts(30))
    assert changed["commit"] == clean["commit"]
    assert changed["changes"] not in ("none", clean["changes"])
    assert changed["script_hash"] != clean["script_hash"]
    script.write_text("lr = 3\n")
    assert SourceState().read_facts(30)["changes"] != changed["changes"]


def test_git_runs_no_hook_monitor_or_external_program(script: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho ran > '{mark}'\n")
    program.chmod(0o755)
    _git(script.parent, "init", "-q")
    _git(script.parent, "add", ".")
    _git(script.parent, "commit", "-q", "-m", "first")
    for name in ("core.fsmonitor", "diff.external", "diff.all.textconv"):
        _git(script.parent, "config", name, str(program))
    (script.parent / ".git" / "info" / "attributes").write_text("*.py diff=all\n")
    script.write_text("lr = 2\n")
    assert SourceState().read_facts(30)["changes"] != "none"
    assert not mark.exists()


def test_script_outside_of_a_repository(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(script.parent.parent))
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert set(SourceState().read_facts(30)) <= {"script", "script_hash", "commit", "changes"}
    monkeypatch.setenv("PATH", "")
    assert set(SourceState().read_facts(30)) == {"script", "script_hash"}


def test_a_hash_that_cannot_be_fetched_is_left_out() -> None:
    def fail() -> None:
        raise RuntimeError("the device failed")

    conditions = Conditions()
    conditions.pending += [fail, lambda: conditions.batch.update({"input.1": "float32[2] 00"})]
    assert json.loads(conditions.text("pytorch"))["batch"] == {"input.1": "float32[2] 00"}


def test_only_the_first_step_waits_for_git(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\ncase "$*" in *rev-parse*) echo abc;; *) exec sleep 3;; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    found = SourceState()
    times = []
    for _ in range(2):
        start = time.perf_counter()
        assert dict(found.read_facts(0.2)).keys() == {"script", "script_hash", "commit"}
        times.append(time.perf_counter() - start)
    assert times[0] >= 0.2 > times[1]


def test_another_binary_file_is_another_change(script: Path) -> None:
    data = script.parent / "data.bin"
    data.write_bytes(b"\0\1\2")
    _git(script.parent, "init", "-q")
    _git(script.parent, "add", ".")
    _git(script.parent, "commit", "-q", "-m", "first")
    changes = []
    for content in (b"\0\1\3", b"\0\1\4"):
        data.write_bytes(content)
        changes.append(SourceState().read_facts(30)["changes"])
    assert len({*changes, "none"}) == 3
