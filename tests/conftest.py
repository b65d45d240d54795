"""Recorded runs for the tests: unpacked once a session, read-only by agreement."""

from __future__ import annotations

import gc
import gzip
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from probe_ranks.scheduler import WorkDistribution
from support import DATA, TESTS
from support.probe import Probe
from support.programs.imported import CHECKED_WITH, compared_with
from support.runs.results import read_jsonl
from support.sampling import SLOW

HEAVY = re.compile(r"^\s*(?:import|from) (?:torch|mindspore|distributed|subprocess|multiprocessing|playwright)\b", re.M)
LONG = re.compile(r"^from hypothesis import given", re.M)
LONG_FILES = {
    "test_aligned_random.py", "test_check.py", "test_checks_in_browser.py", "test_page_in_browser.py", "test_journal.py",
    "test_journal_damaged.py", "test_legacy_mutated_files.py", "test_acl_mutated_dumps.py", "test_run_ut_msprobe.py",
    "test_spread.py",
}  # fmt: skip
LONGEST_FILES = (
    "test_pytorch_compile.py", "test_online.py", "test_tutorial_page.py", "test_online_faults_ends.py", "test_server.py",
    "test_main.py", "test_planted_errors.py", "test_acl_mutated_dumps.py", "test_memory.py",
    "test_monitor_against_msprobe.py", "test_grad_probe_against_msprobe.py", "test_planted_faults.py",
    "test_fault_benchmark.py", "test_pages.py", "test_many_ranks_live.py", "test_full_disks.py", "test_equivalent_programs.py",
    "test_pytorch_bit_equality.py", "test_page_in_browser.py", "test_online_faults.py",
)  # fmt: skip
"""Files whose tests take longest, those first that hold the longest of all."""
HELPERS = re.compile(r"^from (support[.\w]*) import \(?([\w, ]*)", re.M)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare ``--quick``."""
    parser.addoption(
        "--quick",
        action="store_true",
        help="leave out files that import a framework, start processes or take long",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let properties have all their examples where slow tests are run."""
    if "not slow" not in config.option.markexpr:
        os.environ[SLOW] = "1"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out slow files with ``--quick``."""
    is_file = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    if not is_file or not config.getoption("--quick"):
        return None
    is_long = collection_path.name in LONG_FILES or LONG.search(collection_path.read_text("utf-8"))
    return True if is_long or is_heavy(collection_path) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each process begin with some of the longest files, so that none is alone with one at the end.

    pytest-xdist gives each process an equal part of the list, and what is left to whoever has nothing to do.
    """
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    longest = sorted(
        (path for path in files if path.name in LONGEST_FILES),
        key=lambda path: LONGEST_FILES.index(path.name),
    )
    parts: list[list[pytest.Item]] = [[] for _ in range(count)]
    for number, path in enumerate(longest):
        parts[number % count] += files.pop(path)
    others = [item for own in files.values() for item in own]
    for number, part in enumerate(parts):
        end = len(items) * (number + 1) // count - len(items) * number // count
        room = max(0, end - len(part)) if number < count - 1 else len(others)
        part += others[:room]
        del others[:room]
    items[:] = [item for part in parts for item in part]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let no collection of garbage look at what is imported and collected before the first test.

    It is many objects, which stay: looking at them takes a third of the time that it takes to collect the tests, and
    half a second of each test that collects garbage.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@cache
def is_heavy(path: Path) -> bool:
    """Return True if a file, or a helper that it imports, imports a framework or what starts processes."""
    text = path.read_text("utf-8")
    names = {
        name
        for found in HELPERS.finditer(text)
        for name in (found[1], *(f"{found[1]}.{one.strip()}" for one in found[2].split(",")))
    }
    helpers = [TESTS / f"{name.replace('.', '/')}.py" for name in names]
    return bool(HEAVY.search(text)) or any(is_heavy(helper) for helper in helpers if helper.is_file())


@pytest.fixture(scope="session", autouse=True)
def _server_of_processes() -> Iterator[None]:
    """Let the server that this process forks workers from import what they need once, whichever test starts it.

    It imports what the first test asks for alone; every worker of a pool would import the rest anew.
    """
    checked = CHECKED_WITH if "torch" in sys.modules else ()
    with pytest.MonkeyPatch.context() as patch:
        ask = forkserver.set_forkserver_preload
        patch.setattr(forkserver, "set_forkserver_preload", lambda names: ask([*names, *compared_with(), *checked]))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_by_one() -> Iterator[property]:
    """Let a comparison without ``--jobs`` compare its ranks one by one in this process; what it was otherwise.

    Starting two processes takes 0.4 s of CPU time more than comparing small runs.
    """
    usual: Any = WorkDistribution._jobs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkDistribution, "_jobs", property(lambda distribution: distribution.plan.jobs or 1))
        yield usual


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """Restore the environment variables after each test: ``seed_all`` sets some, and other tests compare them."""
    before = dict(os.environ)
    yield
    for name in {*before, *os.environ} - {"PYTEST_CURRENT_TEST"}:
        if name not in before:
            del os.environ[name]
        elif os.environ.get(name) != before[name]:
            os.environ[name] = before[name]


@pytest.fixture
def processes(_one_by_one: property, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a comparison of several ranks without ``--jobs`` start processes, as it does outside of the tests."""
    monkeypatch.setattr(WorkDistribution, "_jobs", _one_by_one)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """``runs("tensor_L1_edge", "8.3.3")``: the directory with npu_dump and bench_dump."""
    unpacked: dict[str, Path] = {}

    def find(case: str, version: str = "8.3.3") -> Path:
        if version not in unpacked:
            unpacked[version] = tmp_path_factory.mktemp(f"runs-{version}")
            zipfile.ZipFile(DATA / f"runs-{version}.zip").extractall(unpacked[version])
        return unpacked[version] / case / (f"v{version}" if version[0].isdigit() else "")

    return find


@pytest.fixture(scope="session")
def expected() -> list[dict[str, Any]]:
    """Msprobe's own results for the runs of 8.3.3, a table each."""
    with gzip.open(DATA / "expected-8.3.3.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture
def probe(capsys: pytest.CaptureFixture[str]) -> Probe:
    """``probe("compare", target, golden)`` is the exit code."""
    return Probe(capsys)


@pytest.fixture
def rows_of(probe: Probe, tmp_path: Path) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """``rows_of(target, golden, "-f")``: compare, and the rows of the result."""
    count = 0

    def compare(*arguments: str | Path) -> list[dict[str, Any]]:
        nonlocal count
        count += 1
        out = tmp_path / f"out{count}"
        assert probe("compare", *arguments, "-o", out, "--format", "jsonl") == 0, probe.err
        return read_jsonl(out)

    yield compare
