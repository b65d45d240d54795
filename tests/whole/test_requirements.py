"""The pinned requirements install on the first release of every Python that probe supports."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from support import ROOT
from support.cases import every

FIRST_RELEASES = ("3.10.0", "3.11.0", "3.11.2", "3.12.0", "3.13.0", "3.14.0")
"""First release of each minor version, and Debian 12's Python."""
FILES = ("requirements-dev.txt", "requirements-docs.txt", "requirements-release.txt")


@pytest.mark.registry
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("python", FIRST_RELEASES)
def test_pins_resolve_on_the_first_release_of_a_python(python: str, file: str) -> None:
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--python-version", python, file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@every("file", FILES)
def test_every_requirement_is_pinned(file: str) -> None:
    lines = [line for line in (ROOT / file).read_text("utf-8").splitlines() if not line.startswith("#")]
    assert lines
    assert [
        line for line in lines if not re.match(r"[\w-]+==[\w.]+(; python_(full_)?version [<>=]+ \"[\d.]+\")?$", line)
    ] == []


def test_tools_of_the_site_are_not_needed_for_the_tests() -> None:
    assert "mkdocs" not in (ROOT / "requirements-dev.txt").read_text("utf-8")
    assert "mkdocs==" in (ROOT / "requirements-docs.txt").read_text("utf-8")
