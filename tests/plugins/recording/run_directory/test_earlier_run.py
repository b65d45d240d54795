"""An earlier recording in the directory of a new run is moved away, once for all processes of a launch."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from probe_recording.run_directory import earlier_run
from probe_recording.run_directory.directory import Lock
from probe_recording.run_directory.earlier_run import settle_earlier_run

from probe_core.errors import UserError

TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}


def write_run(root: Path, text: str = "earlier", rank: str = "rank") -> Path:
    for step in ("step0", "step3"):
        (root / step / rank).mkdir(parents=True)
        (root / step / rank / "dump.json").write_text(text)
    return root


def settle(root: Path, **options: object) -> list[str]:
    warnings: list[str] = []
    settle_earlier_run(root, **{"replace": False, "confirm": None, "warn": warnings.append, **options})  # type: ignore[arg-type]
    return warnings


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment of a process that torchrun started."""
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)


def test_an_earlier_run_is_moved_to_the_next_free_number(tmp_path: Path) -> None:
    for number in (1, 2):
        root = write_run(tmp_path / "good", str(number))
        (root / "notes.txt").write_text("of the user")
        (warning,) = settle(root)
        assert f"good.{number}" in warning and "--replace" in warning
        assert (tmp_path / f"good.{number}" / "step3" / "rank" / "dump.json").read_text() == str(number)
        assert [path.name for path in root.iterdir() if not path.name.startswith(".")] == ["notes.txt"]


@pytest.mark.parametrize("make", [lambda root: None, lambda root: root.mkdir()], ids=["absent", "empty"])
def test_a_directory_without_a_run_is_left_alone(make: object, tmp_path: Path) -> None:
    make(tmp_path / "good")  # type: ignore[operator]
    assert settle(tmp_path / "good") == [] and len(list(tmp_path.iterdir())) <= 1


def test_replace_leaves_the_run_to_the_recorder(tmp_path: Path) -> None:
    root = write_run(tmp_path / "good")
    assert settle(root, replace=True) == [] and (root / "step0").is_dir()


@pytest.mark.parametrize("answer", [True, False])
def test_the_answer_of_the_user_decides(answer: bool, tmp_path: Path) -> None:
    root = write_run(tmp_path / "good")
    if answer:
        assert settle(root, confirm=lambda path: True) == []
    else:
        with pytest.raises(UserError, match="is kept"):
            settle(root, confirm=lambda path: False)
    assert (root / "step0" / "rank" / "dump.json").read_text() == "earlier"


def test_all_processes_of_a_launch_decide_once(launched: None, tmp_path: Path) -> None:
    root = write_run(tmp_path / "good", rank="rank0")
    with ThreadPoolExecutor(8) as pool:
        warnings = list(pool.map(lambda _: settle(root), range(8)))
    assert sum(map(len, warnings)) == 1 and (tmp_path / "good.1" / "step0").is_dir()
    assert not (tmp_path / "good.2").exists()


def test_workers_that_are_started_again_keep_their_recording(
    launched: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "good"
    assert settle(root) == []
    write_run(root, rank="rank0")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert settle(root) == [] and (root / "step0").is_dir()


def test_another_launch_moves_the_run_away(launched: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "good"
    settle(root)
    write_run(root, rank="rank0")
    monkeypatch.setattr(earlier_run, "_start_time", lambda process: "later")
    assert len(settle(root)) == 1 and not (root / "step0").exists()


def test_nodes_of_a_launch_recognise_each_other_by_shared_variables() -> None:
    node = {**TORCHRUN, "WORLD_SIZE": "4", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
    assert earlier_run.find_launch_id(node) == earlier_run.find_launch_id({**node, "RANK": "3"})
    assert earlier_run.find_launch_id(node) != earlier_run.find_launch_id({**node, "MASTER_PORT": "29501"})


def test_a_run_that_is_being_written_is_not_moved(tmp_path: Path) -> None:
    root = write_run(tmp_path / "good")
    lock = Lock(root, "rank")
    try:
        with pytest.raises(UserError, match="is being written by process"):
            settle(root)
        assert (root / "step0").is_dir() and (root / "step3").is_dir()
    finally:
        lock.release()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    root = write_run(tmp_path / "parent" / "good")
    root.parent.chmod(0o500)
    try:
        with pytest.raises(UserError):
            settle(root)
    finally:
        root.parent.chmod(0o700)
