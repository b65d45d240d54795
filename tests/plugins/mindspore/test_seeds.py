"""``seed_all`` of MindSpore, with a stand-in for the package."""

from __future__ import annotations

import os
import random
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from probe_core.errors import UserError


@pytest.fixture
def mindspore(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in that keeps how it was called."""
    kept: dict[str, Any] = {}
    cells = SimpleNamespace(Dropout=type("Dropout", (), {"construct": lambda self, x: 0}))
    functions = SimpleNamespace(dropout=lambda x, p=0.5: 0)
    package = SimpleNamespace(
        kept=kept,
        set_seed=lambda seed: kept.update(seed=seed),
        set_context=lambda **settings: kept.update(settings),
        ops=functions,
        nn=cells,
        mint=SimpleNamespace(nn=SimpleNamespace(functional=SimpleNamespace())),
    )
    monkeypatch.setitem(sys.modules, "mindspore", package)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    return package


def test_seed_all_seeds_every_source(mindspore: Any) -> None:
    from probe_mindspore import seed_all

    drawn = []
    for _ in range(2):
        seed_all(7, mode=True)
        drawn.append((random.random(), np.random.rand()))
    assert drawn[0] == drawn[1]
    assert mindspore.kept == {"seed": 7, "deterministic": "ON"}
    assert os.environ["PYTHONHASHSEED"] == "7" and os.environ["HCCL_DETERMINISTIC"] == "True"
    assert mindspore.ops.dropout(1) == 0


def test_seed_all_removes_dropout_if_asked(mindspore: Any) -> None:
    from probe_mindspore import seed_all

    seed_all(rm_dropout=True)
    assert mindspore.ops.dropout(5, p=0.9) == 5 and mindspore.nn.Dropout().construct(5) == 5


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"seed": True}, {"mode": 1}, {"rm_dropout": "yes"}])
def test_seed_all_refuses_invalid_values(mindspore: Any, wrong: Any) -> None:
    from probe_mindspore import seed_all

    with pytest.raises(UserError, match="invalid value for"):
        seed_all(**wrong)
