"""Writing of all reports that a check was asked for."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe_diagnosis.api import serialize_answer

from probe_core import console
from probe_core.files.atomic import make_directory, write_text
from probe_core.model.plan import convert_to_plain
from probe_workflow.check_result import CheckResult
from probe_workflow.reports.annotations import Annotation, list_annotations
from probe_workflow.reports.ci_systems import CiSystem, find_root, format_code_quality, show_annotations
from probe_workflow.reports.junit import format_junit
from probe_workflow.reports.markdown import format_summary

SCHEMA = 1
"""Version of the layout of the JSON output."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The reports that a check was asked for.

    Attributes:
        system: The CI system that reads annotations from the output.
        as_json: True to print the result as JSON.
        summary: The file for the summary in Markdown.
        junit: The file for JUnit XML.
        code_quality: The file for GitLab's code quality report.
    """

    system: CiSystem
    as_json: bool = False
    summary: Path | None = None
    junit: Path | None = None
    code_quality: Path | None = None


def write_reports(result: CheckResult, options: ReportOptions) -> None:
    """Write and print the reports.

    Raises:
        UserError: A file cannot be written.
    """
    annotations = list_annotations(result, find_root())
    for path, text in (
        (options.summary, format_summary(result, annotations)),
        (options.junit, format_junit(result, annotations)),
        (options.code_quality, format_code_quality(annotations, result.golden)),
    ):
        if path is not None:
            make_directory(path.parent)
            write_text(path, text)
    if options.as_json:
        console.show_json(_serialize(result, annotations))
    with redirect_stdout(sys.stderr) if options.as_json else nullcontext():
        show_annotations(annotations, options.system)


def _serialize(result: CheckResult, annotations: list[Annotation]) -> dict[str, Any]:
    answer = result.answer
    return {
        "schema": SCHEMA,
        "exit_code": int(result.code),
        "result": result.code.name.lower(),
        "golden": str(result.golden),
        "script": convert_to_plain(result.script),
        "annotations": convert_to_plain(annotations),
        "answer": answer and {"verdict": answer.outcome.value, "sentence": answer.sentence, **serialize_answer(answer)},
    }
