"""Resumed comparisons: finished ranks stay, the others are compared."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from probe_ranks.report_json import parse_report, serialize_report
from support.runs.comparing import compare
from support.runs.recorded import forward, tensor, write_run
from support.runs.resumed import (  # noqa: F401
    FORMATS,
    GOOD,
    _stamps,
    begun,
    cut,
    files,
    kept,
    marks,
    mend,
    pair,
    record,
    undisturbed,
)

from probe_core.model.plan import Plan
from probe_core.plugins.manager import Manager

# -- in one process --------------------------------------------------------------------------------


WAYS = [["-j", "1"], ["-j", "2"], ["--executor", "threads"], ["--executor", "processes", "-j", "6"]]


@pytest.mark.parametrize("way", WAYS)
def test_only_what_is_left_is_compared(way: list[str], begun: Any, pair: Any, probe: Any, undisturbed: Any) -> None:
    out, data = begun(*way)
    before = marks(out, "*_rank*")
    mend(pair[1] / "rank2/dump.json", data)
    assert probe("compare", *pair, "-o", out, *FORMATS, "--resume", *way) == 0
    assert "4 of 4 comparisons finished, 3 of them in an earlier run" in probe.out
    assert "differ: rank1\n" in probe.out and "Torch.exp.1.forward returns values that differ" in probe.out
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
    assert kept(probe.out) == 2 and "input.0: max off by 6 times" in probe.out


@pytest.mark.parametrize("name", ["stack.json", "construct.json"])
def test_a_changed_file_beside_the_records_is_an_input_too(name: str, begun: Any, pair: Any, probe: Any) -> None:
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


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("change", [["-j", "1"], ["--executor", "threads"], ["--rank", "0-3"], ["--fail-on", "error"]])
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


def test_another_step_is_not_taken_for_the_one_that_is_finished(probe: Any, tmp_path: Path, undisturbed: Any) -> None:
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


@pytest.mark.parametrize("gone", ["compare_result_rank0_*.csv", "compare_result_rank0_*.xlsx", "advisor_rank0_*"])
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


def test_what_was_found_and_the_answer_are_kept(probe: Any, tmp_path: Path) -> None:
    """The verdict over all ranks, its causes and its coverage are those of a comparison in one go."""
    target, golden = record(tmp_path / "t", [0, 1, 2], off=[1]), record(tmp_path / "g", [0, 1, 2])
    dump = golden / "rank2/dump.json"
    data = dump.read_bytes()
    dump.write_bytes(data[:-20])
    assert probe("compare", target, golden, "-o", tmp_path / "o", *FORMATS, "-j", "1") == 2
    dump.write_bytes(data)
    assert probe("compare", target, golden, "-o", tmp_path / "o", *FORMATS, "-j", "1", "--resume") == 0
    assert kept(probe.out) == 2
    resumed = probe.out.splitlines()[0]
    assert probe("compare", target, golden, "-o", tmp_path / "p", *FORMATS, "-j", "1") == 0
    assert probe.out.splitlines()[0] == resumed and resumed.startswith("DIVERGED: on rank 1, Torch.exp.1.forward")
    (one,), (other,) = ((tmp_path / name).glob("answer_*.json") for name in "op")
    assert one.read_bytes() == other.read_bytes()


def test_a_report_as_plain_data_and_back(tmp_path: Path) -> None:
    target, golden = record(tmp_path / "t", [1], off=[1]), record(tmp_path / "g", [1])
    plan = Plan(target, golden, tmp_path / "o", "0", formats=("csv",))
    (report,) = compare(plan, Manager())
    plain = json.loads(json.dumps(serialize_report(report)))
    again = parse_report(plain)
    assert again.answer == report.answer and report.answer is not None
    assert again.suspects == report.suspects != ()
    assert json.loads(json.dumps(serialize_report(again))) == plain
    for broken in ({"answer": {}}, {"suspects": {}}, {"answer": 3}):
        with pytest.raises((LookupError, TypeError, ValueError)):
            parse_report({**plain, **broken})
