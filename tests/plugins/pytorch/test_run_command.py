"""``probe run``: the script runs as it would without."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from probe_ranks.processes import ISOLATION_FLAGS
from support import ROOT
from support.programs import preloaded
from support.runs.scripts import (
    TRAIN,
    filled_steps,
    in_a_place_of_its_own,  # noqa: F401
    names,
    records,
    script,
)

OWN = re.compile(r"probe_pytorch|probe_core|runpy")
# -- the script runs as it would --------------------------------------------------------------------


def test_a_script_that_was_not_touched(probe: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = script(TRAIN)
    runpy.run_path(str(path), run_name="__main__")
    expected = capsys.readouterr().out
    for number, more in enumerate(([], ["--level", "L0"], ["--level", "L2", "--task", "tensor"])):
        assert probe("run", "-o", f"run{number}", *more, path) == 0
        assert probe.out == expected
        assert filled_steps(f"run{number}") == [0, 1, 2]
    assert path.read_text() == textwrap.dedent(TRAIN)


def test_what_is_recorded_by_default(probe: Any) -> None:
    assert probe("run", script(TRAIN)) == 0
    head = records("probe-run")
    assert (head["task"], head["level"]) == ("statistics", "mix")
    found = names("probe-run")
    assert {
        "Module.up.Linear.forward.0",
        "Functional.gelu.0.backward",
        "Module.down.Linear.parameters_grad",
    } <= {*found}
    assert not Path("probe-run", "step3").exists()
    first = names("probe-run", 1)
    assert [name for name in first if name.startswith("Module")] == [n for n in found if n.startswith("Module")]


@pytest.mark.parametrize(
    ("ends", "code", "said"),
    [
        ("", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(0)", 0, ""),
        ("sys.exit('no more data')", 1, "no more data\n"),
        ("raise SystemExit(7)", 7, ""),
        ("raise KeyboardInterrupt", 130, "Interrupted"),
    ],
)
def test_the_exit_code_is_the_scripts(probe: Any, ends: str, code: int, said: str) -> None:
    path = script(f"import sys\nimport torch\ntorch.ones(2) + 1\n{ends}\n")
    assert probe("run", "-o", "run", path) == code
    assert probe.err.startswith(said)
    assert names("run") == ["Torch.ones.0.forward", "Tensor.__add__.0.forward"] or names("run") == [
        "Tensor.__add__.0.forward"
    ]


def told_by_python(path: Path) -> str:
    """The traceback that python itself shows."""
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    return done.stderr


def lines_of_trace(text: str) -> list[tuple[str, str]]:
    """The frames of a traceback: the file's name, and the line with its function."""
    return re.findall(r'  File ".*?([^/"]+)", (line \d+, in .*)', text)


def test_an_exception_is_shown_as_python_does(probe: Any) -> None:
    path = script("""\
        def inner():
            raise ValueError("mine")

        def outer():
            try:
                inner()
            except ValueError as error:
                raise RuntimeError("also mine") from error

        outer()
    """)
    assert probe("run", "-o", "run", path) == 1
    expected = told_by_python(path)
    assert lines_of_trace(probe.err) == lines_of_trace(expected)
    assert not OWN.search(probe.err.partition("warning:")[0])
    assert "RuntimeError: also mine" in probe.err and "The above exception was the direct cause" in probe.err


def test_an_exception_of_torch_shows_no_frames_of_the_recorder(probe: Any) -> None:
    path = script("""\
        import torch
        from torch import nn

        model = nn.Sequential(nn.Linear(4, 4))
        try:
            model(torch.ones(3, 5))
        except RuntimeError as error:
            raise ValueError("mine") from error
    """)
    assert probe("run", "-o", "run", path) == 1
    trace = probe.err.partition("probe recorded")[0]
    assert "shapes cannot be multiplied" in trace
    assert not OWN.search(trace)
    # frames of torch differ: a module with hooks calls its forward from another line
    mine = [line for line in lines_of_trace(trace) if "train.py" in line[0]]
    assert mine == [line for line in lines_of_trace(told_by_python(path)) if "train.py" in line[0]]


def test_a_script_that_is_no_python(probe: Any) -> None:
    path = script("import torch\nif True print(1)\n")
    assert probe("run", "-o", "run", path) == 1
    assert "SyntaxError" in probe.err and "train.py" in probe.err


