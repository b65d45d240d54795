"""Plugins at fault: they are named with their version, the rest goes on, and probe takes no blame for them."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from probe_ranks.command.addresses import explain_unresolved
from support.runs.precheck_runs import standin_run

pytest_plugins = ["support.standins.precheck_fixtures"]

NAME = "probe-faulty 3.2"
HEAD = """
import click
import numpy as np
from probe_core.plugins.hookspecs import hookimpl
from probe_core.model import Advice, Measurement
from probe_precheck.specs import StandardSpec
from probe_reporters.api import HighlightSpec
from probe_core.plugins.specs import CommandSpec, MatcherSpec, MetricSpec, Needs, ReaderSpec, ReporterSpec, ViewSpec
"""


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """``faulty(source)``: install a plugin with this module of hooks."""

    def install(source: str) -> None:
        site = tmp_path / "site"
        home = site / "probe_faulty-3.2.dist-info"
        home.mkdir(parents=True)
        (home / "METADATA").write_text("Metadata-Version: 2.1\nName: probe-faulty\nVersion: 3.2\n")
        (home / "entry_points.txt").write_text("[probe]\nfaulty = probe_faulty\n")
        (site / "probe_faulty.py").write_text(HEAD + source)
        monkeypatch.syspath_prepend(str(site))
        importlib.invalidate_caches()

    yield install
    sys.modules.pop("probe_faulty", None)


@pytest.fixture
def compare(runs: Any, tmp_path: Path, probe: Any) -> Callable[..., int]:
    """``compare("--metric", "mine")``: the exit code of comparing two runs with statistics, to csv."""
    base = runs("tensor_L1_datamap")

    def compared(*more: str) -> int:
        formats = () if "--format" in more else ("--format", "csv")
        code: int = probe("compare", base / "npu_dump", base / "bench_dump", "-o", tmp_path / "out", *formats, *more)
        return code

    return compared


def metric(body: str, **more: str) -> str:
    extra = "".join(f", {key}={value}" for key, value in more.items())
    return f"""
class Mine:
    def measure(self, pair):
        {body}

@hookimpl
def probe_metrics():
    return [MetricSpec("mine", "a metric", Mine, ("Mine",){extra})]
