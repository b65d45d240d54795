"""The plugin of pytest: the option ``--probe-update`` and the fixture ``probe_golden`` (docs/pytest.md)."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_probe.paths import find_golden_path, format_path

if TYPE_CHECKING:
    from pytest_probe.golden import ProbeGolden

NOTE = "probe_golden"
"""The name of the property of a test that contains a note for the summary."""
GOLDEN_KEY = pytest.StashKey["ProbeGolden"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--probe-update``."""
    parser.getgroup("probe").addoption(
        "--probe-update", action="store_true", help="write the golden files of the tests that use probe_golden"
    )


@pytest.fixture
def probe_golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProbeGolden]:
    """Compare what the test computes with its golden file, a small text file in ``goldens`` beside the test."""
    item = request.node
    golden = _create_golden(item, tmp_path_factory)
    item.stash[GOLDEN_KEY] = golden
    yield golden
    golden.close()


def _create_golden(item: pytest.Item, tmp_path_factory: pytest.TempPathFactory) -> ProbeGolden:
    if importlib.util.find_spec("torch") is None:
        pytest.fail("probe_golden needs torch, which is not installed.\nInstall it: pip install torch", pytrace=False)
    from probe_core.errors import UserError
    from pytest_probe.golden import ProbeGolden
    from pytest_probe.golden_test import GoldenTest

    path = find_golden_path(item.path, item.nodeid)
    directory = tmp_path_factory.mktemp("probe")
    updates = bool(item.config.getoption("--probe-update"))
    test = GoldenTest(item.nodeid, path, format_path(path, item.config.rootpath), directory, updates)
    try:
        return ProbeGolden(test)
    except UserError as error:
        problem = str(error)
    pytest.fail(problem, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Judge the run of a test that uses ``probe_golden``, or write its golden file, when the test has passed."""
    try:
        result = yield
    except Exception as error:
        problem = _format_misuse(item, error)
        if not problem:
            raise
    else:
        problem = _judge(item)
    if problem:
        pytest.fail(problem, pytrace=False)
    return result


def _format_misuse(item: pytest.Item, error: Exception) -> str:
    """Return the text of an error that the user can correct, which the fixture raised; empty for any other error."""
    if item.stash.get(GOLDEN_KEY, None) is None:
        return ""
    from probe_core.errors import UserError

    return str(error) if isinstance(error, UserError) else ""


def _judge(item: pytest.Item) -> str:
    """Return the failure of a test that has passed by its golden file, or after that was written; empty for none."""
    golden = item.stash.get(GOLDEN_KEY, None)
    if golden is None:
        return ""
    from probe_core.errors import UserError

    try:
        judgment = golden.update(item.runtest) if item.config.getoption("--probe-update") else golden.judge()
    except UserError as error:
        return str(error)
    item.user_properties += [(NOTE, note) for note in judgment.notes]
    return judgment.failure


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each note with the number of tests that it is about."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    notes = Counter(
        text
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, text in report.user_properties
        if name == NOTE
    )
    for note, count in notes.items():
        terminalreporter.write_line(f"probe: {'1 test' if count == 1 else f'{count} tests'}: {note}")
