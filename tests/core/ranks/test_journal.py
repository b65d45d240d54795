"""A comparison that was interrupted and is taken up: what is finished stays, what is left is compared."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.programs.interrupts import let_interrupts_in
from support.runs.recorded import forward, tensor, write_run

from probe_core import engine

FORMATS = ("--format", "xlsx,csv,jsonl")
GOOD = {f"Torch.exp.{n}.forward": forward(tensor(), output=[tensor()]) for n in range(3)}
OFF = {**GOOD, "Torch.exp.1.forward": forward(tensor(), output=[tensor(value=9.0)])}
HELD = 777
"""A value over which the metric of these tests waits while a file is there."""
PLUGIN = f"""
import os, pathlib, time
from probe_core.plugins.hookspecs import hookimpl
from probe_core.model import Measurement
from probe_core.plugins.specs import MetricSpec, Needs, ReaderSpec

class SlowReader:
    framework = "slow"

    def sniff(self, path):
        hold = pathlib.Path(os.environ["PROBE_TEST_HOLD"])
        while hold.exists() and path.with_name("slow").exists():
            hold.with_name("reached").touch()
            time.sleep(0.02)
        return 0

class Held:
    def measure(self, pair):
        if pair.pair.target.value.statistics.max == {HELD}:
            hold = pathlib.Path(os.environ["PROBE_TEST_HOLD"])
            while hold.exists():
                hold.with_name("reached").touch()
                time.sleep(0.02)
        return [Measurement(1.0)]

@hookimpl
def probe_metrics():
    return [MetricSpec("held", "waits", "probe_held:Held", ("Held",), Needs.STATISTICS)]

@hookimpl
def probe_readers():
    return [ReaderSpec("slow", "waits", "probe_held:SlowReader", "slow")]
"""
Marks = dict[str, tuple[int, int]]


@pytest.fixture(autouse=True)
def _stamps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comparison of a test has a time of its own, and threads are as they were behind it."""
    stamps = iter(range(20260101000000, 20260101009999))
    monkeypatch.setattr("probe_core.cli.compare.time_stamp", lambda: str(next(stamps)))
    monkeypatch.setattr(engine, "_threads", 0)