"""


def cells(directory: Path, column: str) -> list[str]:
    import csv

    (path,) = directory.glob("compare_result*.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [row[column] for row in csv.DictReader(file)]


# -- hooks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "raise SystemExit(7)",
        "@hookimpl\ndef probe_metrics():\n    raise SystemExit(7)",
        "@hookimpl\ndef probe_commands():\n    raise SystemExit",
        "class Own(BaseException):\n    pass\n\n@hookimpl\ndef probe_metrics():\n    raise Own('no')",
        "class Mute(Exception):\n    def __str__(self):\n        raise ValueError\n\nraise Mute",
    ],
)
def test_what_a_hook_raises_ends_no_command(source: str, faulty: Any, compare: Any, probe: Any) -> None:
    faulty(source)
    assert compare() == 0
    assert probe.err.count("warning:") == 1, probe.err
    assert f"plugin faulty ({NAME}) is left out" in probe.err and "pip uninstall probe-faulty" in probe.err
    assert probe("plugins") == 0 and "broken" in probe.out


@pytest.mark.parametrize(
    "spec, says",
    [
        ('MetricSpec(3, "a metric", print, ("Mine",))', "a name and a summary must be texts"),
        ('MetricSpec("mine", "a metric", "nowhere", ("Mine",))', 'callable or "module:attribute"'),
        ('MetricSpec("mine", "a metric", print, "Mine")', "columns must be a tuple"),
        ('MetricSpec("mine", "a metric", print, ("Mine",), parameters=("q",))', "a tuple of Parameter"),
        ('MetricSpec("mine", "a metric", print, ("Mine",), parameters={"q": 1})', "a tuple of Parameter"),
    ],
)
def test_a_description_that_is_none_leaves_its_plugin_out(
    spec: str, says: str, faulty: Any, compare: Any, probe: Any
) -> None:
    faulty(f"@hookimpl\ndef probe_metrics():\n    return [{spec}]")
    assert compare() == 0
    assert says in probe.err and NAME in probe.err


@pytest.mark.parametrize("body", ["raise SystemExit", "return 'look there'"])
def test_an_adviser_at_fault_costs_its_advice(body: str, faulty: Any, compare: Any, probe: Any) -> None:
    faulty(f"@hookimpl\ndef probe_advise(report):\n    {body}")
    assert compare() == 0
    assert probe.err.count("warning:") == 1 and f"probe_advise of {NAME} failed" in probe.err


# -- metrics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, says",
    [
        ("return [3.0]", "TypeError: measure must return a list of Measurement, not of float"),
        ("return [float('nan')]", "not of float"),
        ("return []", "ValueError: measure must return 1 Measurement, not 0"),
        ("return None", "TypeError"),
        ("return {'mine': 1}", "must return a list of Measurement, not dict"),
        ("return 0.5", "must return a list of Measurement, not float"),
        ("return (Measurement(1.0) for _ in range(1))", "TypeError"),
        ("return [Measurement([1, 2])]", "not list"),
        ("return [Measurement(None, 'why')]", "not str"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_metric_at_fault_costs_its_cells(
    body: str, says: str, faulty: Any, compare: Any, probe: Any, tmp_path: Path
) -> None:
    faulty(metric(body))
    assert compare("--metric", "mine") == 0, probe.err
    assert "defect of probe" not in probe.err
    notes = [line for line in (probe.out + probe.err).splitlines() if NAME in line]
    assert len(notes) == 1 and 'The metric "mine"' in notes[0] and says in notes[0], probe.out
    assert "failed on all " in notes[0] and "(pip uninstall probe-faulty)." in notes[0]
    pairs = list(zip(cells(tmp_path / "out", "Cosine"), cells(tmp_path / "out", "Mine")))
    assert any(cosine not in ("N/A", "unsupported") for cosine, _ in pairs)
    assert {mine for _, mine in pairs} <= {"N/A", "nan", "unsupported"}
    assert any("Metric mine failed: " in text for text in cells(tmp_path / "out", "Err_message"))


@pytest.mark.parametrize("returned", ["None", "'pass'", "True"])
@pytest.mark.parametrize("more", ["mine", "accuracy,mine"])
def test_a_policy_that_returns_no_verdict_is_named(
    returned: str, more: str, faulty: Any, compare: Any, probe: Any, tmp_path: Path
) -> None:
    faulty(f"""
from probe_core.plugins.specs import PolicySpec

class Mine:
    def judge(self, pair, measurements):
        return {returned}

@hookimpl
def probe_policies():
    return [PolicySpec("mine", "a policy", Mine, standard="mine")]
""")
    assert compare("--policy", more) == 2
    assert f'The policy "mine" of {NAME} failed: TypeError: judge must return a Verdict, not' in probe.err
    assert "defect of probe" not in probe.err and not list((tmp_path / "out").glob("compare_*"))


@pytest.mark.parametrize(
    "returned, says",
    [
        ("{0: rows[0].verdict}", "a Ruling for each row to change, not Verdict"),
        ("{0: None}", "a Ruling for each row to change, not NoneType"),
        ("None", "TypeError"),
        ("{10 ** 6: None}", "ValueError"),
    ],
)
def test_a_judge_that_returns_no_ruling_is_named(
    returned: str, says: str, faulty: Any, compare: Any, probe: Any
) -> None:
    faulty(f"""
from probe_core.plugins.specs import JudgeSpec

class Mine:
    def judge(self, op, rows):
        return {returned}

@hookimpl
def probe_judges():
    return [JudgeSpec("mine", "a judge", Mine)]
