"""The directory of a run: one writer a rank, nothing left of an earlier run, errors in a log."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from probe_pytorch.storage.tensors import PackedStore
from probe_recording.api import confidence
from probe_recording.file_names import JOURNAL_FILE, PACKED_FILE
from probe_recording.run_directory import directory
from probe_recording.run_directory.directory import Lock, StepDirectory, remove_tensors
from support.programs.preloaded import PreloadedPopen
from support.runs.recording import recording

from probe_core.errors import UserError
from probe_core.store.files import ERROR_FILE

FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


class Other:
    """Another process, which does without torch: it tries to take a lock, and holds it until it is told."""

    CODE = """
import sys
from pathlib import Path
from probe_core.errors import UserError
from probe_recording.run_directory.directory import Lock
try:
    lock = Lock(Path(sys.argv[1]), sys.argv[2])
except UserError as error:
    print("refused", error.what, flush=True)
else:
    print("holds", flush=True)
    for line in sys.stdin:
        if line == "release\\n":
            lock.release()
            print("released", flush=True)
        elif line == "end\\n":
            break
"""

    def __init__(self, root: Path, label: str = "rank") -> None:
        self.process = PreloadedPopen(
            [sys.executable, "-c", self.CODE, str(root), label],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.answer = self._read()

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._read()


@contextmanager
def other(root: Path, label: str = "rank") -> Iterator[Other]:
    found = Other(root, label)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.communicate()


def test_a_second_process_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "run", "rank")
    try:
        with other(tmp_path / "run") as second:
            assert second.answer.startswith("refused")
            assert str(os.getpid()) in second.answer and str(tmp_path / "run") in second.answer
            assert second.answer.endswith(".")
    finally:
        lock.release()


def test_the_holder_is_named_and_the_fix(tmp_path: Path) -> None:
    with other(tmp_path / "run", "rank0") as holder:
        assert holder.answer == "holds"
        with pytest.raises(UserError) as caught:
            Lock(tmp_path / "run", "rank0")
        error = caught.value
        assert f"process {holder.process.pid}," in error.what and "rank0" in error.what
        assert "dump_path" in error.fix
        with pytest.raises(UserError, match=str(holder.process.pid)):
            Lock(tmp_path / "run", "rank0")  # the first refusal took nothing away
        Lock(tmp_path / "run", "rank1").release()  # another rank
        Lock(tmp_path / "run2", "rank0").release()  # another run
        assert holder.tell("release") == "released"
        Lock(tmp_path / "run", "rank0").release()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None], ids=["kill -9", "kill", "end"])
def test_the_lock_ends_with_the_process(how: signal.Signals | None, tmp_path: Path) -> None:
    with other(tmp_path) as holder:
        with pytest.raises(UserError):
            Lock(tmp_path, "rank")
        if how is None:
            holder.tell("end")
        else:
            holder.process.send_signal(how)
        holder.process.wait(20)
        lock = Lock(tmp_path, "rank")
    assert (tmp_path / ".rank.lock").read_text() == str(os.getpid())
    lock.release()


def test_a_released_lock_leaves_nothing(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "a" / "b", "rank3")
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == [".rank3.lock"]
    lock.release()
    lock.release()
    assert list((tmp_path / "a" / "b").iterdir()) == []
    Lock(tmp_path / "a" / "b", "rank3").release()


def test_a_second_lock_of_the_same_process_is_refused(tmp_path: Path) -> None:
    lock = Lock(tmp_path, "rank")
    with pytest.raises(UserError, match=str(os.getpid())):
        Lock(tmp_path, "rank")
    lock.release()


@FORKS
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_does_not_release_it(tmp_path: Path) -> None:
    """A worker of a data loader ends: the lock is the parent's."""
    lock = Lock(tmp_path, "rank")
    child = os.fork()
    if not child:
        lock.release()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / ".rank.lock").exists()
    with pytest.raises(UserError):
        Lock(tmp_path, "rank")
    lock.release()


