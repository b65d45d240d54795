"""A disk that fills up at any write: an error message, no partial file, and the results of the other ranks."""

from __future__ import annotations

import errno
import gc
import json
import re
import resource
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import DATA
from support.faults.full_disk import ERRORS, full_disk, nothing_unraisable
from support.runs.details_csv import output, row, write
from support.runs.recorded import forward, tensor, write_run, write_tensor_run
from support.sampling import places

STAMP = "20260101000000"
SHORT, LONG = 3, 60
"""Number of faults that are tried with each command: in the default suite, and in the slow one."""
CALLS = 30
FORMATS = ("--format", "xlsx,csv,jsonl")
Command = Callable[[Path], list[Any]]


def record(root: Path, ranks: int, off: float = 1.0) -> Path:
    data = {f"Torch.exp.{n}.forward": forward(tensor(), output=[tensor(value=off)]) for n in range(CALLS)}
    for rank in range(ranks):
        write_run(root / f"rank{rank}", data)
    return root


def ranks(count: int, *options: str) -> Command:
    def made(home: Path) -> list[Any]:
        sides = record(home / "t", count), record(home / "g", count, 2.0)
        return ["compare", *sides, "-j", "1", *options]

    return made


def mapped(home: Path) -> list[Any]:
    import numpy as np

    calls = {f"Cell.net.a{n}.ReLU.forward.0": ([np.ones(4)], [np.ones(4)]) for n in range(CALLS)}
    sides = [write_tensor_run(home / side, calls) for side in "tg"]
    (home / "layers.yaml").write_text("ReLU: {a: b}\n")
    return ["compare", *sides, "-lm", home / "layers.yaml"]


def merged(format_: str) -> Command:
    def made(home: Path) -> list[Any]:
        from probe_core.cli.main import run

        sides = record(home / "t", 2), record(home / "g", 2, 2.0)
        assert run(["compare", *map(str, sides), "-o", str(home / "in"), "-j", "1", "--format", "csv"]) == 0
        (home / "config.yaml").write_text("api: [Torch.exp]")
        return ["merge_result", "-i", home / "in", "-config", home / "config.yaml", "--format", format_]

    return made


def judged(home: Path) -> list[Any]:
    rows = [row(output("benchmark", number)) for number in range(CALLS)]
    sides = [write(home / f"{side}.csv", rows) for side in ("npu", "gpu")]
    return ["api_precision_compare", "-npu", sides[0], "-gpu", sides[1]]


