"""The commands and outputs of the tutorial, from top to bottom."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from support.programs import preloaded
from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "tutorial.md"
STARTS = {"python": [sys.executable], "probe": [sys.executable, "-m", "probe_core.cli"]}
NUMBER = re.compile(r"\d[\d,]*(\.\d+)?(e-\d+)?")


def plain(line: str) -> str:
    """A line without its numbers, which may differ from machine to machine, and without double blanks."""
    return " ".join(NUMBER.sub("0", line).split())


def call(directory: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a command of a page in a directory."""
    first, *rest = shlex.split(line)
    command = [*STARTS[first], *rest]
    shared = {**os.environ, "PROBE_TEST_IMPORTS": "transformers.models.llama.modeling_llama"}
    return preloaded.run(command, cwd=directory, capture_output=True, text=True, env=shared)


def mended(script: str, line: str) -> str:
    """The script with the one line replaced that begins like ``line``, up to its first blank or ``=``."""
    start = re.escape(re.split(r"(?<=\w)[ =]", line.rstrip("\n"))[0])
    changed, count = re.subn(rf"^{start}\b.*\n", lambda _: line, script, flags=re.MULTILINE)
    assert count == 1 and changed != script, line
    return changed


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    said = ""
    ran = 0
    for language, text in re.findall(r"```(bash|text|python)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        if language == "python":
            script.write_text(mended(script.read_text(), text) if script.exists() else text)
        elif language == "bash" and not text.startswith("pip install"):  # needs an index
            said = ""
            for line in text.splitlines():
                done = call(tmp_path, line)
                assert done.returncode == 0, (line, done.stdout, done.stderr)
                said += done.stdout + done.stderr
                ran += 1
        elif language == "text":
            for line in text.splitlines():
                assert plain(line.removesuffix(" …")) in plain(said), (line, said)
    assert ran == 9
    check_example(tmp_path)


def check_example(directory: Path) -> None:
    """Of an optimizer that lacks one parameter is said what the page on comparing shows."""
    script = (directory / "train.py").read_text()
    given = "list(model.parameters())[1:]"
    (directory / "fewer.py").write_text(script.replace("AdamW(model.parameters()", f"AdamW({given}"))
    first, aligned = blocks(ROOT / "docs" / "comparing.md", "text")
    compare = "probe compare fewer/step0 new4/step0 -o out"
    for line, shown in (
        ("probe run -o fewer --step 0 fewer.py new", ""),
        (compare, first),
        (f"{compare} --match align", aligned),
    ):
        done = call(directory, line)
        assert done.returncode == 0, done.stderr
        for line in shown.splitlines():
            assert plain(line.removesuffix(" …")) in plain(done.stdout), (line, done.stdout)
