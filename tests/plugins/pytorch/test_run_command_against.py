"""``probe run --against``, and the same by the configuration of a debugger."""

from __future__ import annotations

import json
import re
import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_pytorch import PrecisionDebugger
from probe_pytorch.reader import PyTorchReader
from support.runs.scripts import in_a_place_of_its_own, records, script  # noqa: F401
from torch import nn

TRAIN = """\
    import sys
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            h = self.up(x)
            if "insert" in sys.argv:
                torch.add(h, 1.0)
            h = torch.add(h, 0.25)
            if "fault" in sys.argv:
                h = torch.mul(h, 1.01)
            h = F.relu(h, inplace=True)
            return self.down(torch.add(h, 0.5))

    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(2):
        for micro in range(2):
            loss = model(torch.randn(3, 4)).square().mean()
            loss.backward()
        if "fail" in sys.argv and step:
            raise ValueError("broken")
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item().hex())
"""
STEPS = range(2)


@pytest.fixture(params=["statistics", "md5", "xxh3", "tensor"])
def golden(request: pytest.FixtureRequest, probe: Any) -> str:
    """Record a golden of each kind, and return its directory."""
    script(TRAIN)
    task = "tensor" if request.param == "tensor" else "statistics"
    section = {} if task == "tensor" else {"summary_mode": request.param}
    Path("golden.json").write_text(json.dumps({"task": task, "level": "mix", "dump_path": "golden", task: section}))
    assert probe("run", "--config", "golden.json", "--step", "0,1", "train.py") == 0
    return "golden"


def list_kept(path: str) -> list[tuple[int, str]]:
    return [
        (step, key)
        for step in STEPS
        if Path(path, f"step{step}").is_dir()
        for key, fields in records(path, step)["data"].items()
        if '"data_name"' in json.dumps(fields)
    ]


