"""The walks of the page on the online pre-check: a receiver and a training, by options and by config.json."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from probe_online import settings
from probe_online.hooks import OPTIONS
from probe_recording.settings import destination
from probe_recording.settings.destination import FIELDS
from support import ROOT
from support.programs.preloaded import PreloadedPopen

PAGE = (ROOT / "docs" / "online.md").read_text("utf-8")
TRAINING = """
import torch
from torch.nn import functional as F
torch.manual_seed(0)
x = torch.randn(6, 5)
F.softmax(torch.matmul(x, torch.randn(5, 4)), -1).sum()
"""
WITH_DEBUGGER = """
from probe_pytorch import PrecisionDebugger
debugger = PrecisionDebugger("config.json")
debugger.start()
{}
debugger.stop()
debugger.step()
"""
LIMIT = 120
AGREE = "probe: no call of 3 judged is in error"
BY_OPTIONS = ["In a network", "With a shared directory"]


def blocks(heading: str, language: str) -> list[str]:
    """Return the blocks of a language in a section of the page."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def commands(heading: str) -> list[str]:
    """Return the commands in a section of the page."""
    return [line for block in blocks(heading, "bash") for line in block.splitlines()]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start(line: str, here: Path, changes: dict[str, str]) -> Any:
    """Start a command of the page, with what differs on this machine replaced."""
    for old, new in changes.items():
        line = line.replace(old, new)
    line = re.sub(r"^probe ", f"{shlex.quote(sys.executable)} -m probe_core.cli ", line)
    line = re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", line)
    return PreloadedPopen(shlex.split(line), cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Ran(NamedTuple):
    """The words of both ends."""

    first: str
    problems: str
    said: str
    status: str


def both(receiver: tuple[str, Path], training: tuple[str, Path], changes: dict[str, str], asked: str = "") -> Ran:
    """Run both ends, each a command and its directory; ask the receiver for its status in between."""
    found = start(*receiver, changes)
    status = ""
    try:
        if asked:
            for _ in range(100):
                one = start(asked, receiver[1], changes)
                status = one.communicate(timeout=LIMIT)[0]
                if one.returncode == 0:
                    break
                time.sleep(0.1)
        sender = start(*training, changes)
        try:
            said = sender.communicate(timeout=LIMIT)[1]
        finally:
            sender.kill()
        assert sender.returncode == 0, said
        printed, problems = found.communicate(timeout=LIMIT)
        assert found.returncode == 0, (printed, problems, said)
    finally:
        found.kill()
    return Ran(printed.splitlines()[0], problems, said, status)


@pytest.mark.parametrize("heading", BY_OPTIONS)
def test_both_ends_by_options(heading: str, tmp_path: Path) -> None:
    shared = tmp_path / "calls"
    shared.mkdir()
    (tmp_path / "train.py").write_text(TRAINING)
    receiver, training = commands(heading)[:2]
    (asked,) = commands("Status")
    changes = {"6006": str(free_port()), "/shared/calls": str(shared), "-d 0 1": "-d cpu"}
    ran = both((receiver, tmp_path), (training, tmp_path), changes, asked if "network" in heading else "")
    assert ran.first == AGREE
    if ran.status:
        assert json.loads(ran.status)["state"] == "running"
    assert list((tmp_path / "checked").glob("api_precision_compare_result_*_rank0.csv"))


@pytest.mark.parametrize("heading", BY_OPTIONS)
def test_both_ends_by_the_configurations_of_the_guide(heading: str, tmp_path: Path) -> None:
    line, script = commands("In a network")[2:]
    shared, port = tmp_path / "calls", str(free_port())
    shared.mkdir()
    homes = tmp_path / "gpu", tmp_path / "npu"
    changes = {"59208": port, "/shared/calls": str(shared), "/home/data_dump": str(homes[1] / "dump")}
    for here, text in zip(homes, blocks(heading, "json"), strict=True):
        here.mkdir()
        for old, new in changes.items():
            text = text.replace(old, new)
        (here / "config.json").write_text(text)
    (homes[1] / "train.py").write_text(WITH_DEBUGGER.format(TRAINING))
    ran = both((f"{line} -d cpu", homes[0]), (script, homes[1]), {})
    assert ran.first == AGREE
    assert ("PLAIN TEXT" in ran.problems) == (heading == "In a network")
    assert list((homes[0] / "checked").glob("api_precision_compare_details_*_rank0.csv"))


def test_both_ends_by_tls(tmp_path: Path) -> None:
    *made, receiver, training = commands("TLS")
    for line in made:
        subprocess.run(shlex.split(line), cwd=tmp_path, check=True, capture_output=True, timeout=LIMIT)
    (tmp_path / "train.py").write_text(TRAINING)
    changes = {"192.0.2.7:6006": f"127.0.0.1:{free_port()}", "-o checked": "-o checked -d cpu"}
    ran = both((receiver, tmp_path), (training, tmp_path), changes)
    assert ran.first == AGREE
    assert "PLAIN TEXT" not in ran.problems + ran.said


def test_the_picture_is_that_of_its_script() -> None:
    spec = importlib.util.spec_from_file_location("picture", ROOT / "docs" / "make_online_picture.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs/images/online.svg").read_text("utf-8") == module.picture()


def test_the_options_and_defaults_are_those_of_both_ends() -> None:
    receiver, training = blocks_of_tables("Options")
    assert {row[0].split()[0].strip("`") for row in receiver} == {flag for option in OPTIONS for flag in option.flags}
    fields = {name for row in training for name in re.findall(r"`(\w+)`", row[1])}
    assert fields == FIELDS - {"online_run_ut"}
    shown = {row[1].strip("`"): row[2] for row in training}
    assert [shown[f"online_{name}"] for name in ("wait", "drain")] == [
        str(destination.DEFAULT_WAIT_SECONDS),
        str(destination.DEFAULT_DRAIN_SECONDS),
    ]
    assert shown["online_memory"] == f"{destination.DEFAULT_MEMORY_BYTES >> 30} GiB"
    assert shown["online_disk"] == f"{destination.DEFAULT_DISK_BYTES >> 30} GiB"
    assert shown["online_policy"] == f"`{destination.Destination().policy}`"
    own = {row[0].split()[0].strip("`"): row[1] for row in receiver}
    assert own["--patience"] == f"{settings.SENDER_TIMEOUT_SECONDS:g}"
    assert own["--most-body"] == own["--window"] == f"{settings.MAX_BODY_BYTES >> 30} GiB"


def blocks_of_tables(heading: str) -> list[list[list[str]]]:
    """Return the cells of the tables in a section, without their heads."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]] for table in tables
    ]
