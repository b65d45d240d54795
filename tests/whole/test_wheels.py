"""Wheels hold every file of their packages: what people install is not the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support import ROOT

DISTRIBUTIONS = [
    ROOT,
    *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml") if path.parent.name != "all"),
]
MADE = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "*.egg-info", "build")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


def clean_copy(source: Path, into: Path) -> Path:
    """The files that a distribution is built from, without what earlier builds left; its package."""
    for file in source.iterdir():
        if file.suffix in (".toml", ".md", ".py", ".pth") or file.name == "LICENSE":
            shutil.copy(file, into)
    (package,) = (path.parent for path in source.glob("*probe*/__init__.py"))
    shutil.copytree(package, into / package.name, ignore=MADE)
    return into / package.name


@pytest.mark.parametrize("source", DISTRIBUTIONS, ids=lambda path: path.name if path != ROOT else "core")
def test_every_file_of_a_package_is_in_its_wheel(source: Path, tmp_path: Path) -> None:
    copy, dist = tmp_path / "copy", tmp_path / "dist"
    copy.mkdir()
    package = clean_copy(source, copy)
    no_compiler = {
        **os.environ,
        "CC": "false",
        "CXX": "false",
    }  # compiled parts are optional, and slow to make
    subprocess.run([sys.executable, "-c", BUILD, str(dist)], cwd=copy, env=no_compiler, check=True, capture_output=True)
    (wheel,) = dist.glob("*.whl")
    files = {path.relative_to(copy).as_posix() for path in package.rglob("*") if path.is_file()}
    files |= {path.name for path in copy.glob("*.pth")}  # read by the interpreter when it starts
    assert sorted(files - set(zipfile.ZipFile(wheel).namelist())) == []