def read_tensors(path: str, step: int, key: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return the tensors of a record by the ends of their rows' names."""
    run = PyTorchReader().open(Path(path, f"step{step}", "rank", "dump.json"))
    index = run.find(key)
    assert index is not None
    slots = [slot for slot in run.record(index).slots if slot.value.data_name is not None]
    return {slot.name: np.array(run.tensor(slot.value)) for slot in slots}


def test_equal_runs_keep_no_tensors(golden: str, probe: Any) -> None:
    for number in range(3):
        assert probe("run", "--against", golden, "-o", f"run{number}", "train.py") == 0
        assert list_kept(f"run{number}") == []
        assert not [*Path(f"run{number}").rglob("*.safetensors"), *Path(f"run{number}").glob("*.json")]
    assert re.search(r"probe: \d+ compared records agree with golden, so no tensors were kept\.", probe.err)


def test_the_same_is_recorded_as_without_a_golden(golden: str, probe: Any) -> None:
    assert probe("run", "--against", golden, "-o", "run", "train.py") == 0
    for step in STEPS:
        one, other = (records(path, step)["data"] for path in ("run", golden))
        without_names = re.sub(r', "data_name": "[^"]*"', "", json.dumps(other))
        assert json.dumps(one) == without_names


def test_an_inserted_call_shifts_nothing(golden: str, probe: Any) -> None:
    assert probe("run", "--against", golden, "-o", "run", "train.py", "insert") == 0
    assert len(records("run")["data"]) > len(records(golden)["data"])
    assert list_kept("run") == [] and "4 records have no partner in the golden" in probe.err


def test_the_first_calls_that_differ_keep_their_tensors(golden: str, probe: Any) -> None:
    assert probe("run", "train.py", "fault") == 0
    out = probe.out
    assert probe("run", "--against", golden, "-o", "run", "train.py", "fault") == 0
    assert probe.out == out  # the losses have the same bits
    kept = list_kept("run")
    assert kept == [(0, "Torch.mul.0.forward"), (0, "Functional.relu.0.forward"), (0, "Torch.add.1.forward"),
                    (0, "Functional.linear.1.forward")]  # fmt: skip
    assert "step0 Torch.mul.0.forward  (not in the golden)" in probe.err
    assert probe("run", "--task", "tensor", "-o", "full", "--step", "0", "train.py", "fault") == 0
    for step, key in kept:
        tensors, expected = (read_tensors(path, step, key) for path in ("run", "full"))
        assert tensors.keys() == expected.keys() and len(tensors) >= 2
        assert all(np.array_equal(tensors[name], expected[name]) for name in tensors)


def test_keep_chooses_the_number_of_calls(golden: str, probe: Any) -> None:
    assert probe("run", "--against", golden, "--keep", 1, "-o", "run", "train.py", "fault") == 0
    assert list_kept("run") == [(0, "Torch.mul.0.forward"), (0, "Functional.relu.0.forward")]


def test_the_printed_commands_keep_the_same_calls_of_the_golden(golden: str, probe: Any) -> None:
    assert probe("run", "--against", golden, "-o", "run", "train.py", "fault") == 0
    commands = [shlex.split(line)[1:] for line in probe.err.splitlines() if line.startswith("  probe ")]
    assert [command[0] for command in commands] in (["compare"], ["run", "compare"])
    for command in commands:
        assert probe(*command) == 0
    assert probe.out.startswith(("DIVERGED: ", "CANNOT TELL: ")) and "Torch.mul.0.forward" in probe.out
    if commands[0][0] == "run":
        assert {key for _, key in list_kept("golden-tensors")} == {"Torch.add.1.forward", "Functional.linear.1.forward",
                                                                      "Functional.relu.0.forward"}  # fmt: skip
        before, after = (read_tensors(path, 0, "Torch.add.1.forward") for path in ("golden-tensors", "run"))
        assert before.keys() == after.keys() and not np.array_equal(*(list(t.values())[-1] for t in (before, after)))


def test_kept_calls_are_computed_again(probe: Any) -> None:
    script(TRAIN)
    assert probe("run", "-o", "golden", "--step", "0,1", "train.py") == 0
    assert probe("run", "--against", "golden", "-o", "run", "train.py", "fault") == 0
    assert probe("explain", "run", "-o", "out") == 0
    assert "computed again: 4 of 8 records" in probe.out


def test_an_exception_of_the_script_leaves_what_is_kept(probe: Any) -> None:
    script(TRAIN)
    assert probe("run", "-o", "golden", "--step", "0,1", "train.py") == 0
    assert probe("run", "--against", "golden", "-o", "run", "train.py", "fault", "fail") == 1
    assert len(list_kept("run")) == 4 and "keep their tensors" in probe.err
    assert read_tensors("run", 0, "Torch.add.1.forward")


def test_each_rank_is_compared_with_its_own(probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script(TRAIN.replace("manual_seed(0)", "manual_seed(int(__import__('os').environ['RANK']))"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        assert probe("run", "-o", "golden", "--replace", "--step", "0,1", "train.py") == 0
    for rank in "10":
        monkeypatch.setenv("RANK", rank)
        assert probe("run", "--against", "golden", "-o", "run", "--replace", "train.py") == 0
        assert "agree with golden" in probe.err
    monkeypatch.setenv("RANK", "1")
    assert probe("run", "--against", "golden", "-o", "run", "--replace", "train.py", "fault") == 0
    assert Path("run/same_calls_rank1.json").is_file() and not Path("run/same_calls_rank0.json").exists()


def test_steps_that_the_golden_lacks_are_named(probe: Any) -> None:
    script(TRAIN)
    assert probe("run", "-o", "golden", "--step", "0", "train.py") == 0
    assert probe("run", "--against", "golden", "-o", "run", "--step", "all", "train.py") == 0
    assert "the golden does not have this rank in step 1, so nothing was compared there" in probe.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--against", "missing"], "missing"),
        (["--against", "golden", "--level", "L1"], "recorded at level mix, and this run would be recorded at level L1"),
        (["--against", "golden", "--double"], "in float64 (--double)"),
        (["--against", "golden", "--task", "structure"], "--against compares statistics"),
        (["--against", "golden", "--keep", "0"], "--keep must be a positive number"),
        (["--against", "golden", "--step", "7"], "none of the steps"),
        (["--against", "golden", "--keep-last", "3"], "--against and --keep-last exclude each other"),
        (["--against", "golden", "--send-to", "there"], "calls are sent with task tensor"),
        (["--keep", "3"], "--keep belongs to --against"),
    ],
)
def test_mistakes_end_before_the_script_starts(probe: Any, options: list[str], message: str) -> None:
    script("print('started')")
    Path("t.py").write_text("import torch\ntorch.ones(2).add(1)\n")
    Path("there").mkdir()
    assert probe("run", "-o", "golden", "--step", "0", "t.py") == 0
    assert probe("run", *options, "-o", "run", "train.py") == 2
    assert message in probe.err and "started" not in probe.out and "Traceback" not in probe.err


def test_a_damaged_golden_ends_before_the_script_starts(probe: Any) -> None:
    script("print('started')")
    Path("t.py").write_text("import torch\ntorch.ones(2).add(1)\n")
    assert probe("run", "-o", "golden", "--step", "0", "t.py") == 0
    file = Path("golden/step0/rank/dump.json")
    file.write_text(file.read_text()[:-40])
    assert probe("run", "--against", "golden", "-o", "run", "train.py") == 2
    assert "dump.json cannot be read: the file ends" in probe.err and "started" not in probe.out


# -- the debugger -----------------------------------------------------------------------------------


@pytest.fixture
def alone() -> Iterator[None]:
    PrecisionDebugger._instance = None
    yield
    PrecisionDebugger._instance = None


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("task", ["diff_check", "tensor", "statistics"])
def test_the_fields_of_a_configuration(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.ones(2, 4)

    def run(**config: Any) -> None:
        Path("config.json").write_text(json.dumps({"level": "L1", **config}))
        PrecisionDebugger._instance = None
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            debugger = PrecisionDebugger("config.json")
        with debugger:
            model(x).sum().backward()
        debugger._recorder.finish()

    run(task="statistics", dump_path="golden", statistics={"summary_mode": "md5"})
    with torch.no_grad():
        model[2].weight.add_(1.0)
    run(task=task, dump_path="run", **{task: {"bench_path": "golden", "diff_nums": 2, "summary_mode": "md5"}})
    header = records("run")
    assert header["task"] == "statistics"
    kept = [key for key, fields in header["data"].items() if '"data_name"' in json.dumps(fields)]
    assert kept == ["Functional.linear.1.forward", "Tensor.sum.0.forward"]
    assert "2 calls differ from golden and keep their tensors" in capsys.readouterr().err
