"""The result of a check as a JUnit file, which most CI systems show."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from probe_core.safe_text import escape_invisible
from probe_workflow.check_result import CheckResult
from probe_workflow.exit_codes import CheckCode
from probe_workflow.reports.annotations import Annotation
from probe_workflow.sentences import list_details, summarize


def format_junit(result: CheckResult, annotations: Sequence[Annotation]) -> str:
    """Return the XML text: one test case, which passes, fails (diverged) or has an error (all else)."""
    is_failure, is_error = result.code is CheckCode.DIVERGED, result.code not in (CheckCode.AGREE, CheckCode.DIVERGED)
    counts = {"tests": "1", "failures": str(int(is_failure)), "errors": str(int(is_error)), "skipped": "0"}
    suite = ElementTree.Element("testsuite", {"name": "probe check", **counts})
    case = ElementTree.SubElement(suite, "testcase", classname="probe.check", name=_clean(str(result.golden)))
    place = next((annotation for annotation in annotations if annotation.file), None)
    if place is not None:
        case.set("file", _clean(place.file))
        case.set("line", str(place.line))
    if is_failure or is_error:
        problem = ElementTree.SubElement(case, "failure" if is_failure else "error", message=_clean(summarize(result)))
        problem.set("type", result.code.name)
        problem.text = "\n".join(map(_clean, list_details(result)))
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def _clean(text: str) -> str:
    """Return a text without characters that XML cannot hold."""
    return escape_invisible(text)
