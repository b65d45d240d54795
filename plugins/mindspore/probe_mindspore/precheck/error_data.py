"""The data of a call that did not pass, and a script that shows how far it is off, without probe."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from probe_precheck import Array, Call, package_text

from probe_core.files.atomic import replacing, write_text
from probe_mindspore.precheck.apis import PLACES
from probe_mindspore.precheck.tensors import DType, Made, leaves

if TYPE_CHECKING:
    from probe_mindspore.precheck.runner import Kept

_UNSAFE = re.compile(r"[^\w.\-]")
_MARK = re.compile(r"@[A-Z]+@")


def save(call: Call, kept: Kept, directory: Path) -> Path:
    """Write the tensors of a call as ``.npy`` files, and a script beside them; the script's path.

    bfloat16 is stored as float32. Inputs are as they were before the call.
    """
    name = _UNSAFE.sub("_", call.name)
    for made in kept.arguments.tensors:
        _save(directory / f"{_file(made)}.npy", made.values)
    for i, gradient in enumerate(kept.gradients):
        if gradient is not None:
            _save(directory / f"{name}.backward.input.{i}.npy", gradient.values)
    for phase, outputs in (("forward", kept.forward), ("backward", kept.backward)):
        for side in ("bench", "device") if outputs is not None else ():
            for i, item in enumerate(leaves(getattr(outputs, side))):
                if isinstance(item, Array):
                    _save(directory / f"{name}.{phase}.output.{side}.{i}.npy", item.values)
    path = directory / f"{name}.py"
    write_text(path, _script(call, name, kept))
    return path


def _save(path: Path, values: Any) -> None:
    with replacing(path) as file:
        np.save(file, values)


def _file(made: Made) -> str:
    return _UNSAFE.sub("_", made.place)


def literal(value: Any) -> str:
    """Python that makes an argument; tensors are loaded from the files beside the script."""
    if isinstance(value, Made):
        return f"load({_file(value) + '.npy'!r}, {value.dtype!r})"
    if isinstance(value, DType):
        return f"dtype({value.name!r})"
    if isinstance(value, tuple):
        inner = ", ".join(map(literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, float) and not np.isfinite(value):
        return f'float("{value}")'
    return "..." if value is ... else repr(value)


def _script(call: Call, name: str, kept: Kept) -> str:
    scope, api, _ = call.parts
    text = package_text(__package__, "script.txt")
    values = {
        "@CALL@": _UNSAFE.sub("_", call.name),
        "@NAME@": name,
        "@FUNCTION@": f"{PLACES[scope][0]}.{api}",
        "@ARGUMENTS@": "".join(f"        {literal(item)},\n" for item in kept.arguments.positional),
        "@KEYWORDS@": "".join(
            f"        {key!r}: {literal(item)},\n" for key, item in kept.arguments.keywords.items()
        ),
        "@BACKWARD@": str(kept.backward is not None),
    }
    return _MARK.sub(lambda found: values[found[0]], text)  # at once: a value may look like a mark
