"""The plugin of docs/plugins.md is made as the page says, installed, used and tested."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from support.programs import preloaded
from test_pages import ROOT, blocks

from probe_core.model import Op, Pair, Row, Slot, Value
from probe_core.model.measure import OpenPair

PAGE = ROOT / "docs" / "plugins.md"
LABEL = "Accuracy Reached or Not"
SCRIPT = "show"
NAMES = (
    "hooks",
    "reader",
    SCRIPT,
    "names",
    "matcher",
    "view",
    "metric",
    "policy",
    "judge",
    "reporter",
    "executor",
)


def table(directory: Path) -> list[list[str]]:
    """The lines of the table in a directory, cell by cell; the verdict of the last line left out."""
    *lines, verdict = next(directory.glob("*.tsv")).read_text("utf-8").splitlines()
    assert re.match("# (DIVERGED|AGREE)", verdict)
    return [line.split("\t") for line in lines]


def described(directory: Path, name: str, array: torch.Tensor) -> dict[str, Any]:
    """A tensor as a dump.json of PyTorch holds it, its data beside."""
    torch.save(array, directory / "dump_tensor_data" / f"{name}.pt")
    shape = list(array.shape)
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": shape, "data_name": f"{name}.pt",
            "requires_grad": False}  # fmt: skip


def make_pytorch_run(directory: Path) -> None:
    """The run that the page speaks of: a difference, a sum along an axis, a Linear that gives 2.25 for 2."""
    (directory / "dump_tensor_data").mkdir(parents=True)
    calls: dict[str, dict[str, list[Any]]] = {
        "Torch.sub.0.forward": {"input_args": [[5, 5], [1, 2]], "output": [[4, 3]]},
        "Torch.sum.0.forward": {"input_args": [[[1, 2], [3, 4]], 0], "output": [[4, 6]]},
        "Module.fc.Linear.forward.0": {"input_args": [[1, 2]], "output": [[2.25]]},
    }
    sides = {"input_args": "input", "output": "output"}
    data: dict[str, dict[str, Any]] = {
        key: {
            side: [
                described(directory, f"{key}.{sides[side]}.{place}", torch.tensor(item, dtype=torch.float32))
                if isinstance(item, list)
                else {"type": "int", "value": item}
                for place, item in enumerate(items)
            ]
            for side, items in call.items()
        }
        for key, call in calls.items()
    }
    key = "Module.fc.Linear.forward.0"
    weight = described(directory, f"{key}.parameters.weight", torch.tensor([[1, 0.5]]))
    data[key]["parameters"] = {"weight": weight}
    head = {"task": "tensor", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
    (directory / "dump.json").write_text(json.dumps({**head, "data": data}))


def done_by(said: dict[str, str], part: str) -> str:
    """Return the output of the one command whose line holds ``part``."""
    (text,) = (text for line, text in said.items() if part in line)
    return text


def check_names(directory: Path, said: str) -> None:
    """The name rule of the page pairs the page's run with that of PyTorch, value by value."""
    head, *rows = table(directory)
    partners = {row[head.index("NPU Name")]: row[head.index("Bench Name")] for row in rows}
    assert partners == {
        "Functional.subtract.0.forward.input.0": "Torch.sub.0.forward.input.1",
        "Functional.subtract.0.forward.input.1": "Torch.sub.0.forward.input.0",
        "Functional.subtract.0.forward.output.0": "Torch.sub.0.forward.output.0",
        "Functional.total.0.forward.input.0": "Torch.sum.0.forward.input.1",
        "Functional.total.0.forward.input.1": "Torch.sum.0.forward.input.0",
        "Functional.total.0.forward.output.0": "Torch.sum.0.forward.output.0",
        "Module.fc.Dense.forward.0.input.0": "Module.fc.Linear.forward.0.input.0",
        "Module.fc.Dense.forward.0.parameters.w": "Module.fc.Linear.forward.0.parameters.weight",
        "Module.fc.Dense.forward.0.output.0": "Module.fc.Linear.forward.0.output.0",
    }
    assert "calls are paired by the names in mine-to-pytorch" in said
    assert "note: my Dense rounds its weight" in said and "1 fail, 0 to check, 7 pass, 1 not" in said


