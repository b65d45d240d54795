"""Sentences of the diagnosis are written and never read: no module decides by what another one says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
TEXTS = {"why", "text", "detail", "statement", "sentence", "brief"}
"""Attributes that hold sentences or parts of them."""
READERS = {
    "startswith", "endswith", "partition", "rpartition", "split", "rsplit", "removeprefix", "removesuffix", "find",
    "index", "count", "search", "match", "fullmatch",
}  # fmt: skip
"""Methods of texts that look into them."""
RENDERERS = {"answer_printing.py", "rank_printing.py", "checks.py"}
"""Modules that choose a legend by the lines that they print, or take the error out of the detail of a reason."""
WRITERS = ("diagnosis", "explain", "page", "reporters", "online")


def is_english(node: ast.expr) -> bool:
    """Return True for a literal of several words."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) > 1


def holds_text(node: ast.expr) -> bool:
    """Return True for an attribute that holds a sentence."""
    return isinstance(node, ast.Attribute) and node.attr in TEXTS


def reads(node: ast.AST) -> bool:
    """Return True for an expression that looks into a sentence."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        looks_into = any(isinstance(operator, (ast.In, ast.NotIn)) for operator in node.ops)
        return any(map(is_english, sides)) or (looks_into and any(map(holds_text, node.comparators)))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READERS:
        return holds_text(node.func.value) or any(map(is_english, node.args)) or any(map(holds_text, node.args))
    return False


def places(source: str) -> Iterator[str]:
    """Yield the line and text of each expression that looks into a sentence."""
    for node in ast.walk(ast.parse(source)):
        if reads(node):
            yield f"{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"


@pytest.mark.parametrize("plugin", WRITERS)
def test_no_module_reads_sentences(plugin: str) -> None:
    files = [path for path in sorted((PLUGINS / plugin).rglob("*.py")) if path.name not in RENDERERS]
    assert len(files) > 3
    found = [f"{path.relative_to(PLUGINS)}:{place}" for path in files for place in places(path.read_text("utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        'value.why.startswith("shape ")', '"nothing" not in value.why', 'text == "are equal in all"',
        'cause.statement.partition(":")', 'line.removeprefix("producer of ")', 'PATTERN.search(found.detail)',
    ],
)  # fmt: skip
def test_reading_is_found(source: str) -> None:
    assert list(places(source))


@pytest.mark.parametrize("source", ['key.partition(".")', "first.why == second.why", 'kind == "argument"'])
def test_keys_and_kinds_may_be_compared(source: str) -> None:
    assert not list(places(source))
