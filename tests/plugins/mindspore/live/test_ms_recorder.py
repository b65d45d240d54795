"""Recorder of MindSpore programs: filters, steps, tasks, programs of many kinds, mistakes of users."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint, nn, ops  # noqa: E402
from probe_mindspore import PrecisionDebugger  # noqa: E402
from probe_recording.settings.config import ConfigWarning  # noqa: E402
from support.on_mindspore.ms_net import Net, batch  # noqa: E402
from support.on_mindspore.ms_recording import Recording, outputs_of, recorded, recording, tensor  # noqa: E402

from probe_core.errors import UserError  # noqa: E402

ms.runtime.launch_blocking()


def chain(x: Tensor) -> Tensor:
    return mint.sin(mint.exp(mint.sin(mint.cos(x)))).sum()


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ({"list": ["sin"]}, ["Mint.sin.0.forward", "Mint.sin.1.forward", "Mint.sin.1.backward", "Mint.sin.0.backward"]),
        ({"list": ["Mint.exp.0.backward"]}, ["Mint.exp.0.backward"]),
        ({"scope": ["Mint.sin.0.forward", "Mint.exp.0.forward"]}, ["Mint.sin.0.forward", "Mint.exp.0.forward"]),
        ({"list": ["cos"], "data_mode": ["backward"]}, ["Mint.cos.0.backward"]),
        ({"list": ["cos"], "data_mode": ["forward"]}, ["Mint.cos.0.forward"]),
    ],
    ids=["list", "one backward", "scope", "backward only", "forward only"],
)  # fmt: skip
def test_filters(tmp_path: Path, section: Any, names: list[str]) -> None:
    found = recorded(tmp_path, chain, tensor(3), tensor=section)
    assert list(found.records()) == names
    files = {p.name for p in (found.directory() / "dump_tensor_data").iterdir()}
    assert {name.partition(".forward")[0].partition(".backward")[0] for name in files} == {
        name.rpartition(".")[0] for name in names
    }


def test_list_of_a_cell_brings_what_is_inside(tmp_path: Path) -> None:
    net = Net()
    found = recorded(tmp_path, lambda x: net(x).sum(), batch(0)[0], model=net, level="mix", tensor={"list": ["mlp.up"]})
    assert {name for name in found.records() if "forward" in name} == {
        "Cell.block.mlp.up.Linear.forward.0", "MintFunctional.linear.2.forward"}  # fmt: skip


def test_steps(tmp_path: Path) -> None:
    with recording(tmp_path / "run", step=[1, "3-4"], task="statistics") as found:
        for _ in range(4):
            found.start()
            mint.exp(tensor(2))
            found.stop()
            found.start()  # again within the step
            mint.exp(tensor(2))
            found.stop()
            found.step()
    assert sorted(p.name for p in found.path.glob("step*")) == ["step1", "step3"]
    assert list(found.records(1)) == list(found.records(3)) == ["Mint.exp.0.forward", "Mint.exp.1.forward"]


def test_structure(tmp_path: Path) -> None:
    net = Net()
    found = recorded(tmp_path, lambda x: net(x).sum(), batch(0)[0], model=net, level="mix", task="structure")
    assert found.records()["Mint.chunk.0.forward"] == {}
    assert found.parents()["Mint.chunk.0.forward"] == "Cell.block.attn.Attention.forward.0"


def test_overflow_check(tmp_path: Path) -> None:
    def f() -> None:
        x = mint.exp(Tensor(np.array([1, 200], np.float32)))
        mint.sin(mint.mul(x, 0.5))

    found = recorded(tmp_path, f, grad=False, task="overflow_check")
    assert list(found.records()) == ["Mint.exp.0.forward"]
    assert np.isinf(found.array(found.records()["Mint.exp.0.forward"]["output"][0])).any()


def test_debug(tmp_path: Path) -> None:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        found.debugger.save({"y": y, "n": 3}, "mine")
        return (y * y).sum()

    with recording(tmp_path / "run", level="debug", task="tensor") as found:
        ms.grad(f)(tensor(3))
        found.debugger.save(tensor(2), "mine")
        found.step()
    records = found.records(name="debug.json")
    assert list(records) == ["mine.0.debug", "mine_grad.0.debug", "mine.1.debug"]
    assert np.allclose(found.array(records["mine_grad.0.debug"]["y"]), 4 * tensor(3).asnumpy())
    assert not (found.directory() / "dump.json").exists()


def test_module_dump(tmp_path: Path) -> None:
    net = Net()
    with recording(tmp_path / "run", level="mix") as found:
        found.start(net)
        mint.exp(tensor(1))
        found.debugger.module_dump(net.block, "only")
        net(batch(0)[0])
        found.debugger.module_dump_end()
        mint.exp(tensor(1))
        found.stop()
    assert list(found.records()) == ["Mint.exp.0.forward", "Cell.only.Block.forward.0", "Mint.exp.1.forward"]


def test_a_cell_that_raises_leaves_no_trace(tmp_path: Path) -> None:
    class Bad(nn.Cell):
        def construct(self, x: Tensor, fail: bool) -> Tensor:
            if fail:
                raise ValueError("no")
            return mint.exp(x)

    net = nn.SequentialCell(Bad())
    with recording(tmp_path / "run", level="mix") as found:
        found.start(net)
        with pytest.raises(ValueError, match="no"):
            net[0](tensor(1), True)
        net[0](tensor(1), False)
        found.stop()
    assert list(found.records()) == ["Mint.exp.0.forward", "Cell.0.Bad.forward.0"]
    assert found.parents()["Mint.exp.0.forward"] == "Cell.0.Bad.forward.0"


ASYNCHRONOUS = """
import sys
import numpy as np
from mindspore import Tensor, mint, ops
from probe_mindspore import PrecisionDebugger

