"""Benchmarks import only names that exist: mypy does not check them, and they are run by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from support import ROOT

pytest.importorskip("torch")
FILES = sorted((ROOT / "benchmarks").rglob("*.py"))


def iterate_imports(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the modules of probe that a file imports from, with the imported names."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("probe_"):
            yield from ((node.module, alias.name) for alias in node.names)


def test_benchmarks_import_names_that_exist() -> None:
    imports = [(file, *names) for file in FILES for names in iterate_imports(file)]
    assert len(imports) > 20
    missing = []
    for file, module, name in imports:
        if module.startswith("probe_mindspore"):
            continue  # needs mindspore
        imported = import_module(module)
        try:
            getattr(imported, name)
        except AttributeError:
            try:
                import_module(f"{module}.{name}")
            except ImportError:
                missing.append(f"{file.name}: {module}.{name}")
    assert missing == []
