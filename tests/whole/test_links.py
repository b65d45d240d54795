"""Directories that others may write to: what they plant there is neither followed nor written through."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_precheck.results import RESULT_NAME, CheckFiles
from probe_precheck.tables import Tables
from probe_pytorch.debugger import PrecisionDebugger
from probe_pytorch.storage.tensors import FileStore, PackedStore
from probe_recording.run_directory.directory import Lock, StepDirectory
from support.runs.recorded import forward, tensor, write_run
from support.runs.recording import Recording

from probe_core.errors import UserError
from probe_core.files.atomic import AtomicFile, replace_file, write_text

CALLS = {"Torch.exp.0.forward": forward(tensor(), output=[tensor()])}


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    PrecisionDebugger._instance = None
    yield
    if PrecisionDebugger._instance is not None:
        PrecisionDebugger._instance._recorder.finish()
    PrecisionDebugger._instance = None


class Victim:
    """Files that nothing may touch."""

    def __init__(self, home: Path) -> None:
        self.file, self.directory = home / "victim", home / "victims"
        (self.directory / "rank/dump_tensor_data").mkdir(parents=True)
        self.file.write_text("mine")
        for name in ("a.pt", "rank/dump.json", "rank/dump_tensor_data/b.pt", "tensors.safetensors"):
            (self.directory / name).write_text("mine")
        for path in self._files():
            path.chmod(0o604)
        self._before = self._state()

    def _files(self) -> list[Path]:
        return [self.file, *(path for path in sorted(self.directory.rglob("*")) if path.is_file())]

    def _state(self) -> list[tuple[Path, str, int, int]]:
        return [
            (path, path.read_text(), stat.S_IMODE(path.lstat().st_mode), path.lstat().st_mtime_ns)
            for path in self._files()
        ]

    def check(self) -> None:
        assert self._state() == self._before


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    found = Victim(tmp_path)
    yield found
    found.check()


def record(root: Path, **fields: Any) -> Recording:
    found = Recording(root, task="tensor", **fields)
    found.start()
    torch.ones(3).exp()
    found.stop()
    found.finish()
    return found


# -- recording -------------------------------------------------------------------------------------


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_lock_that_leads_elsewhere(link: Any, victim: Victim, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    link(victim.file, tmp_path / "run/.rank.lock")
    with pytest.raises(UserError, match=r"\.rank\.lock.* link"):
        Lock(tmp_path / "run", "rank")
    with pytest.raises(UserError, match=r"\.rank\.lock"):
        record(tmp_path / "run")


def test_a_lock_that_is_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".rank.lock")
    with pytest.raises(UserError, match="not a regular file"):
        Lock(tmp_path, "rank")


@pytest.mark.parametrize("name", ["step0", "step0/rank", "step0/rank/dump_tensor_data"])
@pytest.mark.parametrize("store", ["packed", "files"])
def test_a_directory_of_the_recorders_that_leads_elsewhere(
    name: str, store: str, victim: Victim, tmp_path: Path
) -> None:
    place = tmp_path / "run" / name
    place.parent.mkdir(parents=True)
    place.symlink_to(victim.directory / "rank" if name.endswith("rank") else victim.directory)
    with pytest.raises(UserError, match="is a link"):
        record(tmp_path / "run", store=store)
    assert place.is_symlink()


def test_a_directory_that_becomes_a_link_between_start_and_the_first_write(victim: Victim, tmp_path: Path) -> None:
    step = StepDirectory(tmp_path / "run", 0, "rank")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/step0").symlink_to(victim.directory)
    with pytest.raises(UserError, match="is a link"):
        step.write("dump.json", "{}")
    step.log("recording", "x", ValueError("oh"), [])


@pytest.mark.parametrize("name", ["dump.json", "stack.json", "construct.json", "dump_error_info.log"])
def test_a_file_of_the_recorders_that_leads_elsewhere(name: str, victim: Victim, tmp_path: Path) -> None:
    path = tmp_path / "run/step0/rank" / name
    path.parent.mkdir(parents=True)
    step = StepDirectory(tmp_path / "run", 0, "rank")
    path.symlink_to(victim.file)
    step.log("recording", "x", ValueError("oh"), [])
    if name != "dump_error_info.log":
        step.write(name, "{}")
        assert not path.is_symlink() and path.read_text() == "{}"


def test_tensors_at_names_that_lead_elsewhere(victim: Victim, tmp_path: Path) -> None:
    for name in (".tensor.part", "t.pt", "tensors.safetensors", "tensors.index.json",
                 ".tensors.safetensors.part"):  # fmt: skip
        (tmp_path / name).symlink_to(victim.file)
    files = FileStore(tmp_path)
    assert files.save("t", torch.ones(2)) == "t.pt"
    packed = PackedStore(tmp_path, room=64)  # which is too little, so that the file is copied
    packed.save("a", torch.ones(2))
    packed.close()
    assert torch.equal(torch.load(tmp_path / "t.pt"), torch.ones(2))
    assert [path.name for path in tmp_path.iterdir() if path.is_symlink()] == []


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "big")
    record(tmp_path / "run")
    record(tmp_path / "run")
    assert (tmp_path / "big/step0/rank/dump.json").is_file()


# -- files under temporary names -------------------------------------------------------------------


def test_a_temporary_file_is_private_at_once(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file = AtomicFile(tmp_path / "a.csv")
        assert stat.S_IMODE(file.temporary.stat().st_mode) == 0o640
        file.discard()
        with replace_file(tmp_path / "b") as written:
            (part,) = tmp_path.glob(".*.part")
            assert stat.S_IMODE(part.stat().st_mode) == 0o640
            written.write(b"x")
        packed = PackedStore(tmp_path / "data")
        assert stat.S_IMODE((tmp_path / "data/tensors.safetensors").stat().st_mode) == 0o640
        packed.close()
        FileStore(tmp_path / "data").save("a", torch.ones(1))
    finally:
        os.umask(before)
    for path in (tmp_path / "b", tmp_path / "data/a.pt"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_temporary_name_cannot_be_guessed_and_fits(tmp_path: Path) -> None:
    names = {AtomicFile(tmp_path / "a").temporary.name for _ in range(3)}
    assert len(names) == 3
    long = tmp_path / ("é" * 120)
    write_text(long, "x")
    assert long.read_text() == "x"


def test_a_tensor_file_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    for place in ("a", "b"):
        FileStore(tmp_path / place).save("t", torch.arange(5))
    assert (tmp_path / "a/t.pt").read_bytes() == (tmp_path / "b/t.pt").read_bytes()


# -- results ---------------------------------------------------------------------------------------


def test_compare_into_a_directory_of_links(victim: Victim, tmp_path: Path, probe: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("probe_core.library.get_time_stamp", lambda: "20260101000000")
    out = tmp_path / "out"
    out.mkdir()
    for rank in (0, 1):
        for side in ("t", "g"):
            write_run(tmp_path / side / f"rank{rank}", CALLS)
        for name in (f"compare_result_rank{rank}", f"advisor_rank{rank}", f"debug_advisor_rank{rank}"):
            for suffix in ("csv", "txt"):
                (out / f"{name}_20260101000000.{suffix}").symlink_to(victim.file)
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", out, "--format", "csv") == 0, probe.err
    assert "Name" in (out / "compare_result_rank1_20260101000001.csv").read_text(), "the first second is taken"


def test_an_answer_at_a_name_that_leads_elsewhere(victim: Victim, tmp_path: Path, probe: Any, monkeypatch: Any) -> None:
    """A new comparison takes another name; one that is resumed replaces the link itself."""
    monkeypatch.setattr("probe_core.library.get_time_stamp", lambda: "20260101000000")
    for rank in (0, 1):
        write_run(tmp_path / f"t/rank{rank}", CALLS)
    out = tmp_path / "out"
    out.mkdir()
    planted, own = (out / f"answer_2026010100000{second}.json" for second in (0, 1))
    planted.symlink_to(victim.file)
    record = tmp_path / "t/rank1/dump.json"
    whole = record.read_text()
    record.write_text("{")  # rank 1 fails, so that there is something to resume
    for target in (victim.file, victim.directory, tmp_path / "absent"):
        resumed = ["--resume"] if own.is_symlink() else []
        assert probe("compare", tmp_path / "t", tmp_path / "t", "-o", out, *resumed) == 2
        assert "1 of 2 comparisons finished" in probe.out
        assert planted.is_symlink() and not own.is_symlink() and '"CANNOT TELL"' in own.read_text()
        own.unlink()
        own.symlink_to(target)
    record.write_text(whole)
    assert probe("compare", tmp_path / "t", tmp_path / "t", "-o", out, "--resume") == 0, probe.err
    assert '"AGREE"' in own.read_text() and not own.is_symlink() and not (tmp_path / "absent").exists()


def test_a_step_of_the_output_that_leads_elsewhere(victim: Victim, tmp_path: Path, probe: Any) -> None:
    for step in (0, 1):
        write_run(tmp_path / f"t/step{step}/rank", CALLS)
    (tmp_path / "big").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "big")  # the directory that was given may be a link
    assert probe("compare", tmp_path / "t", tmp_path / "t", "-o", tmp_path / "out") == 0, probe.err
    (tmp_path / "out2").mkdir()
    (tmp_path / "out2/step1").symlink_to(victim.directory)
    before = sorted(victim.directory.iterdir())
    assert probe("compare", tmp_path / "t", tmp_path / "t", "-o", tmp_path / "out2") == 2
    assert f'"{tmp_path}/out2/step1" is a link' in probe.err
    assert sorted(victim.directory.iterdir()) == before


def test_a_journal_that_leads_elsewhere(victim: Victim, tmp_path: Path, probe: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("probe_core.library.get_time_stamp", lambda: "20260101000000")
    out = tmp_path / "out"
    out.mkdir()
    for rank in (0, 1):
        for side in ("t", "g"):
            write_run(tmp_path / side / f"rank{rank}", CALLS)
    journal = out / "compare_progress_20260101000000.jsonl"
    for target in (victim.file, tmp_path / "absent"):
        journal.unlink(missing_ok=True)
        journal.symlink_to(target)
        for more in ([], ["--resume"]):
            assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", out, *more) == 0, probe.err
            assert "0 of them in an earlier run" not in probe.out and journal.is_symlink()
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("name", ["accuracy_checking_result", "accuracy_checking_details"])
def test_results_of_the_precheck_that_lead_elsewhere(name: str, victim: Victim, tmp_path: Path) -> None:
    out, columns = tmp_path / "out", Tables().details
    stamp = "20260101000000"
    out.mkdir()
    (out / f"{name}_{stamp}.csv").symlink_to(victim.file)
    files = CheckFiles.create(out, stamp, columns, "en", 6)
    assert files.time_stamp == "20260101000001", "another time, as where a file is there"
    files.close()
    link = out / f"{name}_20260101000001.csv"
    link.rename(tmp_path / "away.csv")
    link.symlink_to(tmp_path / "away.csv")
    with pytest.raises(UserError, match="is a link"):
        CheckFiles.resume(out / RESULT_NAME.format("20260101000001"), columns, 6)


def test_error_data_at_names_that_lead_elsewhere(victim: Victim, tmp_path: Path) -> None:
    from probe_pytorch.precheck.error_data import _save_all

    (tmp_path / "x.pt").symlink_to(victim.file)
    _save_all(torch.ones(2), tmp_path, "x")
    assert torch.equal(torch.load(tmp_path / "x.pt"), torch.ones(2))
