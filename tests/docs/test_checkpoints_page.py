"""The commands, the code and the tables of the page on checkpoints."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from probe_check.checkpoint.pairing import WRAPPER_COMPONENTS, read_mapping
from probe_check.checkpoint.result import Relation
from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "checkpoints.md"
UP, GATE = (f"model.layers.7.mlp.{name}_proj.weight" for name in ("up", "gate"))


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("page")
    torch.manual_seed(0)
    golden = {"model.embed_tokens.weight": torch.randn(12, 8)}
    for layer in range(9):
        for name in ("self_attn.q", "mlp.up", "mlp.gate"):
            golden[f"model.layers.{layer}.{name}_proj.weight"] = torch.randn(16, 8)
    for side, model in (("golden", golden), ("target", {**golden, UP: golden[GATE], GATE: golden[UP]})):
        (directory / side).mkdir()
        torch.save(model, directory / side / "model.pt")
    return directory


def test_the_example_names_the_swapped_tensors(room: Path, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(room)
    (command,) = blocks(PAGE, "bash")
    assert probe(*shlex.split(command)[1:]) == 0, probe.err
    shown = PAGE.read_text("utf-8").partition("```\nDIVERGED:")[2].partition("```")[0]
    assert probe.out == f"DIVERGED:{shown}"
    (example,) = blocks(PAGE, "json")
    written = json.loads(Path("out.json").read_text())
    assert {name: written[name] for name in json.loads(example)} == json.loads(example)


def test_the_interface_from_python(
    room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(room)
    (code,) = blocks(PAGE, "python")
    exec(code, {})
    assert f"swapped {GATE}" in capsys.readouterr().out


def test_the_mapping_is_understood(tmp_path: Path) -> None:
    (text,) = blocks(PAGE, "yaml")
    (tmp_path / "names.yaml").write_text(text)
    assert read_mapping(tmp_path / "names.yaml") == yaml.safe_load(text)


def test_findings_and_wrappers_are_those_of_the_code() -> None:
    text = PAGE.read_text("utf-8")
    assert all(f"| `{relation.value}` |" in text for relation in Relation)
    assert all(f"`{name}`" in text for name in WRAPPER_COMPONENTS)
