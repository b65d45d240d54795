"""Many ranks at the command line: what is compared, what is said of the rest, and the same bytes wherever it runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from support.runs.recorded import forward, tensor, write_run

from probe_core import engine
from probe_core.errors import UserError
from probe_core.plugins.hookspecs import hookimpl

STAMP = "20260101000000"
FORMATS = ("--format", "xlsx,csv,jsonl")
GOOD = {f"Torch.exp.{n}.forward": forward(tensor(), output=[tensor()]) for n in range(3)}
OFF = {**GOOD, "Torch.exp.1.forward": forward(tensor(), output=[tensor(value=9.0)])}
Pair = tuple[Path, Path]


@pytest.fixture(autouse=True)
def _same_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    """All results of a test have names that can be compared, and threads are as they were behind it."""
    monkeypatch.setattr("probe_core.cli.compare.time_stamp", lambda: STAMP)
    monkeypatch.setattr(engine, "_threads", 0)


def record(root: Path, ranks: Iterable[int | str], off: Iterable[int | str] = ()) -> Path:
    """A run with these ranks, given by number or name; those in ``off`` part from the others."""
    for rank in ranks:
        write_run(root / (rank if isinstance(rank, str) else f"rank{rank}"), OFF if rank in off else GOOD)
    return root


@pytest.fixture
def pair(tmp_path: Path) -> Callable[..., Pair]:
    """``pair([0, 1], [1, 2])``: two runs with these ranks; rank 1 of the target parts from its golden."""
    return lambda ours, theirs: (
        record(tmp_path / "target", ours, off=[1]),
        record(tmp_path / "golden", theirs),
    )


def files(out: Path) -> dict[str, bytes]:
    """All that lies below ``out``, without the time in its name."""
    return {
        re.sub(r"\d{14}", "T", path.relative_to(out).as_posix()): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def results(out: Path) -> list[str]:
    """What the results in ``out`` are of: ``rank1`` where each has a rank, with the step before it."""
    names = [name for name in files(out) if "compare_result" in name and not name.startswith(".")]
    found = [re.sub(r"(debug_)?compare_result_?", r"\1", name) for name in names]
    return sorted({re.sub(r"_?T\..*", "", name) for name in found})


def summary(out: Path) -> list[dict[str, Any]]:
    """The rows of the summary, which is there in jsonl."""
    (path,) = out.glob("compare_summary_*.jsonl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def errors(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("error: ")]


# -- what is compared ------------------------------------------------------------------------------


def test_unequal_ranks_compare_what_both_have(probe: Any, pair: Any, tmp_path: Path) -> None:
    out = tmp_path / "o"
    assert probe("compare", *pair([0, 1, 3, 10], [10, 3, 2, 1]), "-o", out, *FORMATS) == 0
    assert results(out) == ["rank1", "rank10", "rank3"]
    assert "warning: Only the target has rank 0." in probe.err
    assert "warning: Only the golden has rank 2." in probe.err
    assert not errors(probe.err)
    assert "3 of 3 comparisons finished" in probe.out and "differ: rank1\n" in probe.out
    assert [row["Rank"] for row in summary(out)] == [1, 3, 10]
    assert not list(out.glob("compare_progress_*"))


def test_the_summary_says_where_each_rank_parts(probe: Any, pair: Any, tmp_path: Path) -> None:
    assert probe("compare", *pair([0, 1], [0, 1]), "-o", tmp_path / "o", *FORMATS) == 0
    good, bad = summary(tmp_path / "o")
    assert (good["Rank"], good["Differ"], good["First suspect"], good["Agree"]) == (0, 0, "", 6)
    assert (bad["Rank"], bad["Mode"], bad["Rows"], bad["Ops"]) == (1, "statistics", 6, 3)
    assert bad["First suspect"] == "Torch.exp.1.forward.output.0" and "9.0 against 1.0" in bad["Why"]
    assert {name for name in files(tmp_path / "o") if "summary" in name} == {
        f"compare_summary_T.{format}" for format in ("xlsx", "csv", "jsonl")
    }


@pytest.mark.parametrize("name", ["rank", "rank0", "proc123"])
@pytest.mark.parametrize("other", ["rank", "rank0", "proc123"])
def test_one_rank_each_is_one_comparison(
    name: str, other: str, probe: Any, pair: Any, tmp_path: Path
) -> None:
    assert probe("compare", *pair([name], [other]), "-o", tmp_path / "o", "--format", "csv", "-c") == 0
    assert list(files(tmp_path / "o")) == ["compare_result_T.csv"] and probe.err == ""


def test_one_rank_of_several_by_its_path_or_its_number(probe: Any, pair: Any, tmp_path: Path) -> None:
    target, golden = pair([0, 1], [0, 1])
    for number, paths in enumerate(([target / "rank1", golden], [target, golden, "--rank", "1"])):
        assert probe("compare", *paths, "-o", tmp_path / f"o{number}", "-c") == 0
        assert results(tmp_path / f"o{number}") == ["rank1"] and "9.0 against 1.0" in probe.out
    assert probe.err == "", "nobody asked for the other"
    assert probe("compare", target / "rank1", golden / "rank0", "-o", tmp_path / "cross", "-c") == 0
    assert results(tmp_path / "cross") == [""]


@pytest.fixture
def steps(tmp_path: Path) -> Pair:
    """Runs of four and three steps; rank 1 of step 2 parts."""
    for step in range(4):
        record(tmp_path / f"target/step{step}", [0, 1], off=[1] if step == 2 else [])
        if step != 1:
            record(tmp_path / f"golden/step{step}", [1, 0])
    return tmp_path / "target", tmp_path / "golden"


def test_each_step_into_its_own_directory(probe: Any, steps: Pair, tmp_path: Path) -> None:
    out = tmp_path / "o"
    assert probe("compare", *steps, "-o", out, *FORMATS) == 0
    assert results(out) == [f"step{step}/rank{rank}" for step in (0, 2, 3) for rank in (0, 1)]
    assert "warning: Only the target has step1." in probe.err
    assert "differ: step2/rank1\n" in probe.out
    assert [(row["Step"], row["Rank"]) for row in summary(out)] == [
        (f"step{step}", rank) for step in (0, 2, 3) for rank in (0, 1)
    ]
    assert {name for name in files(out) if name.startswith("step2/advisor")} == {
        f"step2/advisor_rank{rank}_T.txt" for rank in (0, 1)
    }


@pytest.mark.parametrize(
    "options, says",
    [
        (["-dm", "nowhere.yaml"], "The mapping file nowhere.yaml cannot be read"),
        (["-dm", "broken.yaml"], "is not valid yaml"),
        (["-am", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["-cm", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["-lm", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["--match", "nope"], 'no matcher called "nope"'),
        (["--metric", "nope"], 'no metric called "nope"'),
        (["--format", "nope"], 'no reporter called "nope"'),
    ],
)
@pytest.mark.parametrize("broken", [False, True], ids=["sound", "unreadable"])
def test_a_mistake_in_an_option_is_one_error_before_any_run_is_read(
    options: list[str], says: str, broken: bool, probe: Any, steps: Pair, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.yaml").write_text("a: [")
    if broken:
        for dump in steps[0].rglob("dump.json"):
            dump.write_text("{")
    assert probe("compare", *steps, "-o", "o", *options) == 2
    (line,) = errors(probe.err)
    assert says in line and "step0" not in line and "--resume" not in probe.err and probe.out == ""
    assert not files(Path("o"))


def test_a_mapping_that_fits_no_rank_is_one_error(probe: Any, steps: Pair, tmp_path: Path) -> None:
    mapping = tmp_path / "map.yaml"
    mapping.write_text("Torch.exp.0.forward.input.9: Torch.exp.0.forward.input.0\n")
    assert probe("compare", *steps, "-o", tmp_path / "o", "-dm", mapping) == 2
    (line,) = errors(probe.err)
    assert "names 1 row(s) that the target run does not have" in line
    assert "0 of 6 comparisons finished" in probe.out and "step0/rank0, step0/rank1, step2/rank0" in probe.out
    assert "--resume" not in probe.err
    assert not list((tmp_path / "o").glob("compare_progress_*")), "there is nothing to resume"


@pytest.mark.parametrize("failing", [None, "step2/rank0"])
def test_ranks_are_reported_in_order_whichever_ends_first(
    failing: str | None, probe: Any, steps: Pair, tmp_path: Path, monkeypatch: Any
) -> None:
    from probe_core.ranks import ranks

    def reversed_order(*arguments: Any) -> Iterable[tuple[int, Any]]:
        return reversed(list(as_they_end(*arguments)))

    as_they_end = ranks.as_finished
    monkeypatch.setattr(ranks, "as_finished", reversed_order)
    if failing is not None:
        (steps[0] / failing / "dump.json").write_text("{")
    code = probe("compare", *steps, "-o", tmp_path / "o", "--executor", "threads", "-j", "2")
    assert code == (2 if failing else 0)
    expected = [f"step{step}/rank{rank}" for step in (0, 2, 3) for rank in (0, 1)]
    assert re.findall(r"^(step\S+): .* rows of", probe.out, re.M) == [n for n in expected if n != failing]


def test_what_was_finished_earlier_is_reported_in_its_place(probe: Any, steps: Pair, tmp_path: Path) -> None:
    damaged = steps[0] / "step0/rank0/dump.json"
    sound = damaged.read_bytes()
    damaged.write_text("{")
    assert probe("compare", *steps, "-o", tmp_path / "o") == 2
    damaged.write_bytes(sound)
    assert probe("compare", *steps, "-o", tmp_path / "o", "--resume") == 0
    assert re.findall(r"^(step\S+): .* rows of", probe.out, re.M)[0] == "step0/rank0"


def test_an_interruption_reports_what_has_ended(
    probe: Any, steps: Pair, tmp_path: Path, monkeypatch: Any
) -> None:
    from probe_core.ranks import ranks

    def interrupted(*arguments: Any) -> Iterable[tuple[int, Any]]:
        outcomes = list(as_they_end(*arguments))
        yield from outcomes[:0:-1]
        raise KeyboardInterrupt

    as_they_end = ranks.as_finished
    monkeypatch.setattr(ranks, "as_finished", interrupted)
    assert probe("compare", *steps, "-o", tmp_path / "o", "--executor", "threads", "-j", "1") == 130
    expected = [f"step{step}/rank{rank}" for step in (0, 2, 3) for rank in (0, 1)]
    assert re.findall(r"^(step\S+): .* rows of", probe.out, re.M) == expected[1:]
    assert "5 of 6 comparisons finished" in probe.out


def test_chosen_steps_and_ranks(probe: Any, steps: Pair, tmp_path: Path) -> None:
    def chosen(*options: str) -> list[str]:
        out = tmp_path / "-".join(options)
        assert probe("compare", *steps, "-o", out, "-c", *options) == 0, probe.err
        return results(out)

    assert chosen("--step", "0,2-3", "--rank", "1") == ["step0/rank1", "step2/rank1", "step3/rank1"]
    assert chosen("--step", "2") == ["rank0", "rank1"]
    assert chosen("--step", "2", "--rank", "1") == ["rank1"]
    assert chosen("--rank", "0") == ["step0/rank0", "step2/rank0", "step3/rank0"]


@pytest.mark.parametrize(
    "options, says, choice",
    [
        (["--step", "1"], "golden has no step 1.", "    step0"),
        (["--step", "7-9"], "target has no step 7, 8, 9.", "    step1"),
        (["--rank", "0,5"], "have rank 5.", "    0"),
        (["--step", "x"], '"x" is no number', "See 'probe compare --help'."),
        (["--rank", "3-1"], '"3-1" is no range', "See 'probe compare --help'."),
        (["--jobs", "0"], "--jobs", "See 'probe compare --help'."),
        (["--executor", "abacus"], 'There is no executor called "abacus"', "    processes"),
        (["--executor", "threads", "--scheduler", "tcp://x:1"], "The executor threads has no scheduler", "--scheduler"),
        (["--executor", "processes", "--scheduler", "tcp://x:1"], "The executor processes has no sched", "--scheduler"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_met(
    options: list[str], says: str, choice: str, probe: Any, steps: Pair, tmp_path: Path
) -> None:
    assert probe("compare", *steps, "-o", tmp_path / "o", *options) == 2
    (line,) = errors(probe.err)
    assert says in line and choice in probe.err and "Traceback" not in probe.err
    assert not results(tmp_path / "o")


def test_the_numbers_of_the_summary_reach_fail_on(probe: Any, pair: Any, tmp_path: Path) -> None:
    paths = pair([0, 1], [0, 1])
    assert probe("compare", *paths, "-o", tmp_path / "o", "--fail-on", "error") == 1
    assert probe("compare", *paths, "-o", tmp_path / "o", "--fail-on", "error", "--rank", "0") == 0


def test_graph_and_pynative_below_the_root(probe: Any, tmp_path: Path) -> None:
    for side in ("t", "g"):
        for part in ("graph", "pynative"):
            record(
                tmp_path / side / part / "step0", [0, 1], off=[1] if (side, part) == ("t", "graph") else []
            )
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "o", "-c") == 0
    assert results(tmp_path / "o") == [
        f"{part}/step0/rank{n}" for part in ("graph", "pynative") for n in (0, 1)
    ]
    assert "differ: graph/step0/rank1\n" in probe.out


# -- the two sorts of files ------------------------------------------------------------------------


@pytest.fixture
def both(tmp_path: Path) -> Callable[..., Pair]:
    """Runs whose ranks hold records of calls and of variables that were saved on their own."""

    def make(*ranks: str) -> Pair:
        home = tmp_path / "-".join(ranks)
        for side, value in (("t", 9.0), ("g", 1.0)):
            for rank in ranks:
                write_run(home / side / rank, OFF if side == "t" else GOOD)
                write_run(home / side / rank, {"loss.0.debug": tensor(value=value)}, name="debug.json")
        return home / "t", home / "g"

    return make


def test_both_sorts_of_files_are_compared(probe: Any, both: Any, tmp_path: Path) -> None:
    assert probe("compare", *both("rank0", "rank1"), "-o", tmp_path / "o", "-c", *FORMATS) == 0
    assert results(tmp_path / "o") == ["debug_rank0", "debug_rank1", "rank0", "rank1"]
    assert len(summary(tmp_path / "o")) == 4
    assert probe("compare", *both("rank"), "-o", tmp_path / "p", "-c", *FORMATS) == 0
    assert results(tmp_path / "p") == ["", "debug"]


def test_both_sorts_of_files_have_their_own_advice(probe: Any, both: Any, tmp_path: Path) -> None:
    assert probe("compare", *both("rank0", "rank1"), "-o", tmp_path / "o", "-j", "1") == 0
    advice = [text for name, text in files(tmp_path / "o").items() if "advisor_rank0" in name]
    assert any(b"Torch.exp.1.forward.output.0" in text for text in advice)
    assert any(b"loss.0.debug" in text for text in advice)


def test_the_summary_tells_both_sorts_of_files_apart(probe: Any, both: Any, tmp_path: Path) -> None:
    assert probe("compare", *both("rank0", "rank1"), "-o", tmp_path / "o", "-c", *FORMATS) == 0
    names = [
        {name: row[name] for name in row if name in ("Step", "Rank", "File", "Records")}
        for row in summary(tmp_path / "o")
    ]
    assert len({json.dumps(name) for name in names}) == 4


# -- inputs at fault: one sentence, and the other ranks --------------------------------------------


def empty(rank: Path) -> None:
    (rank / "dump.json").unlink()


def gone(rank: Path) -> None:
    shutil.rmtree(rank)


def cut(rank: Path) -> None:
    path = rank / "dump.json"
    path.write_bytes(path.read_bytes()[:-200])


def write(data: bytes) -> Callable[[Path], Any]:
    return lambda rank: (rank / "dump.json").write_bytes(data)


def directory(rank: Path) -> None:
    empty(rank)
    (rank / "dump.json").mkdir()


def doubled(rank: Path) -> None:
    shutil.copytree(rank, rank.with_name("rank01"))


def bad_stack(rank: Path) -> None:
    (rank / "stack.json").write_text('{"x": 3}')


FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (empty, "There is no dump.json or debug.json in"),
    "cut": (cut, "is not valid JSON"),
    "no bytes": (write(b""), "dump.json"),
    "binary": (write(bytes(range(256)) * 9), "dump.json"),
    "no data": (write(b'{"task": "statistics", "framework": "pytorch"}'), 'has no "data"'),
    "other task": (write(json.dumps({"task": "tensor", "framework": "pytorch", "data": GOOD}).encode()), "holds"),
    "nothing in common": (
        write(json.dumps({"task": "statistics", "framework": "pytorch", "data": {"Torch.a.0.forward": GOOD["Torch.exp.0.forward"]}}).encode()),
        "No row of the target has a partner",
    ),
    "a directory": (directory, "dump.json"),
    "bad stack": (bad_stack, "stack file"),
}  # fmt: skip


@pytest.mark.parametrize(
    "side, fault",
    [
        (side, fault)
        for side in ("target", "golden")
        for fault in FAULTS
        if (side, fault) != ("golden", "bad stack")
    ],
)
def test_a_rank_at_fault_is_one_error_and_the_others_are_compared(
    side: str, fault: str, probe: Any, pair: Any, tmp_path: Path
) -> None:
    paths = pair([0, 1, 2], [0, 1, 2])
    damage, says = FAULTS[fault]
    damage(tmp_path / side / "rank1")
    assert probe("compare", *paths, "-o", tmp_path / "o", "-j", "1", *FORMATS) == 2
    (line,) = errors(probe.err)
    assert says in line and "rank1" in line and "Traceback" not in probe.err
    assert results(tmp_path / "o") == ["rank0", "rank2"]
    rows = {row["Rank"]: row["Error"] for row in summary(tmp_path / "o")}
    assert rows[0] == rows[2] == "" and (fault == "empty" or says in rows[1])
    if fault != "empty":
        assert "2 of 3 comparisons finished" in probe.out and "failed: rank1\n" in probe.out


def test_two_ranks_of_one_number_leave_the_others(probe: Any, pair: Any, tmp_path: Path) -> None:
    paths = pair([0, 1, 2], [0, 1, 2])
    doubled(tmp_path / "target/rank1")
    assert probe("compare", *paths, "-o", tmp_path / "o", *FORMATS) == 2
    (line,) = errors(probe.err)
    assert "two ranks of number 1" in line
    assert results(tmp_path / "o") == ["rank0", "rank2"]


def test_two_ranks_of_one_number_are_said(probe: Any, pair: Any, tmp_path: Path) -> None:
    paths = pair([0, 1, 2], [0, 1, 2])
    doubled(tmp_path / "target/rank1")
    assert probe("compare", *paths, "-o", tmp_path / "o") == 2
    (line,) = errors(probe.err)
    assert "two ranks of number 1" in line and "rank01" in line


@pytest.mark.parametrize("side", ["target", "golden"])
def test_a_rank_without_partner_is_a_warning(side: str, probe: Any, pair: Any, tmp_path: Path) -> None:
    paths = pair([0, 1, 2], [0, 1, 2])
    gone(tmp_path / side / "rank1")
    assert probe("compare", *paths, "-o", tmp_path / "o") == 0
    assert not errors(probe.err) and "has rank 1." in probe.err
    assert results(tmp_path / "o") == ["rank0", "rank2"]


def test_all_ranks_at_fault(probe: Any, pair: Any, tmp_path: Path) -> None:
    paths = pair([0, 1], [0, 1])
    for rank in (0, 1):
        cut(tmp_path / f"target/rank{rank}")
    assert probe("compare", *paths, "-o", tmp_path / "o", *FORMATS) == 2
    assert len(errors(probe.err)) == 2 and "0 of 2 comparisons finished" in probe.out
    assert all("is not valid JSON" in row["Error"] for row in summary(tmp_path / "o"))


def test_stacks_and_modules_may_be_missing(probe: Any, pair: Any, tmp_path: Path) -> None:
    """A rank has them or not; what it lacks is not shown of it, and costs nothing."""
    paths = pair([0, 1, 2], [0, 1, 2])
    for side in ("target", "golden"):
        (tmp_path / side / "rank0/stack.json").write_text(
            json.dumps({"Torch.exp.0.forward": ["File train.py, line 3"]})
        )
        (tmp_path / side / "rank1/construct.json").write_text(
            json.dumps({"Torch.exp.1.forward": "Module.net.forward.0"})
        )
        (tmp_path / side / "rank2/construct.json").write_text("{")
    assert probe("compare", *paths, "-o", tmp_path / "o", "--format", "csv") == 0, probe.err
    heads = {name: data.splitlines()[0] for name, data in files(tmp_path / "o").items() if "result" in name}
    assert [b"NPU_Stack_Info" in head for head in heads.values()] == [True, False, False]


def test_a_stack_file_that_was_asked_for_and_is_missing(probe: Any, pair: Any, tmp_path: Path) -> None:
    target, golden = pair([0, 1], [0, 1])
    file = tmp_path / "compare.json"
    file.write_text(
        json.dumps({"npu_path": str(target), "bench_path": str(golden), "stack_path": str(tmp_path / "no")})
    )
    assert probe("compare", "-i", file, "-s", "-o", tmp_path / "o") == 2
    assert "Traceback" not in probe.err and len(errors(probe.err)) == 1


def test_unreadable_tensors_of_a_rank(probe: Any, runs: Any, tmp_path: Path) -> None:
    base = shutil.copytree(runs("tensor_L1_dist2"), tmp_path / "runs")
    data = sorted((base / "npu_dump/step0/rank1/dump_tensor_data").iterdir())
    for path in data[:7]:
        path.write_bytes(b"PK")
    said = []
    for number, options in enumerate((["-j", "1"], ["-j", "2"], ["-j", "4", "--executor", "processes"])):
        out = tmp_path / f"o{number}"
        assert probe("compare", base / "npu_dump", base / "bench_dump", "-o", out, *options, *FORMATS) == 2
        assert "tensor file(s) could not be read" in probe.err
        said.append((probe.err, files(out)))
        assert "could not be read" in summary(out)[1]["Error"] and summary(out)[0]["Error"] == ""
    assert said[0] == said[1] == said[2]


# -- where it runs makes no difference -------------------------------------------------------------

WAYS = {
    "threads": ["--executor", "threads", "-j", "2"],
    "more threads than ranks": ["--executor", "threads", "-j", "5"],
    "processes": ["-j", "2"],
    "a process": ["--executor", "processes", "-j", "1"],
    "as many processes": ["--executor", "processes", "-j", "2"],
    "chunks": ["--executor", "processes", "-j", "3"],
}


@pytest.fixture(scope="module")
def two_steps(runs: Any, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A recorded run of two ranks, twice as two steps."""
    base = tmp_path_factory.mktemp("steps")
    for side in ("npu_dump", "bench_dump"):
        for step in (0, 1):
            shutil.copytree(runs("stat_mix_dist2") / side / "step0", base / side / f"step{step}")
    return base / "npu_dump", base / "bench_dump"