def record(root: Path, ranks: Iterable[int], off: Iterable[int] = ()) -> Path:
    for rank in ranks:
        write_run(root / f"rank{rank}", OFF if rank in off else GOOD)
    return root


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of four ranks; rank 1 of the target parts from its golden."""
    return record(tmp_path / "target", range(4), off=[1]), record(tmp_path / "golden", range(4))


def cut(path: Path) -> bytes:
    """Cut a record file off; what it was."""
    data = path.read_bytes()
    path.write_bytes(data[:-100])
    return data


def mend(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def files(out: Path) -> dict[str, bytes]:
    """All that lies below ``out``, without the time in its name."""
    return {
        re.sub(r"\d{14}", "T", path.relative_to(out).as_posix()): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def marks(out: Path, what: str = "*") -> Marks:
    """What tells a file that was written again from one that was left alone."""
    return {
        path.relative_to(out).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in sorted(out.rglob(what))
        if path.is_file()
    }


def journal(out: Path) -> Path:
    (path,) = out.glob("compare_progress_*.jsonl")
    return path


def kept(text: str) -> int:
    """How many ranks were taken over, as the command says."""
    found = re.search(r"finished, (\d+) of them in an earlier run", text)
    return int(found[1]) if found else 0


@pytest.fixture
def begun(probe: Any, pair: tuple[Path, Path], tmp_path: Path) -> Any:
    """``begun(rank=2)``: a comparison of which that rank is left over, as its golden was cut off."""

    def begin(*options: str, rank: int = 2) -> tuple[Path, bytes]:
        out, bad = tmp_path / "o", pair[1] / f"rank{rank}/dump.json"
        data = cut(bad)
        assert probe("compare", *pair, "-o", out, *FORMATS, *options) == 2
        assert "--resume compares what is left" in probe.err
        return out, data

    return begin


@pytest.fixture
def undisturbed(probe: Any, tmp_path: Path) -> Callable[..., dict[str, bytes]]:
    """``undisturbed(target, golden, …)``: the files of a comparison that nothing came between."""

    def compare(*arguments: str | Path) -> dict[str, bytes]:
        out = tmp_path / "undisturbed"
        shutil.rmtree(out, ignore_errors=True)
        assert probe("compare", *arguments, "-o", out, "-j", "1") == 0, probe.err
        return files(out)

    return compare


# -- in one process --------------------------------------------------------------------------------

WAYS = [["-j", "1"], ["-j", "2"], ["--executor", "threads"], ["--executor", "processes", "-j", "6"]]


@pytest.mark.parametrize("way", WAYS)
def test_only_what_is_left_is_compared(
    way: list[str], begun: Any, pair: Any, probe: Any, undisturbed: Any
) -> None:
    out, data = begun(*way)
    before = marks(out, "*_rank*")
    mend(pair[1] / "rank2/dump.json", data)
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume", *way) == 0
    assert "4 of 4 comparisons finished, 3 of them in an earlier run" in probe.out
    assert "differ: rank1\n" in probe.out and "9.0 against 1.0" in probe.out
    after = marks(out, "*_rank*")
    assert before.items() <= after.items(), "what was finished is not written again"
    assert all("rank2" in name for name in after.keys() - before.keys())
    assert files(out) == undisturbed(*pair, *FORMATS), "summary included, journal gone"


def test_all_files_have_one_time_in_their_names(begun: Any, pair: Any, probe: Any) -> None:
    out, data = begun()
    mend(pair[1] / "rank2/dump.json", data)
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 0
    assert len({re.findall(r"\d{14}", path.name)[0] for path in out.iterdir()}) == 1


def test_a_rank_that_still_fails_is_tried_again_each_time(begun: Any, pair: Any, probe: Any) -> None:
    out, data = begun()
    for _ in range(2):
        assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 2
        assert kept(probe.out) == 3 and "error: rank2: " in probe.err
    mend(pair[1] / "rank2/dump.json", data)
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 0
    assert kept(probe.out) == 3 and not list(out.glob("compare_progress_*"))


def test_without_resume_all_is_compared_again(begun: Any, pair: Any, probe: Any) -> None:
    out, data = begun()
    mend(pair[1] / "rank2/dump.json", data)
    assert probe("compare", *pair, "-o", out, *FORMATS) == 0
    assert kept(probe.out) == 0 and len(list(out.glob("compare_result_rank0_*.csv"))) == 2


@pytest.mark.parametrize("rank, side", [(0, 0), (1, 1)])
def test_a_changed_input_is_compared_again(
    rank: int, side: int, begun: Any, pair: Any, probe: Any, undisturbed: Any
) -> None:
    out, data = begun()
    mend(pair[1] / "rank2/dump.json", data)
    before = marks(out, "*_rank*")
    write_run(pair[side] / f"rank{rank}", {**GOOD, "Torch.exp.2.forward": forward(tensor(value=5.0))})
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 0
    assert kept(probe.out) == 2
    rewritten = {name for name, mark in marks(out, "*_rank*").items() if before.get(name) != mark}
    assert {re.findall(r"rank\d", name)[0] for name in rewritten} == {f"rank{rank}", "rank2"}
    assert files(out) == undisturbed(*pair, *FORMATS)


def test_an_input_of_the_same_size_that_was_written_again(begun: Any, pair: Any, probe: Any) -> None:
    out, _ = begun()
    path = pair[0] / "rank0/dump.json"
    path.write_text(path.read_text().replace('"Max": 1.0', '"Max": 7.0', 1))
    probe("compare", *pair, "-o", out, *FORMATS, "--resume")
    assert kept(probe.out) == 2 and "7.0 against 1.0" in probe.out


@pytest.mark.parametrize("name", ["stack.json", "construct.json"])
def test_a_changed_file_beside_the_records_is_an_input_too(
    name: str, begun: Any, pair: Any, probe: Any
) -> None:
    out, _ = begun()
    (pair[0] / "rank0" / name).write_text('{"Torch.exp.0.forward": ["File train.py, line 3"]}')
    probe("compare", *pair, "-o", out, *FORMATS, "--resume")
    assert kept(probe.out) == 2


def test_a_changed_mapping_is_an_input_too(begun: Any, pair: Any, probe: Any, tmp_path: Path) -> None:
    mapping = tmp_path / "map.yaml"
    mapping.write_text("Torch.exp.0.forward.input.0: Torch.exp.0.forward.input.0\n")
    out, _ = begun("-dm", str(mapping))
    mapping.write_text("Torch.exp.0.forward.input.0: Torch.exp.0.forward.output.0\n")
    probe("compare", *pair, "-o", out, *FORMATS, "--resume", "-dm", mapping)
    assert kept(probe.out) == 0


@pytest.mark.parametrize(
    "change",
    [["-hl"], ["--format", "csv"], ["-c"], ["-f"], ["--metric", "ulp"], ["-da"], ["--framework", "pytorch"]],
    ids=lambda change: change[0],
)  # fmt: skip
def test_a_changed_plan_is_another_comparison(change: list[str], begun: Any, pair: Any, probe: Any) -> None:
    out, _ = begun()
    before = marks(out)
    probe("compare", *pair, "-o", out, *FORMATS, "--resume", *change)
    assert kept(probe.out) == 0
    assert before.items() <= marks(out).items(), "the other's results and its journal stay"


@pytest.mark.parametrize(
    "change", [["-j", "1"], ["--executor", "threads"], ["--rank", "0-3"], ["--fail-on", "error"]]
)
def test_where_it_runs_may_change(change: list[str], begun: Any, pair: Any, probe: Any) -> None:
    out, _ = begun()
    probe("compare", *pair, "-o", out, *FORMATS, "--resume", *change)
    assert kept(probe.out) == 3


def test_other_runs_are_another_comparison(begun: Any, pair: Any, probe: Any, tmp_path: Path) -> None:
    out, _ = begun()
    copy = shutil.copytree(pair[0], tmp_path / "copy")
    probe("compare", copy, pair[1], "-o", out, *FORMATS, "--resume")
    assert kept(probe.out) == 0
    probe("compare", pair[0], pair[0], "-o", out, *FORMATS, "--resume")
    assert kept(probe.out) == 0


def test_the_same_runs_by_another_path(begun: Any, pair: Any, probe: Any, monkeypatch: Any) -> None:
    out, _ = begun()
    monkeypatch.chdir(pair[0].parent)
    probe("compare", "target", "golden", "-o", out, *FORMATS, "--resume")
    assert kept(probe.out) == 3


def test_the_same_output_by_another_path(pair: Any, probe: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    data = cut(pair[1] / "rank2/dump.json")
    assert probe("compare", *pair, "-o", "o", *FORMATS) == 2
    mend(pair[1] / "rank2/dump.json", data)
    monkeypatch.chdir("/")
    assert probe("compare", *pair, "-o", tmp_path / "o", *FORMATS, "--resume") == 0
    assert len(list((tmp_path / "o").glob("compare_result_rank0_*.csv"))) == 1


def test_another_step_is_not_taken_for_the_one_that_is_finished(
    probe: Any, tmp_path: Path, undisturbed: Any
) -> None:
    for step in (0, 1):
        record(tmp_path / f"t/step{step}", range(3), off=[step])
        record(tmp_path / f"g/step{step}", range(3))
    data = cut(tmp_path / "g/step0/rank2/dump.json")
    paths = tmp_path / "t", tmp_path / "g"
    assert probe("compare", *paths, "-o", tmp_path / "o", *FORMATS, "--step", "0") == 2
    mend(tmp_path / "g/step0/rank2/dump.json", data)
    assert probe("compare", *paths, "-o", tmp_path / "o", *FORMATS, "--step", "1", "--resume") == 0
    assert kept(probe.out) == 0 and "differ: rank1\n" in probe.out


def test_steps_are_taken_up(probe: Any, tmp_path: Path, undisturbed: Any) -> None:
    for step in (0, 1):
        record(tmp_path / f"t/step{step}", range(2), off=[step])
        record(tmp_path / f"g/step{step}", range(2))
    data = cut(tmp_path / "g/step1/rank0/dump.json")
    paths = tmp_path / "t", tmp_path / "g"
    assert probe("compare", *paths, "-o", tmp_path / "o", *FORMATS) == 2
    mend(tmp_path / "g/step1/rank0/dump.json", data)
    assert probe("compare", *paths, "-o", tmp_path / "o", *FORMATS, "--resume") == 0
    assert kept(probe.out) == 3 and "differ: step0/rank0, step1/rank1\n" in probe.out
    assert files(tmp_path / "o") == undisturbed(*paths, *FORMATS)


def test_both_sorts_of_files_are_told_apart(probe: Any, tmp_path: Path) -> None:
    for side in ("t", "g"):
        record(tmp_path / side, range(2))
        for rank in range(2):
            write_run(tmp_path / side / f"rank{rank}", {"x.0.debug": tensor()}, name="debug.json")
    cut(tmp_path / "g/rank1/debug.json")
    for resume in ([], ["--resume"]):
        assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "o", "-c", *resume) == 2
    assert kept(probe.out) == 3 and probe.err.count("error: ") == 1


def test_fail_on_counts_what_was_finished_earlier(begun: Any, pair: Any, probe: Any) -> None:
    out, data = begun()
    mend(pair[1] / "rank2/dump.json", data)
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume", "--fail-on", "error") == 1


def test_calls_that_do_not_line_up_are_counted_when_taken_over(probe: Any, pair: Any, tmp_path: Path) -> None:
    """They are worth a warning, which no row has."""
    more = {"Torch.exp.7.forward": forward(tensor(), output=[tensor()])}
    write_run(pair[0] / "rank0", {**more, **GOOD})
    for rank in (1, 2):
        shutil.copy(pair[0] / "rank3/dump.json", pair[0] / f"rank{rank}/dump.json")
    data = cut(pair[1] / "rank2/dump.json")
    common = ["-o", tmp_path / "o", "--match", "align", "--fail-on", "warning", "-c"]
    assert probe("compare", *pair, *common) == 2
    mend(pair[1] / "rank2/dump.json", data)
    assert probe("compare", *pair, *common, "--resume") == 1
    assert kept(probe.out) == 3


@pytest.mark.parametrize(
    "gone", ["compare_result_rank0_*.csv", "compare_result_rank0_*.xlsx", "advisor_rank0_*"]
)
def test_results_that_were_deleted_are_made_again(
    gone: str, begun: Any, pair: Any, probe: Any, undisturbed: Any
) -> None:
    out, data = begun()
    mend(pair[1] / "rank2/dump.json", data)
    (path,) = out.glob(gone)
    path.unlink()
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 0
    assert kept(probe.out) == 2
    assert files(out) == undisturbed(*pair, *FORMATS)


def test_an_output_directory_that_was_deleted(begun: Any, pair: Any, probe: Any, undisturbed: Any) -> None:
    out, data = begun()
    mend(pair[1] / "rank2/dump.json", data)
    shutil.rmtree(out)
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 0
    assert kept(probe.out) == 0 and files(out) == undisturbed(*pair, *FORMATS)


def test_nothing_to_resume(pair: Any, probe: Any, tmp_path: Path) -> None:
    """With and without an earlier comparison that came to its end."""
    for count in (1, 2):
        assert probe("compare", *pair, "-o", tmp_path / "o", "--resume", "-c") == 0
        assert kept(probe.out) == 0 and len(list((tmp_path / "o").glob("compare_result_rank0_*"))) == count
        assert not list((tmp_path / "o").glob("compare_progress_*"))


def test_a_single_rank_leaves_no_journal(pair: Any, probe: Any, tmp_path: Path) -> None:
    for options in (["--rank", "0"], ["--rank", "0", "--resume"]):
        assert probe("compare", *pair, "-o", tmp_path / "o", *options) == 0
    assert not list((tmp_path / "o").glob("compare_progress_*"))


def test_the_newest_of_several_is_taken_up(begun: Any, pair: Any, probe: Any) -> None:
    out, data = begun()
    assert probe("compare", *pair, "-o", out, *FORMATS, "-hl") == 2
    assert probe("compare", *pair, "-o", out, *FORMATS) == 2
    mend(pair[1] / "rank2/dump.json", data)
    first, _, newest = sorted(path.stem[-14:] for path in out.glob("compare_progress_*"))
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 0
    assert kept(probe.out) == 3 and list(out.glob(f"compare_result_rank2_{newest}.csv"))
    assert not list(out.glob(f"compare_result_rank2_{first}*"))


# -- a journal that is not what it was -------------------------------------------------------------


def test_the_journal_is_json_lines_and_readable_by_its_group(begun: Any) -> None:
    out, _ = begun()
    path = journal(out)
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [list(line) for line in lines] == [["plan"], *[["pair", "read", "report"]] * 3]
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n", b"no json", b"[]", b"null\n3\n", b"\xff\xfe\x00", b'{"plan": 3}', b'{"plan": {}}\n', b'{"pair": "rank0:dump.json"}\n', b"{" * 50],
)  # fmt: skip
def test_a_journal_that_is_none(content: bytes, begun: Any, pair: Any, probe: Any) -> None:
    out, data = begun()
    mend(pair[1] / "rank2/dump.json", data)
    journal(out).write_bytes(content)
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 0, probe.err
    assert kept(probe.out) == 0


@pytest.mark.parametrize("share", [0.1, 0.35, 0.5, 0.75, 0.9, 0.999])
def test_a_journal_that_was_cut_off(
    share: float, begun: Any, pair: Any, probe: Any, undisturbed: Any
) -> None:
    """Whole lines count."""
    out, data = begun("-j", "1")
    mend(pair[1] / "rank2/dump.json", data)
    path = journal(out)
    text = path.read_bytes()
    path.write_bytes(text[: int(len(text) * share)])
    whole = path.read_bytes().count(b"\n")
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 0
    assert kept(probe.out) == max(0, whole - 1)
    if whole:
        assert files(out) == undisturbed(*pair, *FORMATS)


def test_a_journal_that_was_cut_off_is_gone_on_with(begun: Any, pair: Any, probe: Any) -> None:
    out, data = begun("-j", "1")
    path = journal(out)
    path.write_bytes(path.read_bytes()[:-20])
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 2
    assert kept(probe.out) == 2
    mend(pair[1] / "rank2/dump.json", data)
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 0
    assert kept(probe.out) == 3


DAMAGE = {
    "pair": [None, 3, {}], "read": [None, 3, [], {}, [3], [[]], "x"],
    "report": [None, 3, [], {}],
}  # fmt: skip


@pytest.mark.parametrize(
    "field, value", [(field, value) for field, values in DAMAGE.items() for value in values]
)
def test_a_line_that_is_wrong_is_compared_again(
    field: str, value: Any, begun: Any, pair: Any, probe: Any
) -> None:
    out, _ = begun("-j", "1")
    damaged(out, lambda line: line.__setitem__(field, value))
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 2, probe.err
    assert kept(probe.out) == 2


REPORT = ["label", "target", "golden", "mode", "row_count", "op_count", "levels", "matched", "target_only",
          "golden_only", "suspects", "unreadable", "unreadable_count", "files", "notes", "regions", "seconds"]  # fmt: skip


@pytest.mark.parametrize("value", [None, "x"], ids=repr)
def test_a_report_that_is_wrong_is_compared_again(value: Any, begun: Any, pair: Any, probe: Any) -> None:
    """No defect, whichever field it is; what does not look wrong may pass."""
    out, _ = begun("-j", "1")
    path = journal(out)
    text = path.read_bytes()
    problems = []
    for field in REPORT:
        path.write_bytes(text)
        damaged(out, lambda line, field=field: line["report"].__setitem__(field, value))
        if probe("compare", *pair, "-o", out, *FORMATS, "--resume") != 2:
            problems.append((field, probe.err.splitlines()[-3:]))
    assert not problems


def damaged(out: Path, damage: Callable[[dict[str, Any]], Any]) -> None:
    """Damage the journal's line of the first rank."""
    path = journal(out)
    head, line, *rest = path.read_text("utf-8").splitlines()
    fields = json.loads(line)
    damage(fields)
    path.write_text("\n".join([head, json.dumps(fields), *rest, ""]))


