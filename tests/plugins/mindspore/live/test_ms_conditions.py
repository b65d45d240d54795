"""The conditions of steps of MindSpore programs in ``conditions.json``."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")
torch = pytest.importorskip("torch")

from mindspore import Tensor, amp, mint, nn, ops  # noqa: E402
from probe_mindspore import compat  # noqa: E402
from probe_mindspore.capture.conditions import MindSporeConditions  # noqa: E402
from probe_mindspore.generators import read_seeds, read_states  # noqa: E402
from probe_pytorch.capture.conditions import hash_tensor  # noqa: E402
from support.on_mindspore.ms_recording import Recording, recording  # noqa: E402

ms.runtime.launch_blocking()
X = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))


def conditions(found: Recording, step: int = 0) -> Any:
    return json.loads((found.directory(step) / "conditions.json").read_text())


def net() -> nn.Cell:
    layers = nn.SequentialCell(nn.Dense(4, 8), nn.Dropout(p=0.5), nn.Dense(8, 2))
    layers.set_train()
    return layers


def run_step(found: Recording, model: nn.Cell, *batch: Any) -> None:
    found.start(model)
    model(*batch)
    found.stop()
    found.step()


@pytest.mark.parametrize(
    ("level", "ops_that_draw"),
    [("L0", ["Cell.1.Dropout.forward.0"]), ("L1", ["Primitive.dropout.Dropout.0.forward"]),
     ("mix", ["Primitive.dropout.Dropout.0.forward", "Cell.1.Dropout.forward.0"])],
)  # fmt: skip
def test_calls_that_draw_are_recorded_with_their_states(tmp_path: Path, level: str, ops_that_draw: list[str]) -> None:
    ms.set_seed(5)
    model = net()
    with recording(tmp_path / "run", level=level) as found:
        run_step(found, model, X)
        plain = conditions(found)
        assert [draw[0] for draw in plain["draws"]] == ops_that_draw
        assert all(draw[1] == "mindspore" and draw[2] != draw[3] for draw in plain["draws"])
        states = {sample["point"]: sample["states"]["mindspore"] for sample in plain["random"]}
        assert states["start"] == states["forward"] != states["end"]
        assert {sample["seeds"]["mindspore"] for sample in plain["random"]} == {5}
        model.set_train(False)
        run_step(found, model, X)
        assert conditions(found, 1)["draws"] == []
        assert conditions(found, 1)["facts"]["numerics"]["training"] is False


def test_later_calls_of_one_dropout_draw_from_later_states(tmp_path: Path) -> None:
    ms.set_seed(5)
    layer = nn.Dropout(p=0.5)
    layer.set_train()
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        for _ in range(2):
            layer(X)
        found.stop()
        found.step()
        first, second = conditions(found)["draws"]
    assert first[3] == second[2] and len({first[2], second[2], second[3]}) == 3


def test_the_default_generator_is_read_before_and_after_its_steps(tmp_path: Path) -> None:
    ms.manual_seed(5)
    given = ms.Generator().manual_seed(9)

    def draws(generator: Any) -> Tensor:
        generator._step(Tensor(12, ms.int64))
        return mint.exp(X)

    with recording(tmp_path / "run", level="L1") as found:
        holder = type("Holder", (), {"draws": staticmethod(draws)})
        found.debugger._recorder.register(holder, "draws", "Mine.draws")
        found.start()
        before = read_states(b"")["mindspore.Generator"]
        for generator in (compat.get_default_generator(), given):
            holder.draws(generator)
        after = read_states(b"")["mindspore.Generator"]
        found.stop()
        found.step()
        plain = conditions(found)
    assert [draw[:2] for draw in plain["draws"]] == [
        ["Mine.draws.0.forward", "mindspore.Generator"], ["Mine.draws.1.forward", "generator 9"]
    ]  # fmt: skip
    assert plain["draws"][0][2:] == [before, after] and before != after
    assert plain["random"][0]["seeds"]["mindspore.Generator"] == 5


def test_seeds_and_states_follow_the_functions_that_set_them() -> None:
    ms.set_seed(3)
    ms.manual_seed(4)
    first = read_states(b"")
    assert read_seeds() == {"mindspore": 3, "mindspore.Generator": 4}
    assert read_states(b"") == first
    ops.standard_normal((2,))
    second = read_states(b"")
    assert second["mindspore"] != first["mindspore"]
    assert second["mindspore.Generator"] == first["mindspore.Generator"]
    ms.set_seed(3)
    assert read_states(b"") == first
    ms.set_seed(4)
    ms.manual_seed(5)
    third = read_states(b"")
    assert all(third[name] != first[name] for name in first)


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_recording_draws_no_random_number(tmp_path: Path, level: str) -> None:
    def numbers() -> list[bytes]:
        random.seed(1)
        ms.set_seed(1)
        ms.manual_seed(1)
        model = net()
        values = [model(X), ops.dropout(X, 0.5), ops.standard_normal((4,)), ops.dropout2d(X[..., None, None])]
        state = ms.get_rng_state().asnumpy().tobytes()
        host = repr((random.random(), float(np.random.rand()))).encode()
        return [*(value.asnumpy().tobytes() for value in values[:3]), state, host]

    expected = numbers()
    with recording(tmp_path / "run", level=level) as found:
        found.start(net())
        assert numbers() == expected
        found.stop()
        found.step()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool"])
def test_a_batch_has_the_hash_that_torch_computes(tmp_path: Path, dtype: str) -> None:
    values = np.random.RandomState(1).normal(size=(5, 7)) * 9
    theirs = torch.from_numpy(values).to(torch.float32).to(getattr(torch, dtype))
    kind = getattr(ms, "bool_" if dtype == "bool" else dtype)
    mine = Tensor(values.astype(np.float32)).astype(kind)

    class Take(nn.Cell):
        def construct(self, x: Tensor, more: Any = None) -> Tensor:
            return x

    with recording(tmp_path / "run", level="L1") as found:
        run_step(found, Take(), mine)
        batch = conditions(found)["batch"]
    hashed = hash_tensor(theirs)
    assert batch == {"input.0": f"{dtype}[5, 7] {int(hashed) % 2**64:016x}"}


def test_the_batch_is_hashed_in_its_order_with_keywords(tmp_path: Path) -> None:
    class Take(nn.Cell):
        def construct(self, x: Tensor, more: Any = None) -> Tensor:
            return mint.exp(x)

    model = Take()
    with recording(tmp_path / "run", level="L1") as found:
        for rows in (X, X[::-1], X):
            found.start(model)
            model(rows, more=[rows, 3])
            found.stop()
            found.step()
        hashes = [conditions(found, step)["batch"] for step in range(3)]
    assert hashes[0] == hashes[2] != hashes[1]
    assert list(hashes[0]) == ["input.0", "input.more.0"]


def test_settings_are_those_at_the_call_of_the_model(tmp_path: Path) -> None:
    model = amp.auto_mixed_precision(net(), "O2")
    model.set_train()
    with recording(tmp_path / "run", level="L1") as found:
        run_step(found, model, X)
        facts = conditions(found)["facts"]
    assert facts["versions"]["mindspore"] == ms.__version__
    assert facts["devices"]["device_target"] == "CPU"
    assert facts["layout"]["parallel_mode"] == "stand_alone"
    numerics = facts["numerics"]
    assert (numerics["mode"], numerics["amp_level"], numerics["training"]) == ("PYNATIVE_MODE", "O2", True)
    assert numerics["deterministic_algorithms"] is (ms.get_context("deterministic") == "ON")
    assert numerics["runtime_num_threads"] == ms.get_context("runtime_num_threads")


def test_errors_are_logged_and_do_not_reach_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("planted")

    monkeypatch.setattr("probe_mindspore.capture.draws.find_seeds", fail)
    monkeypatch.setattr("probe_mindspore.capture.conditions.read_states", fail)
    found = Recording(tmp_path / "run", level="mix")
    run_step(found, net(), X)
    found.finish()
    assert "planted" in found.errors
    assert "Primitive.dropout.Dropout.0.forward" in found.records()


def test_conditions_can_be_left_out(tmp_path: Path) -> None:
    for level in ("L0", "mix"):
        with recording(tmp_path / level, level=level, conditions=False) as found:
            run_step(found, net(), X)
            assert not (found.directory() / "conditions.json").exists()
            assert found.records()


def test_no_hook_stays_in_a_model(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="L1") as found:
        found.start(model)
        assert model._forward_pre_hook
        found.stop()
        assert not model._forward_pre_hook
    assert isinstance(found.debugger._recorder._conditions, MindSporeConditions)