def test_the_plugin_of_the_page(tmp_path: Path) -> None:
    package, site = tmp_path / "probe-mine" / "probe_mine", tmp_path / "site"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "pyproject.toml").write_text(blocks(PAGE, "toml")[0])
    *modules, tests = blocks(PAGE, "python")
    for name, code in zip(NAMES, modules, strict=True):
        path = "show.py" if name == SCRIPT else f"probe_mine/{name}.py"
        assert f"`{path}`" in PAGE.read_text("utf-8")
        (tmp_path / path if name == SCRIPT else package.parent / path).write_text(code)
    (package.parent / "tests").mkdir()
    (package.parent / "tests" / "test_mine.py").write_text(tests)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
         "--target", site, package.parent], check=True)  # fmt: skip
    for side, name, number, slope in (("target", "add", 5, 0.0625), ("golden", "sum", 4, 0.25)):
        (tmp_path / side).mkdir()
        calls = {
            "Functional.relu.0.forward": {
                "input": {"0": [1, 2], "slope": slope, "inplace": True},
                "output": [[1, 2], None],
            },
            f"Functional.{name}.0.forward": {"input": [[1, 2]], "output": [[3, number]]},
            "Functional.dropout.0.forward": {
                "input": [[1, 2]],
                "output": [[0, number]],
                "stack": ["File train.py, line 7, in step, \n y = dropout(x)"],
            },
        }
        (tmp_path / side / "run.json").write_text(json.dumps({"calls": calls}))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.json").write_text(blocks(PAGE, "json")[0])
    make_pytorch_run(tmp_path / "pytorch")

    plugins = "mine,metrics,reporters,matching,ranks,pytorch,diagnosis,check"
    environment = {**os.environ, "PYTHONPATH": str(site), "PROBE_PLUGINS": plugins}
    starts = {"python": [sys.executable], "probe": [sys.executable, "-m", "probe_core.cli"]}

    def call(line: str) -> subprocess.CompletedProcess[str]:
        first, *rest = shlex.split(line)
        command = [*starts[first], *rest]
        return preloaded.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    said = {}
    install, *lines = blocks(PAGE, "bash")[0].splitlines()
    assert install == "pip install --no-deps ./probe-mine"  # as above, but into a directory of its own
    for line in lines:
        done = call(line)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        said[line] = done.stdout
    assert "Torch.sub.0.forward.input.0 [5.0, 5.0]" in said["python show.py"]
    head, *rows = table(tmp_path / "renamed")
    partners = {row[head.index("NPU Name")]: row[head.index("Bench Name")] for row in rows}
    assert partners["Functional.add.0.forward.input.0"] == "Functional.sum.0.forward.input.0"
    check_names(tmp_path / "across", done_by(said, "across"))

    head, *rows = table(tmp_path / "out")
    found = {row[head.index("NPU Name")]: dict(zip(head, row)) for row in rows}
    different = found["Functional.add.0.forward.output.0"]
    assert different["Bench Name"] == "Functional.sum.0.forward.output.0" and different[LABEL] == "No"
    assert round(float(different["P99"]), 9) == 0.9  # 0 and 1 apart: of two differences the 90th percentile
    mask = found["Functional.dropout.0.forward.output.0"]
    assert mask["Err_message"] == "Random mask: dropout."
    assert "File train.py, line 7, in step" in found["Functional.dropout.0.forward.input.0"]["NPU_Stack_Info"]
    argument = found["Functional.relu.0.forward.input.slope"]
    assert (argument[LABEL], argument["NPU Dtype"]) == ("No", "<class 'float'>")
    equal = {name: row["Bitwise equal"] for name, row in found.items()}
    assert {name for name, cell in equal.items() if cell == "False"} == {
        "Functional.add.0.forward.output.0",
        "Functional.dropout.0.forward.output.0",
    }
    assert sorted(name for name, cell in equal.items() if cell == "unsupported") == [
        "Functional.relu.0.forward.input.inplace",
        "Functional.relu.0.forward.input.slope",
        "Functional.relu.0.forward.output.1",
    ]
    last = done_by(said, "-o out")
    assert "2 fail, 0 to check, 4 pass, 3 not measured" in last  # the judge skips the mask
    assert last.startswith("DIVERGED: Functional.add.0.forward returns values that differ, although its inputs")
    argument_text = "was called with a different argument (input.slope: 0.0625 against 0.25)"
    assert re.search(rf"^  2\. Functional\.relu\.0\.forward .*\n +{re.escape(argument_text)}", last, re.MULTILINE)
    assert "Functional.dropout" not in last.partition("compared:")[0], "the judge skips the mask"
    assert (
        "not compared: 1 value that the judge of a plugin excluded; the first is Functional.dropout.0.forward.output.0"
        in last
    )

    for given, message in (("q=101", "takes q from 0 to 100, not 101."), ("q=x", "must be a number"),
                           ("p=1", 'no parameter "p"')):  # fmt: skip
        done = call(f"probe compare target golden -o refused --metric p99:{given}")
        assert done.returncode == 2 and message in done.stderr, done.stderr
        assert "failed" not in done.stderr  # the plugin is not blamed

    tested = call(blocks(PAGE, "bash")[1].splitlines()[1])
    assert tested.returncode == 0, tested.stdout
    assert re.search(r"49 passed", tested.stdout), tested.stdout


def members(kind: type) -> set[str]:
    """Return the public fields and properties of a class, without former names."""
    fields = getattr(kind, "_fields", None) or getattr(kind, "__dataclass_fields__", {})
    properties = {name for name, value in vars(kind).items() if isinstance(value, property)}
    return {name for name in {*fields, *properties} if not name.startswith("_") and name not in ("how", "was")}


def test_plugins_page_lists_every_field_that_plugins_see() -> None:
    section = PAGE.read_text("utf-8").partition("## What plugins see\n")[2].partition("\n## ")[0]
    listed: dict[str, set[str]] = {}
    name = ""
    for line in section.splitlines():
        if line.startswith("| ") and not line.startswith("| object"):
            first, fields = line.split(" | ")[:2]
            name = first.strip("| ").partition("`,")[0].strip("`") or name
            listed.setdefault(name, set()).update(re.findall(r"`(\w+)", fields))
    for kind in (Op, Row, Pair, Slot, Value):
        assert listed[kind.__name__] == members(kind), kind.__name__
    assert listed["OpenPair"] <= {*dir(OpenPair), "pair", "mode", "obstacle"}
