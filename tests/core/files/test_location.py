"""Runs that lie elsewhere: by their URL they compare as they do by their path, and leave nothing behind here."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.programs import preloaded
from support.runs.recorded import forward, tensor, write_run, write_tensor_run

from probe_core import engine
from probe_core.files.location import is_remote, parse_location

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("upath")

FORMATS = ("--format", "xlsx,csv,jsonl")
GOOD = {f"Torch.exp.{n}.forward": forward(tensor(), output=[tensor()]) for n in range(3)}
OFF = {**GOOD, "Torch.exp.1.forward": forward(tensor(), output=[tensor(value=9.0)])}
ROOT = tempfile.gettempdir()
Put = Callable[[Path, str], str]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Send temporary files of these tests to a place of their own; names of all comparisons have one time."""
    monkeypatch.setattr("probe_core.library.get_time_stamp", lambda: "20260101000000")
    monkeypatch.setattr(engine, "_threads", 0)
    home = tmp_path / "temporary"
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    return home


@pytest.fixture
def memory() -> Iterator[Any]:
    """The file system in memory, empty."""
    system = fsspec.filesystem("memory")

    def clear() -> None:
        system.store.clear()
        system.pseudo_dirs[:] = [""]

    clear()
    yield system
    clear()


@pytest.fixture
def put(memory: Any) -> Put:
    """``put(directory, "npu")``: a copy of the directory in memory; its URL."""

    def copy(directory: Path, name: str) -> str:
        for path in sorted(directory.rglob("*")):
            place = f"/{name}/{path.relative_to(directory).as_posix()}"
            if path.is_dir():
                memory.makedirs(place, exist_ok=True)
            else:
                memory.pipe_file(place, path.read_bytes())
        return f"memory://{name}"

    return copy


def files(out: Path) -> dict[str, bytes]:
    """All that lies below ``out``, without the time in its name, and the answer without both addresses."""
    found = {
        re.sub(r"\d{14}", "T", path.relative_to(out).as_posix()): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }
    if "answer_T.json" in found:
        addresses = rb'^  "(?:target|golden)": ".*",\n'
        found["answer_T.json"], count = re.subn(addresses, b"", found["answer_T.json"], flags=re.MULTILINE)
        assert count == 2
    return found


def record(root: Path, ranks: int, off: int | None = None) -> Path:
    for rank in range(ranks):
        write_run(root / f"rank{rank}", OFF if rank == off else GOOD)
    return root


@pytest.fixture
def same(probe: Any, put: Put, tmp_path: Path, temporary: Path) -> Callable[..., dict[str, bytes]]:
    """``same(target, golden, …)``: by path and by URL the same files; those."""

    def check(target: Path, golden: Path, *options: str, code: int = 0) -> dict[str, bytes]:
        urls = put(target, "npu/dump"), put(golden, "bench/dump")
        found, said = [], []
        for number, (paths, way) in enumerate(
            (((target, golden), ["-j", "1"]), (urls, ["-j", "1"]), (urls, ["--executor", "threads"]))
        ):
            out = tmp_path / f"same{number}"
            assert probe("compare", *paths, "-o", out, *FORMATS, *options, *way) == code, probe.err
            found.append(files(out))
            said.append(re.findall(r"[\d,]+ rows of .*? ops|[\d,]+ differ.*", probe.out))
            assert not list(temporary.iterdir())
        assert found[0] and found[0] == found[1] == found[2]
        assert sorted(said[0]) == sorted(said[1]) == sorted(said[2])
        return found[0]

    return check


# -- the same as by path ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    ["tensor_L1_dist2", "stat_mix_dist2", "md5_L1_edge", "tensor_L1_edge", "debug_tensor", "stat_L0_nested"],
)
def test_recorded_runs(case: str, same: Any, runs: Any) -> None:
    found = same(runs(case) / "npu_dump", runs(case) / "bench_dump", "-hl")
    if "dist2" in case:
        assert {name[:21] for name in found} >= {"compare_result_rank0_", "compare_result_rank1_"}


def arrays(scale: float) -> dict[str, Any]:
    values = np.arange(2000, dtype=np.float32).reshape(40, 50)
    return {f"Torch.exp.{n}.forward": ([values * scale], [values + n]) for n in range(4)}


