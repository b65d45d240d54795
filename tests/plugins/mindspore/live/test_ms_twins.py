"""The same net in both frameworks, recorded live: calls that both have are paired, and none fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("mindspore")
pytest.importorskip("torch")

import mindspore as ms
from mindspore import nn
from probe_mindspore.names import load_table
from probe_pytorch import PrecisionDebugger
from support.on_mindspore.ms_recording import Recording
from support.on_mindspore.twins import NETS, batch, mindspore_training, torch_training
from support.runs.comparing import compare

from probe_core.model import Level
from probe_core.model.plan import Plan
from probe_core.plugins.manager import Manager
from probe_core.store.names import parse_api_key, parse_module_key

ms.runtime.launch_blocking()
TABLE = load_table()
Rows = list[dict[str, Any]]


def recorded(net: str, level: str, directory: Path, rel: float = 1e-5) -> list[Path]:
    """Record one training step in each framework."""
    ours, theirs = (make() for make in NETS[net])
    step = mindspore_training(ours)
    recording = Recording(directory / "ms", task="tensor", level=level)
    recording.start(ours)
    losses = [step(*batch(net))]
    recording.stop()
    recording.step()
    recording.finish()
    assert not recording.errors
    config = directory / "pt.json"
    config.write_text(json.dumps({"dump_path": str(directory / "pt"), "task": "tensor", "level": level}))
    PrecisionDebugger._instance = None
    debugger = PrecisionDebugger(config_path=str(config))
    step = torch_training(theirs)
    debugger.start(model=theirs)
    losses.append(step(*batch(net)))
    debugger.stop()
    debugger.step()
    assert losses[0] == pytest.approx(losses[1], rel=rel)
    return [directory / "ms", directory / "pt"]


def word(name: str, is_target: bool) -> str:
    """Return the common name of a row's call: the path of a module, or an API."""
    key = name.partition(".input.")[0].partition(".output.")[0].partition(".parameters.")[0]
    if "parameters_grad" in key:
        key = key.partition(".parameters_grad")[0] + ".parameters_grad"
    module = parse_module_key(key)
    if module is not None:
        return f"{module.path}.{module.suffix}"
    parts = parse_api_key(key)
    assert parts is not None, name
    api = (TABLE.source if is_target else TABLE.target).word(parts.api)
    return f"{'Torch.permute' if api == 'Torch.transpose' else api}.{parts.phase}"  # transpose(0, 2, 1) is permute


def compared(runs: list[Path], out: Path) -> tuple[Any, Rows]:
    (report,) = compare(Plan(*runs, out, "0", formats=("jsonl",)), Manager())
    (path,) = out.glob("*.jsonl")
    return report, [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("net", list(NETS))
def test_what_both_have_pairs_and_nothing_is_wrong(net: str, level: str, tmp_path: Path) -> None:
    report, rows = compared(recorded(net, level, tmp_path), tmp_path / "out")
    assert not report.suspects and not report.counts.levels[Level.ERROR]
    assert not [note for note in report.notes if "of the last inner call" in note], "probe's own gradients are whole"
    pairs = [(row["NPU Name"], row["Bench Name"]) for row in rows if "N/A" not in (row["NPU Name"], row["Bench Name"])]
    alone = [
        {word(row[column], column == "NPU Name") for row in rows if row[column] != "N/A"}
        for column in ("NPU Name", "Bench Name")
    ]
    both = alone[0] & alone[1]
    met = {word(one, True) for one, _ in pairs}
    assert len(both) > 20 and len(met & both) >= 0.95 * len(both), sorted(both - met)
    apart = [row for row in rows if "do not line up" in (row["Err_message"] or "")]
    inside = {row["NPU Name"] for row in apart}
    wrong = [pair for pair in pairs if pair[0] not in inside and word(pair[0], True) != word(pair[1], False)]
    assert not wrong


# -- defaults that differ ----------------------------------------------------------------------------


class Default(NamedTuple):
    """A layer whose default differs from PyTorch's: the call named first, and the hint."""

    net: str
    layer: str
    build: Callable[[Any], Callable[..., Any]]
    suspect: str
    told: str


DEFAULTS = {
    "epsilon": Default(
        "transformer", "LayerNorm", lambda layer: lambda shape, epsilon: layer(shape),
        "Primitive.layer_norm.LayerNorm.0.forward.output.0", "epsilon of 1e-07",
    ),
    "approximation": Default(
        "transformer", "GELU", lambda layer: lambda approximate: layer(),
        "Functional.gelu.0.forward.input.approximate", "approximates by tanh",
    ),
    "slope": Default(
        "convolutional", "LeakyReLU", lambda layer: lambda slope: layer(),
        "Functional.leaky_relu.0.forward.input.1", "slope is 0.2",
    ),
    "epsilon of a batch": Default(
        "convolutional", "BatchNorm2d", lambda layer: lambda size: layer(size, eps=1e-3),
        "Primitive.bn_train.BatchNorm.0.forward.output.0", "momentum",
    ),
}  # fmt: skip


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize("name", list(DEFAULTS))
def test_another_default_is_named_first_and_explained(
    name: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = DEFAULTS[name]
    monkeypatch.setattr(nn, fault.layer, fault.build(getattr(nn, fault.layer)))
    report, _ = compared(recorded(fault.net, level, tmp_path, rel=1e-2), tmp_path / "out")
    first = report.answer.causes[0]
    assert first.evidence.get("argument", first.row) == fault.suspect
    assert report.suspects[0].op == first.op
    assert {suspect.op.rpartition(".forward")[0].rpartition(".")[0] for suspect in report.suspects} == {
        fault.suspect.partition(".0.forward")[0]
    }, "what takes it in is no finding"
    assert any(fault.told in note for note in report.notes)