@pytest.mark.parametrize("case", ["tensor_L1_dist2", "two steps", "-da"])
def test_same_bytes_wherever_it_runs(
    case: str, probe: Any, runs: Any, two_steps: Pair, tmp_path: Path
) -> None:
    base = runs("tensor_L1_dist2" if case == "-da" else case) if case != "two steps" else two_steps[0].parent
    options = ["-hl", *FORMATS, *(["-da"] if case == "-da" else [])]
    found, said = {}, {}
    for name, way in {"one by one": ["-j", "1"], **WAYS}.items():
        out = tmp_path / name
        assert probe("compare", base / "npu_dump", base / "bench_dump", "-o", out, *options, *way) == 0
        found[name] = files(out)
        said[name] = sorted(re.sub(r"in \d+\.\d s", "", probe.out).replace(str(out), "OUT").splitlines())
    for name in WAYS:
        assert found[name].keys() == found["one by one"].keys(), name
        assert found[name] == found["one by one"], name
        assert said[name] == said["one by one"], name


def test_the_time_of_the_work_does_not_reach_the_files(
    probe: Any, pair: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    paths = pair([0, 1], [0, 1])
    found = []
    for stamp in (STAMP, "20270202020202"):
        monkeypatch.setattr("probe_core.cli.compare.time_stamp", lambda stamp=stamp: stamp)
        assert probe("compare", *paths, "-o", tmp_path / stamp, *FORMATS) == 0
        found.append(files(tmp_path / stamp))
    assert found[0] == found[1]


@pytest.mark.parametrize("case", ["tensor_L1_edge", "stat_L1_edge", "md5_L1_edge", "debug_tensor"])
def test_a_single_rank_in_chunks_gives_the_same_bytes(
    case: str, probe: Any, runs: Any, tmp_path: Path
) -> None:
    base = runs(case)
    found = []
    for number, way in enumerate(
        ([], ["--executor", "threads"], *[["--executor", "processes", "-j", n] for n in "13"])
    ):
        out = tmp_path / f"o{number}"
        options = (
            ["-o", out, "-hl", "--metric", "ulp", *FORMATS]
            if case == "tensor_L1_edge"
            else ["-o", out, *FORMATS]
        )
        assert probe("compare", base / "npu_dump", base / "bench_dump", *options, *way) == 0, probe.err
        found.append(files(out))
    assert found[0] and all(one == found[0] for one in found)


def test_a_single_rank_at_fault_in_chunks(probe: Any, pair: Any, tmp_path: Path) -> None:
    target, golden = pair([0], [0])
    cut(target / "rank0")
    assert probe("compare", target, golden, "-o", tmp_path / "o", "--executor", "processes", "-j", "2") == 2
    (line,) = errors(probe.err)
    assert "is not valid JSON" in line and "Traceback" not in probe.err


@pytest.mark.parametrize("way", [["-j", "1"], *WAYS.values()])
def test_plugins_are_told_of_every_rank(
    way: list[str], probe: Any, pair: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    """Once each, in the process that was called."""
    told: list[tuple[str, str]] = []
    watcher = types.ModuleType("plugin_watcher")
    watcher.probe_run_started = hookimpl(  # type: ignore[attr-defined]
        lambda target, golden: told.append(("started", Path(target).parent.name)),
        specname="probe_run_started",
    )
    watcher.probe_run_finished = hookimpl(  # type: ignore[attr-defined]
        lambda report: told.append(("finished", report.label)), specname="probe_run_finished"
    )
    from probe_core.plugins.manager import Manager, Plugin

    begin = Manager.__init__

    def with_watcher(self: Manager, *arguments: Any) -> None:
        begin(self, *arguments)
        self._add(Plugin("watcher", "watcher", "1"), lambda: watcher)

    monkeypatch.setattr(Manager, "__init__", with_watcher)
    assert probe("compare", *pair([0, 1], [0, 1]), "-o", tmp_path / "o", *way) == 0
    assert sorted(told) == [(what, f"rank{n}") for what in ("finished", "started") for n in (0, 1)]


def test_a_long_path_for_temporary_files(pair: Any, tmp_path: Path) -> None:
    """Batch systems give each job a directory of its own."""
    home = tmp_path / ("job" * 40)
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "probe_core.cli", "compare", *map(str, pair([0, 1], [0, 1])), "-o", str(tmp_path / "o"), "-j", "2"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "TMPDIR": str(home)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_no_temporary_files_are_left(probe: Any, pair: Any, tmp_path: Path) -> None:
    paths = pair([0, 1, 2], [0, 1, 2])
    cut(tmp_path / "golden/rank2")
    assert probe("compare", *paths, "-o", tmp_path / "o", *FORMATS) == 2
    left = [name for name in files(tmp_path / "o") if "part" in name or name.startswith(".")]
    assert left == []


def test_executors_are_listed(probe: Any) -> None:
    assert probe("plugins", "--json") == 0
    listed = {
        plugin["name"]: list(plugin["contributes"].get("executors", ())) for plugin in json.loads(probe.out)
    }
    assert listed["core"] == ["threads", "processes"]
    assert probe("plugins") == 0
    assert "processes of this machine" in probe.out


# -- workers that die ------------------------------------------------------------------------------

DEADLY = """
import os, signal
from probe_core.plugins.hookspecs import hookimpl
from probe_core.model import Measurement
from probe_core.plugins.specs import MetricSpec, Needs

class Deadly:
    def measure(self, pair):
        value = pair.pair.target.value.statistics.max
        if value == 666:
            os._exit(9)
        if value == 667:
            os.kill(os.getpid(), signal.SIGKILL)
        if value == 668:
            raise MemoryError
        return [Measurement(1.0)]

@hookimpl
def probe_metrics():
    return [MetricSpec("deadly", "dies", "probe_deadly:Deadly", ("Deadly",), Needs.STATISTICS)]
"""


@pytest.fixture(scope="module")
def deadly(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """``deadly("compare", …)``: probe in a process of its own, with a metric that dies over a value."""
    site = tmp_path_factory.mktemp("site")
    (site / "probe_deadly.py").write_text(DEADLY)
    info = site / "probe_deadly-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probe-deadly\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[probe]\ndeadly = probe_deadly\n")

    def run(*arguments: str | Path) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "probe_core.cli", *map(str, arguments), "--metric", "deadly"],
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(site)},
        )

    return run


