from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from probe_workflow.check_result import CheckResult
from probe_workflow.reports.annotations import list_annotations
from probe_workflow.reports.junit import format_junit
from support.runs.checks import cause, checked, failed

from probe_core.model.answers import Outcome

HOSTILE = 'Functional.<b>&"\x00\x1b\ud800\ufffe]]>.0.forward'


def suite(result: CheckResult) -> ElementTree.Element:
    return ElementTree.fromstring(format_junit(result, list_annotations(result, Path("/repo"))))


def test_a_divergence_is_a_failure_at_the_line_of_its_cause() -> None:
    found = suite(checked(Outcome.DIVERGED, cause()))
    (case,) = found
    assert (found.get("failures"), found.get("errors")) == ("1", "0")
    assert (case.get("file"), case.get("line")) == ("train.py", "7")
    (failure,) = case
    assert failure.tag == "failure" and failure.get("message") == "DIVERGED: a call differs"
    assert "compared: 8 of 10 recorded values" in (failure.text or "")


def test_agreement_passes() -> None:
    found = suite(checked(Outcome.AGREE))
    assert (found.get("failures"), found.get("errors"), len(found[0])) == ("0", "0", 0)


@pytest.mark.parametrize("result", [checked(Outcome.CANNOT_TELL), checked(Outcome.NOT_COMPARABLE), failed()])
def test_everything_else_is_an_error(result: CheckResult) -> None:
    found = suite(result)
    assert (found.get("failures"), found.get("errors"), found[0][0].tag) == ("0", "1", "error")


def test_hostile_names_give_valid_xml() -> None:
    found = suite(checked(Outcome.DIVERGED, cause(HOSTILE, f"File /repo/{HOSTILE}, line 3, in f"), text=HOSTILE))
    assert "\\x00" in (found[0][0].get("message") or "")
