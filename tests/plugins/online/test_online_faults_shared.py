"""Faults of a shared directory: listed late, read-only for a while, full, and with files that do harm."""

from __future__ import annotations

import errno
import os
import pickle
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from probe_online import watch
from probe_online.settings import ReceptionPlace
from probe_recording.sending import shared, transport
from support.runs.faulty import Truth, all_is_known, check, trained, until
from support.runs.inprocess import receiving

LAG = 4
"""Looks after which a file is listed, or no longer listed."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks and attempts follow each other at once."""
    monkeypatch.setattr(transport, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(transport, "MAX_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(shared, "FULL_DIRECTORY_POLL_SECONDS", 0.02)
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.03)


def lagging(listdir: Callable[[Any], list[str]]) -> Callable[[Any], list[str]]:
    """A listing that shows what was there some looks ago, in another order each time."""
    looks: list[list[str]] = []

    def late(path: Any) -> list[str]:
        looks.append(listdir(path))
        names = looks[max(0, len(looks) - 1 - LAG)] if len(looks) > LAG else []
        return names[len(looks) % 7 :] + names[: len(looks) % 7]

    return late


def test_a_directory_that_is_listed_late(truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "shared"
    place.mkdir()
    for module in (watch, shared):
        changed = types.SimpleNamespace(**{**vars(os), "listdir": lagging(os.listdir)})
        monkeypatch.setattr(module, "os", changed)
    with receiving(tmp_path / "out", place=ReceptionPlace(directory=place)) as end:
        outcome, summary = trained(tmp_path / "run", nfs_path=str(place), online_disk="1MiB")
    told = check(truth, outcome, summary, tmp_path / "out")
    assert told["judged"] == truth.made and all_is_known(told), told
    assert end.verdict() == truth.sentence()
    assert not [path.name for path in place.glob("*.r0.0*.prb*")] and not list(place.glob("*.work"))


def test_a_directory_that_is_read_only_for_a_while(
    truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    place = tmp_path / "shared"
    place.mkdir()
    forbidden = {"sender": False, "receiver": False}
    refused: set[str] = set()
    create, rename = shared.create_file, Path.rename

    def refuse(who: str) -> None:
        if forbidden[who]:
            refused.add(who)
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def creating(path: Path) -> int:
        refuse("sender")
        return create(path)

    def renaming(self: Path, target: Any) -> Path:
        if self.parent == place:
            refuse("receiver")
        return rename(self, target)

    monkeypatch.setattr(shared, "create_file", creating)
    monkeypatch.setattr(Path, "rename", renaming)

    def change(step: int) -> None:
        if step == 0:
            until(lambda: list((tmp_path / "out").glob("*.csv")))
            forbidden.update(sender=True, receiver=True)
            until(lambda: "Read-only" in "".join(end.heard) or not list(place.glob("*.r0.0*.prb*")))
        if step == 1:
            until(lambda: "sender" in refused)
            forbidden["sender"] = False
            until(lambda: "Read-only" in "".join(end.heard))
            forbidden["receiver"] = False

    with receiving(tmp_path / "out", place=ReceptionPlace(directory=place)) as end:
        outcome, summary = trained(tmp_path / "run", change, nfs_path=str(place))
    told = check(truth, outcome, summary, tmp_path / "out")
    assert told["judged"] == truth.made and all_is_known(told), told
    said = capfd.readouterr().err
    assert said.count("Read-only file system. The training goes on") == 1 and said.count("again.") == 1
    assert sum("cannot be claimed: Read-only file system" in heard for heard in end.heard) == 1
    assert "INCOMPLETE" not in end.verdict()


class Trap:
    """A pickle that leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def test_files_that_do_harm_beside_those_of_a_training(truth: Truth, tmp_path: Path) -> None:
    place, trap = tmp_path / "shared", tmp_path / "trapped"
    place.mkdir()
    poison = pickle.dumps(Trap(trap))
    session = "5e" * 16

    def drop(step: int) -> None:
        for name in ("hello", "tally", "end", f"{step:010d}"):
            (place / f"{session}.r{step}.{name}.prb").write_bytes(poison)
        (place / f"x{step}.prb").write_bytes(poison)
        (place / f"{session}.r0.{step:010d}.prb.pt").write_bytes(poison)
        os.mkfifo(place / f"{session}.r9.{step:010d}.prb")
        (place / f"{session}.r8.{step:010d}.prb").mkdir()

    with receiving(tmp_path / "out", place=ReceptionPlace(directory=place)) as end:
        outcome, summary = trained(tmp_path / "run", drop, nfs_path=str(place))
    told = check(truth, outcome, summary, tmp_path / "out")
    assert told["judged"] == truth.made and all_is_known(told), told
    assert not trap.exists()
    aside = {path.name for path in (place / "set_aside").iterdir()}
    assert {"x0.prb", "x0.prb.reason.txt", f"{session}.r0.hello.prb"} <= aside
    assert (place / f"{session}.r0.{0:010d}.prb.pt").read_bytes() == poison  # no file of ours
    assert "INCOMPLETE" not in end.verdict()