@pytest.mark.parametrize(
    "value, way",
    [
        (666, ["-j", "2"]),
        (667, ["--executor", "processes", "-j", "2"]),
        (666, ["--executor", "processes", "-j", "6"]),
    ],
)
def test_a_worker_that_is_killed_loses_only_its_rank(
    value: int, way: list[str], deadly: Any, pair: Any, tmp_path: Path
) -> None:
    target, golden = pair([0, 2, 3], [0, 1, 2, 3])
    write_run(target / "rank1", {**GOOD, "Torch.exp.1.forward": forward(tensor(value=value))})
    done = deadly("compare", target, golden, "-o", tmp_path / "o", "-c", "--format", "jsonl", *way)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    (line,) = errors(done.stderr)
    assert line.startswith("error: rank1: The process that compared it died")
    assert "--jobs" in done.stderr and "--resume" in done.stderr
    assert results(tmp_path / "o") == ["rank0", "rank2", "rank3"]
    assert [bool(row["Error"]) for row in summary(tmp_path / "o")] == [False, True, False, False]


def test_a_worker_that_is_killed_leaves_no_half_written_file(deadly: Any, pair: Any, tmp_path: Path) -> None:
    target, golden = pair([0], [0, 1])
    write_run(target / "rank1", {**GOOD, "Torch.exp.2.forward": forward(tensor(value=666))})
    deadly("compare", target, golden, "-o", tmp_path / "o", "-c", "--format", "csv", "-j", "2")
    assert not [name for name in files(tmp_path / "o") if "rank1" in name]