def converted(home: Path) -> list[Any]:
    with tarfile.open(DATA / "acl.tar.xz") as file:
        file.extractall(home, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return ["convert", home / "acl_synthetic" / "output"]


COMMANDS: dict[str, Command] = {
    "xlsx": ranks(1),
    "csv": ranks(1, "--format", "csv"),
    "jsonl": ranks(1, "--format", "jsonl", "-c"),
    "all formats": ranks(1, *FORMATS, "-hl"),
    "first difference": ranks(1, "-da"),
    "ranks": ranks(3, *FORMATS),
    "first difference of ranks": ranks(2, "-da", "--format", "jsonl"),
    "mapped": mapped,
    "merged as xlsx": merged("xlsx"),
    "merged as csv": merged("csv"),
    "merged as jsonl": merged("jsonl"),
    "judged details": judged,
    "converted dumps": converted,
}


@pytest.fixture(autouse=True)
def _one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the result files the same names in each run of a command."""
    for module in (
        "probe_core.library",
        "probe_precheck.cli.api_precision_compare",
        "probe_legacy.convert_command",
    ):
        monkeypatch.setattr(f"{module}.get_time_stamp", lambda: STAMP)


def files(out: Path) -> dict[str, bytes]:
    """Return the contents of all files below ``out`` by their names, without the time in them."""
    return {
        re.sub(r"\d{14}", "T", path.relative_to(out).as_posix()): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def faults(count: int, name: str, every: bool) -> Iterator[tuple[int, int, bool]]:
    """Yield some faults, or all: the number of the write that fails, its error, and True if only that one fails."""
    found = [(number, error, once) for number in range(count) for error in ERRORS for once in (False, True)]
    wanted = LONG if every else SHORT
    yield from (found[place - 1] for place in places(len(found), wanted, name))


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", COMMANDS)
def test_every_write(probe: Any, tmp_path: Path, name: str, every: bool) -> None:
    command = COMMANDS[name](tmp_path)
    out = tmp_path / "out"
    with full_disk(out) as disk:
        assert probe(*command, "-o", out) == 0, probe.err
        count = len(disk.calls)
    whole = files(out)
    assert count > 5 and len(whole) > 0
    for fails, error, once in faults(count, name, every):
        shutil.rmtree(out)
        with nothing_unraisable() as said, full_disk(out) as disk:
            disk.fails, disk.error, disk.once = fails, error, once
            code = probe(*command, "-o", out)
            gc.collect()
        what = f"{disk.calls[fails]}, {errno.errorcode[error]}{' once' if once else ''}: {code}\n{probe.err}"
        assert code in (0, 2), what
        assert "Traceback" not in probe.err and not said, f"{said} {what}"
        assert code == 0 or re.search(r"^error: .+\n  \S", probe.err, re.M), what
        left = files(out) if out.exists() else {}
        assert not [path for path in left if path.split("/")[-1].startswith(".")], what
        for path, content in left.items():
            if "compare_progress" in path or (code and re.search("compare_summary|diff_analyze", path)):
                continue
            if code and path == "answer_T.json" and content != whole[path]:
                check_answer_without_failed_ranks(content, whole[path])
                continue
            assert content == whole[path], f"{path} {what}"
        if code == 0:
            assert left.keys() == whole.keys(), what
        out.mkdir(exist_ok=True)


def check_answer_without_failed_ranks(content: bytes, whole: bytes) -> None:
    """Check that a partial answer says the same of the ranks that were compared, and has the others' errors."""
    (own,), (all_,) = json.loads(content)["steps"], json.loads(whole)["steps"]
    assert len(own["ranks"]) == len(all_["ranks"]) > 1
    differ = [rank for rank, other in zip(own["ranks"], all_["ranks"]) if rank != other]
    assert differ and all(rank["verdict"] is None and "cannot be written" in rank["error"] for rank in differ)


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.__getitem__)
@pytest.mark.parametrize("count", [1, 2], ids=["one", "two ranks"])
def test_an_answer_that_cannot_be_written(probe: Any, tmp_path: Path, count: int, error: int) -> None:
    """The tables are written and the verdict is printed; one error message says that the answer's file is not."""
    out = tmp_path / "out"
    command = [*ranks(count, "--format", "csv")(tmp_path), "-o", out]
    with full_disk(out) as disk:
        assert probe(*command) == 0
        calls = [number for number, call in enumerate(disk.calls) if f"answer_{STAMP}" in call]
    whole, printed = files(out), probe.out
    assert len(calls) > 2 and printed.startswith("DIVERGED: ")
    for fails in calls:
        shutil.rmtree(out)
        with full_disk(out) as disk:
            disk.fails, disk.error, disk.once = fails, error, True
            assert probe(*command) == 2, disk.calls[fails]
        assert len(re.findall("^error: ", probe.err, re.M)) == 1
        assert re.search(r"^error: .*(answer_|out).*\n  \S", probe.err, re.M) and "Traceback" not in probe.err
        assert files(out) == {path: text for path, text in whole.items() if path != "answer_T.json"}
        kept = [line for line in printed.splitlines() if f"answer_{STAMP}" not in line]
        assert timeless(probe.out) == timeless("\n".join(kept) + "\n")


def timeless(text: str) -> str:
    return re.sub(r"\d+\.\d s", "0.0 s", text)


def test_the_first_of_several_names(probe: Any, tmp_path: Path) -> None:
    """If the first of three tables cannot be renamed to its final name, none of them is left."""
    out = tmp_path / "out"
    command = [*ranks(1, *FORMATS, "-da")(tmp_path), "-o", out]
    with full_disk(out) as disk:
        assert probe(*command) == 0
        first = next(number for number, call in enumerate(disk.calls) if call.startswith("replace"))
    shutil.rmtree(out)
    with full_disk(out) as disk:
        disk.fails = first
        assert probe(*command) == 2
    assert "No space left on device" in probe.err and not list(out.iterdir())


@pytest.mark.parametrize("format_", ["xlsx", "csv", "jsonl"])
def test_one_rank_among_many(tmp_path: Path, format_: str) -> None:
    """With processes and a limit on the size of files, the rank with too large a table fails, and no other."""
    sides = record(tmp_path / "t", 3), record(tmp_path / "g", 3, 2.0)
    for side in sides:
        name = "Torch.exp.{}.forward"
        data = {name.format(n): forward(tensor(), output=[tensor(value=n)]) for n in range(6000)}
        write_run(side / "rank1", data)
    code = "import sys; from probe_core.cli.main import main; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, "compare", *sides, "-o", tmp_path / "o", "-j", "2", "--format", format_],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert re.search(r"^error: rank1: The result cannot be written to .*: File too large\.$", done.stderr, re.M)
    found = sorted(re.sub(r"\d{14}", "T", path.name) for path in (tmp_path / "o").iterdir())
    assert [name for name in found if "result" in name] == [f"compare_result_rank{n}_T.{format_}" for n in (0, 2)]
    assert f"compare_summary_T.{format_}" in found and "compare_progress_T.jsonl" in found
    assert not [name for name in found if name.startswith(".")]