def test_a_journal_that_nests_too_deeply(begun: Any, pair: Any, probe: Any) -> None:
    out, _ = begun()
    with journal(out).open("a") as file:
        file.write("[" * 200_000 + "\n")
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume") == 2, probe.err[-500:]
    assert kept(probe.out) == 3


def test_a_directory_in_the_place_of_a_journal(pair: Any, probe: Any, tmp_path: Path) -> None:
    (tmp_path / "o/compare_progress_20990101000000.jsonl").mkdir(parents=True)
    assert probe("compare", *pair, "-o", tmp_path / "o", "--resume") == 0, probe.err


# -- killed and interrupted ------------------------------------------------------------------------


class Command:
    """``probe compare`` in a process group of its own, with a metric that waits while it is held."""

    def __init__(self, home: Path) -> None:
        self.hold = home / "hold/file"
        self.hold.parent.mkdir()
        self.hold.touch()
        self.out = home / "o"
        self._site = home / "site"
        info = self._site / "probe_held-1.0.dist-info"
        info.mkdir(parents=True)
        (self._site / "probe_held.py").write_text(PLUGIN)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probe-held\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[probe]\nheld = probe_held\n")
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "probe_core.cli", "compare", *map(str, arguments), "-o", str(self.out),
             "--metric", "held", "--format", "csv,jsonl"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=let_interrupts_in,
            env={**os.environ, "PYTHONPATH": str(self._site), "PROBE_TEST_HOLD": str(self.hold)},
        )  # fmt: skip
        self._processes.append(process)
        return process

    def wait_until(self, finished: int, *, held: bool = True) -> None:
        """Until so many ranks are finished, and one is held."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = [path.read_bytes().count(b"\n") - 1 for path in self.out.glob("compare_progress_*.jsonl")]
            if found and max(found) >= finished and (not held or self.hold.with_name("reached").exists()):
                return
            time.sleep(0.01)
        raise AssertionError("it did not come so far")

    def release(self) -> None:
        self.hold.unlink(missing_ok=True)

    def close(self) -> None:
        self.release()
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=20)


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    made = Command(tmp_path)
    yield made
    made.close()


@pytest.fixture
def held(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of five ranks, of which rank 2 is held by the metric."""
    target, golden = record(tmp_path / "target", range(5), off=[1]), record(tmp_path / "golden", range(5))
    write_run(target / "rank2", {**GOOD, "Torch.exp.2.forward": forward(tensor(value=HELD))})
    return target, golden


