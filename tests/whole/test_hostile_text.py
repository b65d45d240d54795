"""A dump whose every text is hostile: nothing of it reaches a terminal, a csv file or a text file as it is."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook
from support.runs.answer_files import read_answer
from support.runs.hostile_runs import (
    EVERYTHING,
    FIELDS,
    PAYLOADS,
    READABLE,
    dangers,
    dangers_in_file,
    dangers_on_terminal,
    formulas,
    make_hostile,
)
from support.runs.recorded import forward, scalar, tensor, write_run

SLOW = pytest.mark.slow
CASES = {"tensor": "tensor_L1_dist2", "statistics": "stat_mix_dist2", "md5": "md5_L1_dist2"}
TYPED = EVERYTHING.replace("\0", "").replace("\ud800", "")
"""The part of it that a command line can hold."""
Runs = Callable[[str, str], Path]
Command = Callable[[Path, Path], list[str | Path]]


def compare(*options: str, part: str = "") -> Command:
    """The command that compares the two runs, or a part of them."""
    return lambda home, out: ["compare", home / "npu_dump" / part, home / "bench_dump" / part, "-o", out,
                              "-j", "1", *options]  # fmt: skip


COMMANDS: dict[str, Command] = {
    "-da": compare("-da", "-s", "-hl", "--format", "xlsx,csv,jsonl"),
    "plain": compare("-c"),
    "-f": compare("-f", "-s", "--format", "csv", part="step0"),
    "align": compare("--match", "align", "--format", "csv", part="step0/rank0"),
    "--print-plan": lambda home, out: ["compare", home / TYPED, home, "-o", out, "--print-plan"],
    "no run": lambda home, out: ["compare", home / TYPED, home, "-o", out],
    "-dm": lambda home, out: [*compare("-dm", part="step0")(home, out), home / "mapping.yaml"],
    "-i": lambda home, out: ["compare", "-i", home / "compare.json", "-o", out],
    "collectives": lambda home, out: ["merge_result", "--check-collectives", home / "npu_dump" / "step0", "-o", out,
                                      "--format", "csv"],
    "no dump": lambda home, out: ["run_ut", "-api_info", home / "npu_dump", "-o", out],
    "unknown option": lambda home, out: ["compare", f"--{TYPED}"],
    "unknown command": lambda home, out: [TYPED],
    "plugins": lambda home, out: ["plugins"],
}  # fmt: skip


def hostile(runs: Runs, home: Path, case: str, payload: str = EVERYTHING, fields: Sequence[str] = READABLE) -> Path:
    make_hostile(runs(CASES[case], "26.2.0"), home, payload, fields)
    names = {f"Functional.{payload}linear.0.forward": f"Functional.{payload}nothing.0.forward"}
    (home / "mapping.yaml").write_text(json.dumps(names), "utf-8")
    (home / "compare.json").write_text(json.dumps({"npu_path": payload, "bench_path": payload, payload: 1}), "utf-8")
    return home


def check_files(out: Path) -> None:
    """No file that people print or open in a spreadsheet acts on either."""
    for path in (one for one in out.rglob("*") if one.suffix in (".csv", ".txt", ".jsonl", ".json", ".yaml")):
        assert not dangers_in_file(path), path.name
        if path.suffix == ".csv":
            with path.open(encoding="utf-8-sig", newline="") as file:
                assert not formulas(cell for row in csv.reader(file) for cell in row), path.name
        if path.suffix == ".txt":
            assert re.fullmatch(r"Line: .*\nSuspect Nodes: .*\nExpert Advice: (.*\n)+", path.read_text("utf-8"))
    for path in out.rglob("*.xlsx"):
        for sheet in load_workbook(path):
            cells = [cell for row in sheet.iter_rows() for cell in row if isinstance(cell.value, str)]
            assert "f" not in {cell.data_type for cell in cells}, f"{path.name}: {sheet.title}"
            assert not formulas(str(cell.value) for cell in cells), f"{path.name}: {sheet.title}"


def check(probe: Any, command: Command, home: Path, out: Path) -> None:
    """A command of a pipe says something, ends as it should, and nothing of a dump stands in it raw."""
    code = probe(*command(home, out))
    assert code in (0, 1, 2, 3), probe.err
    assert probe.out + probe.err
    assert not dangers(probe.out + probe.err), probe.out + probe.err
    check_files(out)


# -- in a pipe --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["tensor", *(pytest.param(case, marks=SLOW) for case in ("statistics", "md5"))])
def test_every_command_in_a_pipe(case: str, runs: Runs, probe: Any, tmp_path: Path) -> None:
    home = hostile(runs, tmp_path / "home", case)
    for number, command in enumerate(COMMANDS.values()):
        check(probe, command, home, tmp_path / str(number))


def test_the_first_difference_is_named_all_the_same(runs: Runs, probe: Any, tmp_path: Path) -> None:
    """The name stands there with its escapes, and the results of the ranks can still be merged by it."""
    home = hostile(runs, tmp_path / "home", "tensor", "\x1b[8m\u202e")
    out = tmp_path / "out"
    assert probe(*COMMANDS["-da"](home, out)) == 0, probe.err
    assert "first difference" in probe.out
    assert r"Tensor.\x1b[8m\u202e__mul__.0.forward" in probe.out
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"api": ["Tensor.\x1b[8m\u202e__mul__.0"]}), "utf-8")
    for suffix in ("csv", "xlsx", "jsonl"):
        merged = tmp_path / suffix
        results = tmp_path / f"of {suffix}"
        results.mkdir()
        for path in (out / "step0").glob(f"compare_result_rank*.{suffix}"):
            path.rename(results / path.name)
        assert probe("merge_result", "-i", results, "-o", merged, "-config", config, "--format", "csv") == 0, probe.err
        assert "2 ranks" in probe.out and not dangers(probe.out + probe.err)
        check_files(merged)
        assert any("__mul__" in path.read_text("utf-8") for path in merged.rglob("*.csv"))


@SLOW
@pytest.mark.parametrize("field", FIELDS)
def test_every_field_with_every_payload(field: str, runs: Runs, probe: Any, tmp_path: Path) -> None:
    for name, payload in PAYLOADS.items():
        home = hostile(runs, tmp_path / name, "tensor", payload, [field])
        for what in ("-da", "collectives"):
            check(probe, COMMANDS[what], home, tmp_path / name / what)


@pytest.mark.parametrize("fields", [FIELDS, *(pytest.param([field], marks=SLOW) for field in FIELDS)])
def test_a_run_that_cannot_be_read(fields: Sequence[str], runs: Runs, probe: Any, tmp_path: Path) -> None:
    """Texts that the layout rests on are hostile too."""
    home = hostile(runs, tmp_path / "home", "tensor", fields=fields)
    for what in ("-da", "collectives"):
        check(probe, COMMANDS[what], home, tmp_path / what)


@pytest.mark.parametrize("payload", [EVERYTHING, PAYLOADS["formula"]], ids=["everything", "formula"])
def test_an_answer_holds_text(payload: str, probe: Any, tmp_path: Path) -> None:
    """Modules, lines of code, arguments and calls of one run only whose names begin with a payload."""
    calls = {
        "Torch.exp.0.forward": forward(tensor(), scalar(payload), output=[tensor()]),
        f"Torch.{payload}.0.forward": forward(tensor(), output=[tensor(value=2.0)]),
        "Torch.abs.0.forward": forward(tensor(value=2.0), **{payload: scalar(1)}, output=[tensor(value=3.0)]),
    }
    others = {
        "Torch.exp.0.forward": forward(tensor(), scalar("x"), output=[tensor()]),
        "Torch.abs.0.forward": forward(tensor(), **{payload: scalar(2)}, output=[tensor()]),
    }
    for side, data in (("t", calls), ("g", others)):
        write_run(tmp_path / side, data)
        (tmp_path / side / "construct.json").write_text(json.dumps(dict.fromkeys(data, payload)))
        stacks = {str(number): [[key], [payload]] for number, key in enumerate(data)}
        (tmp_path / side / "stack.json").write_text(json.dumps(stacks))
    out = tmp_path / "o"
    assert probe("compare", tmp_path / "t", tmp_path / "g", "-o", out, "--format", "xlsx,csv,jsonl") == 0
    assert probe.out.startswith("DIVERGED: ") and not dangers(probe.out + probe.err)
    check_files(out)
    answer = read_answer(out)
    first = answer["causes"][0]
    assert payload in first["module"] and " ".join(payload.split()) == first["where"]
    (path,) = out.glob("*.xlsx")
    sheet = load_workbook(path)["answer"]
    found = {str(row[0].value): str(row[1].value) for row in sheet.iter_rows()}
    assert found["Verdict"].startswith("DIVERGED: ") and found["Module"][0] not in "=+-@"
    assert found["Line of code"][0] not in "=+-@"


# -- on a terminal ----------------------------------------------------------------------------------


def on_terminal(arguments: Sequence[str | Path], cwd: Path) -> tuple[int, str]:
    """The exit code of probe and all that it sent to a terminal, on stdout and stderr."""
    leader, follower = os.openpty()
    words = [os.fsencode(one) for one in (sys.executable, "-m", "probe_core.cli", *arguments)]
    process = subprocess.Popen(words, stdin=follower, stdout=follower, stderr=follower, cwd=cwd)
    os.close(follower)
    data = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # Linux says so where the last writer has gone
            break
        if not part:
            break
        data += part
    os.close(leader)
    return process.wait(), data.decode("utf-8", "surrogateescape")


@pytest.mark.parametrize("what", ["-da", *(pytest.param(one, marks=SLOW) for one in COMMANDS if one != "-da")])
def test_a_command_on_a_terminal(what: str, runs: Runs, tmp_path: Path) -> None:
    home = hostile(runs, tmp_path / "home", "tensor")
    code, sent = on_terminal(COMMANDS[what](home, tmp_path / "out"), tmp_path)
    assert code in (0, 1, 2, 3), sent
    assert sent and not dangers_on_terminal(sent), sent
    if what == "-da":
        assert "\x1b[1m" in sent, "our own colours are there"


# -- the pre-check ----------------------------------------------------------------------------------


def precheck_run(directory: Path, payload: str) -> Path:
    """A run of three calls that are refused, unknown, or fail, with the payload in every text of theirs."""
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.5, "Mean": 0.7,
            "Norm": 1.0, "requires_grad": False}  # fmt: skip
    text = {"type": "str", "value": payload}
    calls = {
        f"Torch.{payload}relu.0.forward": [leaf],
        f"{payload}.relu.0.forward": [leaf],
        "Torch.einsum.0.forward": [text, leaf],
        "Torch.add.0.forward": [leaf, text],
        "Torch.exp.0.forward": [{**leaf, "dtype": f"torch.{payload}"}],
        "Torch.sin.0.forward": [{**leaf, "type": payload}],
        "Torch.cos.0.forward": [{**leaf, "data_name": re.sub(r"[/\\\\\0]", "", payload) + ".pt"}],
        "Torch.abs.0.forward": [leaf],
    }
    data = {
        key: {
            "input_args": arguments,
            "input_kwargs": {payload: text} if "abs" in key else {},
            "output": [leaf],
        }
        for key, arguments in calls.items()
    }
    directory.mkdir(parents=True)
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (directory / "dump.json").write_text(json.dumps({**head, "data": data}), "utf-8")
    return directory / "dump.json"


@pytest.mark.parametrize(
    "payload", [EVERYTHING, *(pytest.param(one, marks=SLOW, id=name) for name, one in PAYLOADS.items())],
    ids=lambda _: "everything",
)  # fmt: skip
def test_the_pre_check(payload: str, probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where error data go
    dump = precheck_run(tmp_path / "run", payload)
    details = []
    for side in ("npu", "gpu"):
        out = tmp_path / side
        command = "run_ut" if side == "npu" else "multi_run_ut"
        assert probe(command, "-api_info", dump, "-o", out, "-d", "cpu", "-save_error_data") == 0, probe.err
        assert not dangers(probe.out + probe.err), probe.out + probe.err
        check_files(out)
        details += out.glob("accuracy_checking_details_*.csv")
        (result,) = out.glob("accuracy_checking_result_*.csv")
        assert probe("run_ut", "-api_info", dump, "-o", out, "-d", "cpu", "-csv_path", result) == 0, probe.err
        assert not dangers(probe.out + probe.err), probe.out + probe.err
        assert "8 of them in an earlier run" in probe.out, "names are found again as they were written"
    npu, gpu = details
    out = tmp_path / "compared"
    assert probe("api_precision_compare", "-npu", npu, "-gpu", gpu, "-o", out) == 0, probe.err
    assert not dangers(probe.out + probe.err), probe.out + probe.err
    check_files(out)
