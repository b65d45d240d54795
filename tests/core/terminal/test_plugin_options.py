"""Options, answers and judges of a third party: shown in the help, asked for, and blamed where they fail."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probe_core.errors import UserError

SOURCE = """
from dataclasses import replace
from probe_core.model import Level
from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import AnswerSpec, Option, OptionSpec

EXPECTED = {}

class Count:
    def __init__(self, path):
        self.path, self.rows, self.errors = path, 0, 0
    def write(self, op, rows):
        self.rows += len(rows)
        self.errors += sum(row.verdict.level is Level.ERROR for row in rows)
    def close(self, *, interrupted=False):
        self.path.write_text(f"{self.errors} of {self.rows}")
        return self.path
    def discard(self):
        self.path.unlink(missing_ok=True)

class Told:
    is_judged = True
    def __init__(self, text):
        self.text = text
    def show(self, *, brief=False):
        print("errors:", self.text)

class Errors:
    def witness(self, opened, pair):
        return Count(opened.plan.output / f"errors_rank{pair.rank}.txt")
    def conclude(self, compared):
        output, pairs = compared.plan.output, [one.pair for one in compared.finished]
        return [Told((output / f"errors_rank{pair.rank}.txt").read_text()) for pair in pairs]

def ask(plan, values, asked):
    assert values == EXPECTED or "count" in values, values
    return replace(plan, answers=(*plan.answers, "errors"), advise="formats" not in asked)

def merge(manager, output, format, values):
    print("merged", values["what"], "as", format)
    return 0

@hookimpl
def probe_answers():
    return [AnswerSpec("errors", "counts errors", Errors)]

@hookimpl
def probe_options():
    return [
        OptionSpec("errors", "counts errors", "probe_more:ask", command="compare",
                   options=(Option("count", ("--errors",), "Count the errors."),
                            Option("deep", ("--deep",), "Count all of them.", needs="count"),
                            Option("by", ("-b", "--by-what"), "Count by this.", kind="text",
                                   choices=("op", "row")),
                            Option("other", ("--other-run",), "Count here, too.", kind="run"))),
        OptionSpec("what", "merges something", "probe_more:merge", command="merge_result",
                   options=(Option("what", ("--what",), "Merge this.", kind="text", choices=("a", "b")),)),
    ]
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """``install(source)``: install a plugin with this module of hooks."""

    def installed(source: str) -> None:
        site = tmp_path / "site"
        home = site / "probe_more-3.2.dist-info"
        home.mkdir(parents=True)
        (home / "METADATA").write_text("Metadata-Version: 2.1\nName: probe-more\nVersion: 3.2\n")
        (home / "entry_points.txt").write_text("[probe]\nmore = probe_more\n")
        (site / "probe_more.py").write_text(source)
        monkeypatch.syspath_prepend(str(site))
        importlib.invalidate_caches()

    yield installed
    sys.modules.pop("probe_more", None)


@pytest.fixture
def sides(runs: Any) -> tuple[Path, Path]:
    base = runs("tensor_L1_edge")
    return base / "npu_dump", base / "bench_dump"


def test_an_option_asks_for_an_answer(install: Any, sides: Any, probe: Any, tmp_path: Path) -> None:
    install(SOURCE)
    assert probe("compare", "--help") == 0
    assert "--errors" in probe.out and "Count the errors." in probe.out
    assert probe("compare", *sides, "-o", tmp_path / "o", "--format", "jsonl", "--errors") == 0, probe.err
    (table,) = (tmp_path / "o").glob("compare_result*.jsonl")
    rows = [json.loads(line) for line in table.read_text("utf-8").splitlines()]
    failing = int(re.findall(r"^  table: ([\d,]+) fail,", probe.out, re.MULTILINE)[0])
    assert f"errors: {failing} of {len(rows)}" in probe.out and failing
    assert not list((tmp_path / "o").glob("advisor*"))
    plain = probe("compare", *sides, "-o", tmp_path / "p", "--format", "jsonl")
    assert plain == 0 and "errors:" not in probe.out and list((tmp_path / "p").glob("advisor*"))


def test_an_option_that_needs_another(install: Any, sides: Any, probe: Any, tmp_path: Path) -> None:
    install(SOURCE)
    assert probe("compare", *sides, "-o", tmp_path / "o", "--deep") == 2
    assert "--deep needs --errors." in probe.err and not (tmp_path / "o").exists()