""")
    assert compare() == 0, probe.err
    assert f'The judge "mine" of {NAME} failed: ' in probe.out and says in probe.out


def test_numbers_of_numpy_are_numbers(faulty: Any, compare: Any, probe: Any, tmp_path: Path) -> None:
    faulty(metric("return [Measurement(np.float32(0.5))]"))
    assert compare("--metric", "mine") == 0 and NAME not in probe.out
    assert "0.5" in cells(tmp_path / "out", "Mine")


def test_a_metric_at_fault_in_other_processes_is_noted_once(
    faulty: Any, compare: Any, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty(metric("return [3.0]"))
    monkeypatch.setenv("PYTHONPATH", sys.path[0])
    assert compare("--metric", "mine", "--executor", "processes", "--jobs", "2") == 0, probe.err
    said = (probe.out + probe.err).splitlines()
    assert sum(NAME in line for line in said) == 1 and "PluginWarning" not in probe.err


def test_what_cannot_be_called_ahead_saves_no_time_and_no_more(faulty: Any, compare: Any, probe: Any) -> None:
    faulty(metric("return [Measurement(1)]", ahead="'nowhere:ahead'"))
    assert compare("--metric", "mine") == 0
    assert NAME in probe.out and "more slowly" in probe.out


# -- factories -------------------------------------------------------------------------------------

WRONG = """
@hookimpl
def probe_metrics():
    return [MetricSpec("mine", "a metric", "{address}", ("Mine",))]

@hookimpl
def probe_highlighters():
    return [HighlightSpec("mine", "marks", "{address}")]

@hookimpl
def probe_readers():
    return [ReaderSpec("mine", "reads", "{address}", "mine")]
"""
ADDRESSES = [("nowhere:Nothing", "there is no module nowhere"), ("probe_faulty:Nothing", "has no Nothing"),
             ("probe_faulty.deeper:Thing", "there is no module")]  # fmt: skip


@pytest.mark.parametrize("address, says", ADDRESSES)
def test_a_wrong_address_costs_what_it_is_the_address_of(
    address: str, says: str, faulty: Any, compare: Any, probe: Any
) -> None:
    faulty(WRONG.format(address=address))
    assert compare("--metric", "mine") == 2
    assert f'The metric "mine" of {NAME} failed' in probe.err and "defect of probe" not in probe.err
    assert "Update it, report it to its authors" in probe.err
    assert compare("-hl") == 0
    assert f'The reader "mine" of {NAME} failed' in probe.err
    assert f'The highlighter "mine" of {NAME} failed' in probe.out
    assert compare("--framework", "mine") == 2 and f'The reader "mine" of {NAME} failed' in probe.err
    assert probe("plugins", "--json") == 0
    (listed,) = (one for one in json.loads(probe.out) if one["name"] == "faulty")
    assert listed["status"] == "broken" and says in listed["problem"] and "probe-faulty" in listed["fix"]


def test_addresses_are_looked_up_without_an_import() -> None:
    assert explain_unresolved("probe_pytorch.debugger:PrecisionDebugger") == ""
    assert explain_unresolved("antigravity:geohash") == "" and "antigravity" not in sys.modules
    assert explain_unresolved("antigravity:nothing") == "antigravity has no nothing"
    assert explain_unresolved("json.decoder.nothing:x") == "there is no module json.decoder.nothing"


# -- readers, matchers, highlighters, executors ----------------------------------------------------


@pytest.mark.parametrize("body", ["raise SystemExit", "return None"])
def test_a_reader_at_fault_is_not_asked(body: str, faulty: Any, compare: Any, probe: Any) -> None:
    faulty(f"""
class Mine:
    def sniff(self, path):
        {body}

@hookimpl
def probe_readers():
    return [ReaderSpec("mine", "reads", Mine, "mine")]
""")
    assert compare() == 0
    assert f'The reader "mine" of {NAME} failed' in probe.err


@pytest.mark.parametrize("body", ["raise SystemExit", "return None"])
def test_a_matcher_at_fault_is_named(body: str, faulty: Any, compare: Any, probe: Any) -> None:
    faulty(f"""
class Mine:
    def match(self, target, golden, plan):
        {body}

@hookimpl
def probe_matchers():
    return [MatcherSpec("mine", "pairs", Mine)]
""")
    assert compare("--match", "mine") == 2
    assert f'The matcher "mine" of {NAME} failed' in probe.err and "Traceback" not in probe.err


@pytest.mark.parametrize(
    "check, views",
    [("raise SystemExit", "return None"), ("pass", "raise SystemExit"), ("pass", "return target, golden")],
)
def test_a_view_at_fault_is_named(check: str, views: str, faulty: Any, compare: Any, probe: Any) -> None:
    faulty(f"""
class Mine:
    def check(self, plan):
        {check}

    def views(self, plan, manager, target, golden):
        {views}

