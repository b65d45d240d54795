"""The report of a first import, with which the module is the same as without it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from probe_recording.process_start.import_watch import ImportWatch


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Watch the import of ``watched_module``; the list has an entry for each report: True if it is complete."""
    monkeypatch.syspath_prepend(tmp_path)
    reports: list[bool] = []
    watch = ImportWatch("watched_module", lambda: reports.append(hasattr(sys.modules["watched_module"], "last")))
    watch.install()
    yield reports
    sys.modules.pop("watched_module", None)
    if watch.is_installed:
        sys.meta_path.remove(watch)  # type: ignore[arg-type]


def test_the_import_is_reported_once_when_it_is_complete(tmp_path: Path, reports: list[bool]) -> None:
    (tmp_path / "watched_module.py").write_text("first = __loader__\nlast = __spec__.loader\n")
    assert importlib.util.find_spec("watched_module") and importlib.util.find_spec("watched_module")
    assert not reports
    module = importlib.import_module("watched_module")
    assert reports == [True]
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert module.first is module.last is module.__loader__
    importlib.reload(module)
    assert reports == [True]


def test_an_import_that_fails_is_not_reported(tmp_path: Path, reports: list[bool]) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("watched_module")
    (tmp_path / "watched_module.py").write_text("raise ImportError('broken')\n")
    importlib.invalidate_caches()
    with pytest.raises(ImportError, match="broken"):
        importlib.import_module("watched_module")
    (tmp_path / "watched_module.py").write_text("last = 'the second try'\n")
    importlib.import_module("watched_module")
    assert reports == [True]


def test_resources_are_read_from_a_spec_that_was_not_imported(tmp_path: Path, reports: list[bool]) -> None:
    (tmp_path / "watched_module.py").write_text("last = 1\n")
    spec = importlib.util.find_spec("watched_module")
    assert spec is not None and spec.loader is not None
    assert spec.loader.get_source("watched_module") == "last = 1\n"  # type: ignore[attr-defined]
