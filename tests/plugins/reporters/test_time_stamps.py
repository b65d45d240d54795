"""Commands of one second in one directory: each keeps its results, under names of its own."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from probe_reporters.time_stamps import add_second, claim_time_stamp
from support.programs import preloaded
from support.programs.preloaded import PreloadedPopen
from support.runs.recorded import forward, tensor, write_run

STAMP = "20251231235959"
NEXT = "20260101000000"
GOOD = {f"Torch.exp.{n}.forward": forward(tensor(), output=[tensor()]) for n in range(3)}


@pytest.fixture(autouse=True)
def _one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probe_core.library.get_time_stamp", lambda: STAMP)


def record(root: Path, *ranks: int) -> Path:
    for rank in ranks:
        write_run(root / f"rank{rank}", GOOD)
    return root


def stamps(out: Path) -> Counter[str]:
    """Return the number of files of each second, hidden ones among them."""
    files = (path.name for path in out.rglob("*") if path.is_file())
    return Counter(found for name in files for found in re.findall(r"\d{14}", name))


def test_a_second_later_over_the_end_of_a_year() -> None:
    assert add_second(STAMP) == NEXT
    assert add_second("20240228235959") == "20240229000000"


@pytest.mark.parametrize("ranks", [(0,), (0, 1)])
@pytest.mark.parametrize("options", [(), ("-da",), ("--format", "csv,jsonl", "-j", "1")])
def test_one_after_the_other(probe: Any, tmp_path: Path, ranks: tuple[int, ...], options: tuple[str, ...]) -> None:
    one, other = record(tmp_path / "t", *ranks), record(tmp_path / "g", *ranks)
    out = tmp_path / "o"
    for _ in range(3):
        assert probe("compare", one, other, "-o", out, *options) == 0, probe.err
        assert re.search(r"wrote .*_\d{14}|no difference", probe.out)
    found = stamps(out)
    assert sorted(found) == [STAMP, NEXT, "20260101000001"]
    assert len(set(found.values())) == 1
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def test_steps_have_directories_of_their_own(probe: Any, tmp_path: Path) -> None:
    """With -da alone nothing stands in the output directory itself."""
    for side in ("t", "g"):
        for step in ("step0", "step1"):
            record(tmp_path / side / step, 0)
    for _ in range(2):
        assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "o", "-da") == 0, probe.err
    assert stamps(tmp_path / "o") == {STAMP: 3, NEXT: 3}


def test_resuming_keeps_the_second(probe: Any, tmp_path: Path) -> None:
    """Files of a resumed comparison belong to those that are there of it."""
    one, other = record(tmp_path / "t", 0, 1), record(tmp_path / "g", 0, 1)
    dump = one / "rank1" / "dump.json"
    whole = dump.read_bytes()
    dump.write_bytes(whole[:-50])
    assert probe("compare", one, other, "-o", tmp_path / "o", "--format", "csv") == 2
    dump.write_bytes(whole)
    assert probe("compare", one, other, "-o", tmp_path / "o", "--format", "csv", "--resume") == 0, probe.err
    assert set(stamps(tmp_path / "o")) == {STAMP}


def test_what_still_runs_is_not_resumed(probe: Any, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    one, other = record(tmp_path / "t", 0, 1), record(tmp_path / "g", 0, 1)
    dump = one / "rank1" / "dump.json"
    whole = dump.read_bytes()
    dump.write_bytes(whole[:-50])
    assert probe("compare", one, other, "-o", tmp_path / "o") == 2
    dump.write_bytes(whole)
    with claim_time_stamp(tmp_path / "o", STAMP, is_resumed=True):
        assert probe("compare", one, other, "-o", tmp_path / "o", "--resume") == 2
    assert "is still running" in probe.err
    assert probe("compare", one, other, "-o", tmp_path / "o", "--resume") == 0, probe.err


def test_at_once(tmp_path: Path) -> None:
    """Eight processes want one second of one directory that none of them has made."""
    one, other = record(tmp_path / "t", 0), record(tmp_path / "g", 0)
    go, out = tmp_path / "go", tmp_path / "o" / "deep"
    code = f"""
import pathlib, sys, time
from probe_core.cli.main import run
import probe_core.library as library
library.get_time_stamp = lambda: {STAMP!r}
pathlib.Path(sys.argv[1]).touch()
while not pathlib.Path({str(go)!r}).exists():
    time.sleep(0.001)
