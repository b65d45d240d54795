"""The entrance for programs: lazy, with every option, and with the results of the command line."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import types
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from support.runs.hostile_runs import EVERYTHING, make_hostile
from support.runs.recorded import forward, tensor, write_run

import probe_core
from probe_core.errors import UserError
from probe_core.flow.evaluation import RowEvaluator
from probe_core.library import OPTION_NAMES
from probe_core.model import Level
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import ReporterSpec


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the rows measured so far in this process."""
    names: list[str] = []
    begin = RowEvaluator.begin

    def counted(self: Any, batch: Any) -> None:
        names.extend(pair.name for pair in batch.pairs(0, len(batch)))
        begin(self, batch)

    monkeypatch.setattr(RowEvaluator, "begin", counted)
    return names


def run_of(directory: Path, calls: int = 50, wrong: int = 30, value: float = 1.0) -> Path:
    """A run of statistics, whose calls from number ``wrong`` on have another value."""
    leaf = [tensor(value=1.0 if number < wrong else value) for number in range(calls)]
    calls_ = {f"Torch.add.{n}.forward": forward(leaf[n - 1 if n else 0], output=[leaf[n]]) for n in range(calls)}
    write_run(directory, calls_)
    return directory


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return run_of(tmp_path / "target", value=2.0), run_of(tmp_path / "golden")


@pytest.fixture
def ranks(tmp_path: Path) -> tuple[Path, Path]:
    """Two steps of two ranks, of which rank 1 differs in step 1."""
    for side, value in (("target", 5.0), ("golden", 1.0)):
        for step in (0, 1):
            for rank in (0, 1):
                differs = (step, rank) == (1, 1)
                run_of(tmp_path / side / f"step{step}" / f"rank{rank}", value=value if differs else 1.0)
    return tmp_path / "target", tmp_path / "golden"


# -- laziness --------------------------------------------------------------------------------------


