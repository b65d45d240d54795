"""Calls that run_ut runs, its words about them, its exit codes, and calls that crash or hang."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from support.programs import preloaded
from support.runs.precheck_runs import (
    call,
    config,
    drawn,
    standin_run,
    written,
)
from support.runs.recorded import scalar, write_run

pytest_plugins = ["support.standins.precheck_fixtures"]

# -- which calls are run --------------------------------------------------


def test_the_filter_leaves_out_calls_that_repeat_an_earlier_one(probe: Any, tmp_path: Path, standin: Path) -> None:
    dump = standin_run(tmp_path / "run", *(f"Functional.good.{i}" for i in range(4)), "Functional.near.0")
    text = json.loads(dump.read_text())
    text["data"]["Functional.good.1.forward"]["input_args"][0].update(Max=5.0, Mean=2.0, Norm=3.0)
    text["data"]["Functional.good.2.forward"]["input_args"][0].update(shape=[3])
    text["data"]["Functional.good.3.forward"]["input_kwargs"] = {"dim": scalar(1)}
    dump.write_text(json.dumps(text))
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out", "-f") == 0, probe.err
    assert list(written(tmp_path / "out").rows) == [
        "Functional.good.0", "Functional.good.2", "Functional.good.3", "Functional.near.0",
    ]  # fmt: skip


def test_only_what_is_asked_for(probe: Any, tmp_path: Path, standin: Path) -> None:
    dump = standin_run(tmp_path / "run", "Functional.good.0", "Functional.good.1", "Tensor.good.0", "Torch.near.0")
    command = ("run_ut", "-api_info", dump, "-o", tmp_path / "out", "--only", "Functional.good", "--only")
    assert probe(*command, "Torch.near.0") == 0, probe.err
    assert list(written(tmp_path / "out").rows) == ["Functional.good.0", "Functional.good.1", "Torch.near.0"]


@pytest.mark.parametrize(
    "white, black, skipped",
    [
        (["good"], [], {"near", "far"}),
        ([], ["far"], {"far"}),
        (["good", "near"], ["far"], {"far"}),
        (["good", "near"], ["near"], {"near", "far"}),
    ],
)
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_white_and_black_list(
    white: list[str],
    black: list[str],
    skipped: set[str],
    form: str,
    probe: Any,
    tmp_path: Path,
    standin: Path,
) -> None:
    dump = standin_run(tmp_path / "run", "Functional.good.0", "Functional.near.0", "Functional.far.0")
    settings = config(tmp_path / "config.json", white_list=white, black_list=black)
    if form == "yaml":
        settings = tmp_path / "config.yaml"
        settings.write_text(f"white_list: {json.dumps(white)}\nblack_list: {json.dumps(black)}\n")
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out", "-config", settings) == 0, probe.err
    rows = written(tmp_path / "out").rows
    assert {name.split(".")[1] for name, row in rows.items() if row[0] == "SKIP"} == skipped
    assert len(rows) == 3
    for api in skipped:
        name = f"Functional.{api}.0"
        assert rows[name][2] == f"API {name} in black list or not in white list. SKIP."


# -- exit codes, the summary, running one again ----------------------------------------------------


@pytest.mark.parametrize(
    "names, level, code",
    [
        (["good"], "warning", 0),
        (["near"], "warning", 1),
        (["near"], "error", 0),
        (["far"], "error", 1),
        (["far"], "warning", 1),
        (["far"], None, 0),
        (["refuse"], "warning", 2),
        (["leave"], None, 3),
        (["leave", "far"], "error", 3),
    ],
)
def test_exit_codes(names: list[str], level: str | None, code: int, probe: Any, tmp_path: Path, standin: Path) -> None:
    dump = standin_run(tmp_path / "run", *(f"Functional.{name}.0" for name in names))
    more = ["--fail-on", level] if level else []
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out", *more) == code, probe.err


def test_what_takes_its_process_with_it_costs_one_row(probe: Any, tmp_path: Path, standin: Path) -> None:
    reasons = {
        "segfault": "signal 11",
        "abort": "signal 6",
        "killed": "killed (signal 9), often because of a lack of memory",
        "leave": "exit code 7; it last wrote: the driver gave up",
        "hang": "no answer within 1 s",
    }
    names = [f"Functional.{name}.0" for bad in reasons for name in ("good", bad)]
    names = [name if "good" not in name else f"Functional.good.{i}" for i, name in enumerate(names)]
    dump = standin_run(tmp_path / "run", *names, with_backward=True)
    command = ("multi_run_ut", "-n", "2", "-api_info", dump, "-o", tmp_path / "out", "--timeout", "1")
    assert probe(*command) == 3
    found = written(tmp_path / "out")
    assert list(found.rows) == names
    for name, (forward, backward, message) in found.rows.items():
        reason = reasons.get(name.split(".")[1])
        if reason is None:
            assert (forward, backward, message) == ("pass", "pass", ""), "others are unharmed"
            continue
        assert (forward, backward) == ("error", "SKIP")
        assert message.startswith("ERROR: ") and reason in message
        rows = [found.outputs[f"{name}.{phase}.output.0"] for phase in ("forward", "backward")]
        assert [row["Status"] for row in rows] == ["error", "SKIP"]
        assert all(row["Message"] == message for row in rows)
    assert "and 4 more ended the worker process" in probe.err


def test_a_call_that_wants_too_much_memory_is_skipped(probe: Any, tmp_path: Path, standin: Path) -> None:
    dump = standin_run(tmp_path / "run", "Functional.no_memory.0", "Functional.good.0")
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out") == 0
    rows = written(tmp_path / "out").rows
    assert rows["Functional.no_memory.0"] == ["SKIP", "", "There is not enough memory to run it. SKIP."]


def test_the_worst_stand_first_and_can_be_run_again_as_printed(
    probe: Any, tmp_path: Path, standin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "a directory"
    dump = standin_run(directory, "Functional.good.0", "Functional.near.0", "Functional.far.0")
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out", "-d", "cpu") == 0
    lines = probe.out.splitlines()
    assert lines[0].startswith("3 ")
    assert lines[1] == "  1 error, 1 warning, 1 pass, 0 SKIP"
    assert probe.out.index("Functional.far.0.forward.output.0") < probe.out.index("Functional.near.0.forward")
    again = next(line for line in lines if "--only Functional.far.0" in line)
    words = shlex.split(again)
    assert words[0] == "probe" and str(dump) in words and words[words.index("-d") + 1] == "cpu"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert probe(*words[1:], "-o", tmp_path / "again") == 0, probe.err
    first, second = written(tmp_path / "out"), written(tmp_path / "again")
    name = "Functional.far.0.forward.output.0"
    assert second.outputs == {name: first.outputs[name]}


@pytest.mark.parametrize(
    "options", [["--seed", "7"], ["--standard", "8.3"], ["--timeout", "5.0"], ["-j"]], ids=" ".join
)
def test_the_printed_command_has_the_options_of_the_run(
    options: list[str], probe: Any, tmp_path: Path, standin: Path
) -> None:
    dump = standin_run(tmp_path / "run", "Functional.far.0")
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out", *options) == 0
    words = shlex.split(next(line for line in probe.out.splitlines() if "--only" in line))
    assert all(word in words or word.replace("-j", "--jit-compile") in words for word in options)


def test_nothing_but_the_summary_in_a_pipe(tmp_path: Path) -> None:
    dump = write_run(tmp_path / "run", {"Torch.nosuch.0.forward": call(drawn([3]))})
    done = preloaded.run(
        [sys.executable, "-m", "probe_core.cli", "run_ut", "-api_info", dump, "-o", tmp_path / "out"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stderr.startswith("warning: Nothing was checked: the only call was")
    assert done.stderr.count("\n") == 1
    assert "\x1b" not in done.stdout and "\r" not in done.stdout
    head, counts, why, reason, *files = done.stdout.splitlines()
    assert head.startswith("1 ") and counts == "  0 error, 0 warning, 0 pass, 1 SKIP"
    assert why == "  skipped because:" and "Torch.nosuch is not there" in reason
    found = written(tmp_path / "out")
    assert files == [f"  wrote {found.result}", f"  wrote {found.details}"]


def test_a_call_that_gives_out_nothing_says_so(probe: Any, tmp_path: Path) -> None:
    dump = write_run(tmp_path / "run", {"Tensor.stride.0.forward": call(drawn([]))})
    assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out", "--lang", "en") == 0, probe.err
    (row,) = written(tmp_path / "out").rows.values()
    assert row[-1] == "It returns nothing that can be compared."
    assert "1 × It returns nothing that can be compared." in probe.out