@hookimpl
def probe_views():
    return [ViewSpec("mine", "shows", Mine)]
""")
    assert compare() == 2
    assert f'The view "mine" of {NAME} failed' in probe.err and "Traceback" not in probe.err


def test_hints_at_fault_are_named(faulty: Any, compare: Any, probe: Any) -> None:
    faulty("""
from probe_core.matching.views import Hints, Views

class Wrong(Hints):
    def of(self, batch):
        raise ValueError("no")

class Mine:
    def check(self, plan):
        pass

    def views(self, plan, manager, target, golden):
        return Views(target, golden, "exact", hints=Wrong())

@hookimpl
def probe_views():
    return [ViewSpec("mine", "shows", Mine)]
""")
    assert compare() == 2
    assert f"{NAME}, a plugin, failed: ValueError: no." in probe.err


@pytest.mark.parametrize("body", ["raise SystemExit", "return None", "return {99999: None}", "return {'a': 1}"])
def test_a_highlighter_at_fault_marks_nothing(body: str, faulty: Any, compare: Any, probe: Any) -> None:
    faulty(f"""
class Mine:
    def mark(self, rows):
        {body}

@hookimpl
def probe_highlighters():
    return [HighlightSpec("mine", "marks", Mine)]
""")
    assert compare("-hl") == 0, probe.err
    assert probe.out.count(NAME) == 1 and "mark any row" in probe.out


def test_an_executor_at_fault_is_named(faulty: Any, compare: Any, probe: Any) -> None:
    faulty("""
from probe_ranks.api import ExecutorSpec, Place

class Mine:
    place = Place.MACHINE

    def open(self, jobs, scheduler):
        raise SystemExit

@hookimpl
def probe_executors():
    return [ExecutorSpec("mine", "runs", Mine)]
""")
    assert compare("--executor", "mine") == 2
    assert f'The executor "mine" of {NAME} failed' in probe.err


# -- reporters -------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["open", "write", "close", "abandon", "line"])
@pytest.mark.parametrize("raised", ["SystemExit", "ValueError('no')"])
def test_a_reporter_at_fault_costs_its_file(
    at: str, raised: str, faulty: Any, compare: Any, probe: Any, tmp_path: Path
) -> None:
    faulty(f"""
def at(place):
    if place == "{at}" or place == "write" and "{at}" == "abandon":
        raise {raised}

class Mine:
    def open(self, path, headers, row_count):
        at("open")
        path.write_text("")
        return self

    def write(self, cells, colour):
        at("write")

    def close(self):
        at("close")

    def abandon(self):
        at("abandon")

    def line(self, row, row_count):
        at("line")
        return ""

@hookimpl
def probe_reporters():
    return [ReporterSpec("mine", "writes", Mine, ".mine")]
""")
    assert compare("--format", "mine,csv", "-c") == 3, probe.err
    assert probe.err.count("warning:") == 1 and f'The format "mine" of {NAME} failed' in probe.err
    (path,) = (tmp_path / "out").iterdir()
    assert path.suffix == ".csv" and len(cells(tmp_path / "out", "Cosine")) > 3
    path.unlink()
    assert compare("--format", "mine", "-c") == 3
    assert not list((tmp_path / "out").iterdir())


# -- commands --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "factory, says",
    [
        ('"nowhere:hello"', "No module named 'nowhere'"),
        ('"probe_faulty:HEAD"', "is no click command"),
        ("lambda: exit(3)", "SystemExit: 3"),
        ('"probe_faulty:hello"', "ZeroDivisionError: division by zero"),
    ],
)
def test_a_command_at_fault_is_named(factory: str, says: str, faulty: Any, probe: Any) -> None:
    faulty(f"""
HEAD = 1

@click.command()
def hello():
    1 / 0

@hookimpl
def probe_commands():
    return [CommandSpec("hello", "Say hello.", {factory})]
""")
    assert probe("hello") == 2
    assert NAME in probe.err and says in probe.err and "defect of probe" not in probe.err
    if "division" in says:
        assert "Traceback (most recent call last):\n" in probe.err, "its authors want to see where"
    assert probe("--help") == 0 and "hello" in probe.out


def test_a_defect_of_probe_is_still_one(probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probe_ranks.command.plugins._print_table", lambda described: 1 / 0)
    assert probe("plugins") == 70 and "This is a defect of probe" in probe.err


# -- the pre-check ---------------------------------------------------------------------------------

STANDARD = """
class Mine:
    def measure(self, output, release):
        {measure}

    def judge(self, npu, gpu, release):
        {judge}

