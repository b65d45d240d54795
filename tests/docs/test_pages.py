"""Claims of the pages, run: README's commands, the ten-minute plugin, links, words."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import every
from support.programs import preloaded

from probe_core.testing import pair_of

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("plugins/*/README.md")])


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a language on a page."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


@every("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_readme_has_two_commands_and_ci_runs_them() -> None:
    first = blocks(ROOT / "README.md", "bash")[0]
    commands = [line.split("#")[0].strip() for line in first.splitlines() if line.strip()]
    assert commands == ["python3 make.py demo", "python3 make.py test"]
    ci = (ROOT / ".ci" / "run").read_text().splitlines()
    first, last = commands
    assert [line for line in ci if line.startswith("python3")] == [first, "python3 make.py docs", last]


def test_the_command_lines_of_msprobe_are_understood(
    probe: Any, runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line with a compare file runs as it stands, on a real pair in a directory laid out as the page assumes."""
    base = runs("stat_L1_datamap")
    for name, side in (("npu_dump", "npu_dump"), ("gpu_dump", "bench_dump"), ("bench_dump", "bench_dump")):
        (tmp_path / name).symlink_to(base / side)
    (tmp_path / "compare.json").write_text((base / "compare.json").read_text())
    (tmp_path / "map.yaml").write_text((base / "data_mapping.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    lines = [
        line
        for page in (ROOT / "docs" / "from-msprobe.md", ROOT / "docs" / "comparing.md")
        for block in blocks(page, "bash")
        for line in block.splitlines()
        if re.match(r"probe .*compare", line) and "--rows" not in line  # test_comparing_page.py runs these
    ]
    assert len(lines) == 2
    for line in lines:
        assert probe(*shlex.split(line)[1:]) == 0, (line, probe.err)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


def test_every_option_of_the_goals_exists(probe: Any) -> None:
    said = ""
    for command in ("compare", "run", "run-ut"):
        assert probe(command, "--help") == 0
        said += probe.out
    for option in re.findall(r"`(--?[a-z-]+)", (ROOT / "docs" / "how-to.md").read_text("utf-8")):
        assert option in said, option


def test_the_ten_minute_plugin(runs: Any, tmp_path: Path) -> None:
    """The page's own files make a plugin that installs, lists, adds its column, and passes its tests."""
    page = ROOT / "docs" / "metric-plugin.md"
    package = tmp_path / "probe-chebyshev" / "probe_chebyshev"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "pyproject.toml").write_text(blocks(page, "toml")[0])
    hooks, sharing, metric, test = blocks(page, "python")
    shared: dict[str, Any] = {}
    exec(sharing, shared)
    pair = pair_of(np.array([1.0, -3.0]), np.array([2.0, 1.0]))
    shared["extremes_of_all"]([pair])
    assert pair.once(shared["extremes"]) == [3.0, 2.0]
    (package / "hooks.py").write_text(hooks)
    (package / "metric.py").write_text(metric)
    (package.parent / "tests").mkdir()
    (package.parent / "tests" / "test_chebyshev.py").write_text(test)
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
         "--target", site, package.parent], check=True)  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(site)}
    base, out = runs("tensor_L1_datamap"), tmp_path / "out"
    command = [sys.executable, "-m", "probe_core.cli", "compare", base / "npu_dump", base / "bench_dump"]
    preloaded.run([*command, "-o", out, "--format", "csv", "--metric", "chebyshev"], check=True, env=environment)
    assert next(out.glob("*.csv")).read_text().splitlines()[0].endswith(",Chebyshev")
    start, *rest = shlex.split(blocks(page, "bash")[1].splitlines()[1])
    assert start == "python"
    command = [sys.executable, *rest]
    tested = preloaded.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout
    command = [sys.executable, "-m", "probe_core.cli", "plugins", "--check"]
    few = environment | {"PROBE_PLUGINS": "chebyshev,metrics,check"}
    checked = preloaded.run(command, env=few, capture_output=True, text=True)
    assert checked.returncode == 0 and " 0 failed, 0 conflicts" in checked.stdout, checked.stdout
    assert re.search(r"8 passed", tested.stdout), tested.stdout


def test_the_recorder_of_numpy(tmp_path: Path) -> None:
    """The page's own files make a plugin that records, whose runs compare, and that passes its tests."""
    page = ROOT / "docs" / "recorder-plugin.md"
    package = tmp_path / "probe-numpy" / "probe_numpy"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "pyproject.toml").write_text(blocks(page, "toml")[0])
    hooks, reader, recorder, program, test = blocks(page, "python")
    for name, text in (("hooks", hooks), ("reader", reader), ("recorder", recorder)):
        (package / f"{name}.py").write_text(text)
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "test_numpy.py").write_text(test)
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
         "--target", site, package.parent], check=True)  # fmt: skip
    commands = blocks(page, "bash")[0].splitlines()[1:]
    assert [line.split()[0] for line in commands] == ["python", "python", "probe"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    starts = {"python": [sys.executable], "probe": [sys.executable, "-m", "probe_core.cli"]}
    for line in commands:
        first, *rest = shlex.split(line)
        done = preloaded.run([*starts[first], *rest], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stderr)
    assert done.stdout.startswith("DIVERGED: Numpy.exp.0.forward receives values that differ"), done.stdout
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_numpy.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True)  # fmt: skip
    assert re.search(r"8 passed", tested.stdout), tested.stdout


