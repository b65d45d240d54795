"""Script that repeats a failed call: the parts that all frameworks share (docs/standards.md#error-data)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from probe_precheck.model import Call
from probe_precheck.rules import package_text

ValueRenderer = Callable[[Any, str], Union[str, None]]
"""Function that returns Python code for a value of a framework, such as a tensor, and its name; else None."""

_UNSAFE_PATTERN = re.compile(r"[^\w.\-]")
_MARK_PATTERN = re.compile(r"@[A-Z]+@")


def file_name(name: str) -> str:
    """Return the name of a record, or of a part of it, as it is spelled in names of files."""
    return _UNSAFE_PATTERN.sub("_", name)


def literal_of(value: Any, name: str, render: ValueRenderer) -> str:
    """Return Python code that makes a value.

    Args:
        value: An argument of a call.
        name: Its place in the call, as in names of files; the names of its parts begin with it.
        render: The function for values of the framework, which is called first.
    """
    code = render(value, name)
    if code is not None:
        return code
    if isinstance(value, np.generic):
        return literal_of(value.item(), name, render)
    if isinstance(value, (list, tuple)):
        inner = ", ".join(literal_of(item, f"{name}.{i}", render) for i, item in enumerate(value))
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        places = ((key, item, f"{name}.{file_name(str(key))}") for key, item in value.items())
        pairs = (f"{key!r}: {literal_of(item, place, render)}" for key, item, place in places)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, complex):
        return f"complex({literal_of(value.real, name, render)}, {literal_of(value.imag, name, render)})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return "..." if value is ... else repr(value)


def script_of(
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
        values: The texts that replace marks of the framework's own.
    """
    name = file_name(call.name)
    arguments = [literal_of(value, f"{name}.forward.input.{i}", render) for i, value in enumerate(positional)]
    keyword_arguments = [
        f"{key!r}: {literal_of(value, f'{name}.forward.kwargs.{file_name(key)}', render)}"
        for key, value in keywords.items()
    ]
    replacements = {
        "@CALL@": name,
        "@ARGUMENTS@": "".join(f"        {item},\n" for item in arguments),
        "@KEYWORDS@": "".join(f"        {item},\n" for item in keyword_arguments),
        **values,
    }
    # all marks in one pass: a value may look like a mark
    return _MARK_PATTERN.sub(lambda match: replacements[match[0]], package_text(package, "script.txt"))
