"""seed_all: what it sets (docs/configuration.md#seed-all), that runs repeat, and what it refuses."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from probe_pytorch.seeds import MAX_SEED, seed_all
from support import TESTS
from support.programs import preloaded

from probe_core.errors import UserError


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Restore the settings of the process that seed_all changes."""
    cudnn = torch.backends.cudnn
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    flags = cudnn.enabled, cudnn.benchmark, cudnn.deterministic
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    cudnn.enabled, cudnn.benchmark, cudnn.deterministic = flags
    torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)


def draw() -> tuple[Any, ...]:
    """Something of each source."""
    return random.random(), np.random.rand(), torch.rand(2).tolist(), torch.nn.Linear(2, 2).weight.tolist()


def expected(seed: int) -> tuple[Any, ...]:
    """The same from generators of one's own."""
    generator = torch.Generator().manual_seed(seed)
    state = np.random.RandomState(seed)
    return random.Random(seed).random(), state.rand(), torch.rand(2, generator=generator).tolist()


@pytest.mark.parametrize("seed", [0, 1, 1234, MAX_SEED])
def test_every_source_begins_at_the_seed(seed: int) -> None:
    seed_all(seed)
    assert draw()[:3] == expected(seed)
    assert torch.initial_seed() == seed
    assert os.environ["PYTHONHASHSEED"] == str(seed)


def test_the_default_seed_is_1234() -> None:
    seed_all()
    assert draw()[:3] == expected(1234)
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_same_seed_gives_the_same_run() -> None:
    seed_all(7)
    first = draw()
    second = draw()
    seed_all(7)
    assert draw() == first != second
    seed_all(8)
    assert draw() != first


@pytest.mark.parametrize("name", ["manual_seed", "manual_seed_all"])
def test_devices_are_seeded_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(torch.cuda, name, told.append)
    seed_all(99)
    assert 99 in told


@pytest.mark.parametrize("available", [True, False])
def test_an_npu_is_seeded_where_there_is_one(available: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int]] = []

    class Npu:
        is_available = staticmethod(lambda: available)
        manual_seed = staticmethod(lambda seed: told.append(("one", seed)))
        manual_seed_all = staticmethod(lambda seed: told.append(("all", seed)))

    monkeypatch.setattr(torch, "npu", Npu, raising=False)
    seed_all(5)
    assert told == ([("one", 5), ("all", 5)] if available else [])


@pytest.mark.parametrize("mode", [False, True])
def test_mode_chooses_deterministic_algorithms(mode: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    torch.use_deterministic_algorithms(not mode)
    seed_all(3, mode)
    assert torch.are_deterministic_algorithms_enabled() is mode
    assert os.environ["HCCL_DETERMINISTIC"] == str(mode)
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == (":4096:8" if mode else None)


@pytest.mark.parametrize("mode", [False, True])
def test_cudnn_neither_searches_nor_varies(mode: bool) -> None:
    cudnn = torch.backends.cudnn
    cudnn.enabled, cudnn.benchmark, cudnn.deterministic = True, True, False
    seed_all(1234, mode)
    assert (cudnn.enabled, cudnn.benchmark, cudnn.deterministic) == (False, False, True)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(dict(seed=-1), "seed"), (dict(seed=2**32), "seed"), (dict(seed=1.0), "seed"), (dict(seed="1"), "seed"),
     (dict(seed=True), "seed"), (dict(seed=None), "seed"), (dict(seed=np.int64(3)), "seed"),
     (dict(mode=1), "mode"), (dict(mode="True"), "mode"), (dict(mode=None), "mode"),
     (dict(rm_dropout=1), "rm_dropout"), (dict(rm_dropout="no"), "rm_dropout")],
    ids=repr,
)  # fmt: skip
def test_refused_before_anything_is_set(arguments: dict[str, Any], named: str) -> None:
    seed_all(11)
    first = draw()
    seed_all(11)
    with pytest.raises(UserError) as caught:
        seed_all(**arguments)
    assert caught.value.what.startswith(f"{named} must be") and caught.value.fix
    assert draw() == first


# -- dropout: in a process of its own, which it changes for good ------------------------------------------

