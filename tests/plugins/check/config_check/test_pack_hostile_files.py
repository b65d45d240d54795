"""Packs from strangers: nothing is executed or written elsewhere, and each error is one sentence."""

from __future__ import annotations

import json
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from probe_check.config_check import source
from support.runs.config_packs import load_cases, members_of, write_zip

GOOD = members_of(load_cases()["equal"]["bench"])
DEEP = "[" * 100_000 + "]" * 100_000
DAMAGED: dict[str, dict[str, Any]] = {
    "env is a list": {"env": "[]"},
    "env is no JSON": {"env": "{"},
    "env is binary": {"env": bytes(range(256))},
    "env is deep": {"env": '{"a": ' + DEEP + "}"},
    "weights are numbers": {"weights/step0/rank0/weight.json": '{"a": 1}'},
    "weights are texts": {"weights/step0/rank0/weight.json": '{"a": {"max": "1", "min": 1, "mean": 1, "norm": 1}}'},
    "weights are too large": {
        "weights/step0/rank0/weight.json": '{"a": {"max": 1' + "0" * 400 + ', "min": 1, "mean": 1, "norm": 1}}'
    },
    "weights have many digits": {"weights/step0/rank0/weight.json": '{"a": ' + "1" * 10_000 + "}"},
    "inputs are deep": {"dataset/step0/rank0/dataset.json": '{"a": ' * 60 + "1" + "}" * 60},
    "inputs are a list": {"dataset/step0/rank0/dataset.json": "[1]"},
    "random calls are numbers": {"random/rank0.json": '{"torch.rand": 1}'},
    "stacks are numbers": {"random/rank0.json": '{"torch.rand": [{"stack": [1], "count": 1}]}'},
    "counts are texts": {"random/rank0.json": '{"torch.rand": [{"stack": ["a"], "count": "1"}]}'},
    "too many stacks": {"random/rank0.json": json.dumps({"torch.rand": [{"stack": [], "count": 1}] * 5001})},
    "hyper-parameters are a text": {"hyperparameters/hyperparameters_static.json": '"a"'},
}  # fmt: skip


def one_sentence(error: str) -> bool:
    return error.startswith("error: ") and "Traceback" not in error and len(error.splitlines()) == 2


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_members_are_one_sentence(name: str, tmp_path: Path, probe: Any) -> None:
    good = write_zip(tmp_path / "good.zip", GOOD)
    bad = write_zip(tmp_path / "bad.zip", {**GOOD, **DAMAGED[name]})
    for pair in ((good, bad), (bad, good)):
        assert probe("config-check", "-c", *pair, "-o", tmp_path / "out") == 2
        assert one_sentence(probe.err), probe.err
    assert not (tmp_path / "out" / "result.xlsx").exists()


def test_names_that_leave_the_directory_are_never_written(tmp_path: Path, probe: Any) -> None:
    names = (
        "../evil",
        "/tmp/evil-config",
        "bench/../../evil",
        "weights/step0/../../../evil.json",
        "env/evil",
        "..\\evil",
    )
    bad = write_zip(tmp_path / "in" / "bad.zip", {**GOOD, **dict.fromkeys(names, "evil")})
    assert probe("config-check", "-c", bad, bad, "-o", tmp_path / "in" / "out") == 0, probe.err
    assert not [path for path in tmp_path.rglob("*") if "evil" in path.name]
    assert {path.name for path in (tmp_path / "in" / "out").iterdir()} == {
        "bench",
        "cmp",
        "result.json",
        "result.xlsx",
    }


def test_a_link_in_a_pack_is_a_plain_file(tmp_path: Path, probe: Any) -> None:
    path = write_zip(tmp_path / "bad.zip", {name: text for name, text in GOOD.items() if name != "pip"})
    with zipfile.ZipFile(path, "a") as file:
        info = zipfile.ZipInfo("pip")
        info.external_attr = 0o120777 << 16
        file.writestr(info, "/etc/passwd")
    assert probe("config-check", "-c", path, path, "-o", tmp_path / "out") == 0, probe.err
    assert not (tmp_path / "out" / "bench" / "pip").is_symlink()


def test_a_bomb_is_refused_before_it_fills_the_memory(
    tmp_path: Path, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MAX_MEMBER_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("env", b" " * (8 << 20))
    assert probe("config-check", "-c", tmp_path / "bomb.zip", tmp_path / "bomb.zip", "-o", tmp_path / "out") == 2
    assert "larger than" in probe.err and one_sentence(probe.err)


def test_many_large_members_are_refused(tmp_path: Path, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_TOTAL_BYTES", 100)
    path = write_zip(tmp_path / "large.zip", GOOD)
    assert probe("config-check", "-c", path, path, "-o", tmp_path / "out") == 2
    assert one_sentence(probe.err)


def test_many_members_are_refused(tmp_path: Path, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_MEMBERS", 3)
    path = write_zip(tmp_path / "many.zip", GOOD)
    assert probe("config-check", "-c", path, path, "-o", tmp_path / "out") == 2
    assert one_sentence(probe.err)


def test_cut_and_changed_zip_files_never_end_in_a_traceback(tmp_path: Path, probe: Any) -> None:
    good = write_zip(tmp_path / "good.zip", GOOD)
    data, chance = good.read_bytes(), random.Random(0)
    for number in range(60):
        changed = bytearray(data[: chance.randrange(len(data))] if number % 3 == 0 else data)
        for _ in range(chance.randrange(1, 6)):
            if changed:
                changed[chance.randrange(len(changed))] = chance.randrange(256)
        (tmp_path / "bad.zip").write_bytes(changed)
        code = probe("config-check", "-c", good, tmp_path / "bad.zip", "-o", tmp_path / "out")
        assert code == 0 or (code == 2 and one_sentence(probe.err)), (number, probe.err)


def test_encrypted_members_are_one_sentence(tmp_path: Path, probe: Any) -> None:
    path = write_zip(tmp_path / "bad.zip", GOOD)
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.find(mark)
        while place >= 0:
            data[place + offset] |= 1
            place = data.find(mark, place + 4)
    path.write_bytes(data)
    assert probe("config-check", "-c", path, path, "-o", tmp_path / "out") == 2
    assert one_sentence(probe.err), probe.err


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no zip file"),
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to(path.parent / "nowhere"),
        lambda path: write_zip(path, {"other": "a"}),
    ],
    ids=["directory", "empty", "text", "pipe", "dangling link", "other members"],
)
def test_what_is_no_pack_is_one_sentence(make: Callable[[Path], Any], tmp_path: Path, probe: Any) -> None:
    good = write_zip(tmp_path / "good.zip", GOOD)
    make(tmp_path / "bad.zip")
    assert probe("config-check", "-c", tmp_path / "bad.zip", good, "-o", tmp_path / "out") == 2
    assert one_sentence(probe.err), probe.err


def test_formulas_and_control_characters_are_neutralised(tmp_path: Path, probe: Any) -> None:
    from support.runs.config_packs import cells_of

    sides = [
        write_zip(tmp_path / f"{name}.zip", members_of({"static": {"lr": f"=cmd|'/c calc'!A{name}\x1b[31m"}}))
        for name in "ab"
    ]
    assert probe("config-check", "-c", *sides, "-o", tmp_path / "out") == 0, probe.err
    assert "\x1b" not in probe.out + probe.err
    assert cells_of(tmp_path / "out" / "result.xlsx")["hyperparameters"][1][3].startswith("'=cmd")
