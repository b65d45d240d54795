"""Files of a recording: readable at any moment, whatever ends the process."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from support.runs.recorder_files import (
    FILES,
    alone,  # noqa: F401
    net,
    read,
    start_python,
    train,
)
from support.runs.recording import Recording, recording
from torch.nn import functional as F

from probe_core.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore:.*requires_grad=True:UserWarning")
# -- processes that are killed ---------------------------------------------------------------------


KILLED = """
    import json, os, sys
    import torch
    from torch import nn
    from probe_pytorch import PrecisionDebugger
    from probe_pytorch.capture.names import load_names

    torch.set_num_threads(1)
    load_names()  # what is imported on the way is imported now
    for line in sys.stdin:  # a child for each line, which trains until it is killed
        path, store, task = line.split()
        child = os.fork()
        if child:
            print(child, flush=True)
            continue
        sys.stdout = open(os.devnull, "w")
        with open(path + ".json", "w") as file:
            json.dump({"dump_path": path, "store": store, "task": task, "level": "mix"}, file)
        torch.manual_seed(child)
        model = nn.Sequential(nn.Linear(16, 16), nn.Sequential(nn.ReLU(), nn.LayerNorm(16)), nn.Linear(16, 4))
        debugger = PrecisionDebugger(path + ".json")
        step = 0
        while True:
            for _ in range(3):
                debugger.start(model)
                for _ in range(30 if step % 4 == 3 else 1):
                    model(torch.randn(4, 16)).square().sum().backward()
                debugger.stop()
            debugger.step()
            step += 1
"""
KILLS = 7
"""Of each kind of run."""


@pytest.fixture(scope="module")
def killed_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[Path]]:
    """Runs of children that were killed at random moments."""
    root = tmp_path_factory.mktemp("killed")
    moments = random.Random()
    found: dict[tuple[str, str], list[Path]] = {}
    with start_python(KILLED) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        for number in range(KILLS):
            for store, task in (("packed", "tensor"), ("files", "tensor"), ("packed", "statistics")):
                path = root / f"{store}-{task}-{number}"
                print(path, store, task, file=parent.stdin, flush=True)
                child = int(parent.stdout.readline())
                first = path if number == 0 else path / "step0" / "rank" / "dump.json"
                end = time.monotonic() + 10
                while not first.exists() and time.monotonic() < end:
                    time.sleep(0.001)
                time.sleep(moments.uniform(0.0, 0.3))
                os.kill(child, signal.SIGKILL)
                found.setdefault((store, task), []).append(path)
        parent.stdin.close()
    time.sleep(0.05)
    return found


@pytest.mark.parametrize("kind", [("packed", "tensor"), ("files", "tensor"), ("packed", "statistics")])
def test_what_a_killed_process_leaves_can_be_read(
    killed_runs: dict[tuple[str, str], list[Path]], kind: tuple[str, str]
) -> None:
    begun = tensors = 0
    for path in killed_runs[kind]:
        begun += any(path.rglob("dump.json"))
        for record_file in path.rglob("dump.json"):
            tensors += len(read(record_file.parent, summed=False))
            records = json.loads(record_file.read_text())["data"]
            stack = json.loads((record_file.parent / "stack.json").read_text())
            parents = json.loads((record_file.parent / "construct.json").read_text())
            named = {name for names, _ in stack.values() for name in names}
            calls = {name for name in records if ".forward" in name}
            assert calls <= named and {name for name in calls if "parameters" not in name} <= parents.keys()
        assert not list(path.rglob("dump_error_info.log"))
    assert begun > KILLS // 2  # however slow the machine
    assert (tensors > 100) == (kind[1] == "tensor")


@pytest.mark.parametrize("kind", [("packed", "tensor"), ("files", "tensor"), ("packed", "statistics")])
def test_what_a_killed_process_leaves_can_be_compared(
    killed_runs: dict[tuple[str, str], list[Path]], kind: tuple[str, str], probe: Any, tmp_path: Path
) -> None:
    last = [
        max(files, key=lambda path: int(path.parents[1].name.removeprefix("step"))).parent
        for path in killed_runs[kind]
        if (files := list(path.rglob("dump.json")))
    ]
    filled = [path for path in last if json.loads((path / "dump.json").read_text())["data"]]
    assert filled
    for path in filled[:4]:
        assert probe("compare", path, path, "-o", tmp_path / "out") == 0, probe.err
        assert probe.out.startswith("AGREE: ") and "could not be read" not in probe.err + probe.out


SECOND_PASS = "storage/tensors.py: a name saved again replaces what the records on disk still tell of"


@pytest.mark.parametrize(
    "store", ["packed", pytest.param("files", marks=pytest.mark.xfail(strict=True, reason=SECOND_PASS))]
)
def test_data_fit_the_records_while_gradients_are_accumulated(tmp_path: Path, store: str) -> None:
    """A process may be killed, or a reader look, between a backward pass and the next flush."""
    model = net()
    with recording(tmp_path / "run", level="L0", task="tensor", store=store) as found:
        found.start(model)
        train(model, 0)
        found.stop()
        read(found.directory())
        found.start(model)
        train(model, 1)
        read(found.directory())
        found.stop()
        read(found.directory())
        found.step()
    read(found.directory())


@pytest.mark.xfail(strict=True, reason=SECOND_PASS)
def test_data_fit_the_records_between_the_files_of_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of the packed file is replaced before the records are."""
    model = net()
    with recording(tmp_path / "run", level="L0", task="tensor") as found:
        found.start(model)
        train(model, 0)
        found.stop()
        found.start(model)
        train(model, 1)
        session = found.debugger._recorder._sessions.current
        assert session is not None
        with monkeypatch.context() as patch:
            patch.setattr(type(session), "_write", lambda *_: read(found.directory()))
            found.stop()