def test_npy_files(same: Any, tmp_path: Path) -> None:
    for side, scale in (("t", 1.5), ("g", 1.0)):
        for rank in ("rank0", "rank1"):
            write_tensor_run(tmp_path / side / "step0" / rank, arrays(scale))
    same(tmp_path / "t", tmp_path / "g")


def pack(rank: Path) -> None:
    """Put the tensor files of a rank into one packed file."""
    folder = rank / "dump_tensor_data"
    header: dict[str, Any] = {}
    data = b""
    for path in sorted(folder.glob("*.npy")):
        array = np.load(path)
        header[path.stem] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}  # fmt: skip
        data += array.tobytes()
        path.unlink()
    text = json.dumps(header).encode()
    (folder / "tensors.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    records = rank / "dump.json"
    records.write_text(records.read_text().replace(".npy", ".pt").replace("mindspore", "pytorch"))


def test_the_packed_store(same: Any, tmp_path: Path) -> None:
    for side, scale in (("t", 1.5), ("g", 1.0)):
        for rank in ("rank0", "rank1"):
            write_tensor_run(tmp_path / side / rank, arrays(scale))
            pack(tmp_path / side / rank)
    (rows,) = [data for name, data in same(tmp_path / "t", tmp_path / "g").items() if "rank1_T.jsonl" in name]
    assert all(json.loads(line)["Cosine"] == pytest.approx(1) for line in rows.splitlines())


def test_a_packed_store_that_was_killed(same: Any, tmp_path: Path) -> None:
    """The journal beside it is fetched as well."""
    for side in ("t", "g"):
        write_tensor_run(tmp_path / side / "rank", arrays(1.0))
        pack(tmp_path / side / "rank")
        path = tmp_path / side / "rank/dump_tensor_data/tensors.safetensors"
        size = int.from_bytes(path.read_bytes()[:8], "little")
        content = path.read_bytes()
        (path.parent / "tensors.index.json").write_text(
            json.dumps({"data_start": 8 + size, "header": json.loads(content[8 : 8 + size])})
        )
        path.write_bytes(bytes(8 + size) + content[8 + size :])
    (rows,) = [data for name, data in same(tmp_path / "t", tmp_path / "g").items() if ".jsonl" in name]
    assert all(json.loads(line)["Cosine"] == pytest.approx(1) for line in rows.splitlines())


def test_steps_and_stacks(same: Any, tmp_path: Path) -> None:
    for side in ("t", "g"):
        for step in (0, 1):
            record(tmp_path / side / f"step{step}", 2, off=step if side == "t" else None)
        (tmp_path / side / "step0/rank0/stack.json").write_text('{"Torch.exp.1.forward": ["File train.py, line 3"]}')
        (tmp_path / side / "step0/rank0/construct.json").write_text(
            '{"Torch.exp.1.forward": "Module.net.Net.forward.0"}'
        )
    found = same(tmp_path / "t", tmp_path / "g")
    assert b"line 3" in found["step0/compare_result_rank0_T.csv"]
    assert b"Module.net" in found["compare_summary_T.csv"]
    assert set(same(tmp_path / "t", tmp_path / "g", "--step", "1", "--rank", "1")) >= {"compare_result_rank1_T.csv"}


def test_every_way_to_name_a_run(probe: Any, put: Put, tmp_path: Path) -> None:
    url = put(record(tmp_path / "run/step0", 1).parent, "run")
    for number, name in enumerate(("", "/", "/step0", "/step0/rank0", "/step0/rank0/dump.json")):
        assert probe("compare", url + name, tmp_path / "run", "-o", tmp_path / f"o{number}") == 0, probe.err
        assert "3 ops compared" in probe.out


def test_a_url_and_a_path(probe: Any, put: Put, tmp_path: Path) -> None:
    target, golden = record(tmp_path / "t", 2, off=1), record(tmp_path / "g", 2)
    for number, paths in enumerate(((put(target, "t"), golden), (target, put(golden, "g")))):
        assert probe("compare", *paths, "-o", tmp_path / f"o{number}", *FORMATS, "-j", "1") == 0
    assert files(tmp_path / "o0") == files(tmp_path / "o1")


@pytest.mark.parametrize("name", ["plain", "with space, per%cent and ümlaut"])
def test_file_urls(name: str, probe: Any, tmp_path: Path) -> None:
    target, golden = record(tmp_path / name / "t", 2, off=1), record(tmp_path / name / "g", 2)
    assert probe("compare", target.as_uri(), golden.as_uri(), "-o", tmp_path / "o", *FORMATS) == 0, probe.err
    assert probe("compare", target, golden, "-o", tmp_path / "p", *FORMATS) == 0
    assert files(tmp_path / "o") == files(tmp_path / "p")
    assert not is_remote(parse_location(target.as_uri()))


def test_a_compare_file_may_hold_urls(probe: Any, put: Put, tmp_path: Path) -> None:
    file = tmp_path / "compare.json"
    urls = put(record(tmp_path / "t", 2), "t"), put(record(tmp_path / "g", 2), "g")
    file.write_text(json.dumps(dict(zip(("npu_path", "bench_path"), urls))))
    assert probe("compare", "-i", file, "-o", tmp_path / "o", "-j", "1") == 0, probe.err
    assert probe("compare", "-i", file, "-o", tmp_path / "o", "--print-plan") == 0
    assert json.loads(probe.out)["target"].startswith("memory://")


def test_compare_distributed_takes_urls(put: Put, tmp_path: Path) -> None:
    from probe_pytorch import compare_distributed

    urls = put(record(tmp_path / "t", 2, off=1), "t"), put(record(tmp_path / "g", 2), "g")
    reports = compare_distributed(*urls, str(tmp_path / "o"))
    assert [bool(report.suspects) for report in reports] == [False, True]


# -- in other processes ----------------------------------------------------------------------------


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory for temporary files whose path is short enough for the sockets of Python's processes."""
    with tempfile.TemporaryDirectory(prefix="p", dir=ROOT) as home:
        yield Path(home)


def apart(temporary: Path, *arguments: str | Path) -> Any:
    """``probe compare`` in a process of its own, whose workers leave their temporary files there as well."""
    return preloaded.run(
        [sys.executable, "-m", "probe_core.cli", "compare", *map(str, arguments)],
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(temporary)},
    )  # fmt: skip


