"""Text of strangers on a terminal, in JSON and in spreadsheets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from probe_matching.written import _format_yaml
from probe_recording import sites
from probe_recording.run_directory.directory import StepDirectory
from probe_reporters.spreadsheet_text import neutralise
from support import ROOT
from support.cases import every
from support.measuring import PROPERTY
from support.runs.hostile_runs import EVERYTHING, dangers

from probe_core import console
from probe_core.errors import UserError, make_printable
from probe_core.safe_text import escape_invisible, format_safe_json

ANY_TEXT = st.text(st.integers(0, 0x10FFFF).map(chr), max_size=20)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("Functional.conv2d.0", "Functional.conv2d.0"),
        ("中文, é, 😀, क्षि", "中文, é, 😀, क्षि"),
        ("\x1b[31mred\x9b0m", r"\x1b[31mred\x9b0m"),
        ("a\u202eb\u2066", r"a\u202eb\u2066"),
        ("a\u200bb\ufeff\U000e0041", r"a\u200bb\ufeff\U000e0041"),
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("\ud800", r"\ud800"),
        ("\ue000\u00a0\u3164\ufe0f", r"\ue000\xa0\u3164\ufe0f"),
        ("e" + "\u0301" * 5, "e\u0301\u0301\u0301\\u0301\\u0301"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert escape_invisible(text) == make_printable(text) == shown


@given(ANY_TEXT)
@example(EVERYTHING)
@PROPERTY
def test_any_text(text: str) -> None:
    """Nothing but visible characters comes out, what is shown stays as it is, and JSON means what it meant."""
    assert not dangers(escape_invisible(text))
    assert escape_invisible(escape_invisible(text)) == escape_invisible(text)
    assert json.loads(format_safe_json({text: [text, 1.5]})) == json.loads(json.dumps({text: [text, 1.5]}))
    assert not dangers(format_safe_json(text))
    assert neutralise(neutralise(text)) == neutralise(text)


@given(ANY_TEXT, st.sampled_from(["", "\x1b[1m", "\x1b[0m"]))
@PROPERTY
def test_a_text_cannot_colour_itself(text: str, start: str) -> None:
    """Whatever click makes of a colour, a text that holds the same is shown with its escapes."""
    shown = printed(f"{console.style('ours', fg='red')} {start}{text}")
    assert shown.startswith("\x1b[31mours\x1b[0m ")
    assert not dangers(shown.removeprefix("\x1b[31mours\x1b[0m ").removesuffix("\n"))


def printed(text: str, **options: Any) -> str:
    """Return the text that ``show`` hands to a terminal."""
    found: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(click, "echo", lambda text, err=False: found.append(f"{text}\n"))
        console.show(text, **options)
    return "".join(found)


def test_styles() -> None:
    """Colours, bold, both, neither; what is styled is made safe as well."""
    assert printed(console.style("a\x1b", bold=True)) == "\x1b[1ma\\x1b\x1b[0m\n"
    assert printed(console.style("a", fg="red", bold=True)) == click.style("a", fg="red", bold=True) + "\n"
    assert printed(f"x {console.style('a')} y") == "x a y\n"
    assert printed(f"{console.style('a', fg='red')}{console.style('b', fg='green')}c") == (
        f"{click.style('a', fg='red')}{click.style('b', fg='green')}c\n"
    )
    assert printed("a\nb", lines=True) == "a\nb\n"
    assert printed("a\nb") == "a\\nb\n"


def test_an_error_that_is_no_longer_caught_is_safe_too() -> None:
    """Python prints it where a program calls the library."""
    assert str(UserError("no \x1b[31m", "do \x9b", ["\u202e"])) == "no \\x1b[31m\ndo \\x9b\n  \\u202e"


def test_all_printing_goes_through_the_console() -> None:
    """A command that prints by itself would print names as they are."""
    own = re.compile(r"\bclick\.(?:echo|secho|style|echo_via_pager)\(|(?<![\w.\"'])print\(|sys\.std(?:out|err)\.write")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for place in ("probe_core", "plugins")
        for path in (ROOT / place).rglob("*.py")
        if path.name not in ("console.py", "messages.py", "train.py", "make_names.py") and "build" not in path.parts
        for line in path.read_text("utf-8").splitlines()
        if own.search(line) and not line.startswith("        print(")  # in the examples of hookspecs.py
    ]
    assert found == []


# -- files that people print -----------------------------------------------------------------------


def test_the_files_of_a_mapping() -> None:
    """Names are plain to read where they can be, and mean the same where they cannot."""
    assert _format_yaml({"中文": "é"}) == "中文: é\n"
    names = {"a\u202e\x1b": "b\x9b\ud800\u2028"}
    assert not dangers(_format_yaml(names)) and yaml.safe_load(_format_yaml(names)) == names


def test_the_call_stacks_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is no UTF-8, and a line of code with a direction mark."""
    lines = ["File /home/\udce9/a.py, line 1, in f, \n x = 1  # 中文 \u202e\x9b"]
    monkeypatch.setattr(sites, "list_stack_lines", lambda stack: lines)
    stacks = sites.StackTable()
    stacks.add("Torch.abs.0.forward", (-7, 0))
    text = stacks.text()
    assert "中文" in text and not dangers(text)
    assert json.loads(text)["0"][1] == lines
    text.encode("utf-8")


def test_the_log_of_the_recorders_errors(tmp_path: Path) -> None:
    StepDirectory(tmp_path, 0, "rank0").log("hook", "a\x1b[8m", ValueError("b\x9b\ud800"), ["c\u202e"])
    text = (tmp_path / "step0" / "rank0" / "dump_error_info.log").read_text("utf-8")
    assert not dangers(text)
    assert all(part in text for part in (r"a\x1b[8m", r"b\x9b\ud800", r"c\u202e", "\n"))


# -- spreadsheets -----------------------------------------------------------------------------------

BLANKS = [" ", "   ", "\t", "\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\ufeff", "\u200b", "\u2003",
          "\u2028", "\u3000", "\u2060", "\u202e", "\u3164", " \xa0\x0c\ufeff", "\xad", "\U000e0041"]  # fmt: skip
SIGNS = ["=", "+", "-", "@", "%", "＝", "＋", "－", "＠", "﹦", "−"]


@every("sign", SIGNS)
@every("blank", ["", *BLANKS], ids=ascii)
def test_a_formula_behind_blanks(blank: str, sign: str) -> None:
    """An apostrophe comes first, at the beginning of a cell and behind a semicolon."""
    assert neutralise(f"{blank}{sign}cmd|' /C calc'!A0").startswith("'")
    assert ";'" in neutralise(f"a;{blank}{sign}cmd")


@pytest.mark.parametrize("text", ["-1.5", "-0.0", "+inf", "-1e-300", " -1", "-nan", "a - b", "a\nb = c", "x=1", "0 -1"])
def test_numbers_and_other_texts_stay(text: str) -> None:
    assert neutralise(text) == text


def test_control_characters_in_a_cell() -> None:
    """Lines and tabs stay, as in call stacks; all else that acts on a terminal is an escape."""
    assert neutralise("a\nb\tc") == "a\nb\tc"
    assert neutralise("a\x1b[31m\x9b\u202e\x07\r\x7f\u2028") == r"a\x1b[31m\x9b\u202e\x07\r\x7f\u2028"
