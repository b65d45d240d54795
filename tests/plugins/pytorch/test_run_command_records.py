"""``probe run``: its records, its last words, and disks that fail."""

from __future__ import annotations

import errno
import json
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from probe_pytorch.reader import PyTorchReader
from support.faults.failing_writes import FailingWrites
from support.programs import preloaded
from support.programs.interrupts import let_interrupts_in
from support.programs.preloaded import PreloadedPopen
from support.runs.scripts import (
    TRAIN,
    filled_steps,
    in_a_place_of_its_own,  # noqa: F401
    names,
    records,
    script,
)

# -- what is recorded -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "recorded"), [("1", [1]), ("0,3", [0, 3]), ("1-2,4", [1, 2, 4]), ("all", [0, 1, 2, 3, 4])]
)
def test_steps(probe: Any, steps: str, recorded: list[int]) -> None:
    assert probe("run", "-o", "run", "--step", steps, script(TRAIN)) == 0
    assert filled_steps("run") == recorded


def test_options_come_before_the_configuration(probe: Any) -> None:
    fields = {"dump_path": "no", "task": "tensor", "level": "L0", "step": [1], "tensor": {"list": ["inear"]}}
    Path("config.json").write_text(json.dumps(fields))
    path = script(TRAIN)
    assert probe("run", "-c", "config.json", path) == 0
    assert (records("no", 1)["task"], records("no", 1)["level"], filled_steps("no")) == ("tensor", "L0", [1])
    assert all("Linear" in name for name in names("no", 1))
    assert probe("run", "-c", "config.json", "-o", "yes", "--level", "L1", "--step", "0,2", path) == 0
    assert (records("yes")["task"], records("yes")["level"], filled_steps("yes")) == ("tensor", "L1", [0, 2])
    assert all("linear" in name for name in names("yes", 2))
    assert probe("run", "-c", "config.json", "-o", "all", "--step", "all", "--task", "statistics", path) == 0
    assert (records("all")["task"], records("all")["level"]) == ("statistics", "L0")
    assert filled_steps("all") == [0, 1, 2, 3, 4]


GAN = """\
    import torch
    from torch import nn

    torch.manual_seed(0)
    maker = nn.ModuleDict({"net": nn.Linear(2, 4)})
    class Maker(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 4)
        def forward(self, x):
            return torch.tanh(self.layer(x))
    class Judge(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 1)
        def forward(self, x):
            return torch.sigmoid(self.layer(x))
    maker, judge = Maker(), Judge()
    of_judge = torch.optim.SGD(judge.parameters(), lr=0.1)
    of_maker = torch.optim.Adam(maker.parameters(), lr=0.1)
    for _ in range(4):
        for _ in range(2):  # the judge is the first to step
            judge(maker(torch.ones(3, 2)).detach()).mean().backward()
        of_judge.step()
        judge(maker(torch.ones(3, 2))).mean().backward()
        of_maker.step()
"""


def test_steps_end_with_the_first_optimizer(probe: Any) -> None:
    assert probe("run", "-o", "run", "--step", "all", "--level", "L0", script(GAN)) == 0
    assert filled_steps("run") == [0, 1, 2, 3, 4]
    calls = [sum("forward" in name for name in names("run", step)) for step in range(5)]
    assert calls == [4, 6, 6, 6, 2]  # two rounds of two, then those behind the step too
    assert names("run", 0)[0] == "Module.layer.Linear.forward.0"
    assert "Module.1.layer.Linear.forward.1" in names("run", 0)  # the second model that was called
    gradients = records("run", 4)["data"]["Module.layer.Linear.parameters_grad"]
    assert gradients["weight"] != [None]


def test_a_script_without_an_optimizer(probe: Any) -> None:
    path = script("import torch\nfor i in range(3):\n    torch.relu(torch.ones(2))\n")
    assert probe("run", "-o", "run", "--level", "L1", path) == 0
    assert "probe recorded step 0 (" in probe.err and "are the default" not in probe.err
    assert "warning: no optimizer of torch stepped, so everything the script did is in step 0." in probe.err
    assert "PrecisionDebugger" in probe.err
    assert [name for name in names("run") if "relu" in name] == [f"Torch.relu.{i}.forward" for i in range(3)]


def test_a_script_without_torch(probe: Any) -> None:
    assert probe("run", "-o", "run", script("print(1 + 1)\n")) == 0
    assert probe.out == "2\n" and "the program made no call that level mix records" in probe.err
    assert "optimizer" not in probe.err and "that is, or" not in probe.err