@pytest.mark.parametrize(
    "rank, way",
    [
        ("", ["-j", "2"]),
        ("", ["--executor", "processes", "-j", "2"]),
        ("/step0/rank0", ["--executor", "processes", "-j", "2"]),
        ("", ["--executor", "processes", "-j", "4"]),
    ],
)
def test_processes_fetch_for_themselves(rank: str, way: list[str], runs: Any, short: Path, tmp_path: Path) -> None:
    """``local://`` is a file system that fsspec reads, and that other processes see."""
    paths = [runs("tensor_L1_dist2") / side for side in ("npu_dump", "bench_dump")]
    done = apart(short, *(f"local://{path}{rank}" for path in paths), "-o", tmp_path / "o", *FORMATS, *way)
    assert done.returncode == 0, done.stderr
    assert apart(short, *(f"{path}{rank}" for path in paths), "-o", tmp_path / "p", *FORMATS, "-j", "1").returncode == 0
    assert files(tmp_path / "o") == files(tmp_path / "p")
    assert not list(short.glob("probe-*"))


# -- what is not there -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url, says",
    [
        ("memory://nowhere", "it does not exist"),
        ("memory://run/rank7", "it does not exist"),
        ("memory://run/rank0/notes.txt", "is not a record file"),
        ("memory://hollow", "There is no dump.json"),
        ("foo://x", "foo://x cannot be reached: "),
        ("file:///nowhere/at/all", "it does not exist"),
    ],
)
def test_urls_of_nothing(url: str, says: str, probe: Any, put: Put, memory: Any, tmp_path: Path) -> None:
    good = put(record(tmp_path / "run", 1), "run")
    memory.pipe_file("/run/rank0/notes.txt", b"x")
    memory.makedirs("/hollow")
    for paths in ((url, good), (good, url)):
        assert probe("compare", *paths, "-o", tmp_path / "o") == 2
        assert probe.err.count("error: ") == 1 and says in probe.err and "Traceback" not in probe.err
        assert len(probe.err.splitlines()) >= 2 and not (tmp_path / "o").exists()


