"""The data of a call that did not pass, and a script that shows how far it is off, without probe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from probe_precheck import Array, Call, Outputs, file_name, script_of

from probe_core.files.atomic import replacing, write_text
from probe_mindspore.precheck.apis import PLACES
from probe_mindspore.precheck.tensors import Arguments, DType, Made, leaves


@dataclass(frozen=True, slots=True)
class Kept:
    """What saving a call's data takes."""

    arguments: Arguments
    gradients: Sequence[Made | None]
    forward: Outputs
    backward: Outputs | None


def save(call: Call, kept: Kept, directory: Path) -> Path:
    """Write the tensors of a call as ``.npy`` files, and a script beside them; the script's path.

    bfloat16 is stored as float32. Inputs are as they were before the call.
    """
    name = file_name(call.name)
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
    return file_name(made.place)


def _of_mindspore(value: Any, _: str) -> str | None:
    """Python for tensors, loaded from the files beside the script, and for dtypes."""
    if isinstance(value, Made):
        return f"load({_file(value) + '.npy'!r}, {value.dtype!r})"
    return f"dtype({value.name!r})" if isinstance(value, DType) else None


def _script(call: Call, name: str, kept: Kept) -> str:
    scope, api, _ = call.parts
    values = {
        "@NAME@": name,
        "@FUNCTION@": f"{PLACES[scope][0]}.{api}",
        "@BACKWARD@": str(kept.backward is not None),
    }
    arguments = kept.arguments
    return script_of(__package__, call, arguments.positional, arguments.keywords, _of_mindspore, values)
