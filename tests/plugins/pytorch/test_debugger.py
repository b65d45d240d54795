"""Everything that a training script can ask of ``PrecisionDebugger`` (spec/dump 3), and what is then recorded."""

from __future__ import annotations

import inspect
import itertools
import json
import math
import types
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xxhash
from probe_pytorch import PrecisionDebugger
from probe_pytorch.reader import PyTorchReader
from probe_recording.config import ConfigWarning
from support.programs.training import raw
from support.runs.recording import Recording, recording
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from probe_core.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore:.*requires_grad=True:UserWarning")


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """A test that fails leaves no debugger and no mode to the next one."""
    yield
    if PrecisionDebugger._instance is not None:
        PrecisionDebugger._instance._recorder.finish()
        PrecisionDebugger._instance = None
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = Block(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(x))


def net() -> Net:
    torch.manual_seed(0)
    return Net()


X = torch.linspace(-1, 1, 12).reshape(3, 4)


def train(model: nn.Module, x: Tensor = X) -> None:
    model(x).square().sum().backward()


def once(path: Path, work: Callable[[], Any], model: Any = None, **fields: Any) -> Recording:
    """One step in which ``work`` is done, recorded."""
    with recording(path, **fields) as found:
        found.start(model)
        work()
        found.stop()
        found.step()
    return found


def leaves(tree: Any) -> Iterator[dict[str, Any]]:
    """The tensor leaves of records."""
    if isinstance(tree, dict) and "dtype" in tree and "shape" in tree:
        yield tree
    elif isinstance(tree, (dict, list)):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(item)


def saved(found: Recording, step: int = 0, name: str = "dump.json") -> dict[str, np.ndarray[Any, Any]]:
    """The data of every tensor that the records name."""
    run = PyTorchReader().open(found.directory(step) / name)
    values = [slot.value for record in run.records() for slot in record.slots if slot.value.data_name]
    return {str(value.data_name): np.array(run.tensor(value)) for value in values}


def value_of(data: dict[str, np.ndarray[Any, Any]], leaf: dict[str, Any] | None) -> Tensor | None:
    return torch.from_numpy(data[leaf["data_name"]]) if leaf is not None else None


# -- the object -------------------------------------------------------------------------------------


def test_there_is_one_debugger(tmp_path: Path) -> None:
    PrecisionDebugger._instance = None
    first = PrecisionDebugger(dump_path=tmp_path / "first", level="L1")
    with pytest.raises(UserError, match=r"dump_path is .*first there and .*second here"):
        PrecisionDebugger(dump_path=tmp_path / "second", level="L1")
    second = PrecisionDebugger(dump_path=tmp_path / "first", level="L1")
    assert second is first
    second.start()
    F.relu(X)
    second.stop()
    assert (tmp_path / "first" / "step0").exists() and not (tmp_path / "second").exists()


def test_a_debugger_that_could_not_be_made_is_not_the_one(tmp_path: Path) -> None:
    PrecisionDebugger._instance = None
    with pytest.raises(UserError, match='"level" must be one of the choices'):
        PrecisionDebugger(dump_path=tmp_path / "run", level="L7")
    debugger = PrecisionDebugger(dump_path=tmp_path / "run", level="L1")
    assert debugger._recorder.config.level == "L1"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, '"dump_path" is missing'),
        ({"dump_path": "run", "task": "no such task"}, '"task" must be one of the choices'),
        ({"dump_path": "run", "task": "run_ut"}, "records nothing here"),
        ({"dump_path": "run", "level": 3}, '"level" must be one of the choices'),
        ({"dump_path": "r+n"}, "which holds '\\+'"),
        ({"dump_path": "run", "step": ["5-2"]}, "neither a number from 0 on nor a range"),
        ({"dump_path": "run", "step": 5}, '"step" must be a list'),
        ({"dump_path": "run", "step": [-1]}, "neither a number"),
        ({"dump_path": "run", "model": "no model"}, "model must be a torch.nn.Module"),
        ({"dump_path": "run", "model": []}, "model must be a torch.nn.Module"),
        ({"config_path": "missing.json"}, "cannot be read"),
    ],
)
def test_what_cannot_be_followed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    PrecisionDebugger._instance = None
    with pytest.raises(UserError, match=message):
        PrecisionDebugger(**fields)
    assert PrecisionDebugger._instance is None
    assert list(tmp_path.iterdir()) == []


def test_arguments_come_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps({"dump_path": str(tmp_path / "no"), "task": "tensor", "level": "L1", "step": [5]})
    )
    PrecisionDebugger._instance = None
    debugger = PrecisionDebugger(file, task="statistics", dump_path=tmp_path / "run", level="mix", step=[0])
    debugger.start(net())
    debugger.stop()
    head = json.loads((tmp_path / "run" / "step0" / "rank" / "dump.json").read_text())
    assert (head["task"], head["level"]) == ("statistics", "mix")