def test_arguments_reach_the_script(probe: Any) -> None:
    path = script("import sys\nprint(sys.argv)\n")
    arguments = [
        "--lr",
        "-3",
        "--step",
        "7",
        "-o",
        "elsewhere",
        "-m",
        "x",
        "--",
        "-h",
        "--help",
        "--task=tensor",
    ]
    assert probe("run", "-o", "run", path, *arguments) == 0
    assert probe.out == f"{[str(path), *arguments]}\n"
    assert not Path("elsewhere").exists()


SHOWS = """\
    import json, os, sys
    from helper import VALUE
    print(json.dumps([__name__, sys.argv, sys.path[0], __package__, __spec__ is None, VALUE, os.getcwd(),
                      sys.modules["__main__"].__dict__ is globals()]))
"""


def test_what_the_script_sees_of_itself(probe: Any) -> None:
    script("VALUE = 5\n", "deep/helper.py")
    path = script(SHOWS, "deep/train.py")
    done = subprocess.run([sys.executable, path, "-x"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert probe("run", "-o", "run", path, "-x") == 0
    assert json.loads(probe.out)[:4] == json.loads(done.stdout)[:4]
    assert json.loads(probe.out)[5:] == json.loads(done.stdout)[5:]
    sys.modules.pop("helper", None)


def test_the_script_finds_its_own_file_from_anywhere(probe: Any) -> None:
    path = script("import os, pathlib\nos.chdir('/')\nprint(pathlib.Path(__file__).read_text() != '')\n")
    assert probe("run", "-o", "run", path) == 0, probe.err


def test_the_script_is_compiled_as_python_would(probe: Any) -> None:
    path = script("class Arguments:\n    rate: float = 0.1\n\nprint(Arguments.__annotations__)\n")
    assert probe("run", "-o", "run", path) == 0
    assert probe.out == "{'rate': <class 'float'>}\n"


def test_a_module(probe: Any) -> None:
    script("", "package/__init__.py")
    script("VALUE = 5\n", "package/other.py")
    script("""\
        import sys
        import torch
        from .other import VALUE
        torch.ones(2) * VALUE
        print(__name__, __package__, sys.argv[1:], sys.argv[0].endswith("package/main.py"))
    """, "package/main.py")  # fmt: skip
    assert probe("run", "-o", "run", "-m", "package.main", "--lr", "3") == 0, probe.err
    assert probe.out == "__main__ package ['--lr', '3'] True\n"
    assert "Tensor.__mul__.0.forward" in names("run")
    for name in [name for name in sys.modules if name.startswith("package")]:
        del sys.modules[name]


def test_a_missing_script(probe: Any) -> None:
    assert probe("run", "-o", "run", "missing.py") == 2
    problem, *fix = probe.err.splitlines()
    assert problem == 'error: There is no script "missing.py".' and len(fix) == 1
    assert probe("run", "-o", "run", ".") == 2
    assert probe("run") == 2
    assert not Path("run").exists()


def test_a_script_that_may_not_be_read(probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for a file without permission, which root would be free to read."""
    opened = Path.open

    def forbidden(path: Path, *arguments: Any, **more: Any) -> Any:
        if path.name == "train.py":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **more)

    secret = script(TRAIN)
    monkeypatch.setattr(Path, "open", forbidden)
    assert probe("run", "-o", "run", secret) == 2
    assert probe.err.startswith('error: The script "train.py" cannot be read: Permission denied.')
    assert not Path("run").exists()


MISTAKEN = """\
    import torch
    from probe_pytorch import PrecisionDebugger

    PrecisionDebugger(dump_path="run", task="tensors")
"""


def test_a_mistake_in_the_configuration_of_a_script_under_probe_run(probe: Any) -> None:
    assert probe("run", "-o", "other", script(MISTAKEN)) == 2
    assert probe.err.startswith("error: ") and "Traceback" not in probe.err and '"task"' in probe.err


def test_a_mistake_in_the_configuration_of_a_script() -> None:
    """Its traceback is the script's line, one of ours, and the sentence."""
    done = subprocess.run([sys.executable, script(MISTAKEN)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    frames = lines_of_trace(done.stderr)
    assert [name for name, _ in frames] == ["train.py", "debugger.py"]
    assert done.stderr.count("Traceback") == 1 and "During handling" not in done.stderr
    assert 'UserError: The configuration: "task" must be one of the choices below' in done.stderr


def test_a_missing_module(probe: Any) -> None:
    assert probe("run", "-o", "run", "-m", "missing.module") in (1, 2)
    assert "Traceback" not in probe.err and "missing" in probe.err
    assert not Path("run").exists()


def test_the_warnings_of_the_script() -> None:
    path = script("import warnings\nwarnings.warn('mine')\n")
    command = [sys.executable, "-m", "probe_core.cli", "run", "-o", "run", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "train.py:2: UserWarning: mine" in done.stderr


def test_options_that_cannot_be_followed(probe: Any) -> None:
    path = script(TRAIN)
    for options in (
        ["--step", "x"],
        ["--step", "3-1"],
        ["--level", "L7"],
        ["--task", "x"],
        ["-c", "missing.json"],
    ):
        assert probe("run", "-o", "run", *options, path) == 2, options
        assert "Traceback" not in probe.err and probe.out == ""
    assert not Path("run").exists()


@pytest.mark.parametrize("launcher", [["-m", "probe_core.cli"], [*ISOLATION_FLAGS, "-m", "probe_core.cli"]])
def test_the_directory_of_the_script_precedes_the_path_of_the_user(launcher: list[str], tmp_path: Path) -> None:
    script = tmp_path / "show_path.py"
    script.write_text("import sys; print(sys.path[:2])")
    done = subprocess.run(
        [sys.executable, *launcher, "run", "-o", str(tmp_path / "run"), str(script)],
        env={**os.environ, "PYTHONPATH": "/a/path/of/the/user"}, capture_output=True, text=True,
    )  # fmt: skip
    expected = [str(tmp_path), "/a/path/of/the/user"]
    if "-I" in launcher:  # which ignores PYTHONPATH
        expected.pop()
    assert done.stdout.startswith(str(expected)[:-1]), done.stdout + done.stderr


def test_a_second_recording_in_a_directory_keeps_the_first(probe: Any) -> None:
    path = script(TRAIN)
    assert probe("run", "-o", "good", path) == 0
    first = Path("good/step0/rank/dump.json").read_bytes()
    assert probe("run", "-o", "good", "--level", "L0", path) == 0
    assert "good.1" in probe.err and "--replace" in probe.err
    assert Path("good.1/step0/rank/dump.json").read_bytes() == first
    assert probe("run", "-o", "good", "--replace", path) == 0
    assert "replaced the recording" in probe.err and not Path("good.2").exists()


def test_options_after_the_script_are_pointed_out(probe: Any) -> None:
    path = script(TRAIN)
    assert probe("run", "-o", "run", path, "--step=0", "--lr", "1", "-o") == 0
    assert "--step, -o came after the script's name, so the script receives them." in probe.err
    assert probe("run", "-o", "other", path, "--lr", "1") == 0 and "script's name" not in probe.err


def test_a_crashed_script_is_not_told_that_no_optimizer_stepped(probe: Any) -> None:
    path = script("import torch\ntorch.ones(3).sum()\nraise ValueError('boom')\n")
    assert probe("run", "-o", "run", path) == 1
    assert "boom" in probe.err and "optimizer" not in probe.err


SCRIPT = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
"""


def status_of(directory: Path, *lines: str) -> tuple[int, dict[str, Any], str]:
    """Record a script that ends with these lines; return its exit code, its status and its messages."""
    (directory / "train.py").write_text("\n".join([SCRIPT, *lines]))
    command = [sys.executable, "-m", "probe_core.cli", "run", "-o", "run", "--status", "status", "train.py"]
    done = preloaded.run(command, cwd=directory, capture_output=True, text=True)
    (file,) = (directory / "status").iterdir()
    return done.returncode, json.loads(file.read_text()), done.stderr


@pytest.mark.parametrize("line, expected", [
    ("", {"ended": True, "exit_code": 0, "exception": "", "complete": True, "steps": [0, 1]}),
    ("1 / 0", {"ended": True, "exit_code": 1, "exception": "ZeroDivisionError", "complete": True}),
    ("raise SystemExit(3)", {"ended": True, "exit_code": 3, "exception": "SystemExit", "complete": True}),
    ("import os; os._exit(4)", {"ended": False, "exit_code": 0, "complete": False, "steps": []}),
])  # fmt: skip
def test_the_status_states_how_the_script_ended(line: str, expected: dict[str, Any], tmp_path: Path) -> None:
    code, status, messages = status_of(tmp_path, line)
    assert status == {**status, **expected} and (code == status["exit_code"] or not status["ended"])
    assert "probe compare" not in messages
    text = (ROOT / "docs" / "recording.md").read_text("utf-8")
    assert all(f"`{name}`" in text for name in status)


def test_options_are_stated_in_the_header(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "probe_core.cli", "run", "-o", "run", "--seed", "0", "train.py"]
    assert preloaded.run(command, cwd=tmp_path, capture_output=True).returncode == 0
    head = json.loads((tmp_path / "run/step0/rank/dump.json").read_text())
    assert head["probe"]["settings"] == {"seed": 0}
