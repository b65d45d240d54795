"""Docstrings are true: each entry is a parameter or an attribute, and each ``name`` exists in the code or in a page."""

from __future__ import annotations

import ast
import builtins
import inspect
import keyword
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support import ROOT

SECTION = re.compile(r"(Args|Attributes):\n((?:(?: {4}.*)?\n?)+)")
ENTRY = re.compile(r"^ {4}([\w*][\w*, `]*?):(?= |$)", re.M)
NAME = re.compile(r"(?<!`)``(?:\w+\.)*([A-Za-z_]\w*)(?:\(\))?``(?!`)")
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.S)
EXTERNAL = {
    "AddmmBackward0", "DumpData", "FloatStorage", "GLOBAL", "REDUCE", "Schema", "__getstate__", "_legacy_save",
    "_xHHHH_", "addcdiv_", "decimals", "index_of", "inv", "proc123", "set_default_device", "spawn", "u2", "u4",
}  # fmt: skip
"""Names of other programs and formats, and values that data files contain."""
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def list_modules() -> list[Path]:
    paths = [path for folder in ("probe_core", "plugins") for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in paths if "build" not in path.parts]


def list_entries(docstring: str, section: str) -> list[str]:
    """Return the names that the section ``Args`` or ``Attributes`` of a docstring describes."""
    blocks = [block for name, block in SECTION.findall(docstring) if name == section]
    return [name.strip(" *`") for block in blocks for names in ENTRY.findall(block) for name in names.split(",")]


def list_parameters(node: Definition) -> set[str]:
    if isinstance(node, ast.ClassDef):
        makers = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
        return list_parameters(makers[0]) if makers else list_attributes(node)
    return {item.arg for item in ast.walk(node.args) if isinstance(item, ast.arg)}


def list_attributes(node: ast.ClassDef) -> set[str]:
    """Return the names that a class or its methods assign, and those of its methods and of its ``__slots__``."""
    names = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    for item in ast.walk(node):
        if isinstance(item, (ast.Attribute, ast.Name)) and isinstance(item.ctx, ast.Store):
            names.add(item.attr if isinstance(item, ast.Attribute) else item.id)
        elif isinstance(item, ast.Constant) and isinstance(item.value, str):
            names.add(item.value)
    return names


def list_wrong_entries(node: Definition) -> set[str]:
    docstring = inspect.cleandoc(ast.get_docstring(node) or "")
    parameters, entries = list_parameters(node), {*list_entries(docstring, "Args")}
    if not isinstance(node, ast.ClassDef):
        return entries - parameters
    inherits = any(getattr(base, "id", "") not in ("NamedTuple", "Protocol", "Enum") for base in node.bases)
    attributes = list_attributes(node)
    wrong = set() if inherits else {*list_entries(docstring, "Attributes")} - attributes
    return wrong if inherits and parameters == attributes else wrong | (entries - parameters)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def iterate_docstrings(path: Path) -> Iterator[ast.Constant]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def collect_words(path: Path) -> set[str]:
    """Return all names in the code of a module, and the words of its texts other than docstrings."""
    docstrings = {id(node) for node in iterate_docstrings(path)}
    words: set[str] = set()
    for node in ast.walk(parse(path)):
        texts = [getattr(node, field, None) for field in ("id", "attr", "arg", "name", "asname", "module")]
        texts += [node.value] if isinstance(node, ast.Constant) and id(node) not in docstrings else []
        words.update(word for text in texts if isinstance(text, str) for word in re.findall(r"\w+", text))
    return words


def get_distribution(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "plugins" else parts[0]


def test_each_entry_is_a_parameter_or_an_attribute() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} has no {name}"
        for path in list_modules()
        for node in ast.walk(parse(path))
        if isinstance(node, Definition)
        for name in sorted(list_wrong_entries(node))
    ]
    assert not wrong, "\n".join(wrong)


def test_each_name_exists_in_its_distribution_or_in_the_core_or_in_a_page() -> None:
    words: dict[str, set[str]] = {}
    for path in list_modules():
        words.setdefault(get_distribution(path), set()).update(collect_words(path))
    pages = " ".join(code for page in ROOT.glob("docs/*.md") for code in CODE.findall(page.read_text("utf-8")))
    common = words["probe_core"] | set(re.findall(r"\w+", pages)) | EXTERNAL | {*dir(builtins), *keyword.kwlist}
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {name}"
        for path in list_modules()
        for node in iterate_docstrings(path)
        for name in NAME.findall(str(node.value))
        if name not in common and name not in words[get_distribution(path)] and not re.fullmatch(r"__\w+__", name)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ('def f(a):\n    """Do.\n\n    Args:\n        b: It.\n    """', {"b"}),
        (
            'def f(a, *b):\n    """Do.\n\n    Args:\n        a: It,\n            see: that.\n        *b: It.\n    """',
            set(),
        ),
        ('class C:\n    """It.\n\n    Attributes:\n        a: It.\n        b: It.\n    """\n    a = 1', {"b"}),
        ('class C:\n    """It.\n\n    Args:\n        a: It.\n    """\n    def __init__(self, b): ...', {"a"}),
    ],
)
def test_entries_are_found(source: str, wrong: set[str]) -> None:
    node = ast.parse(source).body[0]
    assert isinstance(node, Definition)
    assert list_wrong_entries(node) == wrong
