"""The list of the distributions of this repository against their project files and hooks."""

from __future__ import annotations

import subprocess
import sys

import yaml
from support import ROOT

from probe_core.plugins.distributions import find_provider

FILE = ROOT / "probe_core" / "plugins" / "distributions.yaml"


def test_distributions_file_is_up_to_date() -> None:
    code = "import sys; sys.path.insert(0, 'docs'); import make_distributions; print(make_distributions.make(), end='')"
    made = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert FILE.read_text("utf-8") == made, "run: python make.py distributions"


def test_directories_are_those_of_distributions() -> None:
    for listed in yaml.safe_load(FILE.read_text("utf-8")).values():
        assert all((ROOT / directory / "pyproject.toml").is_file() for directory in listed["directories"])


def test_find_provider_finds_options_and_commands() -> None:
    assert find_provider("flags", "compare --api-mapping") == "probe-matching"
    assert find_provider("commands", "merge_result") == "probe-reporters"
    assert find_provider("commands", "no-such-command") is None