def test_a_single_rank_whose_worker_is_killed(deadly: Any, pair: Any, tmp_path: Path) -> None:
    target, golden = pair([], [0])
    write_run(target / "rank0", {**GOOD, "Torch.exp.1.forward": forward(tensor(value=666))})
    done = deadly("compare", target, golden, "-o", tmp_path / "o", "--executor", "processes", "-j", "2")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "The process that compared it died" in done.stderr
    assert files(tmp_path / "o") == {}


def test_memory_that_runs_out_in_a_metric_costs_its_cells(deadly: Any, pair: Any, tmp_path: Path) -> None:
    target, golden = pair([0], [0, 1])
    write_run(target / "rank1", {**GOOD, "Torch.exp.1.forward": forward(tensor(value=668))})
    done = deadly("compare", target, golden, "-o", tmp_path / "o", "--format", "csv")
    assert (
        done.returncode == 0
        and b"Metric failed: MemoryError" in files(tmp_path / "o")["compare_result_rank1_T.csv"]
    )


def test_a_defect_in_a_rank_is_a_defect(pair: Any, tmp_path: Path, probe: Any, monkeypatch: Any) -> None:
    from probe_reporters.csv import CsvWriter

    def broken(*_: Any) -> None:
        raise RuntimeError("oh dear")

    monkeypatch.setattr(CsvWriter, "write", broken)
    for way in (["-j", "1"], ["--executor", "threads"]):
        assert probe("compare", *pair([0, 1], [0, 1]), "-o", tmp_path / "o", "--format", "csv", *way) == 70
        assert "RuntimeError: oh dear" in probe.err and "defect of probe" in probe.err
        assert not [name for name in files(tmp_path / "o") if name.endswith((".csv", ".part"))]


