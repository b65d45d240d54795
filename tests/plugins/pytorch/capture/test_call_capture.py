"""Python functions that a yaml file lists (``custom_wrap_ops``)."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from probe_pytorch.capture.call_capture import ListedFunctions
from support.runs.recording import recording

from probe_core.errors import UserError


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("probe_test_kernels")
    module.fused = lambda x: torch.relu(x) * 2  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def write_list(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_listed_functions_are_recorded_under_module_and_name(kernels: Any, tmp_path: Path) -> None:
    listed = write_list(tmp_path / "ops.yaml", f"{kernels.__name__}: [fused]\n")
    with recording(tmp_path / "run", level="L1", custom_wrap_ops=str(listed)) as run:
        run.start()
        kernels.fused(torch.ones(2))
        run.stop()
    record = run.records()[f"{kernels.__name__}.fused.0.forward"]
    assert record["output"][0]["Max"] == 2.0


def test_modules_imported_after_the_first_step_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    listed = write_list(tmp_path / "ops.yaml", "probe_test_late: [fused]\n")
    late: Any = ModuleType("probe_test_late")
    late.fused = torch.relu
    with recording(tmp_path / "run", level="L1", custom_wrap_ops=str(listed)) as run:
        run.start()
        torch.relu(torch.ones(1))
        run.stop()
        run.step()
        monkeypatch.setitem(sys.modules, late.__name__, late)
        run.start()
        late.fused(torch.ones(1))
        run.stop()
    assert list(run.records(1)) == ["probe_test_late.fused.0.forward"]


def test_functions_that_are_never_found_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = write_list(tmp_path / "ops.yaml", "probe_test_absent: [fused]\n")
    with recording(tmp_path / "run", level="L1", custom_wrap_ops=str(listed)) as run:
        run.start()
        torch.relu(torch.ones(1))
        run.stop()
    assert "probe_test_absent.fused" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["- fused\n", "probe_test_kernels: fused\n", "a: [1]\n", "a: [\n"])
def test_malformed_lists_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="list of APIs"):
        ListedFunctions(write_list(tmp_path / "ops.yaml", text))


def test_missing_lists_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        ListedFunctions(tmp_path / "none.yaml")


def test_functions_of_classes_are_found(kernels: Any, tmp_path: Path) -> None:
    kernels.Ops = type("Ops", (), {"fused": staticmethod(torch.relu)})
    path = write_list(tmp_path / "ops.yaml", f"{kernels.__name__}.Ops: [fused]\n")
    functions = ListedFunctions(path)
    assert [patch.name for patch in functions.iterate_importable()] == [f"{kernels.__name__}.Ops.fused"]
    assert not functions.missing and not list(functions.iterate_importable())
