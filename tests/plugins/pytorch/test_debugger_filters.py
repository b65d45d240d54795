"""``PrecisionDebugger``: filters and values of records."""

from __future__ import annotations

import itertools
import math
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import xxhash
from support.programs.training import raw
from support.runs.debugged import (
    X,
    alone,  # noqa: F401
    net,
    once,
    saved,
    train,
)
from support.runs.recording import Recording
from torch.nn import functional as F

from probe_core.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore:.*requires_grad=True:UserWarning")


def leaves(tree: Any) -> Iterator[dict[str, Any]]:
    """The tensor leaves of records."""
    if isinstance(tree, dict) and "dtype" in tree and "shape" in tree:
        yield tree
    elif isinstance(tree, (dict, list)):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(item)


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
            itertools.combinations(("forward", "backward", "input", "output"), count) for count in (1, 2, 3, 4)
        ),
    ],
)
def test_data_mode(tmp_path: Path, level: str, mode: tuple[str, ...]) -> None:
    model = net()
    found = once(tmp_path / "run", lambda: train(model), model, level=level, statistics={"data_mode": list(mode)})
    directions, sides = completed(mode)
    records = found.records()
    for direction, place in (("forward", 0), ("backward", 1)):
        mine = [records[name] for name in records if f".{direction}" in name]
        assert bool(mine) == (direction in directions)
        for record in mine:
            for side, fields in SIDES.items():
                assert (fields[place] in record) == (side in sides), (direction, side)
            assert ("input_kwargs" in record) == (direction == "forward" and "input" in sides)
    modules = [record for name, record in records.items() if name.startswith("Module") and ".forward." in name]
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
    found = once(tmp_path / "run", lambda: train(model), model, level="mix", statistics={"list": ["Block.forward"]})
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
        level: [name.rsplit(".", 2)[0] for name in once(tmp_path / level, work, level="L1", risk_level=level).records()]
        for level in ("ALL", "FOCUS", "CORE")
    }
    assert {"Functional.linear", "Functional.relu", "Tensor.reshape"} <= {*names["ALL"]}
    assert {"Functional.linear", "Functional.relu"} <= {*names["FOCUS"]} and "Tensor.reshape" not in names["FOCUS"]
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
    found = once(tmp_path / "run", lambda: torch.atleast_1d(value), level="L1", statistics={"summary_mode": asked})
    (leaf,) = found.records()["Torch.atleast_1d.0.forward"]["input_args"]
    data = raw(value.resolve_conj().contiguous())
    wanted = f"{zlib.crc32(data):08x}" if asked == "md5" else f"{xxhash.xxh3_64_intdigest(data):016x}"
    assert leaf["md5"] == wanted
    assert "data_name" not in leaf and leaf["Max"] is not None


def test_checksums_of_nothing(tmp_path: Path) -> None:
    found = once(tmp_path / "run", lambda: F.relu(torch.ones(0, 3)), level="L1", statistics={"summary_mode": "md5"})
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
    assert leaf["Norm"] == pytest.approx(abs(float(exact)) if not value.ndim else float(exact.norm()), rel=1e-12)
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

    found = once(tmp_path / "run", work, level="L1", task="tensor", async_dump=True, tensor={"list": ["relu"]})
    assert saved(found)["Functional.relu.0.forward.input.0.pt"].tolist() == [1.0, 1.0, 1.0]


def test_asynchronous_recording_has_its_limits(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="async_dump"):
        Recording(tmp_path / "a", level="L1", async_dump=True, statistics={"summary_mode": "md5"})
    with pytest.raises(UserError, match="async_dump"):
        Recording(tmp_path / "b", level="L1", async_dump=True, task="tensor")


def test_a_list_selects_by_a_regular_expression(tmp_path: Path) -> None:
    section = {"list": [r"name-regex(^Functional\.(relu|gelu)\.1\.forward$)"]}

    def work() -> None:
        for function in (F.relu, F.gelu, F.silu):
            function(X), function(X)

    found = once(tmp_path / "run", work, level="L1", statistics=section)
    assert list(found.records()) == ["Functional.relu.1.forward", "Functional.gelu.1.forward"]


def test_recording_without_records_says_why_at_the_end_and_in_its_header(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys, "last_value", raising=False)
    found = once(tmp_path / "run", lambda: F.relu(X), level="L1", statistics={"list": ["Functional.rleu"]})
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "nothing was recorded" in line]
    sentence = (
        'no record has a name that matches "Functional.rleu" in "list" (the nearest name is Functional.relu.0.forward).'
    )
    assert line == f"probe: nothing was recorded: {sentence}"
    head = found.head()
    assert head["data"] == {} and head["probe"]["nothing_recorded"] == sentence
