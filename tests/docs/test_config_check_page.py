"""The script and the commands of the page on config-check, run as they stand."""

from __future__ import annotations

import re
import shlex
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_check.config_check import comparison, random_log, results
from probe_check.config_check.items import GapKind, PackItem
from probe_check.config_check.pack import HYPERPARAMETER_FILES
from probe_check.config_check.rules import load_rules
from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "config-check.md"


@pytest.fixture(autouse=True)
def patches_are_removed() -> Iterator[None]:
    yield
    random_log.RANDOM_LOG.remove()


def plain_blocks() -> list[str]:
    """Return the code blocks without a language."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [text for language, text in fenced if not language]


def test_the_commands_print_what_the_page_shows(tmp_path: Path, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script, answer = plain_blocks()
    collect, compare = (shlex.split(line)[1:] for line in blocks(PAGE, "bash")[0].splitlines())
    Path("train.sh").write_text(script)
    assert probe(*collect) == 0, probe.err
    Path("train.sh").write_text(script.replace("1e-4", "2e-4"))
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    assert probe(*(text.replace("bench.zip", "cmp.zip") for text in collect)) == 0, probe.err
    assert probe(*compare) == 0, probe.err
    assert probe.out == answer


def test_the_script_collects_what_the_page_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.sh").write_text(plain_blocks()[0])

    def train(model: torch.nn.Module) -> None:
        for _ in range(12):
            model(torch.ones(1, 2))

    (script,) = blocks(PAGE, "python")
    exec(script, {"make_model": lambda: torch.nn.Linear(2, 2), "train": train})
    assert not capsys.readouterr().err
    with zipfile.ZipFile("bench.zip") as pack:
        names = pack.namelist()
    table = PAGE.read_text().partition("| member | content |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    patterns = [re.sub(r"\{\w\}", r"\\d+", name) for cell in cells for name in re.findall(r"`([^`]*)`", cell)]
    assert not [name for name in names if not any(re.fullmatch(pattern, name) for pattern in patterns)]
    assert "weights/step9/rank0/weight.json" in names and "weights/step10/rank0/weight.json" not in names


def test_tables_of_the_page_are_those_of_the_code() -> None:
    text = PAGE.read_text()
    rules = load_rules()
    for rule in rules.variables:
        sides = " | ".join(f"`{name}`" if name else "–" for name in (rule.npu, rule.gpu))
        assert f"| {sides} | `{rule.default}` |" in text
    for name, aliases in rules.aliases.items():
        shown = ", ".join(f"`{alias}`" for alias in aliases)
        assert f"| `{name}` | {shown} |" in text
    names = [
        *rules.packages,
        *HYPERPARAMETER_FILES,
        *(one.value for one in PackItem),
        *(one.value for one in GapKind),
    ]
    names += [
        *rules.launchers,
        *rules.condition_levels,
        *results.SUMMARY_COLUMNS,
        *comparison.CONDITION_COLUMNS,
    ]
    assert not [name for name in names if f"`{name}`" not in text and f"/{name}`" not in text]