@pytest.mark.parametrize(
    "line, code, ended_with", [("[][0]", 1, "IndexError"), ("raise SystemExit('no data')", 1, "SystemExit")]
)
def test_a_script_that_ends_before_its_first_call(line: str, code: int, ended_with: str, probe: Any) -> None:
    assert probe("run", "-o", "run", script(f"import torch\n{line}\ntorch.ones(2) + 1\n")) == code
    assert f"nothing was recorded: {ended_with} ended the script before a selected step had a " in probe.err
    assert "Check --step and --level" not in probe.err


def test_no_step_is_left_that_holds_nothing(probe: Any) -> None:
    path = script(TRAIN.replace("range(5)", "range(2)"))
    assert probe("run", "-o", "run", path) == 0
    assert sorted(found.name for found in Path("run").iterdir()) == ["step0", "step1"]


def test_a_script_that_copies_and_saves_its_model(probe: Any) -> None:
    path = script("""\
        import copy, io, pickle
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 2)

            def forward(self, x):
                return self.layer(x)

        model, x = Net(), torch.ones(1, 2)
        expected = model(x)
        mean = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for twin in (mean, pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
            assert type(twin) is Net and torch.equal(twin(x), expected)
    """)
    assert probe("run", "-o", "run", path) == 0, probe.err
    assert "Module.layer.Linear.forward.0" in names("run")


def test_a_script_that_loads_with_workers(probe: Any) -> None:
    path = script("""\
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Items(Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, index):
                return torch.full((2,), float(index)) * 2

        for batch in DataLoader(Items(), batch_size=2, num_workers=2):
            print(batch.sum().item())
    """)
    assert probe("run", "-o", "run", path) == 0, probe.err
    assert probe.out.split() == ["4.0", "20.0", "36.0", "52.0"]
    assert [name for name in names("run") if "stack" in name] == []
    assert [name for name in names("run") if "Tensor.sum" in name] == [f"Tensor.sum.{i}.forward" for i in range(4)]


# -- what it says in the end ------------------------------------------------------------------------


def test_the_command_that_it_names_works(probe: Any) -> None:
    path = script(TRAIN)
    assert probe("run", "-o", "runs/one", "--task", "tensor", path) == 0
    assert "no optimizer" not in probe.err
    told = probe.err.splitlines()
    assert "Steps 0-2 are the default; others with --step, such as --step 0,5-7." in told
    assert re.fullmatch(r"probe recorded steps 0 to 2 \([\d,]+ records of level mix, task tensor\) into runs/one",
                        next(line for line in told if line.startswith("probe recorded")))  # fmt: skip
    (command,) = [line for line in told if line.startswith("  probe compare")]
    path.write_text(path.read_text().replace("F.gelu(", "F.relu("))
    assert probe("run", "-o", "runs/two", "--task", "tensor", path) == 0
    program, *arguments = shlex.split(command.replace("OTHER", "runs/two"))
    assert program == "probe"
    assert probe(*arguments) == 0, probe.err
    assert "only in the target" in probe.out and list(Path("out").iterdir())


def test_a_task_that_cannot_be_compared_names_no_command(probe: Any) -> None:
    assert probe("run", "-o", "run", "--task", "structure", script(TRAIN)) == 0
    assert "probe compare" not in probe.err and "probe recorded" in probe.err


# -- in processes of their own ----------------------------------------------------------------------


