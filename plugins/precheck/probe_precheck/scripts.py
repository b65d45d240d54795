"""The script beside the data of a call that did not pass: what of it is alike in every framework."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from probe_precheck.model import Call
from probe_precheck.rules import package_text

Own = Callable[[Any, str], Union[str, None]]
"""Python for a value that a framework alone knows, such as a tensor, by its name; None for all else."""

_UNSAFE = re.compile(r"[^\w.\-]")
_MARK = re.compile(r"@[A-Z]+@")


def file_name(name: str) -> str:
    """Return the name of a record, or of a part of it, as it is in the names of files."""
    return _UNSAFE.sub("_", name)


def literal_of(value: Any, name: str, own: Own) -> str:
    """Return Python that makes a value.

    Args:
        value: An argument of a call.
        name: Its place in the call as in the names of files, from which those of its parts are made.
        own: The same for what the framework alone knows; asked first.
    """
    known = own(value, name)
    if known is not None:
        return known
    if isinstance(value, np.generic):
        return literal_of(value.item(), name, own)
    if isinstance(value, (list, tuple)):
        inner = ", ".join(literal_of(item, f"{name}.{i}", own) for i, item in enumerate(value))
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        places = ((key, item, f"{name}.{file_name(str(key))}") for key, item in value.items())
        pairs = (f"{key!r}: {literal_of(item, place, own)}" for key, item, place in places)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, complex):
        return f"complex({literal_of(value.real, name, own)}, {literal_of(value.imag, name, own)})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return "..." if value is ... else repr(value)


def script_of(
    package: str,
    call: Call,
    positional: Sequence[Any],
    keywords: Mapping[str, Any],
    own: Own,
    values: Mapping[str, str],
) -> str:
    """Return the ``script.txt`` of a package with its marks, such as ``@CALL@``, replaced.

    Args:
        package: Where the file is.
        call: The call that is shown.
        positional, keywords: Its arguments.
        own: Python for what the framework alone knows of them.
        values: What replaces the marks that are the framework's own.
    """
    name = file_name(call.name)
    given = [literal_of(value, f"{name}.forward.input.{i}", own) for i, value in enumerate(positional)]
    named = [
        f"{key!r}: {literal_of(value, f'{name}.forward.kwargs.{file_name(key)}', own)}"
        for key, value in keywords.items()
    ]
    every = {
        "@CALL@": name,
        "@ARGUMENTS@": "".join(f"        {item},\n" for item in given),
        "@KEYWORDS@": "".join(f"        {item},\n" for item in named),
        **values,
    }
    # at once: a value may look like a mark
    return _MARK.sub(lambda found: every[found[0]], package_text(package, "script.txt"))
