"""Script that repeats a failed call: the parts that do not depend on a framework (docs/standards.md#error-data)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from probe_precheck.model import Call
from probe_precheck.rules import read_package_text

ValueRenderer = Callable[[Any, str], Union[str, None]]
"""Function that returns Python code for a value and its name; None if the value does not belong to the framework."""

_UNSAFE_PATTERN = re.compile(r"[^\w.\-]")
_MARK_PATTERN = re.compile(r"@[A-Z]+@")


def make_file_name(name: str) -> str:
    """Return the name of a record or a value as a part of a file name."""
    return _UNSAFE_PATTERN.sub("_", name)


def render_literal(value: Any, name: str, render: ValueRenderer) -> str:
    """Return Python code that creates a value.

    Args:
        value: An argument of a call.
        name: The name of the value in file names; the names of nested values begin with it.
        render: The function for values of the framework, which is called first.
    """
    code = render(value, name)
    if code is not None:
        return code
    if isinstance(value, np.generic):
        return render_literal(value.item(), name, render)
    if isinstance(value, (list, tuple)):
        inner = ", ".join(render_literal(item, f"{name}.{i}", render) for i, item in enumerate(value))
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        items = ((key, item, f"{name}.{make_file_name(str(key))}") for key, item in value.items())
        pairs = (f"{key!r}: {render_literal(item, item_name, render)}" for key, item, item_name in items)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, complex):
        return f"complex({render_literal(value.real, name, render)}, {render_literal(value.imag, name, render)})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return "..." if value is ... else repr(value)


def render_script(
    package: str,
    call: Call,
    positional: Sequence[Any],
    keywords: Mapping[str, Any],
    render: ValueRenderer,
    values: Mapping[str, str],
) -> str:
    """Return the ``script.txt`` of a package with its marks, such as ``@CALL@``, replaced.

    Args:
        package: The package that contains the file.
        call: The call that the script repeats.
        positional: The arguments by position.
        keywords: The arguments by keyword.
        render: The function that returns Python code for values of the framework.
        values: The texts that replace additional marks of the framework.
    """
    name = make_file_name(call.name)
    arguments = [render_literal(value, f"{name}.forward.input.{i}", render) for i, value in enumerate(positional)]
    keyword_arguments = [
        f"{key!r}: {render_literal(value, f'{name}.forward.kwargs.{make_file_name(key)}', render)}"
        for key, value in keywords.items()
    ]
    replacements = {
        "@CALL@": name,
        "@ARGUMENTS@": "".join(f"        {item},\n" for item in arguments),
        "@KEYWORDS@": "".join(f"        {item},\n" for item in keyword_arguments),
        **values,
    }
    # replace all marks in one pass, because a value may look like a mark
    return _MARK_PATTERN.sub(lambda match: replacements[match[0]], read_package_text(package, "script.txt"))