# -- the function ----------------------------------------------------------------------------------


def test_compare_distributed_gives_the_ranks_in_order(pair: Any, tmp_path: Path, capsys: Any) -> None:
    from probe_pytorch import compare_distributed

    target, golden = pair([10, 2, 1, 0], [0, 1, 2, 10])
    reports = compare_distributed(str(target), str(golden), str(tmp_path / "o"))
    assert [report.label for report in reports] == ["rank0", "rank1", "rank2", "rank10"]
    assert [bool(report.suspects) for report in reports] == [False, True, False, False]
    names = [
        f"{name}_rank{n}_T.{end}"
        for name, end in (("advisor", "txt"), ("compare_result", "xlsx"))
        for n in (0, 1, 10, 2)
    ]
    assert sorted(files(tmp_path / "o")) == sorted([*names, "compare_summary_T.xlsx"])
    assert "9.0 against 1.0" in capsys.readouterr().out


def test_compare_distributed_gives_the_files_of_the_command(probe: Any, runs: Any, tmp_path: Path) -> None:
    from probe_pytorch import compare_distributed

    steps = [runs("tensor_L1_dist2") / side / "step0" for side in ("npu_dump", "bench_dump")]
    compare_distributed(*map(str, steps), str(tmp_path / "a"), highlight=True, is_print_compare_log=False)
    assert probe("compare", *steps, "-o", tmp_path / "b", "-hl") == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_compare_distributed_with_a_bad_rank(pair: Any, tmp_path: Path) -> None:
    from probe_pytorch import compare_distributed

    target, golden = pair([0, 1, 2], [0, 1, 2])
    cut(golden / "rank1")
    with pytest.raises(UserError, match="1 of 3 ranks cannot be compared") as caught:
        compare_distributed(str(target), str(golden), str(tmp_path / "o"), auto_analyze=False)
    (choice,) = caught.value.choices
    assert choice.startswith("rank1: ") and "is not valid JSON" in choice
    assert results(tmp_path / "o") == ["rank0", "rank2"]


def test_compare_distributed_with_an_empty_rank(pair: Any, tmp_path: Path) -> None:
    from probe_pytorch import compare_distributed

    target, golden = pair([0, 1, 2], [0, 1, 2])
    empty(target / "rank1")
    with pytest.raises(UserError, match="rank1"):
        compare_distributed(str(target), str(golden), str(tmp_path / "o"))
    assert results(tmp_path / "o") == ["rank0", "rank2"]


@pytest.mark.parametrize(
    "wrong", [{"suffix": "x"}, {"highlight": 1}, {"npu_dump_dir": 3}, {"output_path": 3}]
)
def test_compare_distributed_checks_its_arguments(wrong: dict[str, Any], pair: Any, tmp_path: Path) -> None:
    from probe_pytorch import compare_distributed

    target, golden = pair([0, 1], [0, 1])
    right = {"npu_dump_dir": str(target), "bench_dump_dir": str(golden), "output_path": str(tmp_path / "o")}
    with pytest.raises(UserError):
        compare_distributed(**{**right, **wrong})
    assert not (tmp_path / "o").exists()
