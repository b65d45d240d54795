"""The example of the page on golden tests, run as it stands."""

from __future__ import annotations

import re
import sys

import pytest
from _pytest.pytester import SysModulesSnapshot
from test_pages import ROOT, blocks

pytest_plugins = ["pytester"]

PAGE = ROOT / "docs" / "pytest.md"


def test_example_of_the_page_fails_as_shown(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    block, test = blocks(PAGE, "python")
    fenced = re.findall(r"```(\w*)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    _, command, written, failure, _ = (text for language, text in fenced if not language)
    pytester.makepyfile(block=block, test_block=test)
    monkeypatch.setattr(SysModulesSnapshot, "restore", lambda _: None)  # torch cannot be imported twice
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # files of the same second would not be compiled anew

    def run(*arguments: str) -> pytest.RunResult:
        for name in ("block", "test_block"):
            sys.modules.pop(name, None)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist", *arguments)

    result = run(*command.split()[1:])
    result.assert_outcomes(passed=2)
    assert written.strip() in result.stdout.str()
    run().assert_outcomes(passed=2)
    pytester.makepyfile(block=block.replace("scale = 1.0", "scale = 1.5"))
    result = run()
    result.assert_outcomes(failed=2)
    lines = [line for line in failure.splitlines() if line.strip() != "…"]
    patterns = [re.sub(r"torch [\d.]+", "torch *", re.escape(line)) for line in lines]
    shown = result.stdout.str()
    for pattern in patterns:
        assert re.search(pattern.replace("…", ".*").replace("torch *", "torch .*"), shown), pattern
