"""Templates are compiled once, and kept where Python keeps compiled modules, if it can be written to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment
from probe_page import templates
from probe_page.language import load_words

Rendered = Callable[[str], str]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the templates that were compiled."""
    names: list[str] = []
    usual = Environment.compile

    def compiling(environment: Environment, *given: Any, **named: Any) -> Any:
        names.append(given[1])
        return usual(environment, *given, **named)

    monkeypatch.setattr(Environment, "compile", compiling)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    yield names
    templates.load_template.cache_clear()
    templates._create_environment.cache_clear()


def rendered(lang: str = "en") -> str:
    """Return a short template, rendered as by a new process."""
    templates.load_template.cache_clear()
    templates._create_environment.cache_clear()
    return templates.load_template("exchanges.html", lang, load_words).render(exchanges=[])


def keep_in(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "cache_from_source", lambda path: str(directory / "module.pyc"))


def test_a_template_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[str]) -> None:
    keep_in(tmp_path, monkeypatch)
    first = rendered()
    assert rendered() == first and compiled == ["exchanges.html"]
    assert rendered("zh") != first and len(compiled) == 2, "labels are part of a template"
    assert rendered() == first and len(compiled) == 2, "one language does not replace the other"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("text", [b"", b"j2", b"\0" * 400, None])
def test_a_file_that_is_damaged_is_made_anew(
    text: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[str]
) -> None:
    keep_in(tmp_path, monkeypatch)
    first = rendered()
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-40] if text is None else text)
    assert rendered() == first and len(compiled) == 2
    assert rendered() == first and len(compiled) == 2


def test_another_text_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[str]) -> None:
    keep_in(tmp_path, monkeypatch)
    rendered()
    monkeypatch.setattr(templates, "read_asset", lambda name: "another text")
    assert rendered() == "another text" and len(compiled) == 2


@pytest.mark.parametrize("place", ["missing", "file"])
def test_without_a_place_a_template_is_compiled_each_time(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    keep_in(tmp_path / place, monkeypatch)
    assert rendered() == rendered() and len(compiled) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_nothing_is_written_where_python_writes_no_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[str]
) -> None:
    keep_in(tmp_path, monkeypatch)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert rendered() == rendered() and len(compiled) == 2
    assert not list(tmp_path.iterdir())
