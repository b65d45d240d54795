"""PROBE_RUN: programs that start their own processes, each recorded under its rank."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.programs.started import LINES_OF_TRAINING, StartedPrograms

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="makes an environment of links")

SPAWN = """
import os, sys, torch, training
import torch.distributed as dist

def work(rank, path):
    torch.zeros(2) + rank  # recorded before the rank is known
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    print(training.train())
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.nn.Sequential(torch.nn.Linear(2, 2))(torch.ones(1, 2))
    torch.multiprocessing.start_processes(work, (sys.argv[2],), nprocs=2, start_method=sys.argv[1])
"""
TORCHRUN = """
import torch.distributed as dist
import training
dist.init_process_group("gloo")
training.train()
dist.barrier()
"""
POOL = """
import multiprocessing, sys, threading
from concurrent.futures import ProcessPoolExecutor
import training

def work(barrier):
    barrier.wait()  # each process has one task
    return training.train()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Manager() as manager, ProcessPoolExecutor(2, mp_context=context) as pool:
        print(set(pool.map(work, [manager.Barrier(2)] * 2)))
"""
SUBPROCESS = """
import subprocess, sys
for _ in range(2):
    subprocess.run([sys.executable, "-c", "import training; print(training.train())"], check=True)
"""
LOADER = """
import sys, torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, number):
        return torch.ones(3) * number + 1

if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(Data(), 2, num_workers=1, multiprocessing_context=sys.argv[1]):
        model(batch).sum().backward()
        optimizer.step()
"""


@pytest.fixture
def programs(tmp_path: Path) -> StartedPrograms:
    return StartedPrograms(tmp_path)


def list_both_steps(*places: str) -> list[str]:
    return sorted(f"step{step}/{place}" for step in (0, 1) for place in places)


def test_a_script_is_recorded_as_by_probe_run(programs: StartedPrograms, probe: Any) -> None:
    script = programs.write("import training\nprint(training.train())\nraise SystemExit(7)\n")
    ended = programs.start(script)
    unrecorded: dict[str, Any] = {}
    exec(LINES_OF_TRAINING, unrecorded)
    assert (ended.returncode, ended.stdout) == (7, f"{unrecorded['train']()}\n")
    assert ended.stderr.endswith(f"into {programs.run}\n")
    assert programs.list_places() == list_both_steps("rank")
    sys.modules.pop("training", None)
    assert probe("run", "-o", programs.directory / "other", script) == 7
    for step in (0, 1):
        files = [programs.directory / run / f"step{step}/rank/dump.json" for run in ("run", "other")]
        first, second = (json.loads(file.read_text())["data"] for file in files)
        assert first == second and first


@pytest.mark.slow
def test_probe_run_records_once(programs: StartedPrograms) -> None:
    script = programs.write("import training\ntraining.train()\n")
    assert programs.start("-m", "probe_core.cli", "run", "-o", "other", script).returncode == 0
    assert (programs.directory / "other/step1").is_dir() and not programs.run.exists()


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_process_pool_is_recorded_without_ranks(programs: StartedPrograms, method: str) -> None:
    ended = programs.start(programs.write(POOL), method)
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.split()) == 1  # the workers have equal losses
    assert programs.list_places() == list_both_steps("process1/rank", "process2/rank")


@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs gloo")
@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_ranks_that_become_known_late_are_used(programs: StartedPrograms, method: str) -> None:
    programs.configure(task="tensor")  # whose files are written before the rank is known
    ended = programs.start(programs.write(SPAWN), method, programs.directory / "store")
    assert ended.returncode == 0, ended.stderr
    assert programs.list_places() == sorted([*list_both_steps("rank0", "rank1"), "step0/process1/rank"])
    head = json.loads((programs.run / "step0/rank1/dump.json").read_text())
    assert head["dump_data_dir"] == "run/step0/rank1/dump_tensor_data"
    assert sorted(path.name for path in programs.run.iterdir()) == [".launch", "step0", "step1"]


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs gloo")
def test_torchrun_gives_ranks_which_are_selected(programs: StartedPrograms) -> None:
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    script = programs.write(TORCHRUN)
    assert programs.start(*launcher, script).returncode == 0
    assert programs.list_places() == list_both_steps("rank0", "rank1")
    programs.configure(rank=[1], step=[1])
    assert programs.start(*launcher, script).returncode == 0
    assert programs.list_places() == ["step1/rank1"] and Path(f"{programs.run}.1").is_dir()


@pytest.mark.slow
def test_processes_of_subprocess_are_numbered(programs: StartedPrograms) -> None:
    ended = programs.start(programs.write(SUBPROCESS), PROBE_STAGE="actor")
    assert ended.returncode == 0, ended.stderr
    assert programs.list_places() == list_both_steps("actor-process1/rank", "actor-process2/rank")


@pytest.mark.parametrize(
    "method", ["fork", *(pytest.param(name, marks=pytest.mark.slow) for name in ("spawn", "forkserver"))]
)
def test_processes_that_load_data_are_not_recorded(programs: StartedPrograms, method: str) -> None:
    ended = programs.start(programs.write(LOADER), method)
    assert ended.returncode == 0, ended.stderr
    assert {place.partition("/")[2] for place in programs.list_places()} == {"rank"}


def test_a_wrong_configuration_is_one_line_and_the_program_goes_on(programs: StartedPrograms) -> None:
    (programs.directory / "wrong.json").write_text("{")
    (programs.directory / "folder.json").mkdir()
    (programs.directory / "task.json").write_text('{"task": "grad_probe", "dump_path": "run"}')
    (programs.directory / "torch.py").touch()  # nothing of torch is needed to read a configuration
    script = "import importlib.util as u, sys; u.find_spec('torch'); import torch; print(2); sys.exit(5)"
    for name, reason in (
        ("missing.json", "cannot be read"),
        ("wrong.json", "not valid JSON"),
        ("folder.json", "is a directory"),
        ("task.json", "needs a PrecisionDebugger"),
    ):
        ended = programs.start("-c", script, config=name)
        assert (ended.returncode, ended.stdout) == (5, "2\n")
        assert ended.stderr.startswith("probe: PROBE_RUN: ") and ended.stderr.count("\n") == 1
        assert reason in ended.stderr and ended.stderr.endswith("The program goes on unrecorded.\n")
    assert not programs.run.exists()


def test_nothing_is_imported_or_written_without_need(programs: StartedPrograms) -> None:
    listing = "import sys; print([name for name in sys.modules if name.startswith('probe_')])"
    assert programs.start("-c", listing, config=None).stdout == "[]\n"
    assert programs.start("-E", "-c", listing).stdout == "[]\n"
    assert "probe_pytorch.process_start" in programs.start("-c", listing).stdout
    ended = programs.start("-c", "import torch; print(torch.__spec__.loader is torch.__loader__, torch.__loader__)")
    assert ended.stdout.startswith("True") and "SourceFileLoader" in ended.stdout
    assert not programs.run.exists() and ended.stderr == ""


def test_a_start_file_without_its_package_does_not_end_the_process(programs: StartedPrograms) -> None:
    for path in programs.interpreter.parent.parent.rglob("a_first.pth"):
        path.unlink()
    ended = programs.start("-c", "print(3)")
    assert (ended.returncode, ended.stdout) == (0, "3\n")
    (line,) = set(ended.stderr.splitlines())  # an environment may read its start files twice
    assert line.startswith("probe: PROBE_RUN: ModuleNotFoundError")
