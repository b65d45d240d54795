"""Statistics of small models that were recorded on an NVIDIA H100 and on a CPU (torch 2.11).

Each model was trained for two steps with AdamW (``sgd``: with SGD), in float32 or under autocast to bfloat16
(``bf``). Both runs of a pair begin with the same parameters. ``vit-eps`` has another eps in one layer.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from support import DATA
from support.probe import Probe


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("gpu")
    with tarfile.open(DATA / "cuda.tar.xz") as archive:
        archive.extractall(directory, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return directory


def answer(probe: Probe, dumps: Path, target: str, golden: str, tmp_path: Path) -> str:
    probe("compare", dumps / target, dumps / golden, "-o", tmp_path / "out", "--format", "csv")
    return probe.out


@pytest.mark.parametrize(
    "target, golden",
    [("vit-cuda32", "vit-cpu32"), ("vit-cudabf", "vit-cpubf"), ("vit-cudabf", "vit-cuda32"),
     ("unet-cudabf", "unet-cpubf"), ("gcn-sgdcuda", "gcn-sgdcpu")],
)  # fmt: skip
def test_runs_on_another_device_agree(probe: Probe, dumps: Path, target: str, golden: str, tmp_path: Path) -> None:
    """Rounding of earlier steps, the device itself, and sums of integers are no differences."""
    told = answer(probe, dumps, target, golden, tmp_path)
    assert told.startswith("AGREE: within rounding in all ")
    for claim in ("with a different argument", "requires a gradient", "receives another batch"):
        assert claim not in told


def test_a_fault_on_another_device_is_named(probe: Probe, dumps: Path, tmp_path: Path) -> None:
    told = answer(probe, dumps, "vit-eps", "vit-cpu32", tmp_path)
    assert told.startswith(
        "DIVERGED: in step0, Functional.layer_norm.3.forward was called with a different argument "
        "(eps, input.4: 0.01 against 1e-12) and returns values that differ"
    )