def test_as_a_context_manager(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        for _ in range(2):
            with found.debugger as debugger:
                F.relu(X)
                assert debugger is found.debugger
            F.gelu(X)
        with pytest.raises(ValueError, match="mine"), found.debugger:
            F.silu(X)
            raise ValueError("mine")
    assert [list(found.records(step)) for step in range(3)] == [
        ["Functional.relu.0.forward"],
        ["Functional.relu.0.forward"],
        ["Functional.silu.0.forward"],
    ]
    assert sorted(path.name for path in found.path.iterdir()) == ["step0", "step1", "step2"]


def test_the_model_of_the_constructor(tmp_path: Path) -> None:
    model = net()
    PrecisionDebugger._instance = None
    debugger = PrecisionDebugger(dump_path=tmp_path / "run", level="L0", model=model)
    with debugger:
        model(X)
    records = json.loads((tmp_path / "run" / "step0" / "rank" / "dump.json").read_text())["data"]
    assert "Module.head.Linear.forward.0" in records


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_these_levels_need_a_model(tmp_path: Path, level: str) -> None:
    with recording(tmp_path / "run", level=level) as found:
        with pytest.raises(UserError, match="needs the model"):
            found.start()
        for wrong in ("model", [1], [], (net(), None), {"a": net()}):
            with pytest.raises(UserError, match="model must be"):
                found.start(wrong)
        found.start((net(),))
        found.stop()


def test_monitor_is_refused(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found, pytest.raises(UserError, match="grad_probe"):
        found.debugger.monitor(net())


@pytest.mark.parametrize("value", [-1, 1.0, "1", True, None])
def test_the_first_step_must_be_a_number(tmp_path: Path, value: Any) -> None:
    with recording(tmp_path / "run", level="L1") as found, pytest.raises(UserError, match="set_init_step"):
        found.debugger.set_init_step(value)


@pytest.mark.parametrize("value", [3, [1], [1, 2, 3], [2, 1], [-1, 2], ["0", "1"], "01"])
def test_the_token_range_must_be_two_numbers(tmp_path: Path, value: Any) -> None:
    with recording(tmp_path / "run", level="L1") as found, pytest.raises(UserError, match="token_range"):
        found.debugger.start(net(), token_range=value)


def test_the_old_name_of_stop(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        F.relu(X)
        found.debugger.forward_backward_dump_end()
        F.relu(X)
        found.start()
        F.gelu(X)
        found.stop()
    assert list(found.records()) == ["Functional.relu.0.forward", "Functional.gelu.0.forward"]


# -- steps and ranks --------------------------------------------------------------------------------


def recorded_steps(found: Recording) -> list[int]:
    """The steps that have a directory, and records in it."""
    numbers = sorted(int(path.name.removeprefix("step")) for path in found.path.glob("step*"))
    assert all(found.records(number) for number in numbers)
    return numbers


@pytest.mark.parametrize(
    ("steps", "recorded"),
    [
        ([], [0, 1, 2, 3, 4, 5]),
        ([1], [1]),
        (["1-2", 4], [1, 2, 4]),
        (["3-3"], [3]),
        ([0, 99], [0]),
        ([9], []),
    ],
)
def test_steps(
    tmp_path: Path, steps: list[Any], recorded: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    with recording(tmp_path / "run", level="L1", step=steps) as found:
        for _ in range(6):
            found.start()
            F.relu(X)
            found.stop()
            found.step()
    assert recorded_steps(found) == recorded
    assert ("is over" in capsys.readouterr().err) == (bool(steps) and not {9, 99} & {*steps})


def test_counts_begin_anew_in_each_step(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="mix") as found:
        for _ in range(2):
            found.start(model)
            train(model)
            F.relu(X)
            F.relu(X)
            found.stop()
            found.step()
    assert list(found.records(0)) == list(found.records(1))
    assert "Functional.relu.1.forward" in found.records(1)


@pytest.mark.parametrize(("ranks", "is_recorded"), [([], True), ([0], True), ([1], False), (["0-3"], True)])
def test_ranks(tmp_path: Path, ranks: list[Any], is_recorded: bool) -> None:
    with recording(tmp_path / "run", level="L1", rank=ranks) as found:
        found.start()
        F.relu(X)
        found.stop()
        found.step()
    assert found.path.exists() == is_recorded


def test_training_that_is_resumed(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", step=[10, 12]) as found:
        found.debugger.set_init_step(10)
        for _ in range(3):
            found.start()
            F.relu(X)
            found.stop()
            found.step()
    assert recorded_steps(found) == [10, 12]


def test_recording_is_switched_while_training_runs(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", dump_enable=False) as found:
        file = tmp_path / "run.config.json"
        for text in (None, True, False, True, "broken"):
            if text is not None:
                file.write_text(json.dumps({**json.loads(file.read_text()), "dump_enable": text}))
            if text == "broken":
                file.write_text("{")
            found.start()
            F.relu(X)
            found.stop()
            found.step()
    assert recorded_steps(found) == [1, 3]


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_the_tokens_of_a_generation(tmp_path: Path, level: str) -> None:
    model = net()
    with recording(tmp_path / "run", level=level) as found:
        found.debugger.start(model, token_range=[1, 2])
        F.relu(X)
        for number in range(5):
            model(X + number)
        found.stop()
        found.step()
        found.debugger.start(model)
        model(X)
        found.stop()
    name = "Functional.gelu.{}.forward" if level == "L1" else "Module.head.Linear.forward.{}"
    assert name.format(1) in found.records() and name.format(2) not in found.records()
    assert "Functional.relu.0.forward" not in found.records()
    first = found.records()[
        "Functional.linear.0.forward" if level == "L1" else "Module.block.Block.forward.0"
    ]
    assert first["input_args"][0]["Max"] == 2.0  # X + 1
    assert name.format(0) in found.records(1) and not model._forward_pre_hooks


# -- filters ----------------------------------------------------------------------------------------

SIDES = {"input": ("input_args", "input"), "output": ("output", "output")}


def completed(modes: tuple[str, ...]) -> tuple[set[str], set[str]]:
    named = set(modes) - {"all"}
    directions = named & {"forward", "backward"} or {"forward", "backward"}
    return directions, named & {"input", "output"} or {"input", "output"}


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize(
    "mode",
    [
        (),
        ("all",),
        *itertools.chain.from_iterable(
            itertools.combinations(("forward", "backward", "input", "output"), count)
            for count in (1, 2, 3, 4)
        ),
    ],
)
def test_data_mode(tmp_path: Path, level: str, mode: tuple[str, ...]) -> None:
    model = net()
    found = once(
        tmp_path / "run", lambda: train(model), model, level=level, statistics={"data_mode": list(mode)}
    )
    directions, sides = completed(mode)
    records = found.records()
    for direction, place in (("forward", 0), ("backward", 1)):
        mine = [records[name] for name in records if f".{direction}" in name]
        assert bool(mine) == (direction in directions)
        for record in mine:
            for side, fields in SIDES.items():
                assert (fields[place] in record) == (side in sides), (direction, side)
            assert ("input_kwargs" in record) == (direction == "forward" and "input" in sides)
    modules = [
        record for name, record in records.items() if name.startswith("Module") and ".forward." in name
    ]
    assert all("parameters" in record for record in modules)
    gradients = [name for name in records if "parameters_grad" in name]
    assert bool(gradients) == (level != "L1" and "backward" in directions)


@pytest.mark.parametrize(
    ("level", "wanted", "names"),
    [
        ("L1", ["gelu"], {"Functional.gelu.0.forward", "Functional.gelu.0.backward"}),
        ("L1", ["linear.1.forward"], {"Functional.linear.1.forward"}),
        ("L1", ["gelu.0.b", "nowhere"], {"Functional.gelu.0.backward"}),
        ("L1", ["nowhere"], set()),
        ("L0", ["head"], {"Module.head.Linear.forward.0", "Module.head.Linear.backward.0",
                          "Module.head.Linear.parameters_grad"}),
        ("mix", ["gelu"], {"Functional.gelu.0.forward", "Functional.gelu.0.backward"}),
    ],
)  # fmt: skip
def test_only_what_is_listed(tmp_path: Path, level: str, wanted: list[str], names: set[str]) -> None:
    model = net()
    found = once(tmp_path / "run", lambda: train(model), model, level=level, statistics={"list": wanted})
    assert set(found.records()) == names


def test_a_listed_module_brings_what_runs_in_it(tmp_path: Path) -> None:
    model = net()
    found = once(
        tmp_path / "run", lambda: train(model), model, level="mix", statistics={"list": ["Block.forward"]}
    )
    forward = {name for name in found.records() if "forward" in name}
    assert forward == {
        "Module.block.Block.forward.0", "Module.block.up.Linear.forward.0", "Module.block.down.Linear.forward.0",
        "Functional.linear.0.forward", "Functional.gelu.0.forward", "Functional.linear.1.forward",
        "Tensor.__add__.0.forward",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("level", "scope", "forward"),
    [
        ("L1", ["Functional.gelu.0.forward", "Tensor.__add__.0.forward"],
         ["Functional.gelu.0.forward", "Functional.linear.1.forward", "Tensor.__add__.0.forward"]),
        ("L1", ["Functional.linear.2.forward", "Functional.nowhere.0.forward"],
         ["Functional.linear.2.forward", "Tensor.square.0.forward", "Tensor.sum.0.forward"]),
        ("L1", ["Functional.nowhere.0.forward", "Tensor.__add__.0.forward"], []),
        ("L0", ["Module.block.up.Linear.forward.0", "Module.block.down.Linear.forward.0"],
         ["Module.block.up.Linear.forward.0", "Module.block.down.Linear.forward.0"]),
        ("L0", ["Module.block.Block.forward.0", "Module.block.Block.forward.0"],
         ["Module.block.up.Linear.forward.0", "Module.block.down.Linear.forward.0", "Module.block.Block.forward.0"]),
        ("mix", ["Module.block.down.Linear.forward.0", "Module.block.down.Linear.forward.0"],
         ["Functional.linear.1.forward", "Module.block.down.Linear.forward.0"]),
    ],
)  # fmt: skip
def test_only_what_is_in_scope(tmp_path: Path, level: str, scope: list[str], forward: list[str]) -> None:
    model = net()
    found = once(tmp_path / "run", lambda: train(model), model, level=level, statistics={"scope": scope})
    assert [name for name in found.records() if ".forward" in name] == forward


def test_scope_and_list_together(tmp_path: Path) -> None:
    section = {"scope": ["Functional.gelu.0.forward", "Functional.linear.2.forward"], "list": ["linear"]}
    found = once(tmp_path / "run", lambda: net()(X), level="L1", statistics=section)
    assert list(found.records()) == ["Functional.linear.1.forward", "Functional.linear.2.forward"]


def test_tensors_of_some_records_only(tmp_path: Path) -> None:
    model = net()
    found = once(
        tmp_path / "run",
        lambda: train(model),
        model,
        level="mix",
        statistics={"tensor_list": ["gelu", "head"]},
    )
    names = {leaf["data_name"] for leaf in leaves(found.records()) if "data_name" in leaf}
    assert {name.split(".")[1] for name in names} == {"gelu", "head"}
    assert {"Functional.gelu.0.backward.output.0.pt", "Module.head.Linear.parameters_grad.weight.pt"} <= names
    assert set(saved(found)) == names
    assert found.head()["dump_data_dir"] and found.head()["task"] == "statistics"


def test_risk_levels(tmp_path: Path) -> None:
    def work() -> None:
        F.linear(X, torch.ones(2, 4))
        F.relu(X.reshape(4, 3))

    names = {
        level: [
            name.rsplit(".", 2)[0]
            for name in once(tmp_path / level, work, level="L1", risk_level=level).records()
        ]
        for level in ("ALL", "FOCUS", "CORE")
    }
    assert {"Functional.linear", "Functional.relu", "Tensor.reshape"} <= {*names["ALL"]}
    assert {"Functional.linear", "Functional.relu"} <= {*names["FOCUS"]} and "Tensor.reshape" not in names[
        "FOCUS"
    ]
    assert names["CORE"] == ["Functional.linear"]


# -- values -----------------------------------------------------------------------------------------

VALUES = {
    "float": torch.linspace(-3, 5, 7),
    "turned": torch.arange(12.0).reshape(3, 4).t(),
    "part": torch.arange(12.0)[3:8:2],
    "bfloat16": torch.linspace(-3, 5, 7).bfloat16(),
    "half": torch.linspace(-3, 5, 7).half(),
    "double": torch.linspace(-3, 5, 7, dtype=torch.float64),
    "int64": torch.arange(7) - 3,
    "uint8": torch.arange(7, dtype=torch.uint8),
    "bool": torch.tensor([True, False, True]),
    "0-d": torch.tensor(4.5),
    "complex": torch.complex(torch.ones(3), -torch.arange(3.0)),
    "conjugate": torch.complex(torch.ones(3), -torch.arange(3.0)).conj(),
}


@pytest.mark.parametrize("asked", ["md5", "xxh3", "xor"])
@pytest.mark.parametrize("kind", VALUES)
def test_checksums(tmp_path: Path, kind: str, asked: str) -> None:
    value = VALUES[kind]
    found = once(
        tmp_path / "run", lambda: torch.atleast_1d(value), level="L1", statistics={"summary_mode": asked}
    )
    (leaf,) = found.records()["Torch.atleast_1d.0.forward"]["input_args"]
    data = raw(value.resolve_conj().contiguous())
    wanted = f"{zlib.crc32(data):08x}" if asked == "md5" else f"{xxhash.xxh3_64_intdigest(data):016x}"
    assert leaf["md5"] == wanted
    assert "data_name" not in leaf and leaf["Max"] is not None


def test_checksums_of_nothing(tmp_path: Path) -> None:
    found = once(
        tmp_path / "run", lambda: F.relu(torch.ones(0, 3)), level="L1", statistics={"summary_mode": "md5"}
    )
    (leaf,) = found.records()["Functional.relu.0.forward"]["input_args"]
    assert "md5" not in leaf and leaf["Max"] is None and leaf["shape"] == [0, 3]


@pytest.mark.parametrize("precision", ["low", "high"])
@pytest.mark.parametrize("kind", ["float", "turned", "part", "bfloat16", "half", "double", "int64", "0-d"])
def test_statistics(tmp_path: Path, kind: str, precision: str) -> None:
    value = VALUES[kind]
    found = once(tmp_path / "run", lambda: torch.atleast_1d(value), level="L1", precision=precision)
    (leaf,) = found.records()["Torch.atleast_1d.0.forward"]["input_args"]
    exact = value.double()
    assert leaf["Max"] == exact.max() and leaf["Min"] == exact.min()
    assert leaf["Mean"] == pytest.approx(float(exact.mean()), rel=1e-12, abs=1e-12)
    assert leaf["Norm"] == pytest.approx(
        abs(float(exact)) if not value.ndim else float(exact.norm()), rel=1e-12
    )
    assert leaf["dtype"] == str(value.dtype) and leaf["shape"] == list(value.shape)


def test_statistics_that_are_no_numbers(tmp_path: Path) -> None:
    def work() -> None:
        F.relu(torch.tensor([1.0, math.nan]))
        F.gelu(torch.tensor([1.0, math.inf]))
        torch.atleast_1d(torch.tensor([True, False]))

    found = once(tmp_path / "run", work, level="L1")
    (nan,), (inf,), (truth,) = (record["input_args"] for record in found.records().values())
    assert all(math.isnan(nan[name]) for name in ("Max", "Min", "Mean", "Norm"))
    assert (inf["Max"], inf["Min"]) == (math.inf, 1.0)
    assert [truth[name] for name in ("Max", "Min", "Mean", "Norm")] == [True, False, None, None]


@pytest.mark.parametrize("fields", [{}, {"task": "tensor", "tensor": {"list": ["linear", "head"]}}])
@pytest.mark.parametrize("store", ["packed", "files"])
def test_asynchronous_recording_is_the_same(tmp_path: Path, fields: dict[str, Any], store: str) -> None:
    found = {}
    for waits in (False, True):
        model = net()
        found[waits] = once(
            tmp_path / str(waits),
            lambda m=model: train(m),
            model,
            level="mix",
            async_dump=waits,
            store=store,
            **fields,
        )
    assert found[True].records() == found[False].records()
    if fields:
        now, later = saved(found[False]), saved(found[True])
        assert now.keys() == later.keys() and len(now) > 5
        assert [name for name in now if now[name].tobytes() != later[name].tobytes()] == []


def test_asynchronous_recording_of_what_is_overwritten(tmp_path: Path) -> None:
    x = torch.ones(3)

    def work() -> None:
        F.relu(x)
        x.add_(5)

    found = once(
        tmp_path / "run", work, level="L1", task="tensor", async_dump=True, tensor={"list": ["relu"]}
    )
    assert saved(found)["Functional.relu.0.forward.input.0.pt"].tolist() == [1.0, 1.0, 1.0]


def test_asynchronous_recording_has_its_limits(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="async_dump"):
        Recording(tmp_path / "a", level="L1", async_dump=True, statistics={"summary_mode": "md5"})
    with pytest.raises(UserError, match="async_dump"):
        Recording(tmp_path / "b", level="L1", async_dump=True, task="tensor")


# -- functions of the user's ------------------------------------------------------------------------


def fused(x: Tensor, scale: float = 2.0) -> Tensor:
    """A function that torch knows nothing of."""
    return F.relu(x) * scale


def library() -> types.ModuleType:
    found = types.ModuleType("kernels")
    found.fused = fused  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(("prefix", "name"), [(None, "kernels.fused"), ("Custom", "Custom.fused")])
def test_a_function_of_the_users(tmp_path: Path, prefix: str | None, name: str) -> None:
    kernels = library()
    x = torch.linspace(-1, 1, 4, requires_grad=True)
    with recording(tmp_path / "run", level="L1", task="tensor") as found:
        found.debugger.register_custom_api(kernels, "fused", prefix)
        assert kernels.fused is fused  # nothing is replaced until recording begins
        found.start()
        kernels.fused(x * 1.0, scale=3.0).sum().backward()
        kernels.fused(X)
        found.stop()
        assert kernels.fused is fused
        kernels.fused(X)
        found.step()
        found.start()
        kernels.fused(X)
        found.debugger.restore_custom_api(kernels, "fused")
        assert kernels.fused is fused
        kernels.fused(X)
        found.stop()
        found.step()
    records = found.records()
    assert set(records) == {
        "Tensor.__mul__.0.forward", "Tensor.__mul__.0.backward", "Tensor.sum.0.forward", "Tensor.sum.0.backward",
        f"{name}.0.forward", f"{name}.0.backward", f"{name}.1.forward",
    }  # fmt: skip
    assert records[f"{name}.0.forward"]["input_kwargs"] == {"scale": {"type": "float", "value": 3.0}}
    gradient = saved(found)[f"{name}.0.backward.output.0.pt"]
    assert gradient.tolist() == [0.0, 0.0, 3.0, 3.0]
    assert list(found.records(1)) == [
        f"{name}.0.forward",
        "Functional.relu.0.forward",
        "Tensor.__mul__.0.forward",
    ]


def test_a_function_registered_while_recording(tmp_path: Path) -> None:
    kernels = library()
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        found.debugger.register_custom_api(kernels, "fused")
        kernels.fused(X)
        found.stop()
        assert kernels.fused is fused
    assert list(found.records()) == ["kernels.fused.0.forward"]


def test_a_function_of_the_users_that_raises(tmp_path: Path) -> None:
    kernels = library()
    with recording(tmp_path / "run", level="L1") as found:
        found.debugger.register_custom_api(kernels, "fused")
        found.start()
        with pytest.raises(TypeError):
            kernels.fused()
        kernels.fused(X)
        F.gelu(X)
        found.stop()
    assert list(found.records()) == ["kernels.fused.0.forward", "Functional.gelu.0.forward"]


def test_what_the_user_put_there_meanwhile_stays(tmp_path: Path) -> None:
    kernels = library()
    with recording(tmp_path / "run", level="L1") as found:
        found.debugger.register_custom_api(kernels, "fused")
        found.start()
        kernels.fused = F.gelu  # type: ignore[attr-defined]
        found.stop()
    assert kernels.fused is F.gelu


def test_functions_that_are_not_there(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        for name in ("missing", "__name__", 3):
            with pytest.raises(UserError, match="has no function called"):
                found.debugger.register_custom_api(library(), name)  # type: ignore[arg-type]
        with pytest.warns(ConfigWarning, match="not registered"):
            found.debugger.restore_custom_api(library(), "fused")


class Kernels:
    @staticmethod
    def plain(x: Tensor) -> Tensor:
        return x + 1

    @classmethod
    def of_class(cls, x: Tensor) -> tuple[str, Tensor]:
        return cls.__name__, x + 1

    def method(self, x: Tensor) -> Tensor:
        return x + 1


class Derived(Kernels):
    pass


@pytest.mark.parametrize("kind", ["method", "plain", "of_class"])
def test_a_function_that_stands_in_a_class(tmp_path: Path, kind: str) -> None:
    def call() -> list[Any]:
        results = [getattr(Kernels(), kind)(X), getattr(Derived(), kind)(X)]
        return [raw(r) if isinstance(r, Tensor) else (r[0], raw(r[1])) for r in results]

    expected, before = call(), dict(vars(Kernels))
    try:
        with recording(tmp_path / "run", level="L1") as found:
            found.debugger.register_custom_api(Kernels, kind)
            found.start()
            assert call() == expected
            found.stop()
        assert call() == expected and dict(vars(Kernels)) == before
        assert list(found.records()) == [f"Kernels.{kind}.{i}.forward" for i in range(2)]
    finally:
        setattr(Kernels, kind, before[kind])


@pytest.mark.parametrize("holder", [Derived, Derived()])
def test_an_inherited_function_is_not_left_behind(tmp_path: Path, holder: Any) -> None:
    try:
        with recording(tmp_path / "run", level="L1") as found:
            found.debugger.register_custom_api(holder, "method")
            found.start()
            (holder if isinstance(holder, Derived) else Derived()).method(X)
            found.stop()
        assert len(found.records()) == 1
        assert "method" not in vars(holder)
    finally:
        if "method" in vars(holder):
            delattr(holder, "method")


# -- single modules ---------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_single_module(tmp_path: Path, level: str) -> None:
    model = net()

    def work() -> None:
        model(X)
        found.debugger.module_dump(model.block, "mine")
        train(model)
        F.silu(X)
        found.debugger.module_dump_end()
        F.relu(X)
        model(X)

    with recording(tmp_path / "run", level=level) as found:
        found.start(model)
        work()
        found.stop()
        found.step()
    names = list(found.records())
    assert {"Module.mine.Block.forward.0", "Module.mine.Block.backward.0"} == {
        n for n in names if "mine" in n
    }
    assert "Functional.silu.0.forward" not in names
    assert ("Functional.relu.0.forward" in names) == (level != "L0")
    one = "Functional.gelu.{}.forward" if level == "L1" else "Module.head.Linear.forward.{}"
    assert one.format(1) in names and one.format(2) not in names
    assert not model.block._forward_hooks


def test_two_single_modules_and_a_forgotten_end(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        found.debugger.module_dump(model.block, "first")
        model(X)
        found.debugger.module_dump(model.head, "second")
        model(X)
        found.stop()
        model(X)
        found.step()
        assert not model.block._forward_hooks and not model.head._forward_hooks
        found.debugger.module_dump_end()
    names = [name for name in found.records() if "parameters_grad" not in name]
    assert names == ["Module.first.Block.forward.0", "Module.second.Linear.forward.0"]


def test_gradients_of_a_single_module_are_recorded_or_not_promised(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        found.debugger.module_dump(model.head, "mine")
        train(model)
        found.stop()
    gradients = found.records().get("Module.mine.Linear.parameters_grad", {})
    assert [None] not in gradients.values()


def test_wrong_single_modules(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        for module, name in (("head", "x"), (net(), ""), (net(), None)):
            with pytest.raises(UserError, match="module_dump needs"):
                found.debugger.module_dump(module, name)  # type: ignore[arg-type]


def test_gradients_of_parameters_after_a_single_module(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="L0") as found:
        found.start(model)
        loss = model(X).sum()
        found.debugger.module_dump(model.head, "mine")
        model(X)
        found.debugger.module_dump_end()
        loss.backward()
        found.stop()
    assert found.records()["Module.head.Linear.parameters_grad"]["weight"] != [None]


def test_a_single_module_without_start(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="L1") as found:
        for step in range(2):
            if step:
                found.start()
                found.stop()
            found.debugger.module_dump(model.block, "mine")
            model(X)
            found.debugger.module_dump_end()
            F.relu(X)
            found.stop()
            found.step()
    assert list(found.records(0)) == list(found.records(1)) == ["Module.mine.Block.forward.0"]


# -- variables --------------------------------------------------------------------------------------


def debug(path: Path, work: Callable[[PrecisionDebugger], Any], **fields: Any) -> Recording:
    with recording(path, level="debug", **fields) as found:
        work(found.debugger)
        found.step()
    return found


def test_variables(tmp_path: Path) -> None:
    x = torch.ones(2, requires_grad=True)

    def work(debugger: PrecisionDebugger) -> None:
        debugger.save(x, "x")
        debugger.save(x * 2, "x")
        debugger.save(3, "number")
        debugger.save("text", "text")
        debugger.save(True, "truth")
        y = x * 5
        debugger.save(y, "y", save_backward=False)
        y.sum().backward()

    found = debug(tmp_path / "run", work, task="tensor")
    records = found.records(name="debug.json")
    assert list(records) == ["x.0.debug", "x.1.debug", "number.0.debug", "text.0.debug", "truth.0.debug", "y.0.debug",
                             "x_grad.0.debug"]  # fmt: skip
    assert records["number.0.debug"] == {"type": "int", "value": 3}
    assert records["text.0.debug"] == {"type": "str", "value": "text"}
    assert records["x_grad.0.debug"]["Max"] == 5.0
    assert {path.name for path in found.directory().iterdir()} == {"debug.json", "dump_tensor_data"}
    data = saved(found, name="debug.json")
    assert data["x.1.debug.pt"].tolist() == [2.0, 2.0] and data["x_grad.0.debug.pt"].tolist() == [5.0, 5.0]


def test_nested_variables_and_their_gradients(tmp_path: Path) -> None:
    x, y = (torch.full((2,), value, requires_grad=True) for value in (1.0, 2.0))

    def work(debugger: PrecisionDebugger) -> None:
        debugger.save({"a": [x, 1, (y, None)], "b": torch.ones(1)}, "deep")
        (x * 3 + y * 4).sum().backward()

    found = debug(tmp_path / "run", work, task="tensor")
    records = found.records(name="debug.json")
    value, gradient = records["deep.0.debug"], records["deep_grad.0.debug"]
    assert value["a"][0]["data_name"] == "deep.0.debug.a.0.pt"
    assert value["a"][1] == {"type": "int", "value": 1} and value["a"][2][1] is None
    assert gradient["a"][0]["Max"] == 3.0 and gradient["a"][2][0]["Max"] == 4.0
    assert gradient["a"][2][0]["data_name"] == "deep_grad.0.debug.a.2.0.pt"
    assert saved(found, name="debug.json")["deep_grad.0.debug.a.2.0.pt"].tolist() == [4.0, 4.0]


def test_variables_are_counted_in_each_step_and_selected(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="debug", step=[1]) as found:
        for _ in range(3):
            found.debugger.save(X, "x")
            found.debugger.save(X, "x")
            found.debugger.save(X, "y")
            found.step()
    assert [path.name for path in found.path.iterdir()] == ["step1"]
    assert list(found.records(1, "debug.json")) == ["x.0.debug", "x.1.debug", "y.0.debug"]


def test_at_level_debug_nothing_else_is_recorded(tmp_path: Path) -> None:
    model = net()
    with recording(tmp_path / "run", level="debug") as found:
        found.start(model)
        train(model)
        found.debugger.save(X, "x")
        found.stop()
        found.debugger.save(X, "x")
        found.step()
    assert list(found.records(name="debug.json")) == ["x.0.debug", "x.1.debug"]


def test_variables_at_other_levels_are_not_saved(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        found.debugger.save(X, "x")
        found.step()
        for name in ("", None, 3):
            with pytest.raises(UserError, match="needs a name"):
                found.debugger.save(X, name)  # type: ignore[arg-type]
    assert not found.path.exists()


def test_variables_of_an_unsupported_type(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="debug") as found, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found.debugger.save(object(), "x")
        found.debugger.save(X, "y")
        found.step()
    assert [str(item.message) for item in told if "x" in str(item.message)]
    assert list(found.records(name="debug.json")) == ["y.0.debug"]


def test_a_variable_called_like_a_gradient(tmp_path: Path) -> None:
    x = torch.ones(2, requires_grad=True)

    def work(debugger: PrecisionDebugger) -> None:
        debugger.save(x, "x")
        (x * 2).sum().backward()
        debugger.save(x.grad, "x_grad")

    found = debug(tmp_path / "run", work)
    PyTorchReader().open(found.directory() / "debug.json")


# -- gradients, exactly -----------------------------------------------------------------------------


def alone_gradients(
    call: Callable[..., Any], inputs: list[Tensor], weights: list[Tensor | None]
) -> list[Any]:
    """What autograd gives for this call and nothing else."""
    fresh = [value.detach().clone().requires_grad_(value.is_floating_point()) for value in inputs]
    result = call(*(value.clone() if value.requires_grad else value for value in fresh))
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    pairs = [(output, weight) for output, weight in zip(outputs, weights) if weight is not None]
    wanted = [value for value in fresh if value.requires_grad]
    return list(torch.autograd.grad([o for o, _ in pairs], wanted, [w for _, w in pairs], allow_unused=True))


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def in_order(*order: int, turned: int = -1) -> Callable[[list[Any]], list[Any]]:
    """The order in which one node gives its gradients; ``turned``: the one that it gives transposed."""
    return lambda found: [found[i].t() if i == turned else found[i] for i in order]


BIAS = [values(3, 4), values(2, 4, seed=1), values(2, seed=2)]
CLASSES = torch.tensor([0, 3, 1])

CALLS: dict[str, tuple[str, Callable[..., Any], list[Tensor], Any]] = {
    "linear": ("Functional.linear", F.linear, BIAS, in_order(2, 0, 1, turned=1)),
    "linear without bias": ("Functional.linear", F.linear, BIAS[:2], in_order(0, 1, turned=1)),
    "linear 3-D": ("Functional.linear", F.linear, [values(2, 3, 4), *BIAS[1:]], in_order(0, 1, 2)),
    "linear 3-D without bias": ("Functional.linear", F.linear, [values(2, 3, 4), BIAS[1]], in_order(0, 1)),
    "cross_entropy": ("Functional.cross_entropy", lambda x: F.cross_entropy(x, CLASSES), [values(3, 4)], None),
    "layer_norm": ("Functional.layer_norm", lambda x, w, b: F.layer_norm(x, (4,), w, b),
                   [values(3, 4), values(4, seed=1), values(4, seed=2)], None),
    "matmul": ("Torch.matmul", torch.matmul, [values(3, 4), values(4, 2, seed=1)], None),
    "matmul 3-D": ("Torch.matmul", torch.matmul, [values(2, 3, 4), values(4, 2, seed=1)], None),
    "bmm": ("Torch.bmm", torch.bmm, [values(2, 3, 4), values(2, 4, 2, seed=1)], None),
    "mul": ("Tensor.__mul__", lambda x, y: x * y, [values(3, 4), values(3, 4, seed=1)], None),
    "broadcast": ("Tensor.__mul__", lambda x, y: x * y, [values(3, 4), values(4, seed=1)], None),
    "normalize": ("Functional.normalize", lambda x: F.normalize(x, dim=-1), [values(3, 4)], None),
    "gelu": ("Functional.gelu", F.gelu, [values(3, 4)], None),
    "softmax": ("Functional.softmax", lambda x: F.softmax(x, -1), [values(3, 4)], None),
    "in place": ("Tensor.mul_", lambda x, y: x.mul_(y), [values(3, 4), values(3, 4, seed=1)], None),
    "in place, alone": ("Tensor.exp_", lambda x: x.exp_(), [values(3, 4)], None),
    "relu in place": ("Functional.relu", lambda x: F.relu(x, inplace=True), [values(3, 4)], None),
    "split": ("Torch.split", lambda x: torch.split(x, 2, -1), [values(3, 4)], None),
    "chunk": ("Tensor.chunk", lambda x: x.chunk(2), [values(4, 2)], None),
    "cat": ("Torch.cat", lambda x, y: torch.cat([x, y]), [values(3, 4), values(2, 4, seed=1)], None),
    "where": ("Torch.where", lambda x, y: torch.where(x > 0, x, y), [values(3, 4), values(3, 4, seed=1)], None),
    "select": ("Torch.select", lambda x: torch.select(x, 0, 1), [values(3, 4)], None),
    "sdpa": ("Functional.scaled_dot_product_attention", F.scaled_dot_product_attention,
             [values(1, 2, 3, 4), values(1, 2, 3, 4, seed=1), values(1, 2, 3, 4, seed=2)], None),
    "conv": ("Functional.conv2d", F.conv2d, [values(1, 2, 5, 5), values(3, 2, 3, 3, seed=1), values(3, seed=2)], None),
    "embedding": ("Functional.embedding", lambda w: F.embedding(CLASSES, w), [values(4, 3)], None),
}  # fmt: skip


@pytest.mark.parametrize("only_leaves", [False, True])
@pytest.mark.parametrize("kind", CALLS)
def test_a_backward_record_holds_the_gradients_of_its_own_call(
    tmp_path: Path, kind: str, only_leaves: bool
) -> None:
    name, call, inputs, order = CALLS[kind]
    if only_leaves and "in place" in kind:
        pytest.skip("a leaf cannot be written in place")
    bases = [value.clone().requires_grad_() for value in inputs]
    with recording(tmp_path / "run", level="L1", task="tensor") as found:
        found.start()
        used = bases if only_leaves else [torch.atleast_1d(base) for base in bases]
        if not only_leaves:
            used = [torch.add(value, 0.0) for value in used]
        elsewhere = sum(torch.sub(value, 1.0).sum() for value in used)  # every input has another use
        result = call(*used)
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        weights: list[Tensor | None] = [values(*output.shape, seed=9 + i) for i, output in enumerate(outputs)]
        if len(outputs) > 1:
            weights[0] = None  # this output leads nowhere
        loss = sum(torch.dot(o.reshape(-1), w.reshape(-1)) for o, w in zip(outputs, weights) if w is not None)
        (loss + elsewhere).backward()
        found.stop()
        found.step()
    record, data = found.records()[f"{name}.0.backward"], saved(found)
    incoming = [value_of(data, leaf) for leaf in record["input"]]
    for got, wanted in zip(incoming, weights):
        if wanted is not None:
            assert got is not None and torch.equal(got, wanted)
    gradients = alone_gradients(call, inputs, weights)
    expected = order(gradients) if order else gradients
    outgoing = [value_of(data, leaf) for leaf in record["output"]]
    assert len(outgoing) == len(expected)
    for got, wanted in zip(outgoing, expected):
        assert got is not None and got.shape == wanted.shape
        assert torch.equal(got, wanted), (got - wanted).abs().max()


def test_a_square_has_two_halves(tmp_path: Path) -> None:
    """A node with two edges to one tensor gives each its share."""
    x = values(3).requires_grad_()
    found = once(tmp_path / "run", lambda: (x * x).sum().backward(), level="L1", task="tensor")
    shares = [value_of(saved(found), leaf) for leaf in found.records()["Tensor.__mul__.0.backward"]["output"]]
    assert len(shares) == 2
    assert shares[0] is not None and shares[1] is not None
    assert torch.equal(shares[0], x.detach()) and torch.equal(shares[1], x.detach())
    assert x.grad is not None and torch.equal(x.grad, shares[0] + shares[1])


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.one(x) * self.two(x) + self.one(x)


def test_modules_that_share_an_input(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Residual(), nn.Linear(4, 4))
    x = values(3, 4).requires_grad_()
    seen: dict[str, list[Tensor]] = {}

    def see(key: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Tensor) -> None:
            calls = seen.setdefault(key, [])
            place = len(calls)
            calls.append(output)
            output.register_hook(lambda gradient: calls.__setitem__(place, gradient.clone()))

        return hook

    handles = [getattr(model[0], name).register_forward_hook(see(name)) for name in ("one", "two")]
    found = once(
        tmp_path / "run", lambda: model(x).square().sum().backward(), model, level="L0", task="tensor"
    )
    for handle in handles:
        handle.remove()
    records, data = found.records(), saved(found)
    for name, calls in (("one", 2), ("two", 1)):
        for number in range(calls):
            record = records[f"Module.0.{name}.Linear.backward.{number}"]
            (incoming,), (outgoing,) = record["input"], record["output"]
            gradient = seen[name][number]
            assert torch.equal(torch.from_numpy(data[incoming["data_name"]]), gradient)
            alone = alone_gradients(getattr(model[0], name), [x.detach()], [gradient])[0]
            assert torch.equal(torch.from_numpy(data[outgoing["data_name"]]), alone)
    whole = data[records["Module.0.Residual.backward.0"]["output"][0]["data_name"]]
    assert x.grad is not None and torch.allclose(torch.from_numpy(whole), x.grad, rtol=1e-6, atol=1e-6)


class Remembers(nn.Module):
    """Uses what it was told before, beside its argument."""

    told: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.told.sin()


def test_what_a_module_uses_beside_its_arguments_is_not_theirs(tmp_path: Path) -> None:
    """What it was told comes from its argument too: that way does not lead through this call."""
    model = nn.Sequential(Remembers())
    x = values(3).requires_grad_()

    def work() -> None:
        hidden = x * 1.0
        model[0].told = hidden.exp()
        model(hidden).sum().backward()

    found = once(tmp_path / "run", work, model, level="L0", task="tensor")
    gradient = saved(found)["Module.0.Remembers.backward.0.output.0.pt"]
    assert torch.equal(torch.from_numpy(gradient), x.detach().exp().sin())
    assert x.grad is not None and not torch.equal(torch.from_numpy(gradient), x.grad)


def test_a_module_in_place_and_the_one_before_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    x = values(3, 4)
    found = once(tmp_path / "run", lambda: model(x).sum().backward(), model, level="L0", task="tensor")
    records, data = found.records(), saved(found)
    order = ["Module.2.Linear.backward.0", "Module.1.ReLU.backward.0", "Module.0.Linear.backward.0"]
    assert [name for name in records if ".backward." in name] == order
    hidden = model[0](x).detach()
    ones = torch.ones(3, 2) @ model[2].weight.detach()
    assert torch.equal(torch.from_numpy(data["Module.1.ReLU.backward.0.input.0.pt"]), ones)
    assert torch.equal(torch.from_numpy(data["Module.1.ReLU.backward.0.output.0.pt"]), ones * (hidden > 0))
    before = data["Module.1.ReLU.forward.0.input.0.pt"]
    assert torch.equal(torch.from_numpy(before), hidden)  # what came in, not what it became


def test_the_gradients_of_parameters(tmp_path: Path) -> None:
    model = net()
    model.block.up.bias.requires_grad_(False)
    found = once(tmp_path / "run", lambda: train(model), model, level="mix", task="tensor")
    records, data = found.records(), saved(found)
    for path, module in model.named_modules():
        for key, parameter in module.named_parameters(recurse=False):
            record = records[f"Module.{path}.{type(module).__name__}.parameters_grad"]
            if not parameter.requires_grad:
                assert key not in record
                continue
            (leaf,) = record[key]
            assert leaf["data_name"] == f"Module.{path}.{type(module).__name__}.parameters_grad.{key}.pt"
            assert data[leaf["data_name"]].tobytes() == raw(parameter.grad)  # type: ignore[arg-type]
    assert not any("block.Block.parameters_grad" in name for name in records)


def test_a_parameter_without_gradient_stays_null(tmp_path: Path) -> None:
    model = net()
    found = once(tmp_path / "run", lambda: model(X), model, level="L0")
    assert found.records()["Module.head.Linear.parameters_grad"] == {"weight": [None], "bias": [None]}


@pytest.mark.parametrize("stops_between", [False, True])
def test_gradient_accumulation(tmp_path: Path, stops_between: bool) -> None:
    """Forward and backward records of all micro batches; of a parameter, what the last one added."""
    model = net()
    with recording(tmp_path / "run", level="mix", task="tensor") as found:
        for micro in range(3):
            if micro == 0 or stops_between:
                found.start(model)
            train(model, X + micro)
            if micro == 2 or stops_between:
                found.stop()
        found.step()
    records, data = found.records(), saved(found)
    for direction in ("forward", "backward"):
        mine = sorted(name for name in records if name.startswith(f"Module.head.Linear.{direction}"))
        assert mine == [f"Module.head.Linear.{direction}.{i}" for i in range(3)]
        assert f"Functional.gelu.2.{direction}" in records
    other = net()
    train(other, X + 2)
    wanted = dict(other.named_parameters())["head.weight"].grad
    assert wanted is not None
    assert data["Module.head.Linear.parameters_grad.weight.pt"].tobytes() == raw(wanted)
    (leaf,) = records["Module.head.Linear.parameters_grad"]["weight"]
    assert np.float32(leaf["Max"]) == data[leaf["data_name"]].max()


def test_backward_passes_in_another_order_than_their_forwards(tmp_path: Path) -> None:
    model = net()

    def work() -> None:
        first, second = model(X).sum(), model(X * 2).sum() * 3
        second.backward()
        first.backward()

    found = once(tmp_path / "run", work, model, level="mix", task="tensor")
    order = [name for name in found.records() if name.startswith("Module.head.Linear.backward")]
    assert order == ["Module.head.Linear.backward.1", "Module.head.Linear.backward.0"]
    data = saved(found)
    assert data["Module.head.Linear.backward.1.input.0.pt"].max() == 3.0
    assert data["Functional.linear.2.backward.input.0.pt"].max() == 1.0


def test_a_graph_that_is_kept_is_recorded_once(tmp_path: Path) -> None:
    model = net()

    def work() -> None:
        loss = model(X).square().sum()
        loss.backward(retain_graph=True)
        (loss * 2).backward()

    found = once(tmp_path / "run", work, model, level="mix", task="tensor")
    text = (found.directory() / "dump.json").read_text()
    assert text.count('"Module.head.Linear.backward.0":') == 1
    assert saved(found)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_recomputation_is_marked(tmp_path: Path, level: str, reentrant: bool) -> None:
    model = net()

    def work() -> None:
        x = (X * 1.0).requires_grad_()
        hidden = checkpoint(model.block, x, use_reentrant=reentrant)
        model.head(hidden).sum().backward()

    found = once(tmp_path / "run", work, model, level=level)
    records = found.records()
    again = {name for name, record in records.items() if record.get("is_recompute") is True}
    apis = {"Functional.linear.3.forward", "Functional.gelu.1.forward"}
    modules = {"Module.block.Block.forward.1", "Module.block.up.Linear.forward.1"}
    wanted = (apis if level != "L0" else set()) | (modules if level != "L1" else set())
    assert wanted <= again
    first = {"Functional.linear.0.forward", "Functional.gelu.0.forward", "Module.block.Block.forward.0"}
    assert not first & again and not any("backward" in name or "head" in name for name in again)
    backward = "Functional.gelu.{}.backward" if level == "L1" else "Module.block.up.Linear.backward.{}"
    assert backward.format(1 if reentrant else 0) in records
    frames = {frame.split(",")[0] for name in again for frame in found.stacks()[name]}
    assert any(frame.endswith("/torch/utils/checkpoint.py") for frame in frames)
    assert not any("probe_pytorch" in frame for frame in frames)


# -- the tree and the stacks ------------------------------------------------------------------------


def test_the_parents_of_everything(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def work() -> None:
        train(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        optimizer.step()
        F.relu(X)

    found = once(tmp_path / "run", work, model, level="mix")
    parents, records = found.parents(), found.records()
    block, head = "Module.block.Block", "Module.head.Linear"
    for name, parent in {
        f"{block}.forward.0": None,
        f"{head}.forward.0": None,
        "Module.block.up.Linear.forward.0": f"{block}.forward.0",
        "Functional.linear.0.forward": "Module.block.up.Linear.forward.0",
        "Functional.gelu.0.forward": f"{block}.forward.0",
        "Functional.gelu.0.backward": f"{block}.backward.0",
        "Functional.linear.2.forward": f"{head}.forward.0",
        "Functional.linear.2.backward": f"{head}.backward.0",
        "Module.block.up.Linear.backward.0": f"{block}.backward.0",
        f"{block}.backward.0": None,
        "Tensor.square.0.forward": None,
        "Functional.relu.0.forward": None,
    }.items():
        assert name in parents and parents[name] == parent, name
    stacks = found.stacks()
    for pseudo, file in (("optimizer", "/torch/optim/"), ("clip_grad", "clip_grad.py")):
        inside = [name for name, parent in parents.items() if parent == pseudo]
        assert inside
        assert all(any(file in line for line in stacks[name]) for name in inside)
    assert {name for name in records if "parameters_grad" not in name} <= parents.keys()


def test_optimizer_and_clip_grad_are_nodes(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def work() -> None:
        train(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    parents = once(tmp_path / "run", work, model, level="mix").parents()
    assert all(parent is None or parent in parents for parent in parents.values())


def test_the_stack_names_the_line_of_the_user(tmp_path: Path) -> None:
    model = net()
    place = {}

    def work() -> None:
        frame = inspect.currentframe()
        assert frame is not None
        place["line"] = frame.f_lineno + 1
        F.silu(X)
        _ = X * 5 + X
        model(X)

    found = once(tmp_path / "run", work, model, level="mix")
    stacks, line = found.stacks(), place["line"]
    assert stacks["Functional.silu.0.forward"][0] == f"File {__file__}, line {line}, in work, \n F.silu(X)"
    for name in ("Tensor.__mul__.0.forward", "Tensor.__add__.0.forward"):
        assert stacks[name][0] == f"File {__file__}, line {line + 1}, in work, \n _ = X * 5 + X"
    linear = stacks["Functional.linear.0.forward"]
    assert "/torch/nn/modules/linear.py" in linear[0]
    mine = [frame for frame in linear if __file__ in frame]
    assert "in forward, \n return x + self.down(F.gelu(self.up(x)))" in mine[0]
    assert f"line {line + 2}, in work, \n model(X)" in next(frame for frame in mine if "in work" in frame)
    module = [frame for frame in stacks["Module.head.Linear.forward.0"] if __file__ in frame]
    assert "in forward, \n return self.head(self.block(x))" in module[0]
    assert not any("probe_pytorch/" in frame for frames in stacks.values() for frame in frames)
    assert not any("backward" in name for name in stacks)


def test_the_form_of_records(tmp_path: Path) -> None:
    model = net()
    found = once(tmp_path / "run", lambda: train(model), model, level="mix")
    records = found.records()
    forward = records["Module.head.Linear.forward.0"]
    assert list(forward) == ["input_args", "input_kwargs", "output", "parameters"]
    assert list(forward["parameters"]) == ["weight", "bias"]
    assert list(records["Functional.gelu.0.forward"]) == ["input_args", "input_kwargs", "output"]
    assert list(records["Functional.gelu.0.backward"]) == ["input", "output"]
    assert list(records["Module.block.Block.forward.0"]["parameters"]) == []
    leaf = forward["output"][0]
    assert list(leaf) == ["type", "dtype", "shape", "Max", "Min", "Mean", "Norm", "requires_grad"]
    assert leaf["requires_grad"] is True and forward["input_args"][0]["shape"] == [3, 4]


# -- by way of the class ----------------------------------------------------------------------------


def test_methods_on_the_class_mean_the_one_debugger(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        PrecisionDebugger.set_init_step(3)
        PrecisionDebugger.start()
        F.relu(X)
        PrecisionDebugger.stop()
        PrecisionDebugger.step()
    assert list(found.records(3)) == ["Functional.relu.0.forward"]


@pytest.mark.parametrize("name", ["start", "stop", "step", "forward_backward_dump_end", "module_dump_end"])
def test_without_a_debugger_methods_say_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrecisionDebugger, "_instance", None)
    with pytest.raises(UserError, match=f"{name}.. is called without a debugger"):
        getattr(PrecisionDebugger, name)()
    assert getattr(PrecisionDebugger, "__doc__")  # noqa: B009


def test_one_of_several_processes_that_have_not_met_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        F.relu(X)
        found.stop()
    assert [path.name for path in (found.path / "step0").iterdir()] == ["rank3"]
