"""Dumps of ptdbg_ascend 4.0 and torch_npu.hooks 3.0.rc3 against today's recordings of the same programs."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.probe import Probe
from support.runs.older_dumps import dumps, open_dump  # noqa: F401
from support.runs.older_net import Conv
from support.runs.today import floating_tensors, paired, record

LEAST = 0.95
"""Share of the floating tensors which both hold that must pair."""
WAYS = [(), ("-f",)]
AFTER_THE_CALL = {"Functional.batch_norm.0.forward.input.1"}
"""The running mean: torch_npu.hooks recorded inputs after the call."""
CANCELLED = {"Functional.conv2d.0.backward.output.2"}
"""The gradient of a bias before a batch norm: a sum that cancels, and is all rounding."""


class Branch(torch.nn.Module):
    """The model with operators that differ by side, as the bench ran it."""

    def __init__(self) -> None:
        super().__init__()
        self.l0 = torch.nn.Linear(4, 6)
        self.l1 = torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.sigmoid(torch.abs(torch.relu(self.l0(x))))
        x = torch.mul(torch.cat([x, x], 1), 2.0)[:, :6]
        cosine = torch.cos(x)
        x = torch.exp(x) + cosine
        return F.softmax(self.l1(x), dim=-1).pow(2).sum()


@pytest.mark.parametrize("way", WAYS)
def test_ptdbg_4_0(dumps: Path, probe: Probe, tmp_path: Path, way: tuple[str, ...]) -> None:
    (file,) = (dumps / "ptdbg40_branch/bench").rglob("*.pkl")

    def saved(name: str) -> torch.Tensor:
        return torch.from_numpy(np.load(file.with_suffix("") / f"Functional_linear_{name}.npy"))

    model = Branch()
    with torch.no_grad():
        for number, layer in enumerate((model.l0, model.l1)):
            layer.weight.copy_(saved(f"{number}_forward_input.1"))
            layer.bias.copy_(saved(f"{number}_forward_input.2"))
    today = record(tmp_path / "today", model, lambda: model(saved("0_forward_input.0")))

    held = {slot.value.data_name: slot.name for record_ in open_dump(file).records() for slot in record_.slots}
    wanted = {}
    for call, phase, slot in floating_tensors(today):
        name = f"{call.replace('.', '_')}_{phase}_{slot.side.value}.{slot.path}"
        raw = name if f"{name}.npy" in held else name.removesuffix(".0")
        if f"{raw}.npy" in held:
            wanted[slot.name] = held[f"{raw}.npy"]
    assert len(wanted) >= 45
    check(wanted, paired(probe, file, today, tmp_path / "out", *way))


CALLS = {  # today's call: that of torch_npu.hooks, and its number among those of its name, from 0
    "Functional.conv2d.0": ("Functional_conv2d", 0),
    "Functional.batch_norm.0": ("Functional_batch_norm", 0),
    "Functional.relu.0": ("Functional_relu", 0),
    "Functional.max_pool2d.0": ("Functional_max_pool2d", 0),
    "Functional.conv2d.1": ("Functional_conv2d", 1),
    "Torch.relu.0": ("Torch_relu", 1),
    "Tensor.flatten.0": ("Tensor_flatten", 0),
    "Functional.linear.0": ("Functional_linear", 0),
    "Functional.log_softmax.0": ("Functional_log_softmax", 0),
    "Functional.nll_loss.0": ("Functional_nll_loss", 0),
}
OPPOSITE = {"input": "output", "output": "input"}


@pytest.mark.parametrize("way", WAYS)
def test_hooks_3_0_rc3(dumps: Path, probe: Probe, tmp_path: Path, way: tuple[str, ...]) -> None:
    file = dumps / "hooks_rc3_conv/cpu.pkl"
    run = open_dump(file)
    rows: dict[str, list[tuple[int, str]]] = defaultdict(list)
    arrays = {}
    for record_ in run.records():
        for slot in record_.slots:
            raw, _, offset = str(slot.value.data_name).rpartition("@")
            rows[raw].append((int(offset), slot.name))
            arrays[slot.name] = run.tensor(slot.value)
    names = {raw: [name for _, name in sorted(found)] for raw, found in rows.items()}

    def saved(call: str, number: int, place: str) -> torch.Tensor:
        return torch.from_numpy(arrays[names[f"Functional_{call}_{place}"][number]])

    model = Conv()
    with torch.no_grad():
        for layer, call, number in (
            (model.conv1, "conv2d", 0), (model.conv2, "conv2d", 1), (model.fc, "linear", 0)
        ):  # fmt: skip
            layer.weight.copy_(saved(call, number, "forward_input.1"))
            assert layer.bias is not None
            layer.bias.copy_(saved(call, number, "forward_input.2"))
    given, labels = saved("conv2d", 0, "forward_input.0"), saved("nll_loss", 0, "forward_input.1")
    today = record(tmp_path / "today", model, lambda: F.nll_loss(model(given), labels.long()))

    wanted = {}
    for call, phase, slot in floating_tensors(today):
        if call not in CALLS:
            continue
        older, number = CALLS[call]
        side = slot.side.value if phase == "forward" else OPPOSITE[slot.side.value]
        name = f"{older}_{phase}_{side}.{slot.path}"
        found = names.get(name) or names.get(name.removesuffix(".0"), [])
        if phase == "backward":
            found = found[::-1]
        total = len(names[f"{older}_forward_output"])
        if len(found) == total:  # of each call
            wanted[slot.name] = found[number]
    assert len(wanted) >= 45
    check(wanted, paired(probe, file, today, tmp_path / "out", *way))


def check(wanted: dict[str, str], told: dict[str, tuple[str, float]]) -> None:
    """Check that nearly all tensors that both hold pair, and none wrongly."""
    wrong = {name: older for name, (older, _) in told.items() if name in wanted and wanted[name] != older}
    assert wrong == {}
    assert len(told.keys() & wanted.keys()) >= LEAST * len(wanted)
    far = {name for name, (_, cosine) in told.items() if not cosine >= 0.9999}
    assert far <= AFTER_THE_CALL | CANCELLED