def test_without_universal_pathlib(probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "upath", None)
    assert probe("compare", "s3://bucket/a", "s3://bucket/b", "-o", tmp_path / "o") == 2
    assert "s3://bucket/a is a remote" in probe.err and "pip install fsspec universal_pathlib" in probe.err
    run = record(tmp_path / "run", 1)
    assert probe("compare", run.as_uri(), run, "-o", tmp_path / "o") == 0, "a path needs no package"


@pytest.mark.skipif(importlib.util.find_spec("s3fs") is not None, reason="s3fs is installed")
def test_without_the_package_of_a_store(probe: Any, tmp_path: Path) -> None:
    assert probe("compare", "s3://bucket/a", "s3://bucket/b", "-o", tmp_path / "o") == 2
    assert "s3://bucket/a cannot be reached" in probe.err and "s3fs" in probe.err


def test_a_path_with_a_colon_is_no_url(tmp_path: Path) -> None:
    for text in ("C:/runs/npu", "c:\\runs", "a:b", "://x", "x://y", "/tmp/memory://x"):
        assert parse_location(text) == Path(text)


def test_ranks_at_fault(probe: Any, put: Put, memory: Any, tmp_path: Path, temporary: Path) -> None:
    target, golden = put(record(tmp_path / "t", 4), "t"), put(record(tmp_path / "g", 5), "g")
    memory.rm_file("/t/rank1/dump.json")
    memory.pipe_file("/g/rank2/dump.json", b'{"task": "stat')
    assert probe("compare", target, golden, "-o", tmp_path / "o", *FORMATS, "-j", "1") == 2
    assert "There is no dump.json or debug.json or .pkl in memory://t/rank1." in probe.err
    assert "error: rank2: memory://g/rank2/dump.json is not valid JSON" in probe.err
    assert "warning: Only the golden has rank 1, 4." in probe.err
    assert {name[:20] for name in files(tmp_path / "o") if name.startswith("compare_result")} == {
        "compare_result_rank0",
        "compare_result_rank3",
    }


def test_two_ranks_of_one_number(probe: Any, put: Put, tmp_path: Path) -> None:
    record(tmp_path / "t", 2)
    shutil.copytree(tmp_path / "t/rank1", tmp_path / "t/rank01")
    url = put(tmp_path / "t", "t")
    assert probe("compare", url, put(record(tmp_path / "g", 2), "g"), "-o", tmp_path / "o") == 2
    assert "two ranks of number 1" in probe.err and "Traceback" not in probe.err


# -- tensors that do not come ----------------------------------------------------------------------


@pytest.fixture
def npy(put: Put, tmp_path: Path) -> tuple[str, str]:
    for side in ("t", "g"):
        write_tensor_run(tmp_path / side / "rank", arrays(1.0))
    return put(tmp_path / "t", "t"), put(tmp_path / "g", "g")


NAME = "Torch.exp.1.forward.output.0"
PLACE = f"/g/rank/dump_tensor_data/{NAME}.npy"


def rows(out: Path) -> dict[str, Any]:
    (path,) = out.glob("compare_result_*.jsonl")
    return {row["NPU Name"]: row for row in map(json.loads, path.read_text().splitlines())}


def test_a_missing_tensor_costs_a_row(probe: Any, npy: Any, memory: Any, tmp_path: Path, temporary: Path) -> None:
    memory.rm_file(PLACE)
    assert probe("compare", *npy, "-o", tmp_path / "o", *FORMATS) == 0
    found = rows(tmp_path / "o")
    assert "not found or read failed" in found.pop(NAME)["Err_message"]
    assert all(row["Cosine"] == pytest.approx(1) for row in found.values()) and not list(temporary.iterdir())


def test_a_damaged_tensor_costs_a_row_and_is_said(
    probe: Any, npy: Any, memory: Any, tmp_path: Path, temporary: Path
) -> None:
    memory.pipe_file(PLACE, memory.cat_file(PLACE)[:300])
    assert probe("compare", *npy, "-o", tmp_path / "o", *FORMATS) == 2
    assert "1 tensor file could not be read" in probe.err and "Traceback" not in probe.err
    found = rows(tmp_path / "o")
    assert "read failed" in found.pop(NAME)["Err_message"]
    assert all(row["Cosine"] == pytest.approx(1) for row in found.values()) and not list(temporary.iterdir())