@hookimpl
def probe_standards():
    return [StandardSpec("mine", "judges", Mine, label="mine", apis="{apis}")]
"""


@pytest.mark.parametrize("measure", ["raise SystemExit", "return None", "return {'rmse': 'none'}"])
def test_a_standard_that_cannot_measure_says_so_in_the_details(
    measure: str, faulty: Any, probe: Any, tmp_path: Path, standin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty(STANDARD.format(measure=measure, judge="pass", apis="probe_faulty_lists:apis.yaml"))
    lists = tmp_path / "site" / "probe_faulty_lists"
    lists.mkdir()
    (lists / "__init__.py").touch()
    (lists / "apis.yaml").write_text("mine: [good]\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{standin}")
    dump = standin_run(tmp_path / "run", "Functional.good.0", "Functional.far.0")
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out") == 0, probe.err
    (details,) = (tmp_path / "out").glob("*details*.csv")
    assert details.read_text("utf-8").count(f'The standard ""mine"" of {NAME} failed') == 1


def test_a_standard_without_its_list_is_left_out(faulty: Any, probe: Any, tmp_path: Path, standin: Path) -> None:
    faulty(STANDARD.format(measure="pass", judge="pass", apis="probe_faulty_lists:nothing.yaml"))
    dump = standin_run(tmp_path / "run", "Functional.good.0")
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out") == 0, probe.err
    assert f'The standard "mine": probe_faulty_lists:nothing.yaml of {NAME} failed' in probe.err


# -- batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, says",
    [
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("return None", "TypeError"),
        ("return []", "measure_batch must return 1 columns"),
        ("return [MeasurementColumn(0)]", "measure_batch must return 1 columns with all rows"),
    ],
)
def test_a_metric_of_batches_at_fault_costs_its_cells(
    body: str, says: str, faulty: Any, compare: Any, probe: Any, tmp_path: Path
) -> None:
    faulty(f"""
from probe_core.model.results import MeasurementColumn
from probe_core.plugins.specs import MetricSpec

class Mine:
    def measure_batch(self, batch):
        {body}

@hookimpl
def probe_metrics():
    return [MetricSpec("mine", "a metric", Mine, ("Mine",))]
""")
    assert compare("--metric", "mine") == 0, probe.err
    assert 'The metric "mine"' in probe.out + probe.err and says in probe.out + probe.err
    assert "defect of probe" not in probe.err
    assert set(cells(tmp_path / "out", "Mine")) <= {"N/A", "unsupported", "shape unmatched"}


@pytest.mark.parametrize("body", ["raise ValueError('no')", "return []", "return None"])
def test_a_policy_of_batches_at_fault_is_named(body: str, faulty: Any, compare: Any, probe: Any) -> None:
    faulty(f"""
from probe_core.plugins.specs import PolicySpec

class Mine:
    def judge_batch(self, batch):
        {body}

@hookimpl
def probe_policies():
    return [PolicySpec("mine", "a policy", Mine, standard="mine")]
""")
    assert compare("--policy", "mine") == 2
    assert f'The policy "mine" of {NAME} failed: ' in probe.err and "defect of probe" not in probe.err


@pytest.mark.parametrize(
    "returned, says",
    [("{0: None}", "a Ruling for each row to change, not NoneType"), ("{10 ** 6: None}", "ValueError")],
)
def test_a_judge_of_batches_that_returns_no_ruling_is_named(
    returned: str, says: str, faulty: Any, compare: Any, probe: Any
) -> None:
    faulty(f"""
from probe_core.plugins.specs import JudgeSpec

class Mine:
    def judge_batch(self, batch):
        return {returned}

@hookimpl
def probe_judges():
    return [JudgeSpec("mine", "a judge", Mine)]
""")
    assert compare() == 0, probe.err
    assert f'The judge "mine" of {NAME} failed: ' in probe.out and says in probe.out
