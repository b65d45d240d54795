"""The directories of processes whose ranks become known while they record."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from probe_recording.api import Config, Process
from probe_recording.process_start.late_claim import LateClaim

ANOTHER_LAUNCH = "1-2"


class RankedProcess(Process):
    """A process whose rank is set by the test; None before it is known."""

    known_rank: int | None = None

    def _group(self) -> tuple[int, int] | None:
        return None if self.known_rank is None else (self.known_rank, 4)


class RecordedProcess:
    """A process that records into a directory.

    Args:
        root: The directory of the run.
        launch: The text of the launch; by default that of a process which this one started.
    """

    def __init__(self, root: Path, launch: str = "0-1", **fields: object) -> None:
        self.process = RankedProcess()
        self.config = Config(root, shown_path=str(root), **fields)  # type: ignore[arg-type]
        self.claim = LateClaim(self.process, launch)

    def record(self, step: int = 0, rank: int | None = None) -> tuple[str, bool]:
        """Record a step, and return the label and whether the step is kept."""
        directory = self.claim.open_step(self.config, step)
        self.process.known_rank = rank
        label = self.claim.choose_label(self.config)
        directory.write("dump.json", "{}")
        return label, self.claim.complete_step()

    def record_and_end(self, rank: int | None = None) -> str:
        label, _ = self.record(rank=rank)
        self.claim.release()
        return label


def list_files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def test_a_rank_that_is_known_later_names_the_directories(tmp_path: Path) -> None:
    recorded = RecordedProcess(tmp_path / "run")
    directory = recorded.claim.open_step(recorded.config, 0)
    assert not (tmp_path / "run").exists()  # before the first file
    directory.write("stack.json", "{}")
    assert list_files(tmp_path / "run") == [
        ".launch",
        f".proc{os.getpid()}.lock",
        f"step0/proc{os.getpid()}/stack.json",
    ]
    recorded.process.known_rank = 2
    assert recorded.claim.choose_label(recorded.config) == "rank2"
    assert recorded.claim.complete_step()
    assert recorded.record(step=1, rank=2) == ("rank2", True)
    recorded.claim.release()
    assert list_files(tmp_path / "run") == [".launch", "step0/rank2/stack.json", "step1/rank2/dump.json"]


def test_a_rank_is_remembered_after_its_group_is_destroyed(tmp_path: Path) -> None:
    recorded = RecordedProcess(tmp_path)
    recorded.process.known_rank = 1
    recorded.claim.note_rank()
    assert recorded.record(rank=None) == ("rank1", True)


def test_processes_without_a_rank_are_numbered(tmp_path: Path) -> None:
    first = RecordedProcess(tmp_path, launch=f"{os.getpid()}-1")
    others = [RecordedProcess(tmp_path, launch=f"{os.getpid()}-1") for _ in range(2)]
    assert [first.record()[0], *(other.record()[0] for other in others)] == ["rank", "process1/rank", "process2/rank"]
    later = RecordedProcess(tmp_path, launch=f"{os.getpid()}-1", stage="actor")
    assert later.record()[0] == "actor/rank"


def test_a_child_without_a_rank_does_not_use_the_place_of_the_first_process(tmp_path: Path) -> None:
    assert RecordedProcess(tmp_path).record_and_end() == "process1/rank"
    assert RecordedProcess(tmp_path, stage="actor").record_and_end() == "actor-process1/rank"


def test_the_only_process_of_a_launcher_is_not_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert RecordedProcess(tmp_path).record_and_end() == "rank"


def test_a_process_that_inherits_a_rank_has_a_directory_of_its_own(tmp_path: Path) -> None:
    labels = [RecordedProcess(tmp_path).record(rank=1)[0], RecordedProcess(tmp_path).record_and_end(rank=1)]
    assert labels == ["rank1", "process1/rank1"]
    assert RecordedProcess(tmp_path).record_and_end(rank=1) == "process2/rank1"  # also after the others ended


def test_the_first_process_does_not_read_like_rank_0(tmp_path: Path) -> None:
    assert RecordedProcess(tmp_path).record_and_end(rank=0) == "rank0"
    assert RecordedProcess(tmp_path, launch=f"{os.getpid()}-1").claim.label == ""
    driver = RecordedProcess(tmp_path, launch="0-1")
    driver.claim._launch = f"{os.getpid()}-1"
    (tmp_path / ".launch").write_text(driver.claim._launch)
    assert driver.record_and_end() == "process1/rank"


def test_a_restarted_worker_replaces_its_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = RecordedProcess(tmp_path)
    first.record(rank=1)
    first.record(step=1, rank=1)
    first.claim.release()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert RecordedProcess(tmp_path).record_and_end(rank=1) == "rank1"
    assert list_files(tmp_path) == [".launch", "step0/rank1/dump.json"]


def test_a_rank_that_is_not_selected_leaves_nothing(tmp_path: Path) -> None:
    recorded = RecordedProcess(tmp_path, ranks=frozenset({1}))
    assert recorded.claim.may_record(recorded.config)
    assert recorded.record(rank=0) == ("", False)
    assert not recorded.claim.may_record(recorded.config)
    recorded.claim.release()
    assert list_files(tmp_path) == [".launch"] and not (tmp_path / "step0").exists()
    unranked = RecordedProcess(tmp_path, ranks=frozenset({1}))
    assert unranked.record() == ("", False)


def test_an_earlier_launch_is_moved_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RecordedProcess(tmp_path / "run").record_and_end(rank=0)
    RecordedProcess(tmp_path / "run", launch=ANOTHER_LAUNCH).record_and_end(rank=0)
    assert list_files(tmp_path) == ["run.1/step0/rank0/dump.json", "run/.launch", "run/step0/rank0/dump.json"]
    assert "was moved to a name with a number" in capsys.readouterr().err


def test_a_launch_joins_one_that_records_now(tmp_path: Path) -> None:
    running = RecordedProcess(tmp_path / "run")
    running.record(rank=0)
    assert RecordedProcess(tmp_path / "run", launch=ANOTHER_LAUNCH).record_and_end(rank=1) == "rank1"
    assert not (tmp_path / "run.1").exists()


def test_locks_of_killed_processes_do_not_count(tmp_path: Path) -> None:
    (tmp_path / ".rank.lock").touch()
    assert RecordedProcess(tmp_path, launch=f"{os.getpid()}-1").record_and_end() == "rank"
