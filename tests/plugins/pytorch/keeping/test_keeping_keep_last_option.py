"""``probe run --keep-last``: unchanged scripts, signals, exceptions, several processes, and killed ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.programs import preloaded
from support.runs.scripts import in_a_place_of_its_own, records, script  # noqa: F401

TRAIN = """\
    import os, signal, sys, time
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    def train(step, scale=1.0):
        loss = (scale * model(torch.randn(3, 4))).square().mean() + 0.1
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item().hex(), flush=True)
"""


def written(place: str | Path, rank: str = "rank") -> list[int]:
    return sorted(int(path.parent.name[4:]) for path in Path(place).glob(f"step*/{rank}"))


def events(place: str | Path, step: int, rank: str = "rank") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((Path(place) / f"step{step}" / rank / "watch.json").read_text())["events"]
    return found


def test_a_clean_script_writes_nothing(probe: Any) -> None:
    path = script(TRAIN + "    for step in range(6):\n        train(step)\n")
    assert probe("run", "--keep-last", 3, "-o", "run", path) == 0
    assert not Path("run").exists() and probe.out.count("0x") == 6
    assert "6 steps observed without an event; nothing was written." in probe.err


def test_a_loss_that_becomes_nan_writes_the_last_steps(probe: Any) -> None:
    path = script(TRAIN + "    for step in range(9):\n        train(step, float('nan') if step == 5 else 1.0)\n")
    assert probe("run", "--keep-last", 3, path) == 0
    assert written("probe-watch") == [3, 4, 5]
    (event,) = events("probe-watch", 5)
    assert (event["cause"], event["series"], event["step"]) == ("not_finite", "loss", 5)
    assert "the loss is not finite in step 5. Rose first: the loss, loss.0, in step 5" in probe.err
    assert records("probe-watch", 4)["level"] == "L0"


def test_an_exception_writes_the_unfinished_step(probe: Any) -> None:
    path = script(TRAIN + "    for step in range(4):\n        train(step)\n    model(torch.ones(1, 4))\n    1 / 0\n")
    assert probe("run", "--keep-last", 2, "-o", "run", "--level", "mix", path) == 1
    assert "ZeroDivisionError was raised in step 4." in probe.err and "Traceback" in probe.err
    assert written("run") == [3, 4]
    assert "Functional.linear.1.forward" in records("run", 4)["data"]


@pytest.mark.parametrize(("ends", "count"), [("sys.exit(3)", 1), ("sys.exit()", 0), ("raise KeyboardInterrupt", 0)])
def test_which_ends_are_events(probe: Any, ends: str, count: int) -> None:
    path = script(TRAIN + f"    train(0)\n    {ends}\n")
    probe("run", "--keep-last", 2, "-o", "run", path)
    assert len(written("run")) == count


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rerun"], "--rerun needs a step function"),
        (["--keep-last", "2", "--rerun"], "--rerun needs a step function"),
        (["--keep-last", "0"], "--keep-last must be a whole number"),
        (["--keep-last", "2", "--keep-memory", "5"], "--keep-memory must be a size"),
        (["--keep-last", "2", "--signal", "KILL"], "--signal cannot be KILL"),
        (["--keep-last", "2", "--signal", "USR11"], "--signal must be the name of a signal"),
        (["--keep-last", "2", "--events", "-1"], "--events must be a whole number"),
        (["--keep-last", "2", "--step", "3"], "--step and --keep-last exclude each other"),
        (["--keep-last", "2", "--send-to", "localhost:1"], "--send-to and --keep-last exclude each other"),
        (["--keep-last", "2", "--task", "tensor"], "statistics at level L0, L1 or mix"),
        (["--keep-last", "2", "--level", "L2"], "statistics at level L0, L1 or mix"),
        (["--signal", "USR1"], "belong to --keep-last"),
        (["--keep-memory", "1GiB"], "belong to --keep-last"),
    ],
)
def test_invalid_options_are_one_sentence(probe: Any, options: list[str], message: str) -> None:
    path = script("print('not run')\n")
    assert probe("run", *options, path) == 2
    assert message in probe.err and "Traceback" not in probe.err and "not run" not in probe.out


@pytest.mark.parametrize("line", ["import mindspore as ms", "from mindspore.nn import Dense"])
def test_a_script_of_mindspore_is_refused_before_it_runs(probe: Any, line: str) -> None:
    path = script(f"print('not run')\n{line}\n")
    assert probe("run", "--keep-last", "2", path) == 2
    assert "this script uses MindSpore" in probe.err and "probe_mindspore.watch(10, model=net)" in probe.err
    assert "Traceback" not in probe.err and "not run" not in probe.out
    Path("ported.py").write_text(f"print('not run')\ndef late():\n    {line}\n")
    assert probe("run", "--keep-last", "2", "-m", "ported") == 2
    assert "not run" not in probe.out
    both = script(f"import torch\nprint('run')\ndef late():\n    {line}\n")
    assert probe("run", "--keep-last", "2", both) == 0 and "run" in probe.out


# -- signals ----------------------------------------------------------------------------------


def run_it(code: str, *options: str, **settings: Any) -> Any:
    """Run a script with ``probe run`` in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "probe_core.cli",
        "run",
        "--keep-last",
        "2",
        "-o",
        "run",
        *options,
        str(script(code)),
    ]
    return preloaded.PreloadedPopen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)


