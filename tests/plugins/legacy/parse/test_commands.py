"""Sub-commands of ``probe parse``: what the old tool printed, on old dumps and on those of today."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.probe import Probe
from support.runs import acl_dumps as acl
from support.runs.acl_dumps import acl_dumps  # noqa: F401
from support.runs.older_dumps import dumps  # noqa: F401
from support.runs.packed import write_packed
from support.runs.recorded import write_tensor_run

RANK = "ptdbg23_conv_api_stack/{0}/ptdbg_dump_v2.3/rank0/api_stack_{0}_dump"
BOX = re.compile(r"[╭╮╰╯│┃┏┓┗┛┡┩└┘├┤┬┴┳╇━─┴]+")


@pytest.fixture
def old(dumps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the dumps of the recorded session, in which commands may write."""
    shutil.copytree(dumps / "ptdbg23_conv_api_stack", tmp_path / "ptdbg23_conv_api_stack")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def session(dumps: Path) -> tuple[list[list[str]], str]:
    """Return the commands of the session that the old tool ran, and what it printed, without its boxes."""
    folder = dumps / "parse_output"
    commands = (folder / "v40_parse_tool_session_commands.txt").read_text().splitlines()
    return [line.split() for line in commands], (folder / "v40_parse_tool_session.txt").read_text("utf-8")


def words(text: str) -> str:
    """Return a text without boxes; means, which the tool summed in float32, with six decimals."""
    rounded = re.sub(r"Mean: ([-\d.e]+)", lambda match: f"Mean: {float(match[1]):.6f}", text)
    return " ".join(BOX.sub(" ", rounded).split())


def test_the_session_of_the_old_tool(dumps: Path, old: Path, probe: Probe) -> None:
    """Each command prints what the tool printed, apart from boxes and the last digits of cosine and means."""
    commands, printed = session(dumps)
    pk, pt, cn, missing, run = commands
    parts = printed.split("Parse >>> ")
    assert probe("parse", *pk) == 0, probe.err
    assert probe.out.strip() == parts[1].strip()
    assert probe("parse", *pt) == 0, probe.err
    assert words(probe.out) == words(parts[2].partition("\n")[2])
    assert probe("parse", *cn) == 0, probe.err
    expected, found = words(parts[3]), words(probe.out)
    rows = re.findall(r"(?:0|[1-9]) (?:[\d.]+ ){3}", found)
    assert len(rows) == 10 and all(row in expected for row in rows)
    for line in probe.out.splitlines():
        if re.match(r"\s*(Left:|Right:|NpyFile|TxtFile|NpySpec|NumCnt|AllClose|ErrorPer)", line):
            assert words(line) in expected, line
    cosine = [float(text) for text in re.findall(r"CosSim: +(\S+)", found + " " + expected)]
    assert cosine[0] == pytest.approx(cosine[1], rel=1e-6)
    assert probe("parse", *missing) == 2 and "nosuch.pkl" in probe.err
    assert probe("parse", *run) == 2 and "hi" not in probe.out, "no other program is run"


def test_pk_is_the_same_as_parse(dumps: Path, probe: Probe, runs: Any) -> None:
    today = runs("stat_L1_datamap") / "npu_dump" / "step0" / "rank" / "dump.json"
    for file, prefix in ((dumps / f"{RANK.format('bench')}.pkl", "Torch_relu"), (today, "Torch.")):
        assert probe("parse", file, "-n", prefix) == 0 and (expected := probe.out)
        assert probe("parse", "pk", "-f", file, "-n", prefix) == 0 and probe.out == expected
        assert probe("parse", "-n", prefix, file) == 0 and probe.out == expected


def test_values_are_written_as_text_once(old: Path, probe: Probe) -> None:
    np.save("a.npy", np.array([[1, 2.5], [-np.inf, np.nan]], np.float32))
    assert probe("parse", "pt", "-n", "a.npy") == 0, probe.err
    assert Path("a.npy.txt").read_text() == "1 2.5\n-inf nan\n"
    assert "[Max: nan] [Min: nan] [Mean: nan]" in probe.out
    Path("a.npy.txt").write_text("mine")
    assert probe("parse", "pt", "-n", "a.npy") == 0 and Path("a.npy.txt").read_text() == "mine"
    np.save("b.npy", np.float16(3))
    assert probe("parse", "pt", "-n", "b.npy", "--no-text") == 0 and not Path("b.npy.txt").exists()