SEEDED = """\
    import random
    import numpy
    import torch
    x = torch.rand(3) * random.random() * float(numpy.random.rand())
    torch.nn.functional.dropout(x)
    print(x.tolist(), torch.are_deterministic_algorithms_enabled())
"""
COMPILED = """\
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return torch.relu(self.layer(x))

    model = torch.compile(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
"""
SEVERAL = """\
    import sys
    from probe_core.cli.main import run
    sys.exit(max(run(line.split()) for line in sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A process in which several scripts are recorded, where nothing is seeded or compiled before."""
    root = tmp_path_factory.mktemp("apart")
    (root / "compiled.py").write_text(textwrap.dedent(COMPILED))
    (root / "seeded.py").write_text(textwrap.dedent(SEEDED))
    commands = ["run -o compiled compiled.py"]
    commands += [f"run -o seed{i} --task tensor --level L1 --seed {seed} seeded.py" for i, seed in enumerate((7, 7, 8))]
    done = preloaded.run(
        [sys.executable, "-c", textwrap.dedent(SEVERAL), *commands],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return root, done.stdout


def test_a_seed_makes_two_runs_equal(apart: tuple[Path, str], probe: Any) -> None:
    root, out = apart
    first, again, other = out.splitlines()
    assert first == again != other and first.endswith("True")
    one, two, three = (records(root / f"seed{i}")["data"] for i in range(3))
    assert one == two != three
    assert probe("compare", root / "seed0" / "step0", root / "seed1" / "step0", "-o", "out") == 0
    assert probe.out.startswith("AGREE: equal in all 8 values that both runs recorded\n")
    files = [(root / f"seed{i}/step0/rank/dump_tensor_data/tensors.safetensors").read_bytes() for i in (0, 1)]
    assert files[0] == files[1]


def test_a_compiled_model_is_recorded(apart: tuple[Path, str]) -> None:
    found = names(apart[0] / "compiled")
    assert {"Module.layer.Linear.forward.0", "Functional.linear.0.forward", "Torch.relu.0.backward"} <= {*found}
    assert names(apart[0] / "compiled", 1)


ENDLESS = TRAIN.replace("range(5)", "range(10**9)").replace("print(step, ", "print(step, flush=True) or (")


def test_interrupted_from_the_keyboard() -> None:
    path = script(ENDLESS)
    command = [
        sys.executable,
        "-m",
        "probe_core.cli",
        "run",
        "-o",
        "run",
        "--step",
        "all",
        "--task",
        "tensor",
        path,
    ]
    pipe = subprocess.PIPE
    with PreloadedPopen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=let_interrupts_in) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "4":
                break
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted" in error and "Traceback" not in error and "probe recorded steps 0 to" in error
    steps = sorted(int(found.name.removeprefix("step")) for found in Path("run").iterdir())
    assert len(steps) > 4
    for step in steps:
        run = PyTorchReader().open(Path("run") / f"step{step}" / "rank" / "dump.json")
        count = sum(
            run.tensor(slot.value).size > 0 for record in run.records() for slot in record.slots if slot.value.data_name
        )
        assert count > 50 or step == steps[-1]


# -- a disk that fails ------------------------------------------------------------------------------


@pytest.mark.parametrize(("ends", "code"), [("", 3), ("sys.exit(7)", 7), ("raise KeyboardInterrupt", 130)])
def test_what_was_lost_is_reported(probe: Any, ends: str, code: int) -> None:
    """Only tensors fail, from the second step on: the script ends as it would, and no lost step is claimed."""
    path = script(textwrap.dedent(TRAIN) + ends)
    with FailingWrites(Path.cwd() / "run", errno.ENOSPC, part="step1/rank/dump_tensor_data", at=9):
        assert probe("run", "-o", "run", "--task", "tensor", "--level", "L1", path) == code
    assert len(probe.out.splitlines()) == 5
    assert probe.err.count("Recording stopped in step 1") == 1
    assert "The recording is incomplete: it stopped in step 1." in probe.err
    assert "probe recorded step 0 (" in probe.err and "Traceback" not in probe.err
    assert "No space left on device" in probe.err and "probe compare run OTHER -o out" in probe.err
    assert "unfinished" in records("run", 1)["probe"] and "unfinished" not in records("run", 0)["probe"]
    assert not Path("run/step2").exists()


def test_a_disk_that_takes_nothing_after_the_start(probe: Any) -> None:
    with FailingWrites(Path.cwd() / "run", errno.EROFS, part="step"):
        assert probe("run", "-o", "run", script(TRAIN)) == 3
    assert len(probe.out.splitlines()) == 5
    assert "Nothing of step 0 can be read." in probe.err and "probe recorded" not in probe.err
    assert "nothing was recorded" not in probe.err


def test_a_place_that_takes_nothing_is_refused_before_the_script_runs(probe: Any) -> None:
    Path("run").write_text("mine")
    assert probe("run", "-o", "run", "--step", "7", script(TRAIN)) == 2
    assert probe.out == "" and "cannot be written" in probe.err


def test_run_names_the_nearest_call_if_list_matches_nothing(probe: Any) -> None:
    settings = {"dump_path": "run", "level": "L1", "statistics": {"list": ["Functional.linaer"]}}
    Path("config.json").write_text(json.dumps(settings))
    assert probe("run", "--config", "config.json", script(TRAIN)) == 0
    assert re.search(r"the nearest name is Functional\.linear\.\d+\.forward", probe.err)
    assert not Path("run/step0").exists()


def test_run_names_a_step_that_was_not_reached(probe: Any) -> None:
    assert probe("run", "-o", "run", "--step", "40", script(TRAIN)) == 0
    assert "step 40 was selected, and the program ended in step 5." in probe.err
