"""Repositories and cases, read from the files beside this module."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from faults.cases import Cause

CASES = Path(__file__).resolve().parent / "repositories"
BASE, DEBUGGER = "base.patch", "debugger.patch"
FAULT, EQUAL, ROUNDING = "fault", "equal", "rounding"


@dataclass(frozen=True)
class Case:
    """A program that is compared with the repository's base program.

    Attributes:
        kind: ``fault``, ``equal`` or ``rounding``.
        patch: The file that is applied after ``base.patch``; None for the base program itself.
        like: The bug that the fault resembles.
        environment: Variables of this program alone.
        named_by: Alternatives; each maps parts of a cause to regular expressions that are all found in them.
    """

    name: str
    kind: str
    patch: Path | None = None
    like: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    named_by: tuple[Mapping[str, str], ...] = ()

    def is_named_by(self, cause: Cause) -> bool:
        """Return True if a cause names the fault."""
        parts = {
            "op": cause.op,
            "where": cause.where,
            "module": " ".join(cause.modules) or cause.op,
            "says": f"{cause.statement} {cause.row} {cause.argument}",
        }
        return any(
            all(re.search(pattern, parts[part]) for part, pattern in alternative.items())
            for alternative in self.named_by
        )


@dataclass(frozen=True)
class Repository:
    """A public repository with its cases.

    Attributes:
        name: Owner and name, ``owner/name``.
        half: ``known`` or ``frozen``.
        files: The SHA-256 of files of the checkout, by path.
        command: The script and its arguments.
        modules: Modules that must be importable.
        patches: The directory of ``base.patch`` and, if the debugger can be used, ``debugger.patch``.
    """

    name: str
    half: str
    commit: str
    files: Mapping[str, str]
    command: tuple[str, ...]
    environment: Mapping[str, str]
    modules: tuple[str, ...]
    patches: Path
    cases: tuple[Case, ...]

    @property
    def directory(self) -> str:
        """The name of the repository's directory."""
        return self.name.replace("/", "+")

    @property
    def has_debugger(self) -> bool:
        """Return True if the lines that a user of the debugger adds are stored."""
        return (self.patches / DEBUGGER).is_file()

    def obstacle(self, checkouts: Path) -> str:
        """Return why the repository cannot be run; empty if it can."""
        checkout = checkouts / self.directory
        if not checkout.is_dir():
            return "no checkout"
        for path, expected in self.files.items():
            file = checkout / path
            if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != expected:
                return f"{path} is not that of commit {self.commit[:12]}"
        missing = [name for name in self.modules if importlib.util.find_spec(name) is None]
        return f"not installed: {', '.join(missing)}" if missing else ""


def repositories(directory: Path = CASES) -> Iterator[Repository]:
    """Yield all repositories by name."""
    for file in sorted(directory.glob("*/wild.yaml")):
        yield _repository(yaml.safe_load(file.read_text("utf-8")), file.parent)


def _repository(data: Mapping[str, Any], patches: Path) -> Repository:
    return Repository(
        name=data["repository"],
        half=data["half"],
        commit=data["commit"],
        files=data["files"],
        command=tuple(map(str, data["command"])),
        environment=_texts(data.get("environment")),
        modules=tuple(data.get("modules", ())),
        patches=patches,
        cases=tuple(
            Case(
                name=case["name"],
                kind=case["kind"],
                patch=patches / case["patch"] if case.get("patch") else None,
                like=case.get("like", ""),
                environment=_texts(case.get("environment")),
                named_by=tuple(case.get("named_by", ())),
            )
            for case in data["cases"]
        ),
    )


def _texts(variables: Mapping[str, object] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (variables or {}).items()}