@pytest.mark.parametrize(
    ("array", "lines"),
    [
        (np.arange(200), 16),
        (np.zeros((0, 3)), 0),
        (np.array(True), 1),
        (np.array([1 + 2j], np.complex64), 1),
        (np.ones((2, 0)), 0),
    ],
    ids=str,
)  # fmt: skip
def test_tensors_of_every_kind(old: Path, probe: Probe, array: Any, lines: int) -> None:
    np.save("a.npy", array)
    assert probe("parse", "pt", "-n", "a.npy") == 0, probe.err
    assert len(probe.out.splitlines()) == 1 + lines + 3
    assert ("[no values]" in probe.out) is (not array.size)
    assert probe("parse", "cn", "-m", "a.npy", "-g", "a.npy") == 0, probe.err
    assert "AllClose: True" in probe.out and f"NumCnt:   {array.size}" in probe.out


def test_tensors_of_a_run_of_today(probe: Probe, runs: Any, tmp_path: Path) -> None:
    """Files of any format are read by the reader of their run."""
    sides = [shutil.copytree(runs("tensor_L1_datamap") / side, tmp_path / side) for side in ("npu_dump", "bench_dump")]
    files = [next(iter(sorted(side.rglob("*.pt")))) for side in sides]
    assert probe("parse", "pt", "-n", files[0]) == 0, probe.err
    assert "[Shape: (" in probe.out and files[0].with_name(f"{files[0].name}.txt").is_file()
    assert probe("parse", "cn", "-m", files[0], "-g", files[0]) == 0, probe.err
    assert "AllClose: True" in probe.out
    run = write_tensor_run(tmp_path / "ms", {"Cell.a.ReLU.forward.0": ([np.arange(4.0)], [np.ones(4)])})
    tensor = next((Path(run).parent if Path(run).is_file() else Path(run)).rglob("*input.0.npy"))
    assert probe("parse", "pt", "-n", tensor) == 0 and "0.0 1.0 2.0 3.0" in probe.out


def test_tensors_in_a_packed_file_of_a_run(probe: Probe, tmp_path: Path) -> None:
    run = write_tensor_run(tmp_path, {"Cell.a.ReLU.forward.0": ([np.arange(4.0)], [np.ones(4)])})
    folder = next(tmp_path.rglob("*.npy")).parent
    files = {path: np.load(path) for path in folder.glob("*.npy")}
    write_packed(folder, {path.stem: array for path, array in files.items()})
    for path in files:
        path.unlink()
    assert run and len(files) == 2
    tensor = next(path for path in files if ".input." in path.name)
    assert probe("parse", "pt", "-n", tensor, "--no-text") == 0, probe.err
    assert "0.0 1.0 2.0 3.0" in probe.out
    assert probe("parse", "pt", "-n", folder / "none.npy") == 2 and "lists no tensor none.npy" in probe.err


def test_errors_count_as_the_options_say(old: Path, probe: Probe) -> None:
    golden = np.array([1, 1, 1, 0, np.inf, np.nan, np.inf], np.float32)
    mine = np.array([1, 1.0015, 1.01, 0.0005, np.inf, np.nan, 5], np.float32)
    np.save("m.npy", mine)
    np.save("g.npy", golden)
    assert probe("parse", "cn", "-m", "m.npy", "-g", "g.npy") == 0, probe.err
    assert f"ErrorPer: {3 / 7}  (rl= 0.001, al= 0.001)" in probe.out and "AllClose: False" in probe.out
    wrong = probe.out.partition("Top Item Table")[0].splitlines()[2:]
    assert [line.split()[0] for line in wrong if line] == ["2", "5", "6"]
    assert probe("parse", "cn", "-m", "m.npy", "-g", "g.npy", "-rl", "0.1", "-al", "0", "-p", "1") == 0
    assert "(rl= 0.1, al= 0)" in probe.out and f"ErrorPer: {3 / 7}" in probe.out
    wrong = probe.out.partition("Top Item Table")[0].splitlines()[2:]
    assert [line.split()[0] for line in wrong if line] == ["3"]


def test_a_shorter_tensor_ends_with_zeros(old: Path, probe: Probe) -> None:
    np.save("m.npy", np.ones((2, 2), np.float32))
    np.save("g.npy", np.ones(3, np.float32))
    assert probe("parse", "cn", "-m", "m.npy", "-g", "g.npy") == 0
    assert "The shapes [2, 2] and [3] differ" in probe.err
    assert "NumCnt:   4" in probe.out and "ErrorPer: 0.25 " in probe.out and "3      1.0   0.0    1.0" in probe.out
    assert float(re.findall(r"CosSim: +(\S+)", probe.out)[0]) == pytest.approx(3 / np.sqrt(12))


