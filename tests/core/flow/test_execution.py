"""Many ranks at the command line: the ranks that are compared, and the sorts of result files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from support.runs.many_ranks import (  # noqa: F401
    FORMATS,
    GOOD,
    OFF,
    Pair,
    _same_stamp,
    errors,
    files,
    pair,
    record,
    results,
    steps,
    summary,
)
from support.runs.recorded import tensor, write_run

# -- what is compared ------------------------------------------------------------------------------


@pytest.mark.usefixtures("processes")
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


@pytest.mark.usefixtures("processes")
def test_the_summary_says_where_each_rank_parts(probe: Any, pair: Any, tmp_path: Path) -> None:
    assert probe("compare", *pair([0, 1], [0, 1]), "-o", tmp_path / "o", *FORMATS) == 0
    good, bad = summary(tmp_path / "o")
    assert (good["Rank"], good["Fail"], good["First suspect"], good["Pass"]) == (0, 0, "", 6)
    assert (bad["Rank"], bad["Mode"], bad["Rows"], bad["Ops"]) == (1, "statistics", 6, 3)
    assert bad["First suspect"] == "Torch.exp.1.forward.output.0" and "(output.0: max off by 8 times" in bad["Why"]
    assert {name for name in files(tmp_path / "o") if "summary" in name} == {
        f"compare_summary_T.{format}" for format in ("xlsx", "csv", "jsonl")
    }


@pytest.mark.parametrize("name", ["rank", "rank0", "proc123"])
@pytest.mark.parametrize("other", ["rank", "rank0", "proc123"])
def test_one_rank_each_is_one_comparison(name: str, other: str, probe: Any, pair: Any, tmp_path: Path) -> None:
    assert probe("compare", *pair([name], [other]), "-o", tmp_path / "o", "--format", "csv", "-c") == 0
    assert list(files(tmp_path / "o")) == ["compare_result_T.csv"] and probe.err == ""


def test_one_rank_of_several_by_its_path_or_its_number(probe: Any, pair: Any, tmp_path: Path) -> None:
    target, golden = pair([0, 1], [0, 1])
    for number, paths in enumerate(([target / "rank1", golden], [target, golden, "--rank", "1"])):
        assert probe("compare", *paths, "-o", tmp_path / f"o{number}", "-c") == 0
        assert results(tmp_path / f"o{number}") == ["rank1"] and "output.0: max off by 8 times" in probe.out
    assert probe.err == "", "nobody asked for the other"
    assert probe("compare", target / "rank1", golden / "rank0", "-o", tmp_path / "cross", "-c") == 0
    assert results(tmp_path / "cross") == [""]


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
        (["--format", "nope"], 'no format called "nope"'),
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
    assert "names 1 row that the target run does not have" in line
    assert "0 of 6 comparisons finished" in probe.out and "step0/rank0, step0/rank1, step2/rank0" in probe.out
    assert "--resume" not in probe.err
    assert not list((tmp_path / "o").glob("compare_progress_*")), "there is nothing to resume"


@pytest.mark.parametrize("failing", [None, "step2/rank0"])
def test_ranks_are_reported_in_order_whichever_ends_first(
    failing: str | None, probe: Any, steps: Pair, tmp_path: Path, monkeypatch: Any
) -> None:
    from probe_ranks import scheduler

    def reversed_order(*arguments: Any) -> Iterable[tuple[int, Any]]:
        return reversed(list(as_they_end(*arguments)))

    as_they_end = scheduler.iterate_as_finished
    monkeypatch.setattr(scheduler, "iterate_as_finished", reversed_order)
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


def test_an_interruption_reports_what_has_ended(probe: Any, steps: Pair, tmp_path: Path, monkeypatch: Any) -> None:
    from probe_ranks import scheduler

    def interrupted(*arguments: Any) -> Iterable[tuple[int, Any]]:
        outcomes = list(as_they_end(*arguments))
        yield from outcomes[:0:-1]
        raise KeyboardInterrupt

    as_they_end = scheduler.iterate_as_finished
    monkeypatch.setattr(scheduler, "iterate_as_finished", interrupted)
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
        (["--step", "x"], '--step: "x" is no number', "Write it like 0,2-4."),
        (["--rank", "3-1"], '--rank: "3-1" is no number or range', "Write it like 0,2-4."),
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
            record(tmp_path / side / part / "step0", [0, 1], off=[1] if (side, part) == ("t", "graph") else [])
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", tmp_path / "o", "-c") == 0
    assert results(tmp_path / "o") == [f"{part}/step0/rank{n}" for part in ("graph", "pynative") for n in (0, 1)]
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


# -- without the kit that schedules ------------------------------------------------------------------


@pytest.fixture
def without_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE_PLUGINS", "pytorch,metrics,reporters,diagnosis,precheck,recording")
    monkeypatch.setattr("probe_core.plugins.manager.provides", lambda distribution, kind: False)


@pytest.mark.usefixtures("without_scheduler")
@pytest.mark.parametrize("option", ["--jobs=2", "--rank=0", "--resume", "--executor=processes"])
@pytest.mark.parametrize("ranks", [[0], [0, 1]])
def test_comparison_without_a_scheduler_names_its_distribution(
    option: str, ranks: list[int], probe: Any, pair: Any, tmp_path: Path
) -> None:
    assert probe("compare", *pair(ranks, ranks), "-o", tmp_path / "o", option) == 2
    (line,) = errors(probe.err)
    assert "comes with probe-ranks" in line and not results(tmp_path / "o")
