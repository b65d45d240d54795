"""Uses of torch's private API for files of tensors, on the torch that is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from probe_pytorch import compat_files
from probe_pytorch.ptfile import load_pt

VERSION = f"torch {torch.__version__}"


@pytest.mark.parametrize("name", ["float32", "float8_e4m3fn", "float8_e5m2"])
def test_savable_tensors_are_saved_and_loaded(name: str, tmp_path: Path) -> None:
    tensor = torch.tensor([[1.5, -2.0], [0.25, 0.0]]).to(getattr(torch, name)).t()
    for _ in range(2):
        torch.save(compat_files.convert_to_savable(tensor), tmp_path / "x.pt")
        loaded = torch.load(tmp_path / "x.pt")
        assert (loaded.dtype, loaded.float().tolist()) == (tensor.dtype, tensor.float().tolist()), VERSION
        assert load_pt(tmp_path / "x.pt").astype("f4").tolist() == tensor.float().tolist(), VERSION


def test_savable_returns_a_tensor_that_torch_saves() -> None:
    tensor = torch.ones(1)
    assert compat_files.convert_to_savable(tensor) is tensor, VERSION
