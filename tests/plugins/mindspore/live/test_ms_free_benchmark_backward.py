"""The stage backward of free_benchmark for MindSpore: gradients of single calls are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Parameter, Tensor, mint, nn, ops  # noqa: E402
from probe_mindspore import compat  # noqa: E402
from support.on_mindspore.ms_benchmark import (  # noqa: E402
    MODES,
    bits,
    differs_only_in_last_bits,
    every_call_of_mint,
    rows,
    trained,
    watched,
    watching,
)
from support.on_mindspore.ms_recording import Recording, tensor  # noqa: E402

from probe_core.errors import UserError  # noqa: E402

ms.runtime.launch_blocking()
BACKWARD = {"fuzz_stage": "backward", "list": ["."]}


class Wrong(nn.Cell):
    """A rectifier whose gradient is too large for float16."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.relu(x)

    def bprop(self, x: Tensor, output: Tensor, gradient: Tensor) -> tuple[Tensor]:
        right = gradient * (x > 0).astype(x.dtype)
        return (right * 1.5 if x.dtype == ms.float16 else right,)


def names(found: list[dict[str, str]]) -> list[str]:
    return [row["api_name"] for row in found]


@pytest.mark.parametrize("mode", MODES)
def test_training_is_the_same(tmp_path: Path, mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain = trained()
    with watching(tmp_path / "run", pert_mode=mode, **BACKWARD) as task:
        assert trained(task) == plain
    text = capsys.readouterr().err
    assert "an exception" not in text and "cannot be compared" not in text
    assert "compared no call" not in text or mode == "improve_precision"
    assert "all agree" in text or mode in ("improve_precision", "change_value")
    assert trained() == plain  # nothing is left installed


def test_a_fragile_gradient_is_reported(tmp_path: Path) -> None:
    x = Tensor(np.array([1e6, 1.0, 2.0], np.float32))

    def program() -> None:
        ms.grad(lambda x: (mint.sin(x) + mint.mul(x, 3.0)).sum())(x)

    found = watched(tmp_path / "run", program, pert_mode="bit_noise", **BACKWARD)
    assert names(found) == ["Mint.sin.0.backward"]
    (row,) = found
    assert (row["pert_mode"], row["stage"], row["step"]) == ("bit_noise", "backward", "0")
    assert (row["dtype"], row["shape"], row["output_index"]) == ("Float32", "(3,)", "0")


@pytest.mark.parametrize("mode", ["improve_precision", "to_cpu"])
def test_a_wrong_gradient_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    wrong = Wrong()
    monkeypatch.setattr(mint.nn.functional, "relu", lambda x: wrong(x))
    half = Tensor(np.array([1.0, -2.0, 3.0], np.float16))

    def program() -> Any:
        return ms.grad(lambda x: mint.mul(mint.nn.functional.relu(x), x).sum())(half)

    plain = bits(program())
    results: list[Any] = []
    found = watched(tmp_path / mode, lambda: results.append(program()), pert_mode=mode, **BACKWARD)
    assert names(found) == ["MintFunctional.relu.0.backward"] and bits(results) == plain
    forward = watched(tmp_path / f"forward_{mode}", program, pert_mode=mode)
    assert forward == []


def test_only_selected_calls_are_examined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = tensor(3)

    def program() -> None:
        ms.grad(lambda x: (mint.exp(x) + mint.exp(x) + mint.sin(x)).sum())(x)

    section = {"fuzz_stage": "backward", "pert_mode": "no_change"}
    for key, value, count in (("list", ["exp"], 2), ("scope", ["Mint.exp.1.backward"], 1)):
        assert watched(tmp_path / key, program, **section, **{key: value}) == []
        assert f"compared {count} result" in capsys.readouterr().err


def test_all_kinds_of_arguments_are_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weight = Parameter(tensor(2, 2, seed=5), name="weight")
    flags = Tensor(np.array([[True, False], [False, True]]))

    def many(x: Tensor, y: Tensor) -> Tensor:
        both = mint.cat([x, y, x], dim=0)  # a list, with one tensor twice
        first, *_ = mint.chunk(both, 3, 0)  # results without a gradient
        total = mint.mul(x, other=y) + mint.matmul(x, x) + mint.where(flags, x, weight)
        values, _ = mint.max(y, 0)
        copied = x * 1
        copied.add_(y)  # in place
        copied[0, 0] = 3.0
        return (first * total * copied).sum() + values.sum()

    def program() -> None:
        ms.value_and_grad(many, (0, 1), [weight])(tensor(2, 2), tensor(2, 2, seed=1))

    for mode in ("no_change", "to_cpu", "bit_noise"):
        assert watched(tmp_path / mode, program, pert_mode=mode, **BACKWARD) == []
        text = capsys.readouterr().err
        assert "all agree" in text and "not examined" not in text, text


def test_a_repeated_tensor_has_one_gradient(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = tensor(3, 3)
    section = {"fuzz_stage": "backward", "list": ["matmul"], "pert_mode": "change_value"}
    found = watched(tmp_path / "run", lambda: ms.grad(lambda x: mint.sum(mint.matmul(x, x) * x))(x), **section)
    assert "compared 1 result" in capsys.readouterr().err
    assert [row["output_index"] for row in found] in ([], ["0"])


@pytest.mark.parametrize("dtype", ["Float32", "Float16"])
def test_all_gradients_of_mint_can_be_repeated(tmp_path: Path, dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    with watching(tmp_path / "run", pert_mode="no_change", fuzz_stage="backward", list=["Mint"]) as task:
        task.start()
        called = every_call_of_mint(dtype, gradients=True)
        task.stop()
    text = capsys.readouterr().err
    assert called > 150 and "an exception" not in text and "cannot be compared" not in text, text
    assert "1 call of MintFunctional.dropout not examined" in text and "compared no call" not in text
    assert differs_only_in_last_bits(tmp_path / "run")


def test_random_calls_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = tensor(8)
    program = lambda: ms.grad(lambda x: ops.dropout(x, 0.5).sum())(x)  # noqa: E731
    assert watched(tmp_path / "run", program, pert_mode="no_change", **BACKWARD) == []
    text = capsys.readouterr().err
    assert "1 call of Functional.dropout not examined: they draw random numbers" in text


def test_calls_without_a_gradient_are_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = tensor(3)
    ms.grad(lambda x: mint.exp(x).sum())(x)  # leaves a node at x

    def program() -> None:
        mint.exp(x)
        ms.grad(lambda y: (y * ops.stop_gradient(mint.exp(y))).sum())(tensor(3, seed=2))

    section = {"fuzz_stage": "backward", "list": ["exp"], "pert_mode": "no_change"}
    assert watched(tmp_path / "run", program, **section) == []
    text = capsys.readouterr().err
    assert "compared no call" in text and "not examined" not in text


def test_gradients_after_stop_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = tensor(3)
    with watching(tmp_path / "run", pert_mode="no_change", **BACKWARD) as task:

        def loss(x: Tensor) -> Tensor:
            task.start()
            result = mint.exp(x).sum()
            task.stop()
            return result

        assert bits(ms.grad(loss)(x)) == bits(mint.exp(x))
    assert "compared no call" in capsys.readouterr().err


def test_a_failed_second_run_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = trained()
    original, calls = mint.exp, []

    def once(x: Tensor) -> Tensor:
        calls.append(x)
        if len(calls) > 1:
            raise RuntimeError
        return original(x)

    monkeypatch.setattr(mint, "exp", once)
    x = tensor(2)
    program = lambda: ms.grad(lambda x: mint.exp(x).sum())(x)  # noqa: E731
    section = {"fuzz_stage": "backward", "list": ["exp"], "pert_mode": "no_change"}
    assert watched(tmp_path / "run", program, **section) == []
    assert "1 call of Mint.exp not examined: an exception" in capsys.readouterr().err
    assert not compat.is_differentiating()  # as after an exception in a function of ms.grad
    assert trained() == plain


def test_preheating_learns_from_samples(tmp_path: Path) -> None:
    x = tensor(3)
    section = {"fuzz_stage": "backward", "list": ["exp"], "pert_mode": "bit_noise"}
    with watching(tmp_path / "run", if_preheat=True, preheat_step=3, **section) as task:
        for _ in range(4):
            task.start()
            for _ in range(4):
                ms.grad(lambda x: mint.exp(x).sum())(x)
            task.stop()
            task.step()
        learned = task.debugger._recorder._preheat._learned  # type: ignore[attr-defined]
    assert learned == {("Mint.exp", "float32"): 1 + 1.05 / 4}


def test_rows_of_several_steps_are_in_their_steps(tmp_path: Path) -> None:
    section = {"fuzz_stage": "backward", "list": ["sin"], "pert_mode": "bit_noise"}
    with watching(tmp_path / "run", **section) as task:
        for number in range(3):
            x = Tensor(np.array([1e6 if number == 1 else 1.0], np.float32))
            task.start()
            ms.grad(lambda x: mint.sin(x).sum())(x)
            task.stop()
            task.step()
    assert [names(rows(tmp_path / "run", step)) for step in range(3)] == [[], ["Mint.sin.0.backward"], []]


def test_settings_that_backward_cannot_follow_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(**section: Any) -> None:
        fields = {"fuzz_stage": "backward", "pert_mode": "no_change", **section}
        Recording(tmp_path / "run", task="free_benchmark", level="L1", free_benchmark=fields)

    with pytest.raises(UserError, match="replaces results of forward calls only"):
        start(list=["exp"], handler_type="fix", pert_mode="improve_precision")
    with pytest.raises(UserError, match="is empty"):
        start()
    monkeypatch.setattr(compat, "has_nodes", lambda: False)  # as in MindSpore 2.7
    with pytest.raises(UserError, match="does not show the gradients of single calls"):
        start(list=["exp"])
