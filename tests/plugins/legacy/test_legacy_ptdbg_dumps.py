"""A dump of ptdbg_ascend 2.3 against today's recording of the same program: the same tensors pair, no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.probe import Probe
from support.runs.older_dumps import dumps, open_dump  # noqa: F401
from support.runs.older_net import Conv
from support.runs.today import floating_tensors, paired, record

RANK = "ptdbg23_conv_all/bench/ptdbg_dump_v2.3/rank0"
CALLS = {  # today's call: that of ptdbg_ascend, which also counts calls inside of others
    "Functional.conv2d.0": "Functional_conv2d_0",
    "Functional.batch_norm.0": "Functional_batch_norm_0",
    "Functional.relu.0": "Functional_relu_0",
    "Functional.max_pool2d.0": "Functional_max_pool2d_0",
    "Functional.conv2d.1": "Functional_conv2d_1",
    "Torch.relu.0": "Torch_relu_1",
    "Tensor.flatten.0": "Tensor_flatten_0",
    "Functional.linear.0": "Functional_linear_0",
    "Functional.log_softmax.0": "Functional_log_softmax_0",
    "Functional.nll_loss.0": "Functional_nll_loss_0",
}
OTHERS = {
    "Functional.conv2d.0.backward.output.2",  # of a bias before a batch norm: a sum that cancels, all rounding
    "Functional.batch_norm.0.forward.input.1",  # the running mean: the older tool recorded inputs after the call
}
"""Tensors that differ though they are the same ones."""


@pytest.fixture
def recorded(dumps: Path, tmp_path: Path) -> Path:
    """Record the program with the weights and the input of the dump."""
    arrays = dumps / RANK / "bench_dump"

    def saved(name: str) -> torch.Tensor:
        return torch.from_numpy(np.load(arrays / f"{name}.npy"))

    model = Conv()
    with torch.no_grad():
        for module, name in ((model.conv1, "conv2d_0"), (model.conv2, "conv2d_1"), (model.fc, "linear_0")):
            module.weight.copy_(saved(f"Functional_{name}_forward_input.1"))
            assert module.bias is not None
            module.bias.copy_(saved(f"Functional_{name}_forward_input.2"))
    labels = saved("Functional_nll_loss_0_backward_output.0").argmin(1)
    given = saved("Functional_conv2d_0_forward_input.0")
    return record(tmp_path / "today", model, lambda: F.nll_loss(model(given), labels))


def wanted_pairs(dumps: Path, today: Path) -> dict[str, str]:
    """The names of today's floating tensors that the dump holds as well, with their names in the dump."""
    held = {
        slot.value.data_name: slot
        for record in open_dump(dumps / RANK / "bench_dump.pkl").records()
        for slot in record.slots
    }
    pairs: dict[str, str] = {}
    for call, phase, slot in floating_tensors(today):
        if call in CALLS:
            place = f"{slot.side.value}.{slot.path}"
            raw = f"{CALLS[call]}_{phase}_{place}"
            if phase == "forward" and place == "output.0":
                raw = raw.removesuffix(".0")
            if f"{raw}.npy" in held:
                pairs[f"{call}.{phase}.{place}"] = held[f"{raw}.npy"].name
    return pairs


@pytest.mark.parametrize("way", [(), ("-f",)])
def test_calls_pair_and_none_wrongly(
    dumps: Path, recorded: Path, probe: Probe, tmp_path: Path, way: tuple[str, ...]
) -> None:
    both = paired(probe, dumps / RANK / "bench_dump.pkl", recorded, tmp_path / "out", *way)
    wanted = wanted_pairs(dumps, recorded)
    assert len(wanted) >= 50
    wrong = {golden: target for golden, (target, _) in both.items() if wanted.get(golden) != target}
    assert wrong == {}
    assert len(both) >= 0.95 * len(wanted)
    assert {golden for golden, (_, cosine) in both.items() if not cosine >= 0.9999} <= OTHERS
    assert "its calls are numbered as today's recorders do" in probe.out + probe.err
