"""Files of a call that did not pass: its data, and a script without probe that shows its deviation.

See docs/standards.md#error-data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from probe_precheck.api import Array, Call, Outputs, make_file_name
from probe_precheck.scripts import render_script

from probe_core.files.atomic import replace_file, write_text
from probe_mindspore.precheck.apis import PLACES
from probe_mindspore.precheck.tensors import Arguments, DType, TensorArgument, iterate_leaves


@dataclass(frozen=True, slots=True)
class ReproductionData:
    """Data of a call that may be saved.

    Attributes:
        arguments: Its arguments, as they were before the call.
        gradients: The gradients of its outputs, flat; None for an output without one.
        forward: The outputs of both sides.
        backward: The gradients of its inputs on both sides; None if there are none.
    """

    arguments: Arguments
    gradients: Sequence[TensorArgument | None]
    forward: Outputs
    backward: Outputs | None


def save(call: Call, data: ReproductionData, directory: Path) -> Path:
    """Write the tensors of a call as ``.npy`` files, with bfloat16 as float32, and a script beside them.

    Args:
        call: The call.
        data: Its data.
        directory: The directory to write to.

    Returns:
        The path of the script.
    """
    name = make_file_name(call.name)
    for argument in data.arguments.tensors:
        _save(directory / f"{_format_file_name(argument)}.npy", argument.values)
    for i, gradient in enumerate(data.gradients):
        if gradient is not None:
            _save(directory / f"{name}.backward.input.{i}.npy", gradient.values)
    for phase, outputs in (("forward", data.forward), ("backward", data.backward)):
        for side in ("bench", "device") if outputs is not None else ():
            for i, item in enumerate(iterate_leaves(getattr(outputs, side))):
                if isinstance(item, Array):
                    _save(directory / f"{name}.{phase}.output.{side}.{i}.npy", item.values)
    path = directory / f"{name}.py"
    write_text(path, _format_script(call, name, data))
    return path


def _save(path: Path, values: Any) -> None:
    """Write an array as a ``.npy`` file."""
    with replace_file(path) as file:
        np.save(file, values)


def _format_file_name(argument: TensorArgument) -> str:
    """Return the name of an argument's file, without its suffix."""
    return make_file_name(argument.place)


def _format_mindspore_value(value: Any, _: str) -> str | None:
    """Return Python code for a tensor, which the script loads from its file, or for a dtype."""
    if isinstance(value, TensorArgument):
        return f"load({_format_file_name(value) + '.npy'!r}, {value.dtype!r})"
    return f"dtype({value.name!r})" if isinstance(value, DType) else None


def _format_script(call: Call, name: str, data: ReproductionData) -> str:
    """Return the text of the script."""
    scope, api, _ = call.parts
    values = {
        "@NAME@": name,
        "@FUNCTION@": f"{PLACES[scope][0]}.{api}",
        "@BACKWARD@": str(data.backward is not None),
    }
    arguments = data.arguments
    return render_script(__package__, call, arguments.positional, arguments.keywords, _format_mindspore_value, values)