def test_the_plugin_with_a_runner_and_a_standard(tmp_path: Path) -> None:
    """The page's own files make a plugin that installs, checks the page's run, and passes its tests."""
    page = ROOT / "docs" / "runner-plugin.md"
    package = tmp_path / "probe-tiny" / "probe_tiny"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "pyproject.toml").write_text(blocks(page, "toml")[0])
    *modules, test = blocks(page, "python")
    for name, text in zip(("hooks", "reader", "runner", "standard"), modules, strict=True):
        (package / f"{name}.py").write_text(text)
    (package / "apis.yaml").write_text(blocks(page, "yaml")[0])
    (tmp_path / "test_tiny.py").write_text(test)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "dump.json").write_text(blocks(page, "json")[0])
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
         "--target", site, package.parent], check=True)  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(site)}
    said = ""
    for line in blocks(page, "bash")[0].splitlines():
        if line.startswith("probe "):
            command = [sys.executable, "-m", "probe_core.cli", *shlex.split(line)[1:]]
            done = preloaded.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            said += done.stdout
    assert "tiny  probe-tiny 1.0  ok" in said
    (result,) = (tmp_path / "out").glob("accuracy_checking_result_*.csv")
    rows = [line.split(",")[:2] for line in result.read_text("utf-8-sig").splitlines()[1:]]
    assert rows == [["Tiny.exp.0", "pass"], ["Tiny.tanh.0", "pass"]]
    (details,) = (tmp_path / "out").glob("accuracy_checking_details_*.csv")
    assert details.read_text("utf-8-sig").splitlines()[0].endswith(",偏差占比")
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_tiny.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True)  # fmt: skip
    assert tested.returncode == 0 and "2 passed" in tested.stdout, tested.stdout


def test_no_step_takes_our_names_from_an_index() -> None:
    """Strangers own packages of these names: set-up installs ours from their directories, without index."""
    script = (ROOT / "make.py").read_text()
    assert '"--no-index", "--no-deps"' in script
    names = ("probe-core", "probe-pytorch", "probe-mindspore", "probe-metrics", "probe-reporters")
    requirements = (ROOT / "requirements-dev.txt").read_text()
    assert not any(name in requirements for name in names)


def test_no_page_or_message_installs_our_names_from_an_index() -> None:
    """We have published nothing: ``pip install probe-…`` would bring a stranger's, unless it names a folder or index."""
    names = "all|core|recording|matching|precheck|diagnosis|pytorch|mindspore|metrics|reporters|dask"
    ours = re.compile(rf"pip install(?![^\n`]*--(?:no-index|index-url) )[^\n`]*?[ '\"]probe-({names})\b")
    pages = [
        *PAGES,
        *ROOT.glob("probe_core/**/*.py"),
        *ROOT.glob("plugins/**/*.py"),
    ]
    found = [str(page.relative_to(ROOT)) for page in pages if ours.search(page.read_text("utf-8"))]
    assert found == []
    extras = (ROOT / "pyproject.toml").read_text().partition("optional-dependencies")[2].partition("[project")[0]
    assert "probe-" not in extras


def test_the_directories_that_pages_install_are_there() -> None:
    found = {name for page in PAGES for line in re.findall(r"pip install([^\n`]*)", page.read_text("utf-8"))
             for name in re.findall(r" \./(plugins/\w+)", line)}  # fmt: skip
    assert found and all((ROOT / name / "pyproject.toml").is_file() for name in found)


def test_public_files_speak_of_the_project_alone() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".yaml", ".txt", "") and path.is_file():
            text = path.read_text("utf-8", "replace")
            assert "/" + "root/" not in text and "/" + "work/" not in text, name


def test_the_reference_names_nothing_of_the_plugins_of_the_tests() -> None:
    """The page is made where they are installed; readers do not have them."""
    text = "".join((ROOT / "docs" / name).read_text("utf-8") for name in ("reference.md", "comparing.md"))
    for name in ("few_flips", "sign_flips", "Signs flip", "same_signs", "manifest.json"):
        assert name not in text, name


def test_installing_names_every_package_that_the_wheels_need() -> None:
    page = (ROOT / "docs" / "installing.md").read_text("utf-8")
    (line,) = re.findall(r'^pip install ("numpy.*)$', page, re.MULTILINE)
    given = {name.lower() for name in re.findall(r'"([\w-]+)', line)}
    needed: set[str] = set()
    for file in (ROOT / "pyproject.toml", *(ROOT / "plugins").glob("*/pyproject.toml")):
        if file.parent.name not in ("all", "dask", "pytest"):
            (listed,) = re.findall(r"^dependencies = \[(.*?)\]", file.read_text("utf-8"), re.MULTILINE | re.DOTALL)
            needed |= {name.lower() for name in re.findall(r'"([\w-]+)', listed)}
    assert given == {name for name in needed if not name.startswith("probe-")}