def visible(out: Path) -> dict[str, bytes]:
    return {name: data for name, data in files(out).items() if not name.startswith(".")}


@pytest.mark.parametrize(
    "way, finished",
    [(["-j", "1"], 2), (["-j", "2"], 4), (["--executor", "threads", "-j", "2"], 4), (["--executor", "processes", "-j", "6"], 2)],
)  # fmt: skip
def test_killed_midway_and_taken_up(way: list[str], finished: int, command: Command, held: Any) -> None:
    process = command.start(*held, *way)
    command.wait_until(finished)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    before = marks(command.out, "*_rank[0134]_*")
    assert len({name for name in before if name.startswith("compare_result")}) == 2 * finished
    command.release()

    again = command.start(*held, *way, "--resume")
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0 and "Traceback" not in err, err
    assert kept(out) == finished
    after = marks(command.out, "*_rank*")
    assert before.items() <= after.items(), "what was finished is not written again"
    taken_up = visible(command.out)
    shutil.rmtree(command.out)
    assert command.start(*held, *way).wait(60) == 0
    assert taken_up == files(command.out)


def test_taken_up_nothing_half_written_is_left(command: Command, held: Any) -> None:
    process = command.start(*held, "-j", "2")
    command.wait_until(4)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)
    command.release()
    assert command.start(*held, "-j", "2", "--resume").wait(60) == 0
    assert not [name for name in files(command.out) if name.startswith(".")]


