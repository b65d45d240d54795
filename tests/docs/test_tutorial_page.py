"""The commands and outputs of the tutorial, from top to bottom."""

from __future__ import annotations

import csv
import re
import shlex
import sys
from pathlib import Path

from support.programs import preloaded
from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "tutorial.md"
STARTS = {"python": [sys.executable], "probe": [sys.executable, "-m", "probe_core.cli"]}
NUMBER = re.compile(r"\d+(\.\d+)?")


def plain(line: str) -> str:
    """A line without its numbers, which may differ from machine to machine, and without double blanks."""
    return " ".join(NUMBER.sub("0", line).split())


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    script, mended = blocks(PAGE, "python")
    script_path = tmp_path / "train.py"
    script_path.write_text(script)
    parts = re.findall(r"```(bash|text|python)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    said = ""
    ran = 0
    for language, text in parts[1:]:
        if language == "python":
            name = mended.strip().partition(" = ")[0]
            changed = re.sub(rf"^ *{name} = .*\n", mended, script, flags=re.MULTILINE)
            assert changed != script
            script_path.write_text(changed)
        elif language == "bash":
            said = ""
            for line in text.splitlines():
                first, *rest = shlex.split(line)
                done = preloaded.run([*STARTS[first], *rest], cwd=tmp_path, capture_output=True, text=True)
                assert done.returncode == 0, (line, done.stdout, done.stderr)
                said += done.stdout + done.stderr
                ran += 1
        else:
            for line in text.splitlines():
                assert plain(line) in plain(said), (line, said)
    assert ran == 11
    check_table(tmp_path / "second")
    check_example(tmp_path)


def check_example(directory: Path) -> None:
    """Of an optimizer that lacks one parameter is said what the page on comparing shows."""
    script = (directory / "train.py").read_text()
    given = "list(model.parameters())[1:]"
    (directory / "fewer.py").write_text(script.replace("AdamW(model.parameters()", f"AdamW({given}"))
    first, aligned = blocks(ROOT / "docs" / "comparing.md", "text")
    record = ["run", "-o", "fewer", "--task", "tensor", "--step", "0", "fewer.py"]
    compare = ["compare", "fewer", "old-tensors", "-o", "out"]
    for arguments, shown in (
        (record, ""),
        (compare, first),
        ([*compare, "--match", "align"], aligned),
    ):
        command = [*STARTS["probe"], *arguments]
        done = preloaded.run(command, cwd=directory, capture_output=True, text=True, check=True)
        for line in shown.splitlines():
            assert plain(line.removesuffix(" …")) in plain(done.stdout), (line, done.stdout)


def check_table(directory: Path) -> None:
    """The rows that the page shows stand in the table."""
    with next(directory.glob("*.csv")).open(encoding="utf-8-sig", newline="") as file:
        rows = {row["NPU Name"]: row for row in csv.DictReader(file)}
    columns = ("Cosine", "MaxRelativeErr", "Accuracy Reached or Not", "Err_message")
    shown = re.findall(r"^\| (Tensor\.var\S+) \|(.*)\|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(shown) == 3
    for name, cells in shown:
        for column, cell in zip(columns, cells.split(" |")):
            wanted, found = cell.strip(), rows[name][column]
            if re.fullmatch(r"0\.\d{6,}", wanted):
                assert abs(float(wanted) - float(found)) < 1e-4
            else:
                assert found == wanted, (name, column)
