"""Sentences of probe's own that changed: each old one is gone from the source, each new one is in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml
from support.cases import every

ROOT = Path(__file__).parents[2]
CHANGED = yaml.safe_load((ROOT / "tests/data/sentences.yaml").read_text("utf-8"))


@cache
def source() -> frozenset[str]:
    """Return all texts in the source of probe and its plugins; values in f-strings are ``{}``."""
    paths = [path for place in ("probe_core", "plugins") for path in (ROOT / place).rglob("*.py")]
    return frozenset(text for path in paths if "build" not in path.parts for text in texts(path))


def texts(path: Path) -> Iterator[str]:
    """Yield the strings and f-strings of a module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@every("sentence", [change["old"] for change in CHANGED])
def test_an_old_sentence_is_gone(sentence: str) -> None:
    assert sentence not in source()


@every("sentence", [change["new"] for change in CHANGED])
def test_a_new_sentence_is_there(sentence: str) -> None:
    assert sentence in source()