x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
mint.exp(x).asnumpy()
debugger = PrecisionDebugger(dump_path=sys.argv[1])
debugger.start()
y = mint.sin(x)
try:
    z = mint.norm(y)  # has no kernel on a CPU, which shows when the value is looked at
    w = mint.cos(z)
    print("not raised")
except RuntimeError as error:
    print(error)
mint.exp(x)
debugger.stop()
"""


def test_an_asynchronous_error_names_its_call(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(ASYNCHRONOUS)
    done = subprocess.run(
        [sys.executable, "script.py", str(tmp_path / "run")], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "LinalgVectorNorm" in done.stdout
    assert "probe: raised by Mint.norm.0.forward, called at File" in done.stdout
    assert "line 13, in <module>" in done.stdout
    records = json.loads((tmp_path / "run" / "step0" / "rank" / "dump.json").read_text())["data"]
    assert list(records) == ["Mint.sin.0.forward", "Mint.exp.0.forward"]


def test_jit_runs_as_it_is_written_and_vmap_as_ever(tmp_path: Path) -> None:
    @ms.jit
    def compiled(x: Tensor) -> Tensor:
        return mint.exp(x) * 2

    def f(x: Tensor) -> Tensor:
        return compiled(x).sum() + ops.vmap(ops.sin)(x).sum()

    x = tensor(4)
    plain = ms.grad(f)(x).asnumpy()
    found = recorded(tmp_path, f, x)
    assert "Mint.exp.0.backward" in found.records()
    assert found.head()["probe"] == {"compile": "eager"}
    result = found.result[0] if isinstance(found.result, tuple) else found.result  # type: ignore[attr-defined]
    assert np.allclose(result.asnumpy(), plain, rtol=1e-6)
    assert np.array_equal(ms.grad(f)(x).asnumpy(), plain)  # compiled again


def test_recomputation_is_marked(tmp_path: Path) -> None:
    net = Net()
    net.block.mlp.recompute()
    found = recorded(tmp_path, lambda x: net(x).sum(), batch(0)[0], model=net, level="mix", task="statistics")
    records = found.records()
    assert "is_recompute" not in records["MintFunctional.silu.0.forward"]
    assert records["MintFunctional.silu.1.forward"]["is_recompute"] is True
    assert records["Cell.block.mlp.up.Linear.forward.1"]["is_recompute"] is True
    assert "Cell.block.mlp.up.Linear.backward.1" in records  # the index of its own forward


def test_a_copied_model_works_and_is_not_recorded(tmp_path: Path) -> None:
    net = Net()
    x = batch(0)[0]
    with recording(tmp_path / "run", level="L0") as found:
        found.start(net)
        copied = copy.deepcopy(net)
        assert np.array_equal(copied(x).asnumpy(), net(x).asnumpy())
        found.stop()
    assert "Cell.conv.Conv2d.forward.0" in found.records()
    assert "Cell.conv.Conv2d.forward.1" not in found.records()
    copied(x)


def test_a_second_derivative_has_the_gradients_of_the_first_pass(tmp_path: Path) -> None:
    def inner(x: Tensor) -> Tensor:
        return mint.exp(mint.sin(x)).sum()

    x = tensor(3)
    plain = ms.grad(lambda x: ms.grad(inner)(x).sum())(x).asnumpy()
    found = recorded(tmp_path, lambda x: ms.grad(inner)(x).sum(), x)
    result = found.result[0] if isinstance(found.result, tuple) else found.result  # type: ignore[attr-defined]
    assert np.array_equal(result.asnumpy(), plain)
    got = outputs_of(found, "Mint.sin.0.backward")[0]
    a = x.asnumpy()
    assert np.allclose(got, np.cos(a) * np.exp(np.sin(a)), rtol=1e-4)


def exponential(x: Tensor) -> Tensor:
    return mint.exp(x).sum()


def test_nothing_is_recorded_of_a_program_in_graph_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # where the compiler leaves its own files
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        with recording(tmp_path / "run") as found:
            found.start()
            value = ms.grad(exponential)(tensor(2))
            found.stop()
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    assert np.allclose(value.asnumpy(), np.exp(tensor(2).asnumpy()), rtol=1e-5)
    assert "PYNATIVE_MODE" in "".join(capsys.readouterr())
    assert not list(found.path.glob("step*"))


# -- what a user does wrong ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"level": "L2"}, "L2"),
        ({"compile": "tap", "level": "L0"}, "tap"),
        ({"task": "run_ut"}, "task"),
        ({"dump_path": ""}, "dump_path"),
    ],
)  # fmt: skip
def test_configurations_that_cannot_be_followed(tmp_path: Path, fields: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Recording(tmp_path / "run", **fields)
    assert PrecisionDebugger._instance is None


def test_what_is_ignored_is_said(tmp_path: Path) -> None:
    with pytest.warns(ConfigWarning, match="async_dump"):
        Recording(tmp_path / "run", async_dump=True).finish()


def test_models(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="mix") as found:
        with pytest.raises(UserError, match="needs the model"):
            found.start()
        with pytest.raises(UserError, match=r"mindspore\.nn\.Cell"):
            found.start(3)
        found.start([Net(), Net()])
        found.stop()
