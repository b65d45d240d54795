"""``probe convert``: files in the shape of the program, a table of them, sentences on what is damaged."""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_legacy.acl import convert
from support.probe import Probe
from support.runs import acl_dumps as acl
from support.runs.acl_dumps import acl_dumps  # noqa: F401


def files(out: Path) -> dict[str, Path]:
    """Return the files below a directory by their names, without the table."""
    return {path.name: path for path in out.rglob("*") if path.is_file() and path.suffix != ".csv"}


def table(out: Path) -> list[dict[str, str]]:
    (path,) = out.glob("convert_*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("layout", ["device", "host"])
def test_the_dumps_of_another_encoder(acl_dumps: Path, probe: Probe, tmp_path: Path, layout: str) -> None:
    """All files equal the expected ones to the bit; of a layout in blocks, the expected one is that of the device."""
    assert probe("convert", acl_dumps / "output", "-o", tmp_path / "o", "--layout", layout) == 0, probe.err
    found = files(tmp_path / "o")
    expected = files(acl_dumps / "expected")
    assert len(expected) == 15 and set(expected) <= set(found)
    blocked = "TransData.trans_TransData_3.37.0.1675157077169473"
    for name, path in expected.items():
        if path.suffix == ".json":
            assert json.loads(found[name].read_text()) == json.loads(path.read_text())
            continue
        if layout == "host" and name == f"{blocked}.output.0.npy":
            path = expected[f"{blocked}.input.0.npy"]
        assert found[name].read_bytes() == path.read_bytes(), name
    assert "wrote 17 files of 8 dumps" in probe.out
    assert found[f"{blocked}.l1buffer.0.bin"].read_bytes() == b"\x01\x02\x03\x04"
    assert found["Add.Add.45.0.1675157077183551.input.0.npy"].parent == tmp_path / "o" / "20230131172437" / "1" / "0"


def test_reports_are_explained_and_name_the_operator(acl_dumps: Path, probe: Probe, tmp_path: Path) -> None:
    assert probe("convert", acl_dumps / "output", "-o", tmp_path) == 0
    lines = [line for line in probe.out.splitlines() if line.startswith("Opdebug.")]
    assert len(lines) == 2 and all("Task 45 is Add.Add.45.0.1675157077183551." in line for line in lines)
    assert all("AI Core reports an overflow in task 45 of stream 514 (model 1" in line for line in lines)


def test_the_table(acl_dumps: Path, probe: Probe, tmp_path: Path) -> None:
    assert probe("convert", acl_dumps / "output", "-o", tmp_path) == 0
    rows = {row["File"]: row for row in table(tmp_path)}
    row = rows["TransData.trans_TransData_3.37.0.1675157077169473.output.0.npy"]
    assert {key: row[key] for key in ("Op type", "Op name", "Task", "Stream", "Section", "Data type")} == {
        "Op type": "TransData", "Op name": "trans_TransData_3", "Task": "37", "Stream": "0", "Section": "output.0",
        "Data type": "float16",
    }  # fmt: skip
    assert (row["Device layout"], row["Device shape"], row["Program shape"]) == (
        "NC1HWC0", "[1, 1, 2, 2, 16]", "[1, 3, 2, 2]",
    )  # fmt: skip
    assert (row["Written dtype"], row["Written layout"], row["Written shape"], row["Message"]) == (
        "float16", "NCHW", "[1, 3, 2, 2]", "",
    )  # fmt: skip
    assert set(rows) == set(files(tmp_path))


def test_one_file_and_wanted_layout(probe: Probe, tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.float32).reshape(1, 3, 2, 4)
    device = acl.five_dimensions(values, 16)
    path = acl.write(
        tmp_path / acl.NAME, acl.dump(acl.tensor("input", device.tobytes(), 1, 3, device.shape, values.shape))
    )
    assert probe("convert", path, "-o", tmp_path / "o", "--layout", "NHWC") == 0, probe.err
    assert np.array_equal(np.load(tmp_path / "o" / f"{acl.NAME}.input.0.npy"), values.transpose(0, 2, 3, 1))


def test_nothing_is_replaced_without_being_asked_to(acl_dumps: Path, probe: Probe, tmp_path: Path) -> None:
    assert probe("convert", acl_dumps / "output", "-o", tmp_path) == 0
    one = files(tmp_path)["Add.Add.45.0.1675157077183551.output.0.npy"]
    one.write_bytes(b"mine")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert probe("convert", acl_dumps / "output", "-o", tmp_path) == 2
    assert "exists, and nothing is replaced without being asked to." in probe.err and "--overwrite" in probe.err
    assert one.read_bytes() == b"mine" and sorted(path.name for path in tmp_path.rglob("*")) == before
    assert probe("convert", acl_dumps / "output", "-o", tmp_path, "--overwrite") == 0
    assert np.load(one).shape == (2, 3)


def test_a_file_is_complete_or_not_there(
    acl_dumps: Path,
    probe: Probe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An interruption in the middle of a file leaves earlier files, and no part of this one."""
    write, calls = np.lib.format.write_array, 0

    def interrupted(file: Any, array: Any, **settings: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            file.write(b"a part")
            raise KeyboardInterrupt
        write(file, array, **settings)

    monkeypatch.setattr(convert.np.lib.format, "write_array", interrupted)
    assert probe("convert", acl_dumps / "output", "-o", tmp_path) == 130
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".npy", ".npy"]


def test_damaged_dumps_are_named_and_the_others_converted(probe: Probe, tmp_path: Path) -> None:
    sound = acl.dump(acl.tensor("input", b"abcd", 3, 2, (4,)), acl.tensor("output", b"xy", 3, 2, (2,)))
    acl.write(tmp_path / "d" / "Add.Good.1.0.11", sound)
    acl.write(tmp_path / "d" / "Add.Cut.2.0.12", sound[:-1])
    acl.write(tmp_path / "d" / "Add.Bad.3.0.13", b"no dump at all")
    acl.write(tmp_path / "d" / "Add.Long.4.0.14", sound + b"!")
    acl.write(
        tmp_path / "d" / "Opdebug.Node_OpDebug.5.0.15",
        acl.dump(acl.tensor("output", b"?", 4, 2, (1,)), name=b"x"),
    )
    (tmp_path / "d" / "notes.txt").write_text("not a dump")
    (tmp_path / "d" / "notes").write_text("not a dump either")
    assert probe("convert", tmp_path / "d", "-o", tmp_path / "o") == 3
    assert "Traceback" not in probe.err
    warnings = [line.removeprefix("warning: ") for line in probe.err.splitlines()]
    assert len(warnings) == 5
    for name, text in {
        "Add.Bad": "promises a header of",
        "Add.Cut": "ends before the 2 bytes of output 0",
        "Add.Long": "has 1 bytes more than its header promises.",
        "Opdebug.": "holds a report of 1 bytes",
    }.items():
        assert any(name in line and text in line for line in warnings), (name, warnings)
    assert sorted(files(tmp_path / "o")) == [
        "Add.Cut.2.0.12.input.0.npy", "Add.Good.1.0.11.input.0.npy", "Add.Good.1.0.11.output.0.npy",
        "Add.Long.4.0.14.input.0.npy", "Add.Long.4.0.14.output.0.npy",
    ]  # fmt: skip
    messages = {row["Section"]: row for row in table(tmp_path / "o") if "Add.Cut" in row["Source"]}
    assert messages["output.0"]["File"] == "" and "ends before" in messages["output.0"]["Message"]


def test_more_bytes_than_promised_lose_nothing(probe: Probe, tmp_path: Path) -> None:
    path = acl.write(tmp_path / acl.NAME, acl.dump(acl.tensor("input", b"abcd", 3, 2, (4,))) + b"new")
    assert probe("convert", path, "-o", tmp_path / "o") == 0
    assert "has 3 bytes more than its header promises." in probe.err
    assert np.load(tmp_path / "o" / f"{acl.NAME}.input.0.npy").tobytes() == b"abcd"


def test_many_problems_are_counted(probe: Probe, tmp_path: Path) -> None:
    acl.write(tmp_path / "d" / "Add.Good.1.0.11", acl.dump(acl.tensor("input", b"", 3, 2, (0,))))
    for number in range(30):
        acl.write(tmp_path / "d" / f"Add.Bad.{number}.0.13", b"")
    assert probe("convert", tmp_path / "d", "-o", tmp_path / "o") == 3
    assert probe.err.count("warning: ") == 21 and "10 more problems are not shown" in probe.err


def test_what_is_kept_as_the_device_had_it_is_said(probe: Probe, tmp_path: Path) -> None:
    content = acl.dump(acl.tensor("input", b"1234", 3, 28, (4,), (2, 2)), acl.tensor("input", b"1234", 99, 2, (4,)))
    path = acl.write(tmp_path / acl.NAME, content)
    assert probe("convert", path, "-o", tmp_path / "o") == 0
    assert "not in the wanted shape: 2 arrays; the column Message says why" in probe.out
    assert [row["Message"] for row in table(tmp_path / "o")] == [
        "the shape [4] in FRACTAL_ZZ does not agree with [2, 2]", "its data type 99 is not known",
    ]  # fmt: skip


def test_long_names_are_looked_up(probe: Probe, tmp_path: Path) -> None:
    long = f"Add.{'a' * 300}.45.0.77"
    acl.write(tmp_path / "d" / "12345", acl.dump(acl.tensor("input", b"1234", 3, 2, (4,))))
    (tmp_path / "d" / "mapping.csv").write_text(f"12345,{long}\n")
    assert probe("convert", tmp_path / "d", "-o", tmp_path / "o") == 0, probe.err
    (row,) = table(tmp_path / "o")
    assert (row["File"], row["Op name"], row["Time"]) == ("12345.input.0.npy", "a" * 300, "77")


def test_names_that_leave_no_room_for_a_suffix(probe: Probe, tmp_path: Path) -> None:
    name = f"Add.{'a' * 240}.1.0.7"
    acl.write(tmp_path / "d" / name, acl.dump(acl.tensor("input", b"1234", 3, 2, (4,))))
    assert probe("convert", tmp_path / "d", "-o", tmp_path / "o") == 3
    assert "has a name that is too long" in probe.err and not files(tmp_path / "o")


@pytest.mark.parametrize("name", ["none", "empty"])
def test_directories_without_dumps(probe: Probe, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "dump.json").write_text("{}")
    assert probe("convert", tmp_path / name, "-o", tmp_path / "o") == 2
    assert "There is no " in probe.err and not (tmp_path / "o").exists()


def test_no_dump_that_can_be_read(probe: Probe, tmp_path: Path) -> None:
    path = acl.write(tmp_path / acl.NAME, b"abc")
    assert probe("convert", path, "-o", tmp_path / "o") == 2
    assert f"the first problem: {path} has no header." in " ".join(probe.err.split())
    assert not list((tmp_path / "o").iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_directories_that_cannot_be_read(probe: Probe, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0)
    assert probe("convert", tmp_path / "d", "-o", tmp_path / "o") == 2


def test_formulas_and_control_characters_in_names(probe: Probe, tmp_path: Path) -> None:
    acl.write(tmp_path / "d" / "=1+1.\x1b[31mred.1.0.7", acl.dump(acl.tensor("input", b"1234", 3, 2, (5,))))
    assert probe("convert", tmp_path / "d", "-o", tmp_path / "o") == 0, probe.err
    (row,) = table(tmp_path / "o")
    assert row["Op type"] == "'=1+1" and "\x1b" not in str(row) and "\x1b" not in probe.out + probe.err


def test_links_are_not_followed_out_of_the_directory(acl_dumps: Path, probe: Probe, tmp_path: Path) -> None:
    shutil.copytree(acl_dumps / "output", tmp_path / "d")
    (tmp_path / "d" / "loop").symlink_to(tmp_path / "d")
    assert probe("convert", tmp_path / "d", "-o", tmp_path / "o") == 0
    assert "of 8 dumps" in probe.out
