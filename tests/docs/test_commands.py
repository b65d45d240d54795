"""Every command of every page: run here, run by the test of its page, or in need of what a test lacks."""

from __future__ import annotations

import doctest
import json
import re
import shlex
import tarfile
from pathlib import Path
from typing import Any

import pytest
from test_pages import PAGES, ROOT, blocks

OWN_TEST = {
    "comparing.md": "test_pages.py",
    "merging.md": "test_merge_result.py",
    "metric-plugin.md": "test_pages.py",
    "plugins.md": "test_plugins_page.py",
    "recorder-plugin.md": "test_pages.py",
    "recording.md": "test_recording_page.py",
    "runner-plugin.md": "test_pages.py",
    "tutorial.md": "test_tutorial_page.py",
}
"""Pages whose commands a test of their own runs, all of them."""

ELSEWHERE = {
    r"python3 make\.py|MSPROBES=": "the verbs of the repository, which run tests and benchmarks",
    r"pip install|python3 -m venv|\. probe-env": "sets up an environment; `make.py wheels` does it",
    r"dask |.*--executor dask": "a cluster; the test of the executor starts one",
    r".*run_ut --framework mindspore": "MindSpore; the tests in with_mindspore run it",
    r"probe multi_run_ut .*-d 0 1 2 3": "four devices",
    r"probe api_precision_compare": "the result of two machines; its own test has one",
    r"probe show": "needs the page of an earlier command; tests/plugins/page/test_overview.py runs it",
    r"probe demo": "writes below probe-demo, which other commands read; tests/core/cli/test_main.py runs it",
    r"probe run -o mine train\.py": "test_recording_page.py runs it",
}
"""Commands that need other hardware, an installation or time, by a pattern of how they begin."""


def commands(page: Path) -> list[str]:
    """The commands on a page, without comments."""
    lines = [line for block in blocks(page, "bash") for line in block.splitlines()]
    return [line.partition("  #")[0].strip() for line in lines if line.strip()]


def here() -> list[tuple[Path, str]]:
    """The commands that are run by the test below, with their pages."""
    return [
        (page, line)
        for page in PAGES
        if page.name not in OWN_TEST
        for line in commands(page)
        if not any(re.match(pattern, line) for pattern in ELSEWHERE)
    ]


@pytest.fixture(scope="module")
def room(runs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory laid out as the pages assume: runs of two ranks, of both frameworks, and their files."""
    room = tmp_path_factory.mktemp("room")
    base = runs("tensor_L1_dist2")
    (room / "npu_dump").symlink_to(base / "npu_dump")
    (room / "gpu_dump").symlink_to(base / "bench_dump")
    single = runs("stat_L1_datamap")
    (room / "dump.json").symlink_to(single / "npu_dump" / "step0" / "rank" / "dump.json")
    for run in ("mine", "probe-demo/target"):
        (room / run).parent.mkdir(exist_ok=True)
        (room / run).symlink_to(single / "npu_dump")
    with tarfile.open(ROOT / "tests" / "data" / "runs-mindspore-pairs.tar.xz") as file:
        file.extractall(room, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    with tarfile.open(ROOT / "tests" / "data" / "legacy.tar.xz") as file:
        file.extractall(room, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    for name in ("npu", "bench"):
        (room / name).symlink_to(room / "legacy" / "ptdbg23_conv_all" / name)
    for name in ("ms_new", "ms_old", "ms_run"):
        (room / name).symlink_to(room / "ms_mix_tensor")
    (room / "pt_run").symlink_to(room / "pt_mix_tensor")
    (room / "mine.yaml").write_text("- {ms_api: Mint.mine, pt_api: Torch.theirs}\n")
    (room / "cells.yaml").write_text("fc.Dense: head.Linear\n")
    paths = {"npu_path": "ms_run/dump.json", "bench_path": "pt_run/dump.json"}
    (room / "compare.json").write_text(json.dumps(paths))
    return room


@pytest.mark.parametrize(
    "page, line", here(), ids=lambda value: value if isinstance(value, str) else value.name
)
def test_a_command_runs(
    page: Path, line: str, room: Path, runs: Any, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.name == "README.md" and "compare.json" in line:
        pytest.skip("test_pages.py runs it with the files of 8.3")
    monkeypatch.chdir(room)
    assert probe(*shlex.split(line)[1:]) == 0, probe.err


def test_the_pages_with_a_test_of_their_own_are_there() -> None:
    assert set(OWN_TEST) <= {page.name for page in PAGES}


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if ">>> " in page.read_text("utf-8")],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_worked_examples_are_right(page: Path) -> None:
    assert doctest.testfile(str(page), module_relative=False, encoding="utf-8").failed == 0


def test_the_forms_for_issues_and_the_settings_for_pre_commit_are_valid(probe: Any) -> None:
    import yaml

    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
    assert len(forms) == 3
    for form in forms:
        fields = yaml.safe_load(form.read_text("utf-8"))
        assert (
            fields["name"]
            and fields["description"]
            and all("label" in f["attributes"] for f in fields["body"])
        )
    assert probe("plugins", "--json") == 0  # what the forms ask for
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert [hook["id"] for hook in repository["hooks"]] == ["ruff", "ruff-format", "mypy"]
