from __future__ import annotations

from pathlib import Path

from probe_workflow.reports.annotations import list_annotations
from probe_workflow.reports.markdown import escape_markdown, format_summary
from support.runs.checks import cause, checked, failed

from probe_core.model.answers import Outcome

HOSTILE = "a|b`c`<script>[x](http://y)\n# title @all ![i](j) $z$"


def test_the_summary_has_the_verdict_the_causes_and_the_coverage() -> None:
    result = checked(Outcome.DIVERGED, cause())
    text = format_summary(result, list_annotations(result, Path("/repo")))
    assert text.startswith("### probe check: DIVERGED\n\nDIVERGED\\: a call differs\n")
    assert "| 1 | Functional.linear.0.forward | returns values that differ | train.py, line 7 |" in text
    assert "Compared 8 of 10 recorded values.\n\n* not compared: 2 values were not recorded\n" in text


def test_the_summary_of_a_failed_script_states_its_exception() -> None:
    text = format_summary(failed(), [])
    assert text.startswith("### probe check: UNDECIDED\n\nThe script failed with ValueError")


def test_hostile_names_are_shown_as_they_are() -> None:
    escaped = escape_markdown(HOSTILE)
    assert "\n" not in escaped and "<" not in escaped
    bare = escaped.replace("\\\\", "")
    assert all(f"\\{sign}" in bare and bare.count(sign) == bare.count(f"\\{sign}") for sign in "|`[]()#!@:$")


def test_hostile_names_add_no_column_and_no_line() -> None:
    result = checked(Outcome.DIVERGED, cause(HOSTILE, f"File /repo/{HOSTILE}, line 3, in f"))
    rows = [
        line for line in format_summary(result, list_annotations(result, Path("/repo"))).splitlines() if "| 1 |" in line
    ]
    assert len(rows) == 1 and rows[0].replace("\\|", "").count("|") == 5
