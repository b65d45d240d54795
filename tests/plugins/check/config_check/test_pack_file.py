"""Packs to which several processes add members."""

from __future__ import annotations

import multiprocessing
import os
import time
import zipfile
from pathlib import Path

import pytest
from probe_check.config_check import pack_file
from probe_check.config_check.pack_file import PackFile

from probe_core.errors import UserError


def add(path: Path, rank: int) -> None:
    pack = PackFile(path)
    for step in range(5):
        pack.add({f"weights/step{step}/rank{rank}/weight.json": "{}" * 1000})


def test_several_processes_add_members_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "new" / "pack.zip"
    workers = [multiprocessing.get_context("fork").Process(target=add, args=(path, rank)) for rank in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    with zipfile.ZipFile(path) as pack:
        assert pack.testzip() is None
        assert len(set(pack.namelist())) == len(pack.namelist()) == 20


def test_a_pack_of_an_earlier_program_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pack.zip"
    PackFile(path).add({"env": "{}", "old": "a"})
    os.utime(path, (time.time() - 100,) * 2)
    monkeypatch.setattr(pack_file, "_START_TIME", time.time() - 10)
    monkeypatch.setattr(pack_file, "_BEGUN_PACKS", set())
    PackFile(path).add({"env": "{}"})
    with zipfile.ZipFile(path) as pack:
        assert pack.namelist() == ["env"]


def test_a_process_that_begins_later_keeps_the_members_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pack.zip"
    monkeypatch.setattr(pack_file, "_START_TIME", time.time() - 100)
    PackFile(path).add({"weights/step0/rank1/weight.json": "{}"})
    monkeypatch.setattr(pack_file, "_BEGUN_PACKS", set())
    PackFile(path).add({"env": "{}"})
    with zipfile.ZipFile(path) as pack:
        assert pack.namelist() == ["weights/step0/rank1/weight.json", "env"]


@pytest.mark.parametrize("content", [b"no zip file" * 10, b"PK"])
def test_a_damaged_pack_of_the_same_program_is_one_sentence(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_file, "_START_TIME", 0.0)
    path = tmp_path / "pack.zip"
    path.write_bytes(content)
    PackFile(path).add({"env": "{}"})  # zipfile takes what is before a zip file for a program that unpacks it
    with zipfile.ZipFile(path) as pack:
        assert pack.namelist() == ["env"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    (tmp_path / "pack.zip").symlink_to(tmp_path / "target")
    with pytest.raises(UserError):
        PackFile(tmp_path / "pack.zip").add({"env": "{}"})
    assert (tmp_path / "target").read_text() == "precious"