def test_killed_twice(command: Command, held: Any) -> None:
    for finished, more in ((2, []), (2, ["--resume"])):
        process = command.start(*held, "-j", "1", *more)
        command.hold.with_name("reached").unlink(missing_ok=True)
        command.wait_until(finished)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
    command.release()
    again = command.start(*held, "-j", "1", "--resume")
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0 and kept(out) == 2, err


def alive(group: int) -> list[int]:
    """The processes of a group, by the system's list of them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not list its processes")
def test_workers_end_when_the_main_process_is_killed(command: Command, held: Any) -> None:
    process = command.start(*held, "-j", "2")
    command.wait_until(4)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
    command.release()
    deadline = time.monotonic() + 1
    while alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(process.pid) == []


@pytest.mark.parametrize(
    "way, finished",
    [(["-j", "1"], 2), (["-j", "2"], 4), (["--executor", "processes", "-j", "2"], 4), (["--executor", "processes", "-j", "6"], 2)],
)  # fmt: skip
def test_ctrl_c_keeps_what_is_finished(way: list[str], finished: int, command: Command, held: Any) -> None:
    process = command.start(*held, *way)
    command.wait_until(finished)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "Traceback" not in err and "defect" not in err, err
    assert "error: " not in err, "it was the user who ended it"
    names = visible(command.out)
    for rank in [0, 1, 3, 4][:finished]:
        assert f"compare_result_rank{rank}_T.csv" in names
    assert "compare_summary_T.csv" not in names
    assert not [name for name in files(command.out) if name.startswith(".")]

    command.release()
    again = command.start(*held, *way, "--resume")
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0 and kept(out) == finished, err


def test_ctrl_c_says_how_to_go_on(command: Command, held: Any) -> None:
    process = command.start(*held, "-j", "2")
    command.wait_until(4)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert "4 of 5 comparisons finished" in out
    assert "--resume compares what is left" in err


def test_ctrl_c_while_a_rank_is_read(command: Command, held: Any) -> None:
    (held[0] / "rank2/slow").touch()
    process = command.start(*held, "-j", "2")
    command.wait_until(4)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in err, err
    assert "error: " not in err, "it was the user who ended it"


def test_ctrl_c_waits_for_threads_to_end_their_rank(command: Command, held: Any) -> None:
    process = command.start(*held, "--executor", "threads", "-j", "2")
    command.wait_until(4)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.2)
    command.release()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in err, err
    assert "compare_result_rank2_T.csv" in files(command.out)


def test_what_was_interrupted_is_replaced_when_taken_up(command: Command, held: Any) -> None:
    process = command.start(*held, "-j", "2")
    command.wait_until(4)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    command.release()
    assert command.start(*held, "-j", "2", "--resume").wait(60) == 0
    assert not [name for name in files(command.out) if "interrupted" in name]


def test_a_single_rank_in_chunks_is_interrupted(command: Command, held: Any) -> None:
    process = command.start(*(side / "rank2" for side in held), "--executor", "processes", "-j", "2")
    command.out.mkdir(exist_ok=True)
    deadline = time.monotonic() + 30
    while not command.hold.with_name("reached").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in err and "error: " not in err, err
    assert all("interrupted" in name for name in files(command.out))
