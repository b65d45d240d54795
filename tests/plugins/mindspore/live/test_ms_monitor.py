"""``TrainerMon`` with the optimizers of MindSpore."""

from __future__ import annotations

import atexit
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")
pytest.importorskip("probe_check")

from mindspore import Tensor, nn  # noqa: E402
from mindspore.experimental import optim  # noqa: E402
from probe_check import TrainerMon  # noqa: E402
from probe_check.monitor.mindspore import REFUSED_FLAGS  # noqa: E402

from probe_core.errors import UserError  # noqa: E402

OPTIMIZERS = {
    "SGD": lambda p: nn.SGD(p, 0.1),
    "Adam": lambda p: nn.Adam(p, 0.1),
    "experimental": lambda p: optim.AdamW(p, 0.1),
}
EVERYTHING = {"param_distribution": True, "wg_distribution": True, "mv_distribution": True, "ndigits": 12}


@pytest.fixture(autouse=True, scope="module")
def blocking() -> None:
    ms.runtime.launch_blocking()


def start(path: Path, net: Any, optimizer: Any, **fields: Any) -> TrainerMon:
    config = path.parent / f"{path.name}.json"
    config.write_text(json.dumps(fields))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MONITOR_OUTPUT_DIR", str(path))
        monitor = TrainerMon(config)
        monitor.set_monitor(net, 1, optimizer)
    atexit.unregister(monitor.close)
    return monitor


def train(optimizer_name: str, path: Path | None = None) -> tuple[list[bytes], list[list[float]]]:
    """Train two layers; return the bits of the parameters, and the norms of the gradients of each step."""
    ms.set_seed(0)
    net = nn.SequentialCell(nn.Dense(4, 8), nn.Tanh(), nn.Dense(8, 2))
    optimizer = OPTIMIZERS[optimizer_name](net.trainable_params())
    monitor = None if path is None else start(path, net, optimizer, **EVERYTHING)
    gradient_of = ms.value_and_grad(lambda x: net(x).square().mean(), None, optimizer.parameters)
    norms = []
    for step in range(3):
        inputs = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4) / 8 + step)
        _, gradients = gradient_of(inputs)
        norms.append([float(np.linalg.norm(g.asnumpy().astype(np.float64))) for g in gradients])
        optimizer(gradients)
    if monitor is not None:
        monitor.close()
    return [p.asnumpy().tobytes() for p in net.trainable_params()], norms


def rows(path: Path, file: str) -> list[dict[str, str]]:
    (run,) = path.glob("*-rank0-*")
    return list(csv.DictReader((run / file).read_text("utf-8").splitlines()))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_gradients_parameters_and_moments_are_written(optimizer: str, tmp_path: Path) -> None:
    bits, norms = train(optimizer, tmp_path / "run")
    assert bits == train(optimizer)[0]
    for step in range(3):
        found = rows(tmp_path / "run", f"grad_reduced_{step}-{step}.csv")
        assert [float(row["norm"]) for row in found] == pytest.approx(norms[step], rel=1e-9)
    names = {"0.weight", "0.bias", "2.weight", "2.bias"}
    before, after = (rows(tmp_path / "run", f"param_{n}.csv") for n in ("updated_0-0", "origin_1-1"))
    assert {row["name"] for row in before} == names
    assert [row["norm"] for row in before] == [row["norm"] for row in after]
    if optimizer != "SGD":
        assert {row["name"] for row in rows(tmp_path / "run", "exp_avg_sq_1-1.csv")} == names


@pytest.mark.parametrize("field", REFUSED_FLAGS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_fields_that_need_hooks_on_cells_are_refused_by_name(field: str, tmp_path: Path) -> None:
    net = nn.Dense(2, 2)
    if field == "ur_distribution":
        pytest.skip("ignored without TensorBoard")
    with pytest.raises(UserError, match=field):
        start(tmp_path / "run", net, nn.SGD(net.trainable_params(), 0.1), **{field: True})


def test_graph_mode_and_other_optimizers_are_refused(tmp_path: Path) -> None:
    net = nn.Dense(2, 2)
    with pytest.raises(UserError, match="optimizer"):
        start(tmp_path / "run", net, net.trainable_params(), wg_distribution=True)
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        with pytest.raises(UserError, match="GRAPH_MODE"):
            start(tmp_path / "run", net, nn.SGD(net.trainable_params(), 0.1), wg_distribution=True)
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
