"""The summary over all ranks: a row for each, and a few lines at the end of what is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook
from probe_reporters.summary import (
    AGREED_ROWS_NOTE,
    HEADERS,
    NOT_MEASURED_NOTE,
    ComparisonSummary,
    OverallSummary,
    SummaryAnswerer,
    create_row,
)
from support.runs.many_ranks import FORMATS, files, pair, record, steps, summary  # noqa: F401

from probe_core.errors import UserError
from probe_core.model import Level, Mode, RowCounts, Side, Suspect
from probe_core.model.answers import Answer, Coverage, Outcome
from probe_core.model.plan import Plan
from probe_core.model.report import FailureNote, Report
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import AllResults, PairResult
from probe_core.store.layout import Pairing, RunPair


def pair_of(rank: int) -> RunPair:
    return RunPair(Path(f"t/rank{rank}/dump.json"), Path(f"g/rank{rank}/dump.json"), "", f"rank{rank}", rank)


def finished(rank: int, *, suspects: int = 0, measured: int = 3, **fields: Any) -> PairResult:
    suspect = Suspect("Torch.a.0", "Torch.a.0.output.0", Side.OUTPUT, "4", Level.ERROR, "differs", "M", "x.py")
    counts = RowCounts(dict.fromkeys(Level, 2), measured, 5, 1, 2)
    report = Report(
        f"rank{rank}", Path("t"), Path("g"), Mode.STATISTICS, 8, 4, counts, (suspect,) * suspects, **fields
    )  # fmt: skip
    return PairResult(pair_of(rank), report)


def failed(rank: int) -> PairResult:
    return PairResult(pair_of(rank), error=UserError("It is damaged.", "Record it again."))


def compared(tmp_path: Path, ended: list[PairResult], count: int | None = None) -> AllResults:
    plan = Plan(Path("t"), Path("g"), tmp_path / "o", "20260101000000", formats=("csv", "xlsx"))
    pairs = [pair_of(rank) for rank in range(len(ended) if count is None else count)]
    return AllResults(plan, Manager(), Pairing(pairs, [], []), ended)


def printed(of: AllResults, capsys: pytest.CaptureFixture[str]) -> list[str]:
    (shown,) = [one for one in SummaryAnswerer().conclude(of) if isinstance(one, OverallSummary)]
    assert shown.is_judged
    shown.show()
    return capsys.readouterr().out.splitlines()


def test_the_cells_of_a_rank() -> None:
    row = dict(zip(HEADERS, create_row(finished(3, suspects=2, unreadable_count=1, problems=["no metric"]))))
    assert row == {
        "Step": "", "Rank": 3, "File": "dump.json", "Mode": "statistics", "Rows": 8, "Ops": 4, "Fail": 2,
        "To check": 2, "Pass": 2, "Not measured": 2, "Matched": 5, "Only NPU": 1, "Only Bench": 2,
        "First suspect": "Torch.a.0.output.0", "Why": "differs", "Module": "M", "Line of code": "x.py",
        "Error": "1 tensor file could not be read; no metric",
    }  # fmt: skip
    row = dict(zip(HEADERS, create_row(failed(1)), strict=True))
    assert row["Error"] == "It is damaged." and row["Rank"] == 1
    assert all(row[name] == "" for name in HEADERS[3:-1])


def test_a_single_comparison_has_no_summary(tmp_path: Path) -> None:
    (only,) = SummaryAnswerer().conclude(compared(tmp_path, [finished(0)]))
    assert isinstance(only, ComparisonSummary), "its counts alone"
    assert not (tmp_path / "o").exists()


def test_the_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = [finished(0), finished(1, suspects=1), finished(2, measured=0), failed(3)]
    lines = printed(compared(tmp_path, ended), capsys)
    assert lines[:4] == [
        "3 of 4 comparisons finished",
        "  differ: rank1",
        "  nothing was compared: rank2",
        "  failed: rank3",
    ]
    assert [line.rpartition("/")[2] for line in lines[4:]] == [
        "compare_summary_20260101000000.csv",
        "compare_summary_20260101000000.xlsx",
    ]
    book = load_workbook(tmp_path / "o" / "compare_summary_20260101000000.xlsx")
    rows = list(book.worksheets[0].iter_rows(values_only=True))
    assert rows[0] == HEADERS and [row[1] for row in rows[1:]] == [0, 1, 2, 3]


def test_without_a_suspect_and_with_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agree = {"answer": Answer(Outcome.AGREE, "all", (), Coverage(1, 1))}
    unsure = {"answer": Answer(Outcome.CANNOT_TELL, "why", (), Coverage(1, 1))}
    lines = printed(compared(tmp_path, [finished(0, **agree), finished(1, **agree)]), capsys)
    assert lines[1] == "  all agree, so no call is named as a cause"
    lines = printed(compared(tmp_path, [finished(0, **agree), failed(1)]), capsys)
    assert lines[1] == "  those that finished agree, so no call is named as a cause"
    lines = printed(compared(tmp_path, [finished(0, **agree), finished(1, **unsure)]), capsys)
    assert lines[1] == "  no call is named as a cause; no decision on: rank1"
    many = [finished(rank, suspects=1) for rank in range(20 + 3)]
    (line,) = (one for one in printed(compared(tmp_path, many), capsys) if "differ" in one)
    assert line.endswith(f"rank{20 - 1} and 3 more")


def test_what_several_comparisons_say_is_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The notes of a metric that failed on all rows become part of its warning."""
    metric = 'The metric "m" of x 1'
    failing = {
        "notes": ["a note", FailureNote(f"{metric} failed: E. Its cells are N/A. Update it.", metric, "Update it.")],
        "problems": [FailureNote(f"{metric} failed on all 5 rows, so its columns hold no number: E.", metric)],
        "answer": Answer(Outcome.AGREE, "all", (), Coverage(1, 1)),
    }
    for one in SummaryAnswerer().conclude(compared(tmp_path, [finished(rank, **failing) for rank in range(3)])):
        if isinstance(one, ComparisonSummary):
            one.show()
    said = capsys.readouterr()
    assert said.out.count("  note: ") == 1
    assert "  note: a note; the same in 2 other comparisons\n" in said.out
    assert said.out.count(NOT_MEASURED_NOTE) == 1
    assert said.err == f"warning: {failing['problems'][0]} Update it; the same in 2 other comparisons\n"


