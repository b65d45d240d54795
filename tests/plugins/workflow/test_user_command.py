from __future__ import annotations

import sys
from pathlib import Path

import pytest
from probe_workflow.user_command import insert_recorder

from probe_core.errors import UserError

RECORDER = ("record.py", "run", "-o", "out")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", [
    "python ^ train.py --lr 1", "/usr/bin/python3.11 -u -X dev -W ignore ^ train.py", "python ^ -m package.train a.py",
    "python -u ^ train", "torchrun --nproc-per-node 2 ^ train.py a.py", "accelerate launch ^ train.py",
    "python -m torch.distributed.run --nproc-per-node 2 ^ train.py", "pypy3 ^ train.py",
])  # fmt: skip
def test_the_recorder_stands_before_the_script(command: str) -> None:
    before, after = ([*part.split()] for part in command.split("^"))
    assert insert_recorder((*before, *after), RECORDER) == [*before, *RECORDER, *after]


def test_an_executable_script_runs_with_the_python_of_probe() -> None:
    assert insert_recorder(("./train.py", "-x"), RECORDER) == [sys.executable, *RECORDER, "./train.py", "-x"]


@pytest.mark.parametrize("command", [
    "bash run.sh", "torchrun other.py", "python -c pass", "python", "python -m torch.distributed.run other.py", "python -u",
])  # fmt: skip
def test_a_command_without_a_script_is_refused(command: str) -> None:
    with pytest.raises(UserError, match="names no Python script"):
        insert_recorder(tuple(command.split()), RECORDER)
