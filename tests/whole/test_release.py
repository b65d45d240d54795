"""Distributions agree: one version, one licence, who made them, and one distribution that brings all."""

from __future__ import annotations

import re
from pathlib import Path

from support import ROOT
from support.cases import every

from probe_core import __version__

FILES = [ROOT / "pyproject.toml", *sorted(ROOT.glob("plugins/*/pyproject.toml"))]
WHOLE = ROOT / "plugins" / "all" / "pyproject.toml"


def name_of(file: Path) -> str:
    """Return the name of a distribution."""
    return re.findall(r'^name = "(.+)"$', file.read_text("utf-8"), re.MULTILINE)[0]


@every("file", FILES, ids=lambda file: file.parent.name)
def test_every_distribution_says_who_made_it_and_what_may_be_done_with_it(file: Path) -> None:
    text = file.read_text("utf-8")
    assert f'version = "{__version__}"' in text or 'dynamic = ["version"]' in text
    assert 'license = "Apache-2.0"' in text and 'license-files = ["LICENSE"]' in text
    assert "authors = [" in text and '"Programming Language :: Python :: 3.13",' in text
    assert (file.parent / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (file.parent / "README.md").stat().st_size


def test_one_distribution_brings_all_of_its_version() -> None:
    text = WHOLE.read_text("utf-8")
    needed = set(re.findall(r'"(probe-\w+|pytest-probe)==(.+)"', text))
    assert needed == {(name_of(file), __version__) for file in FILES if file != WHOLE} | {("probe-dask", __version__)}
    always = re.findall(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)[0]
    assert "probe-dask" not in always and "pytest-probe" not in always and always.count("probe-") == len(FILES) - 3


@every("file", FILES, ids=lambda file: file.parent.name)
def test_every_third_party_dependency_has_a_lower_bound(file: Path) -> None:
    lists = re.findall(r"^dependencies = \[(.*?)\]$", file.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    names = [name for text in lists for name in re.findall(r'"(.+?)"', text)]
    assert names
    assert [name for name in names if not name.startswith("probe-") and ">=" not in name] == []


def test_changelog_has_a_dated_section_of_the_version() -> None:
    """``make.py release`` requires it."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.search(rf"^## \[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE)
    headings = re.findall(r"^### (.+)$", text.split("\n## [")[1], re.MULTILINE)
    assert headings == ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
