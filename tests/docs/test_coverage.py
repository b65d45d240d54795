"""The page on msprobe's tools against the code: each name works, works differently, or is refused with a reason."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from support import ROOT

from probe_core.cli.main import load_unsupported_commands
from probe_core.plugins.distributions import PLUGINS_VARIABLE

sys.path.append(str(ROOT / "docs"))
import make_coverage
import make_reference

ENTRIES = list(make_coverage.entries())
ANSWERS = make_coverage.ANSWERS


@pytest.fixture(scope="module")
def manager() -> Any:
    """The plugins of this repository; the environment stays as it was."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(PLUGINS_VARIABLE, "")
        return make_reference.ours()


def test_each_name_has_one_of_three_words(manager: Any) -> None:
    answers = [make_coverage.answer_of(entry, manager) for entry in ENTRIES]
    assert len(answers) > 250
    assert all(answer.why for answer in answers if answer.state is not make_coverage.State.WORKS)


def test_a_name_that_the_code_lacks_is_noticed(manager: Any) -> None:
    for kind, of, name in (
        ("command", "", "no_such_command"),
        ("option", "compare", "--no_such_option"),
        ("field", "config.json", "no_such_field"),
        ("value", "task", "no_such_task"),
        ("function", "msprobe.pytorch", "compare(no_such_parameter)"),
        ("function", "msprobe.pytorch", "no_such_function()"),
        ("file", "", "no_such_file"),
        ("tool", "MindSpore", "no such tool"),
    ):
        with pytest.raises((LookupError, StopIteration, AttributeError)):
            make_coverage.answer_of(make_coverage.Entry("test", kind, of, name), manager)


def test_no_statement_is_stale(manager: Any) -> None:
    names = {(entry.of or entry.kind, entry.name) for entry in ENTRIES}
    owners = {owner for owner, _ in names}
    for state in ("differs", "refused"):
        for owner, texts in ANSWERS[state].items():
            assert owner in owners, owner
            assert {(owner, name) for name in texts if name != "*"} <= names, owner
    assert set(ANSWERS["files"]) <= {entry.name for entry in ENTRIES if entry.kind == "file"}


@pytest.mark.parametrize("name", sorted(load_unsupported_commands()))
def test_a_refused_command_says_why_and_what_to_do(name: str, probe: Any) -> None:
    for spelling in {name, name.replace("_", "-")}:
        assert probe(spelling, "-i", "x") == 2
        first, second, *rest = probe.err.splitlines()
        assert first.startswith(f"error: msprobe's command {name} is not part of probe. ")
        assert second.strip() and not rest


def test_commands_that_are_refused_do_not_exist(manager: Any) -> None:
    assert not {
        main
        for name in load_unsupported_commands()
        for main in manager.names("commands")
        if name in make_coverage.spellings(manager, main)
    }


def test_the_list_is_in_the_page() -> None:
    page = (ROOT / "docs" / "coverage.md").read_text("utf-8")
    assert not [entry for entry in ENTRIES if f"`{entry.name}`" not in page]