@FORKS
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_that_outlives_its_parent_does_not_keep_it(tmp_path: Path) -> None:
    """Released is released, although a worker has inherited the open file."""
    lock = Lock(tmp_path, "rank")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.read(read, 1)
        os._exit(0)
    try:
        lock.release()
        Lock(tmp_path, "rank").release()
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)
        os.close(read), os.close(write)


def test_two_never_hold_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first lets go between the moment the second opens the file and the moment it locks it."""
    first = Lock(tmp_path, "rank")
    take = directory._lock

    def take_late(file: object, *, waits: bool) -> None:
        monkeypatch.setattr(directory, "_lock", take)
        first.release()
        take(file, waits=waits)  # type: ignore[arg-type]

    monkeypatch.setattr(directory, "_lock", take_late)
    second = Lock(tmp_path, "rank")
    with pytest.raises(UserError):
        Lock(tmp_path, "rank")
    second.release()


def test_a_holder_without_a_number(tmp_path: Path) -> None:
    with (tmp_path / ".rank.lock").open("w") as file:
        directory._lock(file)  # type: ignore[arg-type]
        with pytest.raises(UserError) as caught:
            Lock(tmp_path, "rank")
    assert "process another process" not in caught.value.what


def test_a_run_that_cannot_be_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file"):
        Lock(tmp_path / "file", "rank")


def test_a_second_recording_of_one_path_is_refused(tmp_path: Path) -> None:
    with other(tmp_path / "run"), recording(tmp_path / "run", level="L1") as found, pytest.raises(UserError):
        found.start()
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        torch.ones(1) + 1
        found.stop()
    assert list(found.records()) == ["Tensor.__add__.0.forward"]


# -- a step ----------------------------------------------------------------------------------------------


def everything(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def fill(path: Path) -> None:
    """Files of an earlier run are replaced, those that others put beside them are not."""
    tensors = path / "dump_tensor_data"
    tensors.mkdir(parents=True)
    for name in (
        "dump.json",
        "debug.json",
        "stack.json",
        "construct.json",
        "dump_error_info.log",
        "notes.txt",
    ):
        (path / name).write_text("old")
    for name in ("a.pt", "b.0.pt", PACKED_FILE, JOURNAL_FILE, f".{PACKED_FILE}.part", "readme.md"):
        (tensors / name).write_text("old")


def test_what_an_earlier_run_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    here = tmp_path / "step1" / "rank0"
    for place in (
        here,
        tmp_path / "step1" / "rank1",
        tmp_path / "step0" / "rank0",
        tmp_path / "step10" / "rank0",
    ):
        fill(place)
    (tmp_path / "result.csv").write_text("mine")
    before = everything(tmp_path)
    step = StepDirectory(tmp_path, 1, "rank0")
    assert step.path == here and step.tensors == here / "dump_tensor_data"
    kept = {"step1/rank0/notes.txt", "step1/rank0/dump_tensor_data", "step1/rank0/dump_tensor_data/readme.md"}
    gone = {name for name in before if name.startswith("step1/rank0/")} - kept
    assert len(gone) == 10
    assert everything(tmp_path) == before - gone


def test_an_empty_directory_of_tensors_goes_too(tmp_path: Path) -> None:
    tensors = tmp_path / "step0" / "rank" / "dump_tensor_data"
    tensors.mkdir(parents=True)
    (tensors / "a.pt").write_text("old")
    StepDirectory(tmp_path, 0, "rank")
    assert not tensors.exists()


def test_a_new_step(tmp_path: Path) -> None:
    step = StepDirectory(tmp_path / "a" / "run", 12, "rank7")
    assert everything(tmp_path) == set()  # until something is written
    assert step.tensors.parent.is_dir()
    assert everything(tmp_path) == {"a", "a/run", "a/run/step12", "a/run/step12/rank7"}
    assert stat.S_IMODE(step.path.stat().st_mode) & 0o027 == 0


def test_unfinished_files_of_an_earlier_run_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "step0" / "rank"
    path.mkdir(parents=True)
    (path / ".dump.json.4711.part").write_text("{")
    StepDirectory(tmp_path, 0, "rank")
    assert list(path.iterdir()) == []


def test_links_are_removed_and_not_what_they_lead_to(tmp_path: Path) -> None:
    mine = tmp_path / "mine.pt"
    mine.write_text("mine")
    path = tmp_path / "run" / "step0" / "rank"
    (path / "dump_tensor_data").mkdir(parents=True)
    (path / "dump_tensor_data" / "a.pt").symlink_to(mine)
    (path / "dump.json").symlink_to(mine)
    StepDirectory(tmp_path / "run", 0, "rank")
    assert everything(path) == set() and mine.read_text() == "mine"


def test_removing_where_there_is_nothing(tmp_path: Path) -> None:
    remove_tensors(tmp_path / "absent")
    store = PackedStore(tmp_path)
    store.save("a", torch.ones(1))
    store.close()
    remove_tensors(tmp_path)
    assert everything(tmp_path) == set()


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    step = StepDirectory(tmp_path, 0, "rank")
    step.write("dump.json", "a" * 100_000)
    with (step.path / "dump.json").open(encoding="utf-8") as reader:
        step.write("dump.json", "ä")
        assert reader.read() == "a" * 100_000  # who reads keeps what he opened
    assert (step.path / "dump.json").read_text("utf-8") == "ä"
    assert everything(step.path) == {"dump.json"}
    assert stat.S_IMODE((step.path / "dump.json").stat().st_mode) == 0o640


# -- the log ---------------------------------------------------------------------------------------------


def failure(text: str) -> ValueError:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_the_log_of_errors(tmp_path: Path) -> None:
    step = StepDirectory(tmp_path, 0, "rank")
    before = time.time()
    step.log("forward input", "Torch.add.0.forward", failure("no ä"), traceback.format_stack(limit=2))
    text = (step.path / ERROR_FILE).read_text("utf-8")
    head, rest = text.split("\n", 1)
    found = re.fullmatch(
        r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ([+-]\d{4})\] \[ERROR\] forward input failed: "
        rf"name=Torch\.add\.0\.forward, pid={os.getpid()}",
        head,
    )
    assert found
    assert abs(time.mktime(time.strptime(found[1], "%Y-%m-%d %H:%M:%S")) - before) < 120
    assert rest.startswith("Traceback (most recent call last):\n")
    trace, _, stack = rest.partition("Call stack (most recent call last):\n")
    assert trace.endswith("ValueError: no ä\n") and "in failure" in trace
    assert "in test_the_log_of_errors" in stack and "in failure" not in stack
    assert text.endswith("\n\n")


def test_entries_follow_each_other(tmp_path: Path) -> None:
    step = StepDirectory(tmp_path, 0, "rank")
    for number in range(3):
        step.log("backward", f"r{number}", failure(str(number)), [])
    text = (step.path / ERROR_FILE).read_text()
    assert re.findall(r"name=(r\d)", text) == ["r0", "r1", "r2"]
    assert text.count("\n\n[") == 2
    StepDirectory(tmp_path, 0, "rank")
    assert not (step.path / ERROR_FILE).exists()  # the next run begins anew


def test_a_log_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    step = StepDirectory(tmp_path, 0, "rank")
    (step.path / ERROR_FILE).mkdir(parents=True)
    step.log("backward", "x", failure("x"), [])


@pytest.mark.parametrize(
    "name, head, sure",
    [
        ("dump.json", '{"task": "tensor"}', 80),
        ("old_dump.json", '{"task": "tensor"}', 80),
        ("manifest.json", '{"calls": []}', 0),
        ("manifest.json", '{"framework": "mine"}', 100),
        ("dump.json", '{"framework": "yours"}', 0),
    ],
)
def test_what_names_no_framework_is_of_the_oldest_recorder_by_its_name(
    name: str, head: str, sure: int, tmp_path: Path
) -> None:
    """Another format's file is nobody's because its own reader finds it damaged."""
    (tmp_path / name).write_text(head)
    assert confidence(tmp_path / name, "mine", without_name=80) == sure