DROPOUT = """
import json, sys, traceback
from pathlib import Path
import torch
from torch import nn
from torch.nn import functional as F
from probe_pytorch.seeds import seed_all

sys.path.insert(0, sys.argv[1])
from support.runs.recording import recording
torch.set_num_threads(1)
x = torch.ones(64, 8, 4, 4)
shapes = {"dropout": x, "dropout1d": x[..., 0], "dropout2d": x, "dropout3d": x[:, :, None]}
found = {}

def check(function):
    try:
        function()
        found[function.__name__] = ""
    except Exception:
        found[function.__name__] = traceback.format_exc()

@check
def dropout_stays_unless_it_is_asked_to_go():
    before = F.dropout, F.dropout2d, F.dropout3d, nn.Dropout.__init__
    seed_all(1234)
    seed_all(1234, False, False)
    assert (F.dropout, F.dropout2d, F.dropout3d, nn.Dropout.__init__) == before
    assert 0.4 < float((F.dropout(x, 0.5) == 0).float().mean()) < 0.6
    assert nn.Dropout(0.3).p == 0.3

built_before = nn.Dropout(0.5)
for _ in range(2):                                   # a second time changes nothing more
    seed_all(1234, rm_dropout=True)

@check
def functions_keep_everything():
    for name, value in shapes.items():
        function = getattr(F, name)
        assert torch.equal(function(value), value), name
        assert torch.equal(function(value, 0.7, True), value), name
        assert torch.equal(function(value, p=1.0, training=True, inplace=False), value), name
        assert torch.equal(function(value, 0.7, training=False), value), name
        copy = value.clone()
        assert function(copy, 0.7, True, True).data_ptr() == copy.data_ptr(), name
        assert torch.equal(copy, value), name

@check
def modules_keep_everything():
    for name, value in zip(("Dropout", "Dropout1d", "Dropout2d", "Dropout3d"), shapes.values()):
        kind = getattr(nn, name)
        for module in (kind(), kind(0.7), kind(p=0.9), kind(0.5, True), kind(p=0.5, inplace=False)):
            assert module.p == 0.0 and torch.equal(module(value.clone()), value), name
        assert kind(0.5, True).inplace is True and kind(0.5).inplace is False

@check
def modules_built_on_dropout_keep_everything():
    class Mine(nn.Dropout):
        def __init__(self):
            super().__init__(p=0.5)

    assert Mine().p == 0.0
    rows = torch.rand(2, 3, 8)
    attention = nn.MultiheadAttention(8, 2, dropout=0.5)
    assert torch.equal(attention(rows, rows, rows)[1], attention(rows, rows, rows)[1])

@check
def what_was_built_before_or_is_not_named_is_left_alone():
    assert built_before.p == 0.5
    assert not torch.equal(nn.AlphaDropout(0.5)(x), x)

@check
def gradients_pass():
    leaf = torch.ones(4, requires_grad=True)
    F.dropout(leaf, 0.9).sum().backward()
    assert torch.equal(leaf.grad, torch.ones(4))

with recording(Path(sys.argv[2]), level="L1") as run:
    run.start()
    F.dropout(x, 0.5)
    nn.Dropout()(x)
    run.stop()
records = run.records()

@check
def it_is_recorded_as_dropout():
    assert list(records) == ["Functional.dropout.0.forward", "Functional.dropout.1.forward"], list(records)
    assert all(record["output"][0]["Mean"] == 1.0 for record in records.values())

@check
def it_is_recorded_as_it_was_written():
    counts = [(len(record["input_args"]), len(record["input_kwargs"])) for record in records.values()]
    assert counts == [(2, 0), (4, 0)], counts

print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the failure of each check."""
    tests, run = TESTS, tmp_path_factory.mktemp("dropout") / "run"
    command = [sys.executable, "-c", DROPOUT, str(tests), str(run)]
    done = preloaded.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "check",
    ["dropout_stays_unless_it_is_asked_to_go", "functions_keep_everything", "modules_keep_everything",
     "modules_built_on_dropout_keep_everything", "what_was_built_before_or_is_not_named_is_left_alone",
     "gradients_pass", "it_is_recorded_as_dropout",
     "it_is_recorded_as_it_was_written"],
)  # fmt: skip
def test_removed_dropout(check: str, checks: dict[str, str]) -> None:
    assert not checks[check], checks[check]
