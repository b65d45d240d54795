"""The shell of ``probe parse``, on a terminal: it runs its commands and nothing else, and ends with the input."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_legacy.parse.group import parse
from probe_legacy.parse.shell import create_completer
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

MAIN = "from probe_core.cli.main import main; main()"
WITHOUT_LIBRARY = f"import sys; sys.modules['prompt_toolkit'] = None; {MAIN}"
LIMIT = 60.0
PROMPT = b"Parse >>>"


class Terminal:
    """``probe parse`` on a terminal of its own."""

    def __init__(self, home: Path, code: str) -> None:
        self.home, (self.end, other) = home, os.openpty()
        environment = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "TERM": "xterm",
                       "PROMPT_TOOLKIT_NO_CPR": "1"}  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "parse"],
            cwd=home, env=environment, stdin=other, stdout=other, stderr=other, start_new_session=True,
        )  # fmt: skip
        os.close(other)
        os.set_blocking(self.end, False)  # writing may wait for ever once the other end is closed
        self.text = b""

    def wait_for(self, wanted: bytes, times: int = 1) -> None:
        """Read until a text has been printed so many times."""
        limit = time.monotonic() + LIMIT
        while self.text.count(wanted) < times:
            assert time.monotonic() < limit, self.text
            if select.select([self.end], [], [], 0.5)[0]:
                try:
                    self.text += os.read(self.end, 1 << 16)
                except OSError:  # the other end was closed
                    break
        assert self.text.count(wanted) >= times, self.text

    def type(self, line: bytes) -> None:
        """Type a line, and wait for what it prints."""
        os.write(self.end, line + b"\r")

    def close(self) -> int:
        """Press Ctrl-D, again if it came before the terminal was ready, and return the exit code."""
        limit = time.monotonic() + LIMIT
        while self.process.poll() is None:
            assert time.monotonic() < limit, self.text
            with suppress(OSError):  # the other end was closed
                os.write(self.end, b"\x04")
                if select.select([self.end], [], [], 0.5)[0]:
                    self.text += os.read(self.end, 1 << 16)
        os.close(self.end)
        return self.process.returncode


@pytest.mark.parametrize("code", [MAIN, WITHOUT_LIBRARY], ids=["prompt_toolkit", "plain"])
def test_a_session(tmp_path: Path, code: str) -> None:
    np.save(tmp_path / "a.npy", np.float32(1.5))
    terminal = Terminal(tmp_path, code)
    terminal.wait_for(PROMPT)
    terminal.type(b"pt -n a.npy")
    terminal.wait_for(b"[Mean: 1.5]")
    terminal.type(b"touch made")
    terminal.wait_for(b"no other program is run")
    terminal.type(b"!touch made")
    terminal.wait_for(b"no other program is run", 2)
    terminal.type(b"pt -n 'a.npy")
    terminal.wait_for(b"cannot be split into words")
    terminal.type(b"pt -n none.npy")
    terminal.wait_for(b"none.npy cannot be read")
    terminal.type(b"help cn")
    terminal.wait_for(b"Compare two tensors value by value.")
    terminal.type(b"")
    assert terminal.close() == 0, terminal.text
    assert not (tmp_path / "made").exists() and b"Traceback" not in terminal.text
    assert (b"pip install prompt_toolkit" in terminal.text) is (code == WITHOUT_LIBRARY)
    history = tmp_path / "state" / "probe" / "parse_history"
    assert history.exists() is (code == MAIN)
    if code == MAIN:
        assert "+pt -n a.npy\n" in history.read_text() and history.stat().st_mode & 0o077 == 0


def test_exit_ends_it(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, MAIN)
    terminal.wait_for(PROMPT)
    terminal.type(b"exit")
    assert terminal.process.wait(LIMIT) == 0
    os.close(terminal.end)


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    terminal = Terminal(tmp_path, MAIN)
    terminal.wait_for(PROMPT)
    assert terminal.close() == 0 and b"Traceback" not in terminal.text


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("", {"pk", "pt", "cn", "dc", "vc", "cad", "help", "exit"}),
        ("c", {"cn", "cad"}),
        ("dc --", {"--name", "--format", "--output", "--overwrite", "--help"}),
        ("dc -f NH", {"NHWC"}),
        ("dc -f ", {"host", "device", "ND", "NCHW", "NHWC", "HWCN", "CHWN"}),
        ("pt -n de", {"ep"}),
        ("pk -f deep/", {"a.pkl"}),
        ("ls de", set()),
    ],
)
def test_completion(line: str, offered: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.pkl").touch()
    monkeypatch.chdir(tmp_path)
    found: Any = create_completer(parse).get_completions(Document(line), CompleteEvent())
    assert {completion.text for completion in found} == offered


def test_completion_in_a_terminal(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "_PROBE_COMPLETE": "bash_complete",
        "COMP_WORDS": "probe parse c",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(
        [sys.executable, "-m", "probe_core.cli"], env=environment, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == {"plain,cn", "plain,cad", "file,c"}