def test_a_run_may_go_where_a_killed_one_was(killed_runs: dict[tuple[str, str], list[Path]], tmp_path: Path) -> None:
    for number, path in enumerate(killed_runs["packed", "tensor"][:4]):
        shutil.copytree(path, tmp_path / str(number))
        with recording(tmp_path / str(number), level="mix", task="tensor") as found:
            found.start(model := net())
            train(model)
            found.stop()
            found.step()
        assert read(found.directory())
        names = {item.name for item in (found.directory() / "dump_tensor_data").iterdir()}
        assert names == {"tensors.safetensors"}
        names = {item.name for item in found.directory().iterdir()}
        assert names == {*FILES, "conditions.json", "step_phases.json", "dump_tensor_data"}


# -- two at once, one after the other --------------------------------------------------------------


WRITER = """
    import sys
    import torch
    from probe_pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=sys.argv[1], level="L1", task="tensor")
    debugger.start()
    torch.full((2,), 7.0) * 2
    print("begun", flush=True)
    sys.stdin.readline()
    torch.full((2,), 8.0) * 2
    debugger.stop()
    debugger.step()
    print("ended")
"""


def test_two_processes_are_not_to_write_one_directory(tmp_path: Path, probe: Any) -> None:
    path = tmp_path / "run"
    script = tmp_path / "script.py"
    script.write_text("import torch\ntorch.ones(2) + 1\n")
    with start_python(WRITER, path) as first:
        assert first.stdin is not None and first.stdout is not None
        assert first.stdout.readline() == "begun\n"
        found = Recording(path, level="L1")
        with pytest.raises(UserError, match=f"being written by process {first.pid}, which records rank"):
            found.start()
        assert torch._C._len_torch_function_stack() == 0
        F.relu(torch.ones(2))  # the training may go on, unrecorded
        found.stop()
        found.finish()
        assert probe("run", "-o", path, script) == 2
        assert f"process {first.pid}" in probe.err and "Traceback" not in probe.err
        out, error = first.communicate("\n", timeout=60)
    assert (first.returncode, out, error) == (0, "ended\n", "")
    data = read(path / "step0" / "rank")
    assert data["Tensor.__mul__.0.forward.output.0.pt"].tolist() == [14.0, 14.0]
    assert data["Tensor.__mul__.1.forward.output.0.pt"].tolist() == [16.0, 16.0]


def test_a_later_run_replaces_an_earlier_one(tmp_path: Path) -> None:
    for store, function in (("files", F.gelu), ("packed", F.relu), ("files", F.silu)):
        with recording(tmp_path / "run", level="L1", task="tensor", store=store) as found:
            found.start()
            function(torch.ones(2))
            found.stop()
            found.step()
        name = f"Functional.{function.__name__}.0.forward"
        assert list(found.records()) == [name]
        assert set(read(found.directory())) == {f"{name}.input.0.pt", f"{name}.output.0.pt"}
        files = {path.name for path in (found.directory() / "dump_tensor_data").iterdir()}
        assert files == ({"tensors.safetensors"} if store == "packed" else set(read(found.directory())))
    with recording(tmp_path / "run", level="L1") as found:
        found.start()
        F.relu(torch.ones(2))
        found.stop()
    assert not (found.directory() / "dump_tensor_data").exists()
    assert found.head()["dump_data_dir"] is None


def test_what_others_put_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "run"
    mine = [path / "notes.txt", path / "step0" / "rank" / "mine.csv", path / "step0" / "rank1" / "dump.json"]
    for file in mine:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    with recording(path, level="L1") as found:
        found.start()
        found.stop()
    assert [file.read_text() for file in mine] == ["mine"] * 3
