"""The example of the page on the dispatch check, run, and its lists against the code."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest
import torch
from probe_pytorch import DispatchCheck
from probe_pytorch.dispatch_check.findings import (
    CallOrigin,
    OperatorDifference,
    OperatorDifferenceKind,
    OperatorFinding,
)
from support.faults import wrong_kernels as kernels
from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "dispatch-check.md"
TEXT = PAGE.read_text("utf-8")


def test_the_example_names_the_wrong_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = blocks(PAGE, "python")
    torch.manual_seed(0)
    with kernels.wrong_kernel("gelu", kernels.tanh_gelu, kernels.exact_gelu):
        exec(compile(program, "train.py", "exec"), {"__name__": "train"})
    printed = capsys.readouterr()
    assert printed.out.startswith("Aten.gelu.0 aten.gelu.default forward OperatorDifference(")
    (shown,) = re.findall(r"^```\n(dispatch check: .*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert plain(printed.err) == plain(shown)


def plain(text: str) -> str:
    """Replace the numbers that differ from run to run, and drop the note on what other tests compiled."""
    text = re.sub(r"^  torch\.compile was used in this process.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"_\d{14}", "_N", re.sub(r"\d\S*e-\d+|relative error of \S+;", "N", text))
    return re.sub(r"\d+ calls of \d+ operators", "N calls of N operators", text)


def test_the_list_of_the_page_is_taken(tmp_path: Path) -> None:
    (text,) = blocks(PAGE, "yaml")
    path = tmp_path / "skip.yaml"
    path.write_text(text)
    DispatchCheck(tmp_path, skip=path)


def test_the_page_names_all_arguments_and_fields() -> None:
    arguments = re.findall(r"^\| `(\w+)` \| (\S+) \|", TEXT, re.MULTILINE)
    parameters = inspect.signature(DispatchCheck).parameters
    assert [name for name, _ in arguments] == [*parameters]
    for name, default in arguments:
        value = parameters[name].default
        assert default == (f'`"{value}"`' if isinstance(value, str) else str(value))
    for kind in (OperatorFinding, OperatorDifference, CallOrigin):
        assert all(f"`{field.name}`" in TEXT for field in dataclasses.fields(kind))
    assert all(kind.value in TEXT for kind in OperatorDifferenceKind)
