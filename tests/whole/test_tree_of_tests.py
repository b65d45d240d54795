"""The tests mirror the tree that they test, in files of at most 600 lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import ROOT, TESTS

LONGEST = 600
LIVE = "plugins/mindspore/live"
"""Tests that need MindSpore, which run in an environment of their own."""
FILES = [
    path
    for path in sorted(TESTS.rglob("*.py"))
    if not {"data", "build", "__pycache__"} & {*path.relative_to(TESTS).parts}
]


def mirrored(folder: Path) -> Path:
    """Return the folder of the product that the tests in ``folder`` mirror."""
    top, *parts = folder.relative_to(TESTS).parts
    if top == "core":
        return ROOT.joinpath("probe_core", *parts)
    return ROOT.joinpath("plugins", parts[0], package_of(parts[0]), *parts[1:])


def package_of(plugin: str) -> str:
    """Return the name of a plugin's package; plugins of pytest are called pytest-something."""
    return "pytest_probe" if plugin == "pytest" else f"probe_{plugin}"


def test_no_file_is_longer_than_600_lines() -> None:
    assert len(FILES) > 300
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert {str(path): length for path, length in lengths.items() if length > LONGEST} == {}


def test_folders_of_tests_are_those_of_the_product() -> None:
    folders = {path.parent for path in FILES if path.name.startswith("test_")}
    mirroring = {folder for folder in folders if folder.relative_to(TESTS).parts[0] in ("core", "plugins")}
    mirroring -= {TESTS / "core", TESTS / LIVE}
    assert len(mirroring) > 20
    assert not [str(folder) for folder in mirroring if not mirrored(folder).is_dir()]


def test_files_of_tests_are_named_after_a_module_a_folder_or_their_package() -> None:
    tests = [
        path
        for path in FILES
        if path.name.startswith("test_") and path.relative_to(TESTS).parts[0] in ("core", "plugins")
        if LIVE not in path.as_posix()
    ]
    assert len(tests) > 300
    assert not [str(path.relative_to(TESTS)) for path in tests if not is_named_after_its_subject(path)]


def is_named_after_its_subject(test: Path) -> bool:
    """Return True if the name of a file is ``test_``, the name of its subject, and perhaps an aspect."""
    folder = mirrored(test.parent)
    subjects = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    subjects.add(folder.name.removeprefix("probe_"))
    name = test.stem.removeprefix("test_")
    return any(name == subject or name.startswith(f"{subject}_") for subject in subjects)


@pytest.mark.parametrize("package", sorted(path.name for path in (ROOT / "plugins").iterdir() if path.is_dir()))
def test_every_plugin_has_tests(package: str) -> None:
    if not (ROOT / "plugins" / package / package_of(package)).is_dir():
        pytest.skip("a distribution without code")
    assert list((TESTS / "plugins" / package).rglob("test_*.py"))