def test_the_package_imports_nothing_until_it_is_used() -> None:
    code = (
        "import sys, probe_core; assert not {'probe_core.library', 'numpy', 'click'} & set(sys.modules); "
        "probe_core.compare; assert not {'numpy', 'click', 'pandas', 'torch'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_nothing_is_measured_until_it_is_asked_for(pair: Any, measured: list[str], tmp_path: Path) -> None:
    comparison = probe_core.compare(*pair, jobs=1)
    assert "1 pair" in repr(comparison) and len(comparison.pairs) == 1 and not measured
    rows = comparison.rows()
    assert not measured
    assert [row["NPU Name"] for row in islice(rows, 2)] == measured[:2] and len(measured) == 100
    rows.close()
    assert comparison.counts.rows == len(measured) - 100 == 100
    assert comparison.suspects and comparison.reports and comparison.counts and len(measured) == 200
    assert sorted(path.name for path in tmp_path.iterdir()) == ["golden", "target"]


def test_suspects_come_from_one_comparison_with_the_table(pair: Any, measured: list[str], tmp_path: Path) -> None:
    comparison = probe_core.compare(*pair)
    comparison.write("csv", tmp_path / "table.csv")
    assert comparison.suspects and len(measured) == 100


def test_a_metric_that_raises_on_every_row_is_warned_of(runs: Any, monkeypatch: Any) -> None:
    """With its name, whether rows are asked for or a summary of them."""

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("no flips")

    monkeypatch.setattr("probe_sample.sign_flips.SignFlips.measure", fail)
    base = runs("tensor_L1_dist2")
    sides = base / "npu_dump", base / "bench_dump"
    comparison = probe_core.compare(*sides, steps=0, ranks=0, metrics="sign_flips", jobs=1)
    for ask in (lambda: list(comparison.rows()), lambda: comparison.counts):
        with pytest.warns(UserWarning, match='The metric "sign_flips" of probe-sample .* failed on all .*no fl'):
            ask()


# -- options ---------------------------------------------------------------------------------------

VALUES: dict[str, Any] = {
    "advise": False, "answer": False,
    "formats": "csv",
    "framework": "pytorch", "jobs": 3,
    "matcher": "exact", "metrics": ["ulp:limit=4", "rmse"], "output": "there",
    "policies": "accuracy", "stack": True,
    "stack_path": "stack.json",
}  # fmt: skip


def test_every_option_reaches_the_plan() -> None:
    """In the form in which the command line leaves it."""
    from probe_core.library import create_plan
    from probe_core.plugins.manager import Manager

    assert sorted(VALUES) == OPTION_NAMES
    mappings = {"api_mapping": True, "cell_mapping": "cells.yaml", "mapping": {"a": "b"}}
    workers = {"executor": "threads", "resume": True, "scheduler": "tcp://x:1"}
    ranks = {"highlight": True, "steps": 1, "ranks": range(2), "pair_ranks": "order"}
    plan = create_plan(Manager(), Path("t"), Path("g"), mappings | workers | ranks | VALUES).describe()
    assert {name: plan[name] for name in ("advise", "answer", "highlight", "resume", "jobs", "executor", "scheduler")} == {
        "advise": False, "answer": False, "highlight": True, "resume": True, "jobs": 3, "executor": "threads", "scheduler": "tcp://x:1",
    }  # fmt: skip
    assert plan["across"] is True and plan["api_mapping"] is None and plan["cell_mapping"] == "cells.yaml"
    assert (
        plan["steps"] == [1]
        and plan["ranks"] == [0, 1]
        and plan["pair_ranks"] == "order"
        and plan["metrics"] == ["ulp:limit=4", "rmse"]
    )
    assert plan["policies"] == ["accuracy"] and plan["formats"] == ["csv"] and plan["mapping"] == {"a": "b"}
    assert plan["stack"] == "show" and plan["stack_path"] == "stack.json" and plan["output"] == "there"
    assert create_plan(Manager(), Path("t"), Path("g"), {"fuzzy": True, "metrics": None}).matcher == "fuzzy"


def test_the_signature_shows_every_option() -> None:
    first, second, *options, further = inspect.signature(probe_core.compare).parameters.values()
    assert [first.name, second.name, further.name] == ["target", "golden", "options"]
    assert [option.name for option in options] == OPTION_NAMES and further.kind is further.VAR_KEYWORD
    assert {option.kind for option in options} == {inspect.Parameter.KEYWORD_ONLY}


def test_the_plan_of_the_command_line(pair: Any, probe: Any) -> None:
    assert probe("compare", *pair, "-f", "-hl", "-c", "--metric", "rmse", "--jobs", "2", "--print-plan") == 0
    shown = json.loads(probe.out)
    plan = probe_core.compare(
        *pair, fuzzy=True, highlight=True, advise=False, answer=False, metrics="rmse", jobs=2
    ).plan
    assert described(plan) == described(shown)


def described(plan: Any) -> dict[str, Any]:
    """A plan as plain data; in Python a relative output is made absolute, on the command line not."""
    plain = plan if isinstance(plan, dict) else plan.describe()
    return {**plain, "output": str(Path(plain["output"]).absolute()), "time_stamp": ""}


def test_paths_are_those_of_the_time_of_the_call(pair: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "names.yaml").write_text("{}")
    monkeypatch.chdir(tmp_path)
    given = dict.fromkeys(("mapping", "stack_path"), "names.yaml")
    comparison = probe_core.compare("target", Path("golden"), baseline="golden", output="out", **given)
    monkeypatch.chdir("elsewhere")
    plan = comparison.plan
    assert plan.stack_path == plan.options["mapping"] == tmp_path / "names.yaml"
    assert plan.options["baseline"] == tmp_path / "golden" and comparison.counts.rows == 100
    assert len(list(comparison.rows())) == 100 and all(one.error is None for one in comparison.run())
    assert [*(tmp_path / "out").glob("*.xlsx")] and not [*(tmp_path / "elsewhere").iterdir()]


@pytest.mark.parametrize(
    "name, close",
    [("step", "steps"), ("format", "formats"), ("highlights", "highlight"), ("diff_analyse", "diff_analyze")],
)
def test_an_unknown_option_names_the_nearest(name: str, close: str, pair: Any) -> None:
    with pytest.raises(UserError) as caught:
        probe_core.compare(*pair, **{name: 1})
    assert name in caught.value.what and f"Did you mean {close}?" in caught.value.fix
    assert {*OPTION_NAMES, "diff_analyze"} <= set(caught.value.choices)


def test_several_formats_in_one_write_are_refused(pair: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="format must be one text, not "):
        probe_core.compare(*pair).write(["csv", "html"], tmp_path / "table")  # type: ignore[arg-type]
    assert not list(tmp_path.glob("table*"))


@pytest.mark.parametrize(
    "options, what",
    [
        ({"highlight": "yes"}, "highlight must be True or False"),
        ({"jobs": "4"}, "jobs must be a positive integer"),
        ({"jobs": True}, "jobs must be a positive integer"),
        ({"jobs": 0}, "jobs must be a positive integer, not 0"),
        ({"diff_analyze": "yes"}, "diff_analyze must be True or False"),
        ({"stack": 1}, "stack must be True or False"),
        ({"fuzzy": True, "matcher": "exact"}, "exclude each other"),
        ({"metrics": "ulpp"}, 'no metric called "ulpp"'),
        ({"formats": "cvs"}, 'no format called "cvs"'),
        ({"mapping": "absent.yaml"}, "absent.yaml"),
        ({"ranks": [7]}, "rank 7"),
        ({"steps": "x"}, 'steps: "x" is no number or range such as 2-4'),
        ({"ranks": [0, 1.5]}, "ranks must be a number, a text, or a list of these, not "),
        ({"formats": 5}, "formats must be a text or a list of texts, not 5"),
        ({"metrics": ["cosine", 3]}, "metrics must be a text or a list of texts"),
        ({"matcher": 4}, "matcher must be a text, not 4"),
        ({"baseline": 3}, "baseline must be a path or a URL, not 3"),
        ({"stack_path": True}, "stack_path must be a path, not True"),
        ({"layer_mapping": True}, "layer_mapping must be a path, not True"),
        ({"matcher": "close"}, 'no matcher called "close"'),
    ],
)
def test_a_mistake_is_refused_before_anything_is_measured(
    options: dict[str, Any], what: str, pair: Any, measured: list[str]
) -> None:
    with pytest.raises(UserError, match=what) as caught:
        probe_core.compare(*pair, **options)
    assert caught.value.fix and not measured


def test_a_path_that_is_no_run(pair: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        probe_core.compare(tmp_path / "absent", pair[1])


@pytest.mark.parametrize(
    "options, flags",
    [
        ({"diff_analyze": True}, ["-da"]),
        ({"diff_analyze": True, "formats": "csv"}, ["-da", "--format", "csv"]),
        ({"diff_analyze": False}, []),
        ({"diff_analyze": None, "highlight": True}, ["-hl"]),
    ],
)
def test_an_option_of_a_plugin_changes_the_plan_as_on_the_command_line(
    options: dict[str, Any], flags: list[str], pair: Any, probe: Any
) -> None:
    if not {"-da", "--format"} & {*flags}:
        flags = [*flags, "--format", "xlsx"]  # the command alone adds a page
    assert probe("compare", *pair, *flags, "--print-plan") == 0
    plan = probe_core.compare(*pair, **options).plan
    assert described(plan) == described(json.loads(probe.out))
    assert ("first_difference" in plan.answers) is bool(options["diff_analyze"])


# -- results ---------------------------------------------------------------------------------------


def test_the_results_are_those_of_the_command(pair: Any, probe: Any, tmp_path: Path) -> None:
    comparison = probe_core.compare(*map(str, pair))
    rows = list(comparison.rows())
    assert probe("compare", *pair, "-o", tmp_path / "out", "--format", "jsonl") == 0
    (path,) = (tmp_path / "out").glob("*.jsonl")
    own = ("step", "rank", "op", "level")
    table = [{key: value for key, value in row.items() if key not in own} for row in rows]
    assert table == [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    levels = [row["level"] for row in rows]
    assert {level.value: levels.count(level.value) for level in Level} == {
        level.value: count for level, count in comparison.counts.levels.items()
    }
    assert comparison.suspects[0].op in probe.out and comparison.answer.sentence in probe.out
    assert {row["op"] for row in rows} == {f"Torch.add.{n}.forward" for n in range(50)}


def test_the_plans_marks_and_policies_are_in_the_rows(pair: Any) -> None:
    rows = list(probe_core.compare(*pair, highlight=True, policies=["statistics", "statistics"]).rows())
    assert len(rows) == 100 and any(row["level"] == "error" for row in rows)


@pytest.mark.parametrize("format", ["csv", "xlsx", "jsonl"])
def test_a_table_is_the_same_bytes_as_the_commands(format: str, ranks: Any, probe: Any, tmp_path: Path) -> None:
    """Without the sheet of the answer, which ``-c`` leaves out."""
    assert probe("compare", *ranks, "-o", tmp_path / "out", "-hl", "-c", "--format", format) == 0, probe.err
    written = probe_core.compare(*ranks, highlight=True).write(format, tmp_path / "deep" / f"table.{format}")
    assert [path.name for path in written] == [
        f"table_step{step}_rank{rank}.{format}" for step in (0, 1) for rank in (0, 1)
    ]
    for path in written:
        _, step, rank = path.stem.split("_")
        (own,) = (tmp_path / "out" / step).glob(f"compare_result_{rank}_*.{format}")
        assert path.read_bytes() == own.read_bytes()
    (alone,) = probe_core.compare(*ranks, steps=1, ranks=1, highlight=True).write(format, tmp_path / "x" / "one")
    assert alone == tmp_path / "x" / "one" and alone.read_bytes() == written[-1].read_bytes()


def test_several_steps_and_ranks(ranks: Any) -> None:
    comparison = probe_core.compare(*ranks)
    rows = list(comparison.rows())
    assert [(row["step"], row["rank"]) for row in rows[::100]] == [
        ("step0", 0), ("step0", 1), ("step1", 0), ("step1", 1),
    ]  # fmt: skip
    assert {(row["step"], row["rank"]) for row in rows if row["level"] == "error"} == {("step1", 1)}
    assert [report.label for report in comparison.reports if report.suspects] == ["step1/rank1"]
    assert comparison.counts.rows == len(rows) == 400
    assert len(probe_core.compare(*ranks, steps=[1]).pairs) == 2
    assert len(probe_core.compare(*ranks, steps=range(2), ranks=1).pairs) == 2
    assert len(probe_core.compare(*ranks, steps="0-1", ranks="1").pairs) == 2
    assert len(probe_core.compare(*ranks, steps=["0"], ranks=[]).pairs) == 2


def test_a_damaged_rank_costs_its_results_alone(ranks: Any, tmp_path: Path) -> None:
    broken = ranks[0] / "step0" / "rank1" / "dump.json"
    broken.write_text(broken.read_text()[:200])
    comparison = probe_core.compare(*ranks)
    with pytest.warns(UserWarning, match="step0/rank1: .*left out"):
        assert comparison.counts.rows == 300
    assert len(comparison.reports) == 3
    with pytest.warns(UserWarning, match="step0/rank1"):
        assert len(list(comparison.rows())) == 300
    (problem,) = comparison.problems
    assert problem.startswith("step0/rank1: ") and problem.split(": ")[0] in comparison._repr_html_()
    with pytest.warns(UserWarning, match="step0/rank1"):
        assert len(comparison.write("csv", tmp_path / "t.csv")) == 3
    with pytest.raises(UserError, match=r"dump\.json"):
        probe_core.compare(*ranks, steps=0, ranks=1).suspects  # noqa: B018
    with pytest.raises(UserError, match=r"dump\.json"):
        list(probe_core.compare(*ranks, steps=0, ranks=1).rows())


def test_a_missing_rank_is_said_at_once(ranks: Any) -> None:
    (ranks[1] / "step1" / "rank0" / "dump.json").unlink()
    with (
        pytest.warns(UserWarning, match="rank 0 in step1"),
        pytest.warns(UserWarning, match="There is no dump"),
    ):
        comparison = probe_core.compare(*ranks)
    assert len(comparison.pairs) == 3 and len(comparison.problems) == 2


def test_all_ranks_damaged(ranks: Any) -> None:
    for path in ranks[0].rglob("dump.json"):
        path.write_text("{")
    comparison = probe_core.compare(*ranks, executor="threads")
    with pytest.warns(UserWarning, match="left out"), pytest.raises(UserError):
        comparison.suspects  # noqa: B018


def test_the_files_of_the_command(ranks: Any, probe: Any, tmp_path: Path) -> None:
    comparison = probe_core.compare(*ranks, output=tmp_path / "a", formats="csv")
    assert not (tmp_path / "a").exists()
    ended = [finished.pair.name for finished in comparison.run()]
    assert ended == [pair.name for pair in comparison.pairs]
    assert probe("compare", *ranks, "-o", tmp_path / "b", "--format", "csv") == 0
    first, second = (
        {path.name.rpartition("_")[0]: path.read_bytes() for path in (tmp_path / out).rglob("*.*")} for out in "ab"
    )
    assert first == second and "compare_summary" in first


def test_the_answer_that_an_option_of_a_plugin_asks_for(
    ranks: Any, probe: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison = probe_core.compare(*ranks, output=tmp_path / "a", diff_analyze=True)
    assert comparison.suspects and comparison.asked == [] and not (tmp_path / "a").exists()
    assert len(list(comparison.run())) == len(comparison.pairs)
    assert comparison.suspects and comparison.counts
    assert probe("compare", *ranks, "-o", tmp_path / "b", "-da") == 0
    first, second = (
        {path.name.rpartition("_")[0]: path.read_bytes() for path in (tmp_path / out).rglob("*.*")} for out in "ab"
    )
    assert first == second and any("diff_analyze" in name for name in first)
    capsys.readouterr()
    for conclusion in comparison.asked:
        conclusion.show()
    shown = [line for line in capsys.readouterr().out.splitlines() if "wrote" not in line]
    assert shown and set(shown) <= set(probe.out.splitlines())


@pytest.mark.parametrize("format, what", [("cvs", 'no format called "cvs"'), ("csv:bold=1", "no parameter")])
def test_a_format_that_is_unknown(format: str, what: str, pair: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=what):
        probe_core.compare(*pair).write(format, tmp_path / "table")
    assert not (tmp_path / "table").exists()


def test_a_table_that_cannot_be_written(pair: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="not a directory"):
        probe_core.compare(*pair).write("csv", tmp_path / "file" / "table.csv")
    (tmp_path / "taken").mkdir()
    with pytest.raises(UserError, match="taken"):
        probe_core.compare(*pair).write("csv", tmp_path / "taken")


# -- data frames -----------------------------------------------------------------------------------


class Frame:
    """A stand-in for a data frame, which keeps what it is made of."""

    def __init__(self, columns: Any, **options: Any) -> None:
        self.columns, self.options = columns, options

    def astype(self, dtypes: Any) -> Frame:
        return self


@pytest.fixture
def without_frames(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A process in which neither pandas nor polars can be imported."""
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    yield monkeypatch


def test_without_pandas_and_polars(without_frames: Any, pair: Any, measured: list[str]) -> None:
    with pytest.raises(UserError, match="needs pandas or polars") as caught:
        probe_core.compare(*pair).to_dataframe()
    assert "pip install pandas" in caught.value.fix and "rows()" in caught.value.fix and not measured


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_frame_gets_typed_columns_of_all_rows(name: str, without_frames: Any, pair: Any) -> None:
    """By a stand-in, because neither package is needed to develop probe."""
    library = types.ModuleType(name)
    vars(library).update(DataFrame=Frame, Float64=0, Int64=1, String=2, Boolean=3)
    without_frames.setitem(sys.modules, name, library)
    comparison = probe_core.compare(*pair)
    columns, rows = comparison.to_dataframe().columns, list(comparison.rows())
    assert [header for header in columns if header in rows[0]] == list(rows[0])
    assert {"distance", "rounding bound", "module", "source line"} < {*columns}
    for header in ("op", "level", "rank", "Max diff"):
        assert list(columns[header]) == [row[header] for row in rows]
    assert list(columns["MaxRelativeErr"]) == [row["MaxRelativeErr"].ratio for row in rows]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_real_frame(name: str, pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(name)
    monkeypatch.setitem(sys.modules, "polars" if name == "pandas" else "pandas", None)
    frame = probe_core.compare(*pair).to_dataframe()
    assert type(frame).__module__.startswith(name) and frame.shape[0] == 100
    assert list(frame.columns)[:5] == ["step", "rank", "op", "level", "NPU Name"]


def test_an_arrow_table(pair: Any) -> None:
    arrow = pytest.importorskip("pyarrow")
    table = probe_core.compare(*pair).to_arrow()
    assert isinstance(table, arrow.Table) and table.num_rows == 100
    assert table.schema.field("MaxRelativeErr").type == arrow.float64()


def test_without_pyarrow(pair: Any, monkeypatch: pytest.MonkeyPatch, measured: list[str]) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match="need pyarrow") as caught:
        probe_core.compare(*pair).to_arrow()
    assert "pip install pyarrow" in caught.value.fix and not measured


# -- notebooks -------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """The tags of a text, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert not attrs
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_shows_counts_and_suspects(pair: Any) -> None:
    comparison = probe_core.compare(*pair)
    shown = Tags(comparison._repr_html_())
    assert "100 rows" in shown.text and comparison.suspects[0].row in shown.text
    assert shown.tags <= {"p", "code", "br"} and len(shown.text) < 3000
    assert "<p>AGREE: " in probe_core.compare(pair[0], pair[0])._repr_html_()


def test_a_page_of_a_third_party_without_a_head_is_passed_over(pair: Any, monkeypatch: Any) -> None:
    specs = Manager.specs

    def with_mine(self: Manager, kind: str, spec: Any) -> Any:
        mine = [ReporterSpec("mine", "mine", object, ".mine", page=True)] if kind == "reporters" else []
        return [*mine, *specs(self, kind, spec)]

    shown = probe_core.compare(*pair)._repr_html_()
    monkeypatch.setattr(Manager, "specs", with_mine)
    assert probe_core.compare(*pair)._repr_html_() == shown


@pytest.mark.parametrize("payload", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>&amp;', EVERYTHING])
def test_a_notebook_shows_hostile_names_as_text(payload: str, runs: Any, tmp_path: Path) -> None:
    base = make_hostile(runs("tensor_L1_dist2"), tmp_path / "hostile", payload, ("op", "frame", "module", "text"))
    comparison = probe_core.compare(base / "npu_dump", base / "bench_dump", steps=0, ranks=0)
    html = comparison._repr_html_()
    assert Tags(html).tags <= {"p", "code", "br", "pre"}
    assert not any(character in html for character in "\x1b\x07\u202e\u200b")


def test_a_notebook_shows_an_error_as_text(pair: Any) -> None:
    path = pair[0] / "dump.json"
    path.write_text('{"task": "<b>')
    html = probe_core.compare(*pair)._repr_html_()
    assert html.startswith("<pre>") and Tags(html).tags == {"pre"}
