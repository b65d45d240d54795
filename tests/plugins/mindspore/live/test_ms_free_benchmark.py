"""The task free_benchmark for MindSpore: what it reports, what it returns, and that it changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Parameter, Tensor, mint, nn, ops  # noqa: E402
from support.on_mindspore.ms_benchmark import (  # noqa: E402
    MODES,
    bits,
    differs_only_in_last_bits,
    every_call_of_mint,
    trained,
    watched,
    watching,
)
from support.on_mindspore.ms_net import Net, batch  # noqa: E402
from support.on_mindspore.ms_recording import recording, tensor  # noqa: E402

from probe_core.errors import UserError  # noqa: E402

ms.runtime.launch_blocking()


@pytest.mark.parametrize("mode", MODES)
def test_training_is_the_same(tmp_path: Path, mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain = trained()
    with watching(tmp_path / "run", pert_mode=mode) as task:
        assert trained(task) == plain
    text = capsys.readouterr().err
    assert "compared no call" not in text and "an exception" not in text
    assert "Functional.dropout" in text or mode == "improve_precision"
    assert "all agree" in text or mode != "no_change"
    assert trained() == plain  # nothing is left installed


OPTIMIZERS = {
    "Momentum": lambda p: nn.Momentum(p, 0.1, 0.9),
    "AdamWeightDecay": lambda p: nn.AdamWeightDecay(p, 0.1),
    "Adam, dynamic": lambda p: nn.Adam(p, nn.cosine_decay_lr(0.0, 0.1, 10, 5, 2)),
}


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_optimizers_are_compared_by_their_parameters(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> list[bytes]:
        net = Net()
        optimizer = OPTIMIZERS[name](net.trainable_params())
        gradients = ms.value_and_grad(lambda x, y: ops.cross_entropy(net(x), y), None, optimizer.parameters)
        for number in range(2):
            optimizer(gradients(*batch(number))[1])
        return bits(list(net.get_parameters()))

    plain = run()
    with watching(tmp_path / "run", pert_mode="no_change") as task:
        task.start()
        assert run() == plain
        task.stop()
    text = capsys.readouterr().err
    assert "all agree" in text and "not examined" not in text


def test_second_derivatives_and_compiled_functions_are_the_same(tmp_path: Path) -> None:
    x = tensor(3, 4)

    def many_uses(x: Tensor) -> Tensor:
        y = mint.sin(x)
        z = mint.cat([y, y * 3, mint.mul(y, y)], 0) + mint.cat((y, x, y), 0)
        parts = mint.chunk(z, 3, 0)
        return (parts[0] / 3 + parts[2] * parts[1]).sum()

    @ms.jit
    def compiled(x: Tensor) -> Tensor:
        return mint.exp(x) * 2

    def run() -> list[bytes]:
        twice = ms.grad(lambda x: ms.grad(many_uses)(x).sum())(x)
        return bits([ms.grad(many_uses)(x), twice, compiled(x)])

    plain = run()
    for mode in ("no_change", "bit_noise"):
        with watching(tmp_path / mode, pert_mode=mode) as task:
            task.start()
            assert run() == plain
            task.stop()


def test_names_are_those_of_the_recorder(tmp_path: Path) -> None:
    def program(net: Any, x: Tensor) -> None:
        for _ in range(2):
            mint.exp(x) + 1
        net(batch(0)[0])
        with pytest.raises(RuntimeError):
            mint.matmul(x, Tensor(np.ones((7, 7), np.float32)))
        mint.matmul(x, x)

    net, x = Net(), tensor(3, 3)
    with recording(tmp_path / "recorded", level="L1") as found:
        found.start(net)
        program(net, x)
        found.stop()
        recorded = [name for name in found.records() if name.endswith("forward")]
    names: list[str] = []
    with watching(tmp_path / "run", pert_mode="no_change") as task:
        benchmark: Any = task.debugger._recorder._benchmark  # type: ignore[attr-defined]
        run = benchmark.run
        benchmark.run = lambda call: (names.append(f"{call.name}.forward"), run(call))[1]
        task.start(net)
        program(net, x)
        task.stop()
    assert len(recorded) > 20 and list(dict.fromkeys(names)) == recorded


@pytest.mark.parametrize(
    ("mode", "dtype"),
    [
        ("no_change", "Float32"),
        ("no_change", "Float16"),
        ("to_cpu", "Float32"),
        ("improve_precision", "Float16"),
    ],
)
def test_all_of_mint_can_be_repeated(tmp_path: Path, mode: str, dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    with watching(tmp_path / "run", pert_mode=mode) as task:
        task.start()
        called = every_call_of_mint(dtype)
        task.stop()
    text = capsys.readouterr().err
    assert called > 190 and "an exception" not in text and "cannot be compared" not in text
    assert mode == "improve_precision" or differs_only_in_last_bits(tmp_path / "run")
    assert "1 call of MintFunctional.dropout not examined" in text


def test_a_fragile_call_is_reported(tmp_path: Path) -> None:
    x = Tensor(np.array([10000.01, 1.0, 2.0, 3.0], np.float32))
    y = Tensor(np.array([10000.0, 2.0, 1.0, 1.0], np.float32))
    found = watched(tmp_path / "run", lambda: (mint.sub(x, y), mint.mul(x, y)), pert_mode="bit_noise")
    assert [row["api_name"] for row in found] == ["Mint.sub.0.forward"]
    (row,) = found
    assert (row["rank"], row["step"], row["pert_mode"], row["stage"]) == ("0", "0", "bit_noise", "forward")
    assert (row["dtype"], row["shape"], row["output_index"]) == ("Float32", "(4,)", "")


def test_a_wrong_half_operator_is_reported_and_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = mint.nn.functional.relu

    def wrong(x: Tensor) -> Tensor:
        result = original(x)
        return result * 1.5 if x.dtype == ms.float16 else result

    monkeypatch.setattr(mint.nn.functional, "relu", wrong)
    x = Tensor(np.array([1.0, 2.0], np.float16))

    def program() -> Any:
        def loss(x: Tensor) -> Tensor:
            return mint.nn.functional.relu(x).sum()

        return ms.value_and_grad(loss)(x)

    for mode in ("improve_precision", "to_cpu"):
        found = watched(tmp_path / mode, program, pert_mode=mode)
        assert [row["api_name"] for row in found] == ["MintFunctional.relu.0.forward"]
        with watching(tmp_path / f"fix_{mode}", pert_mode=mode, handler_type="fix") as task:
            task.start()
            value, gradient = program()
            task.stop()
        assert value.dtype == ms.float16 and float(value) == 3.0
        assert gradient.dtype == ms.float16 and gradient.asnumpy().tolist() == [1.0, 1.0]


def test_calls_in_place_are_compared_on_their_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = Tensor(np.array([1.0, 2.0], np.float32))
    weight = Parameter(Tensor(np.array([1.0, 2.0], np.float32)), name="weight")

    def program() -> None:
        x[0] = 7.0
        ops.assign_add(weight, x)
        ops.assign_add(weight, x)

    assert watched(tmp_path / "run", program, pert_mode="no_change") == []
    assert "compared 3 results; all agree" in capsys.readouterr().err
    assert x.asnumpy().tolist() == [7.0, 2.0] and weight.asnumpy().tolist() == [15.0, 6.0]


def test_fix_writes_arguments_once(tmp_path: Path) -> None:
    weight = Parameter(Tensor(np.array([1.0, 2.0], np.float32)), name="weight")
    half = Parameter(Tensor(np.array([1.0, 2.0], np.float16)), name="half")
    x = Tensor(np.array([1.0, -0.0], np.float32))

    def program() -> Any:
        x[0] = 7.0
        return ops.assign_add(weight, x), ops.assign_add(half, x.astype(ms.float16)), mint.add(x, weight)

    with watching(tmp_path / "run", pert_mode="to_cpu", handler_type="fix") as task:
        task.start()
        _, _, total = program()
        task.stop()
    assert weight.asnumpy().tolist() == half.asnumpy().tolist() == [8.0, 2.0]
    assert total.asnumpy().tolist() == [15.0, 2.0]


def test_a_failed_second_run_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original, calls = mint.exp, []

    def once(x: Tensor) -> Tensor:
        calls.append(x)
        if len(calls) > 1:
            raise RuntimeError
        return original(x)

    monkeypatch.setattr(mint, "exp", once)
    assert watched(tmp_path / "run", lambda: mint.exp(tensor(2)), pert_mode="no_change") == []
    assert "1 call of Mint.exp not examined: an exception" in capsys.readouterr().err


def test_sparse_tensors_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mint, "exp", lambda x: x)
    sparse = ms.COOTensor(Tensor([[0, 1]], ms.int32), Tensor([1.0], ms.float32), (2, 2))
    watched(tmp_path / "run", lambda: mint.exp(sparse), pert_mode="no_change")
    assert "kind that is not supported" in capsys.readouterr().err


def test_preheating_learns_from_samples(tmp_path: Path) -> None:
    x = tensor(3)
    with watching(tmp_path / "run", pert_mode="bit_noise", if_preheat=True, preheat_step=3) as task:
        for _ in range(4):
            task.start()
            for _ in range(4):
                mint.exp(x)
            task.stop()
            task.step()
        learned = task.debugger._recorder._preheat._learned  # type: ignore[attr-defined]
    assert learned == {("Mint.exp", "float32"): 1 + 1.05 / 4}


def test_bfloat16_is_examined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = Tensor(np.array([1.0, 2.0], np.float32)).astype(ms.bfloat16)
    for mode in MODES:
        watched(tmp_path / mode, lambda: mint.mul(x, x), pert_mode=mode)
        assert "compared 1 result" in capsys.readouterr().err


def test_errors_of_the_program_are_raised(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"[Ss]hape|dim"):
        watched(tmp_path / "run", lambda: mint.matmul(tensor(2, 3), tensor(5, 5)), pert_mode="no_change")


def test_graph_mode_is_refused(tmp_path: Path) -> None:
    with watching(tmp_path / "run", pert_mode="no_change") as task:
        ms.set_context(mode=ms.GRAPH_MODE)
        try:
            with pytest.raises(UserError, match="cannot be observed in GRAPH_MODE"):
                task.start()
        finally:
            ms.set_context(mode=ms.PYNATIVE_MODE)
    assert not (tmp_path / "run").exists()