def test_options_in_python(install: Any, sides: Any, tmp_path: Path) -> None:
    """Under their long names, with the values that the command line would hand over."""
    install(SOURCE)
    import probe_core
    from probe_core.files.location import parse_location

    expected = importlib.import_module("probe_more").EXPECTED
    expected.update(by="op", other=parse_location(str(sides[0])))
    plan = probe_core.compare(*sides, by_what="op", other_run=str(sides[0]), errors=False, deep=None).plan
    assert plan.answers == ("errors",) and plan.advise
    assert not probe_core.compare(*sides, errors=True, formats="csv").plan.advise
    with pytest.raises(UserError, match="--deep needs --errors"):
        probe_core.compare(*sides, deep=True)
    with pytest.raises(UserError, match="by_what must not be 'cell'") as caught:
        probe_core.compare(*sides, by_what="cell")
    assert caught.value.choices == ("op", "row")
    with pytest.raises(UserError, match=r'no option "by_whot"(.|\n)*Did you mean by_what\?'):
        probe_core.compare(*sides, by_whot="op")


def test_an_option_of_merge_result(install: Any, probe: Any, tmp_path: Path) -> None:
    install(SOURCE)
    assert probe("merge_result", "--what", "b", "-o", tmp_path / "o", "--format", "csv") == 0, probe.err
    assert "merged b as csv" in probe.out
    assert probe("merge_result", "--what", "c") == 2 and "'c' is not one of 'a', 'b'" in probe.err
    assert probe("merge_result") == 2 and "Results to merge are needed." in probe.err


def test_an_option_whose_action_is_missing(install: Any, sides: Any, probe: Any, tmp_path: Path) -> None:
    install(SOURCE.replace('"probe_more:ask"', '"probe_more:gone"'))
    assert probe("compare", *sides, "-o", tmp_path / "o", "--errors") == 2
    assert 'The option "errors" of probe-more 3.2 failed' in probe.err and not (tmp_path / "o").exists()
    assert probe("compare", *sides, "-o", tmp_path / "o", "--format", "csv") == 0  # where nobody asks


@pytest.mark.parametrize("where", ["witness(self, opened, pair)", "write(self, op, rows)", "conclude(self, compared)"])
def test_an_answer_that_fails_is_blamed(where: str, install: Any, sides: Any, probe: Any, tmp_path: Path) -> None:
    install(SOURCE.replace(f"    def {where}:\n", f"    def {where}:\n        raise ZeroDivisionError('by three')\n"))
    assert probe("compare", *sides, "-o", tmp_path / "o", "--format", "csv", "--errors") == 2
    assert 'The answer "errors" of probe-more 3.2 failed: ZeroDivisionError: by three' in probe.err
    assert "This is a defect of probe" not in probe.err


FINDER = """
from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import FinderSpec

class Broken:
    found, first_failure = [], None
    def add(self, op, rows, lines):
        pass
    def answer(self, draft, opened, pair, compare):
        raise ValueError("no idea")
    def plain(self):
        return None
    def restore(self, plain):
        pass

@hookimpl
def probe_finders():
    return [FinderSpec("mine", "finds nothing", Broken)]
"""


def test_a_finder_that_fails_is_named_and_leaves_the_table(
    install: Any, sides: Any, probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(FINDER)
    monkeypatch.setattr("probe_diagnosis.hooks.probe_finders", lambda: [])  # of several, one is used
    assert probe("compare", *sides, "-o", tmp_path / "o", "--format", "jsonl") == 0, probe.err
    assert 'The finder "mine" of probe-more 3.2 failed: ValueError: no idea.' in probe.out + probe.err
    assert "There is no verdict." in probe.out + probe.err
    (table,) = (tmp_path / "o").glob("compare_result*.jsonl")
    assert table.read_text("utf-8")
    assert probe("compare", *sides, "-o", tmp_path / "p", "--fail-on", "suspect") == 2


def test_an_option_may_wrap_the_command(install: Any, probe: Any) -> None:
    wrapper = """
import click

def wrap(command):
    return click.Command(command.name, params=command.params, callback=lambda **values: 7)
"""
    install(SOURCE.replace('command="compare",', 'command="compare", wrapper="probe_more:wrap",') + wrapper)
    assert probe("compare", "a", "b", "--errors") == 7
    assert probe("compare", "a", "b", "--wrong") == 2