@pytest.mark.parametrize(
    "error",
    [
        OSError(110, "Connection timed out"),
        ConnectionResetError("reset by peer"),
        RuntimeError("SlowDown"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_connection_that_breaks_costs_a_row_and_is_said(
    error: Exception, probe: Any, npy: Any, memory: Any, tmp_path: Path, temporary: Path, monkeypatch: Any
) -> None:
    fetch = type(memory).get_file

    def broken(self: Any, place: str, *rest: Any, **more: Any) -> Any:
        if place == PLACE:
            raise error
        return fetch(self, place, *rest, **more)

    monkeypatch.setattr(type(memory), "get_file", broken)
    assert probe("compare", *npy, "-o", tmp_path / "o", *FORMATS) == 2
    assert "1 tensor file could not be read" in probe.err and "Traceback" not in probe.err
    found = rows(tmp_path / "o")
    assert "read failed" in found.pop(NAME)["Err_message"]
    assert all(row["Cosine"] == pytest.approx(1) for row in found.values()) and not list(temporary.iterdir())


def test_tensors_are_fetched_once_and_one_at_a_time(
    probe: Any, npy: Any, memory: Any, tmp_path: Path, temporary: Path, monkeypatch: Any
) -> None:
    """Here lies but what is being measured: no copy of the run."""
    fetch, seen, most = type(memory).get_file, [], 0

    def noting(self: Any, place: str, *rest: Any, **more: Any) -> Any:
        nonlocal most
        answer = fetch(self, place, *rest, **more)
        seen.append(place)
        most = max(most, sum(path.is_file() for path in temporary.rglob("*")))
        return answer

    monkeypatch.setattr(type(memory), "get_file", noting)
    assert probe("compare", *npy, "-o", tmp_path / "o", *FORMATS) == 0
    assert len(seen) == len(set(seen)) == 16 and most <= 2


@pytest.mark.parametrize("fault", ["nothing in common", "other task", "no metric"])
def test_nothing_is_left_of_a_comparison_that_cannot_be_made(
    fault: str, probe: Any, npy: Any, memory: Any, tmp_path: Path, temporary: Path
) -> None:
    options = []
    records = memory.cat_file("/g/rank/dump.json").decode()
    if fault == "nothing in common":
        memory.pipe_file("/g/rank/dump.json", records.replace("Torch.exp", "Torch.log").encode())
    elif fault == "other task":
        memory.pipe_file("/g/rank/dump.json", records.replace('"tensor"', '"structure"', 1).encode())
    else:
        options = ["--metric", "nope"]
    assert probe("compare", *npy, "-o", tmp_path / "o", *options) == 2
    assert not list(temporary.iterdir())


# -- taken up --------------------------------------------------------------------------------------


@pytest.fixture
def begun(probe: Any, put: Put, memory: Any, tmp_path: Path) -> tuple[str, str, Any]:
    """A comparison of three ranks in memory, of which one is left over."""
    urls = put(record(tmp_path / "t", 3), "t"), put(record(tmp_path / "g", 3), "g")
    whole = memory.cat_file("/g/rank1/dump.json")
    memory.pipe_file("/g/rank1/dump.json", whole[:-50])
    assert probe("compare", *urls, "-o", tmp_path / "o", "-j", "1") == 2
    memory.pipe_file("/g/rank1/dump.json", whole)
    return (*urls, ["-o", tmp_path / "o", "-j", "1", "--resume"])


def test_what_is_finished_is_kept(begun: Any, probe: Any) -> None:
    assert probe("compare", *begun[:2], *begun[2]) == 0
    assert "3 of 3 comparisons finished, 2 of them in an earlier run" in probe.out


def test_a_changed_run_is_compared_again(begun: Any, probe: Any, memory: Any) -> None:
    """Though it is as long as before."""
    records = memory.cat_file("/t/rank2/dump.json")
    memory.pipe_file("/t/rank2/dump.json", records.replace(b'"Max": 1.0', b'"Max": 7.0', 1))
    assert probe("compare", *begun[:2], *begun[2]) == 0
    assert "differ: rank2\n" in probe.out and "input.0: max off by 6 times" in probe.out
    assert "agree in their statistics again, which does not show that the values agree" in probe.out