@pytest.mark.parametrize("outcome", [Outcome.AGREE, Outcome.DIVERGED])
def test_rows_that_fail_next_to_agreement_are_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], outcome: Outcome
) -> None:
    result = finished(0, answer=Answer(outcome, "all", (), Coverage(1, 1)))
    assert result.report is not None
    result.report.counts.levels[Level.ERROR] = 3
    for part in SummaryAnswerer().conclude(compared(tmp_path, [result])):
        if isinstance(part, ComparisonSummary):
            part.show()
    assert (AGREED_ROWS_NOTE in capsys.readouterr().out.replace("\n  ", " ")) is (outcome is Outcome.AGREE)


@pytest.mark.parametrize("ended", [[finished(0)], [finished(0), finished(1, interrupted=True)]])
def test_no_table_of_what_was_interrupted(
    ended: list[PairResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *counted, shown = SummaryAnswerer().conclude(compared(tmp_path, ended, 2))
    assert all(isinstance(one, ComparisonSummary) for one in counted) and isinstance(shown, OverallSummary)
    shown.show()
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == "1 of 2 comparisons finished" and "wrote" not in said.out
    assert "--resume compares what is left" in said.err
    assert not (tmp_path / "o").exists()


def test_what_an_earlier_command_finished_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = finished(0)
    kept = PairResult(one.pair, one.report, resumed=True)
    lines = printed(compared(tmp_path, [kept, finished(1)]), capsys)
    assert lines[0] == "2 of 2 comparisons finished, 1 of them in an earlier run"


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "o").write_text("a file")
    with pytest.raises(UserError):
        list(SummaryAnswerer().conclude(compared(tmp_path, [finished(0), finished(1)])))


def test_it_is_printed_last_and_every_rank_that_failed_is_in_it(probe: Any, pair: Any, tmp_path: Path) -> None:
    """Also where all of them failed, and there is no verdict."""
    target, golden = pair([0, 1], [0, 1])
    assert probe("compare", target, golden, "-o", tmp_path / "o", *FORMATS) == 0
    lines = probe.out.splitlines()
    assert lines[0].startswith("DIVERGED: ")
    place = lines.index("2 of 2 comparisons finished")
    assert lines[place + 1] == "  differ: rank1"
    assert not [line for line in lines[place:] if "rows of" in line], "behind the ranks' own counts"
    for path in target.rglob("dump.json"):
        path.write_text("{")
    assert probe("compare", target, golden, "-o", tmp_path / "p", *FORMATS) == 2
    assert probe.out.splitlines()[:2] == ["0 of 2 comparisons finished", "  failed: rank0, rank1"]
    assert all(row["Error"] for row in summary(tmp_path / "p"))