def test_a_signal_without_a_handler_writes_and_the_training_goes_on() -> None:
    process = run_it(
        TRAIN + "    for step in range(6):\n        if step == 3: os.kill(os.getpid(), signal.SIGUSR1)\n        train(step)\n",
        "--signal", "usr1",
    )  # fmt: skip
    out, err = process.communicate()
    assert process.returncode == 0 and out.count("0x") == 6, err
    assert "signal SIGUSR1 arrived in step 3" in err
    assert written("run") == [1, 2] or written("run") == [1, 2, 3]
    assert events("run", 2)[0]["cause"] == "signal"


def test_the_handler_of_the_script_is_called_as_well() -> None:
    handler = (
        "    def ask(number, frame):\n        print('asked', number == signal.SIGTERM, flush=True)\n"
        "    signal.signal(signal.SIGTERM, ask)\n"
    )
    process = run_it(
        TRAIN + handler + "    for step in range(6):\n        train(step)\n"
        "        if step == 3: os.kill(os.getpid(), signal.SIGTERM)\n",
        "--signal", "TERM",
    )  # fmt: skip
    out, err = process.communicate()
    assert process.returncode == 0 and "asked True" in out and out.count("0x") == 6, err
    assert events("run", 3)[0]["name"] == "SIGTERM" and written("run")[:2] == [2, 3]


def test_a_termination_writes_and_ends_the_process_as_without() -> None:
    process = run_it(
        TRAIN + "    for step in range(4):\n        train(step)\n    print('ready', flush=True)\n    time.sleep(60)\n",
        "--signal", "TERM",
    )  # fmt: skip
    for line in process.stdout:
        if line.startswith("ready"):
            break
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM, err
    assert written("run") == [2, 3] and "signal SIGTERM arrived in step 4" in err


def test_ctrl_c_writes_only_if_it_is_chosen() -> None:
    code = (
        TRAIN
        + "    for step in range(4):\n        train(step)\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(60)\n"
    )
    process = run_it(code, "--signal", "INT")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and written("run") == [2, 3], err
    assert "signal SIGINT arrived" in err and "Interrupted" in err


def test_a_killed_process_leaves_what_it_wrote_readable(probe: Any) -> None:
    process = run_it(
        TRAIN + "    for step in range(9):\n        train(step, float('inf') if step == 5 else 1.0)\n"
        "    print('ready', flush=True)\n    time.sleep(60)\n",
    )  # fmt: skip
    for line in process.stdout:
        if line.startswith("ready"):
            break
    process.kill()
    process.communicate()
    assert written("run") == [4, 5] and events("run", 5)
    for step in (4, 5):
        assert records("run", step)["data"]
    assert probe("compare", "run", "run", "-o", "out") == 0, probe.err


def test_two_processes_of_one_directory_write_both() -> None:
    code = TRAIN + (
        "    for step in range(3):\n        train(step)\n    model(torch.ones(1, 4))\n"
        "    open(sys.argv[1], 'w').close()\n"
        "    while not (os.path.exists('a') and os.path.exists('b')): time.sleep(0.01)\n"
        "    train(3, float('nan'))\n    open(sys.argv[1] + '2', 'w').close()\n"
        "    while not (os.path.exists('a2') and os.path.exists('b2')): time.sleep(0.01)\n"
    )
    path = str(script(code))
    command = [sys.executable, "-m", "probe_core.cli", "run", "--keep-last", "2", "-o", "run", path]
    processes = [
        preloaded.PreloadedPopen([*command, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name in "ab"
    ]
    said = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    places = sorted(Path.cwd().glob("run*"))
    assert len(places) == 2 and all(written(place) == [2, 3] for place in places), said


def test_an_exception_that_ends_a_script_between_start_and_stop_writes_its_step() -> None:
    code = TRAIN + (
        "    import probe_pytorch\n    watch = probe_pytorch.watch(2, model, dump_path='run')\n"
        "    for step in range(4):\n        watch.start()\n        train(step)\n        1 / (3 - step)\n"
        "        watch.stop()\n"
    )
    command = [sys.executable, str(script(code))]  # a fresh process, which sets sys.last_value
    process = subprocess.run(command, capture_output=True, text=True)
    err = process.stderr
    assert process.returncode == 1 and "ZeroDivisionError: division by zero" in err
    assert written("run") == [2, 3] and events("run", 3)[0]["name"] == "ZeroDivisionError", err


def test_each_rank_writes_its_own_part() -> None:
    code = TRAIN + (
        "    import torch.distributed as dist\n"
        "    dist.init_process_group('gloo', init_method='file://' + os.path.abspath('meet'),"
        " rank=int(os.environ['RANK']), world_size=2)\n"
        "    model = nn.parallel.DistributedDataParallel(model)\n"
        "    for step in range(6):\n"
        "        train(step, float('nan') if step == 4 and dist.get_rank() == 1 else 1.0)\n"
        "    dist.destroy_process_group()\n"
    )
    path = str(script(code))
    processes = []
    for rank in range(2):
        variables = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        command = [sys.executable, "-m", "probe_core.cli", "run", "--keep-last", "2", "-o", "run", path]
        processes.append(
            preloaded.PreloadedPopen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)
        )
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert events("run", 4, "rank1")[0]["series"] == "loss"
    assert events("run", 4, "rank0")[0]["series"] == "gradient_norm"  # it has arrived by the all-reduce
    assert written("run", "rank0") == written("run", "rank1") == [3, 4]