sys.exit(run(["compare", {str(one)!r}, {str(other)!r}, "-o", {str(out)!r}, "--format", "csv", "-c"]))
"""
    ready = [tmp_path / f"ready{number}" for number in range(8)]
    processes = [PreloadedPopen([sys.executable, "-c", code, str(path)]) for path in ready]
    try:
        while not all(path.exists() for path in ready):
            assert all(process.poll() is None for process in processes)
            time.sleep(0.01)
        go.touch()
        assert [process.wait(120) for process in processes] == [0] * 8
    finally:
        for process in processes:
            process.kill()
            process.wait()
    found = stamps(out)
    assert len(found) == 8 and set(found.values()) == {1}
    assert len(list(out.iterdir())) == 8


def test_many_threads_at_once(tmp_path: Path) -> None:
    """All claims are different ones, whatever overtakes what."""
    taken: list[str] = []
    start = threading.Barrier(16)

    def take() -> None:
        start.wait()
        for _ in range(10):
            with claim_time_stamp(tmp_path / "o", STAMP) as stamp:
                (tmp_path / "o" / f"result_{stamp}.csv").touch(exist_ok=False)
                taken.append(stamp)

    threads = [threading.Thread(target=take) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == len(taken) == 160


def test_claims_of_killed_processes_go(tmp_path: Path) -> None:
    """Files of a killed command make the next one take another second; a later one removes them."""
    pytest.importorskip("fcntl")
    code = f"""
import os, pathlib, sys
from probe_reporters.time_stamps import claim_time_stamp
with claim_time_stamp(pathlib.Path(sys.argv[1]), {STAMP!r}):
    os._exit(1)
"""
    preloaded.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert [path.name for path in tmp_path.iterdir()] == [f".{STAMP}.claim"]
    with claim_time_stamp(tmp_path, STAMP) as stamp:
        assert stamp == NEXT
    with claim_time_stamp(tmp_path, NEXT) as first, claim_time_stamp(tmp_path, "20260202000000") as second:
        assert (first, second) == (NEXT, "20260202000000")  # the first, which is held, is not removed
        assert sorted(path.name for path in tmp_path.iterdir()) == [f".{NEXT}.claim", f".{second}.claim"]
    assert not list(tmp_path.iterdir())


def test_the_function_interface(tmp_path: Path) -> None:
    from probe_pytorch.compare import compare_distributed

    one, other = record(tmp_path / "t", 0, 1), record(tmp_path / "g", 0, 1)
    for _ in range(2):
        compare_distributed(str(one), str(other), str(tmp_path / "o"), is_print_compare_log=False)
    found = stamps(tmp_path / "o")
    assert sorted(found) == [STAMP, NEXT] and len(set(found.values())) == 1


def test_merged_results(probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = record(tmp_path / "t", 0, 1), record(tmp_path / "g", 0, 1)
    assert probe("compare", one, other, "-o", tmp_path / "o", "--format", "csv") == 0
    (tmp_path / "config.yaml").write_text("api: [Torch.exp]")
    monkeypatch.setattr("probe_reporters.merge.time", SimpleNamespace(strftime=lambda _: STAMP))
    options = ("-i", tmp_path / "o", "-config", tmp_path / "config.yaml", "-o", tmp_path / "m", "--format")
    for format_ in ("xlsx", "xlsx", "csv", "csv"):
        assert probe("merge_result", *options, format_) == 0, probe.err
    found = stamps(tmp_path / "m")
    assert len(found) == 4 and found[STAMP] == found[NEXT] == 1


def test_judged_details(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probe: Any) -> None:
    from support.runs.details_csv import output, row, write

    monkeypatch.setattr("probe_precheck.cli.api_precision_compare.get_time_stamp", lambda: STAMP)
    sides = [write(tmp_path / f"{side}.csv", [row(output("benchmark"))]) for side in ("npu", "gpu")]
    paths = ("-npu", sides[0], "-gpu", sides[1])
    for _ in range(2):
        assert probe("api_precision_compare", *paths, "-o", tmp_path / "o") == 0, probe.err
    assert stamps(tmp_path / "o") == {STAMP: 2, NEXT: 2}


def test_the_demonstration(probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probe_core.library.get_time_stamp", lambda: STAMP)
    monkeypatch.setattr("probe_pytorch.demo.has_torch", lambda: False)
    for _ in range(2):
        assert probe("demo", tmp_path / "d", "--format", "csv") == 0, probe.err
    assert set(stamps(tmp_path / "d" / "output")) == {STAMP, NEXT}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_in_the_place_of_a_claim_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".20250101000000.claim")
    code = f"from pathlib import Path; from probe_reporters.time_stamps import claim_time_stamp\nwith claim_time_stamp(Path({str(tmp_path)!r}), '{STAMP}') as found: print(found)"
    done = preloaded.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{STAMP}\n", done.stderr