def test_large_tensors_are_compared_in_blocks(old: Path, probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    from probe_legacy.parse import elements

    random = np.random.default_rng(0)
    mine, golden = random.normal(size=(2, 1000)).astype(np.float32)
    whole = elements.compare(mine, golden, 0.5, 0.1, 20)
    monkeypatch.setattr(elements, "BLOCK", 64)
    blocks = elements.compare(mine, golden, 0.5, 0.1, 20)
    assert whole.wrong == blocks.wrong and whole.first == blocks.first and len(whole.wrong) == 20
    assert whole.error_ratio == blocks.error_ratio and str(whole.cosine)[:6] == str(blocks.cosine)[:6]
    assert whole.error_ratio == np.mean(np.abs(mine - golden) > 0.5 + 0.1 * np.abs(golden))


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"no numpy", b"\x93NUMPY\x01\x00\xff\xff{"])
def test_files_that_are_no_tensors(old: Path, probe: Probe, content: bytes) -> None:
    Path("a.npy").write_bytes(content)
    assert probe("parse", "pt", "-n", "a.npy") == 2
    assert "a.npy" in probe.err and "Traceback" not in probe.err
    assert probe("parse", "cn", "-m", "a.npy", "-g", "none.npy") == 2


def test_texts_and_objects_are_refused(old: Path, probe: Probe) -> None:
    np.save("a.npy", np.array(["x"]))
    assert probe("parse", "pt", "-n", "a.npy") == 2 and "no numbers" in probe.err
    np.save("b.npy", np.array([{}], object), allow_pickle=True)
    assert probe("parse", "pt", "-n", "b.npy") == 2 and "Python objects" in probe.err
    Path("c.pt").write_bytes(b"x")
    assert probe("parse", "pt", "-n", "c.pt") == 2 and "no dump.json" in probe.err


def test_dc_converts_in_the_layout_of_the_device(acl_dumps: Path, old: Path, probe: Probe) -> None:
    name = "TransData.trans_TransData_3.37.0.1675157077169473"
    file = next((acl_dumps / "output").rglob(name))
    assert probe("parse", "dc", "-n", file) == 0, probe.err
    written = old / "parse_data" / "dump_convert" / f"{name}.output.0.npy"
    assert written.read_bytes() == (acl_dumps / "expected" / written.name).read_bytes()
    assert probe("parse", "dc", "-n", file) == 2 and "exists" in probe.err
    assert probe("parse", "dc", "-n", file, "-f", "NCHW", "-out", "other", "-asc", "/none/msaccucmp.py") == 0
    assert np.load(old / "other" / written.name).shape == (1, 3, 2, 2)


def test_cad_sorts_by_operator_and_time(acl_dumps: Path, old: Path, probe: Probe) -> None:
    acl.write(old / "d" / "Add.NoStream.45.1675157077183551", acl.dump(acl.tensor("input", b"abcd", 3, 2, (4,))))
    shutil.copytree(acl_dumps / "output", old / "d" / "o")
    assert probe("parse", "cad", "-m", "d") == 0, probe.err
    found = sorted((old / "parse_data" / "acl_batch_convert").rglob("*.npy"))
    assert len(found) == 14 and not [path for path in found if "NoStream" in path.name]
    for path in found:
        _, name, _, _, time, *_ = path.name.split(".")
        assert (path.parent.name, path.parent.parent.name) == (time, name)
    assert probe("parse", "cad", "-m", "d/o/20230131172437/1/68", "-out", "x") == 0
    (old / "e").mkdir()
    shutil.copy(old / "d" / "Add.NoStream.45.1675157077183551", old / "e")
    assert probe("parse", "cad", "-m", "e") == 2 and "probe convert e" in probe.err


def test_without_arguments_and_without_a_terminal(probe: Probe) -> None:
    assert probe("parse") == 2 and "Missing argument 'FILE'" in probe.err
    assert probe("parse", "--help") == 0
    for name in ("pk", "pt", "cn", "dc", "vc", "cad"):
        assert f"\n  {name} " in probe.out
        assert probe("parse", name, "--help") == 0 and f"Usage: probe parse {name} [OPTIONS]" in probe.out
        assert probe("parse", name) == 2 and "Missing option" in probe.err
        assert probe("parse", "--help") == 0
