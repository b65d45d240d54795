"""Annotations in the formats of CI systems.

Names and messages come from recorded files and may hold anything, so each format escapes them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from enum import Enum
from io import StringIO
from pathlib import Path
from uuid import uuid4

from probe_core import console
from probe_core.errors import make_printable
from probe_core.safe_text import escape_invisible
from probe_workflow.reports.annotations import Annotation, AnnotationLevel

MAX_MESSAGE_CHARACTERS = 1000
_GITHUB_MESSAGE, _GITHUB_PROPERTY = "%", "%:,"
"""Characters that GitHub's workflow commands need escaped in a message, and in a property."""


class CiSystem(str, Enum):
    """CI systems whose runner reads annotations from the output of a command."""

    GITHUB = "github"
    AZURE = "azure"
    NONE = "none"


ROOT_VARIABLES = ("GITHUB_WORKSPACE", "BUILD_SOURCESDIRECTORY", "CI_PROJECT_DIR")
"""Variables in which GitHub, Azure and GitLab name the root of the repository."""


def detect_ci_system(environment: Mapping[str, str] = os.environ) -> CiSystem:
    """Return the CI system that runs this process, by the variables that it documents."""
    if environment.get("GITHUB_ACTIONS") == "true":
        return CiSystem.GITHUB
    return CiSystem.AZURE if environment.get("TF_BUILD", "").lower() == "true" else CiSystem.NONE


def find_root(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the root of the repository: that of the CI system, or the working directory."""
    root = next((environment[name] for name in ROOT_VARIABLES if environment.get(name)), "")
    return Path(root).absolute() if root else Path.cwd()


def format_github(annotation: Annotation) -> str:
    """Return a workflow command of GitHub Actions."""
    place = {"file": annotation.file, "line": annotation.line} if annotation.file else {}
    properties = {**place, "title": "probe check"}
    listed = ",".join(f"{name}={_escape(str(value), _GITHUB_PROPERTY)}" for name, value in properties.items())
    return f"::{annotation.level.value} {listed}::{_escape(_shorten(annotation.message), _GITHUB_MESSAGE)}"


def format_azure(annotation: Annotation) -> str:
    """Return a logging command of Azure Pipelines."""
    place = {"sourcepath": annotation.file, "linenumber": annotation.line} if annotation.file else {}
    properties = {"type": annotation.level.value, **place}
    listed = ";".join(f"{name}={_escape_azure(str(value))}" for name, value in properties.items())
    return f"##vso[task.logissue {listed}]{_escape_azure(_shorten(annotation.message))}"


def format_code_quality(annotations: Sequence[Annotation], golden: Path) -> str:
    """Return the code quality report of GitLab; what has no line of code is reported on the golden."""
    severities = {AnnotationLevel.ERROR: "critical", AnnotationLevel.WARNING: "minor"}
    issues = [
        {
            "description": _shorten(annotation.message),
            "check_name": "probe check",
            "fingerprint": hashlib.sha256(f"{annotation.key} {annotation.file}".encode(errors="replace")).hexdigest(),
            "severity": severities[annotation.level],
            "location": {
                "path": make_printable(annotation.file or str(golden)),
                "lines": {"begin": annotation.line or 1},
            },
        }
        for annotation in annotations
    ]
    return json.dumps(issues, indent=2) + "\n"


FORMATTERS: Mapping[CiSystem, Callable[[Annotation], str]] = {
    CiSystem.GITHUB: format_github,
    CiSystem.AZURE: format_azure,
}


def show_annotations(annotations: Sequence[Annotation], system: CiSystem) -> None:
    """Print the annotations in the format of a CI system."""
    formatter = FORMATTERS.get(system)
    if formatter is not None:
        for annotation in annotations:
            console.show(formatter(annotation))


@contextmanager
def neutralize_commands(system: CiSystem) -> Iterator[None]:
    """Keep names of recorded files, which the block prints, from being commands of the CI system."""
    if system is CiSystem.NONE:
        yield
        return
    printed = StringIO()
    try:
        with redirect_stdout(printed):
            yield
    finally:
        text = printed.getvalue().replace("##", "# #").rstrip("\n")
        if text and system is CiSystem.GITHUB:
            token = uuid4().hex
            text = f"::stop-commands::{token}\n{text}\n::{token}::"
        if text:
            console.show(text, lines=True)


def _shorten(text: str) -> str:
    return make_printable(text, MAX_MESSAGE_CHARACTERS)


def _escape(text: str, characters: str) -> str:
    """Return a text in one line, in which these characters are percent-encoded."""
    return "".join(f"%{ord(char):02X}" if char in characters else char for char in escape_invisible(text))


def _escape_azure(text: str) -> str:
    return _escape(text.replace("%", "%AZP25"), ";]")
