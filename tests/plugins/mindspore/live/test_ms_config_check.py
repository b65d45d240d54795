"""ConfigChecker with MindSpore: what it collects, and that it changes nothing."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")
pytest.importorskip("probe_check")

from mindspore import Tensor, nn, ops  # noqa: E402
from probe_check import ConfigChecker  # noqa: E402
from probe_check.config_check import random_log  # noqa: E402

from probe_core.errors import UserError  # noqa: E402


@pytest.fixture(autouse=True)
def patches_are_removed() -> Iterator[None]:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=ms.PYNATIVE_MODE)
    random_log.RANDOM_LOG.remove()


class Net(nn.Cell):  # type: ignore[misc]
    """A layer with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(4, 2)
        self.drop = nn.Dropout(p=0.5)

    def construct(self, x: Any, scale: Any = None) -> Any:
        """Return the output of the layer."""
        out = self.drop(self.fc(x))
        return out if scale is None else out * scale


def train(pack: Path | None, seed: int = 1) -> list[Any]:
    """Return the numbers of a training; a pack is written if one is named."""
    random.seed(0)
    np.random.seed(0)
    if pack is not None:
        ConfigChecker.apply_patches("mindspore")
    ms.set_seed(seed)
    numbers: list[Any] = [random.random(), np.random.rand(), ops.rand(2).asnumpy().tolist()]
    net = Net()
    if pack is not None:
        ConfigChecker(net, output_zip_path=str(pack), fmk="mindspore")
    step = ms.value_and_grad(lambda x: net(x, scale=Tensor(2.0)).sum(), None, net.trainable_params())
    for _ in range(3):
        loss, gradients = step(Tensor(np.random.rand(3, 4).astype(np.float32)))
        numbers += [loss.asnumpy().tolist(), [one.asnumpy().tolist() for one in gradients]]
    return [*numbers, random.random(), np.random.rand(), ops.rand(2).asnumpy().tolist()]


def packed(path: Path, name: str) -> Any:
    with zipfile.ZipFile(path) as pack:
        return json.loads(pack.read(name))


def test_results_have_the_same_bits_with_the_checker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "pack.zip") == train(None)
    assert "config-check" not in capsys.readouterr().err
    dataset = packed(tmp_path / "pack.zip", "dataset/step2/rank0/dataset.json")
    assert dataset["args"]["0"].keys() == {"max", "min", "mean", "norm"}
    weights = packed(tmp_path / "pack.zip", "weights/step0/rank0/weight.json")
    assert weights.keys() == {"fc.weight", "fc.bias"}
    calls = packed(tmp_path / "pack.zip", "random/rank0.json")
    assert calls.keys() >= {"mindspore.ops.rand", "mindspore.manual_seed", "random.random", "np.random.rand"}
    conditions = packed(tmp_path / "pack.zip", "step0/rank0/conditions.json")
    assert conditions["facts"]["versions"]["mindspore"] == ms.__version__


def test_a_seed_is_named(tmp_path: Path, probe: Any) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(tmp_path / f"{name}.zip", seed)
    a, b, c, out = (tmp_path / name for name in ("a.zip", "b.zip", "c.zip", "out"))
    assert probe("-f", "mindspore", "config_check", "-c", a, b, "-o", out, "--fail-on", "warning") == 0, probe.out
    assert probe("-f", "mindspore", "config_check", "-c", a, c, "-o", out) == 0
    assert "the random seed of" in probe.out.splitlines()[0].lower()


def test_statistics_are_those_of_numpy(tmp_path: Path) -> None:
    class Any_(nn.Cell):  # type: ignore[misc]
        def construct(self, *args: Any) -> Any:
            return args[0]

    net = Any_()
    ConfigChecker(net, output_zip_path=str(tmp_path / "pack.zip"), fmk="mindspore")
    net(Tensor([1, 2], ms.int64), Tensor([1.5, -2.0], ms.bfloat16), Tensor([True, False]))
    args = packed(tmp_path / "pack.zip", "dataset/step0/rank0/dataset.json")["args"]
    assert args["0"] == {"max": 2.0, "min": 1.0, "mean": 1.5, "norm": pytest.approx(5**0.5)}
    assert args["1"] == {"max": 1.5, "min": -2.0, "mean": -0.25, "norm": 2.5}
    assert args["2"] == {"max": 1.0, "min": 0.0, "mean": 0.5, "norm": 1.0}


def test_graph_mode_is_refused(tmp_path: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    with pytest.raises(UserError, match="GRAPH_MODE"):
        ConfigChecker(Net(), output_zip_path=str(tmp_path / "pack.zip"), fmk="mindspore")
