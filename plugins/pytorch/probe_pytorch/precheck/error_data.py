"""Saving of the data of a failed call, with a script that reproduces it without probe.

The files are described in docs/standards.md#error-data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from probe_precheck.api import Call, make_file_name
from probe_precheck.scripts import render_literal, render_script

from probe_core.files.atomic import replace_file, write_text
from probe_pytorch.precheck.apis import NPU, find_function
from probe_pytorch.precheck.execution import CallSide
from probe_pytorch.precheck.raising import DtypeConversion, iterate_tensors
from probe_pytorch.precheck.rebuild import Arguments
from probe_pytorch.precheck.rules import rules

PLACES = {
    "Functional": "torch.nn.functional",
    "Tensor": "torch.Tensor",
    "Torch": "torch",
    "VF": "torch._VF",
    "Aten": "torch.ops.aten",
}


@dataclass(frozen=True, slots=True)
class ReproductionData:
    """The values of a call that are kept to save its data and its script.

    Attributes:
        arguments: The arguments.
        gradients: The gradients that the backward was given, by the number of their output.
        device: The call as the device ran it.
        bench: The call as the reference ran it.
        device_gradients: The gradients of the inputs on the device; None without a backward.
        bench_gradients: The same of the reference.
        raising: The dtypes of the reference.
        autocast: The dtype of autocast on the device, or None.
        has_reference: True if the reference is the definition of a fused operator.
    """

    arguments: Arguments
    gradients: tuple[tuple[int, torch.Tensor], ...]
    device: CallSide
    bench: CallSide
    device_gradients: list[torch.Tensor | None] | None
    bench_gradients: list[torch.Tensor | None] | None
    raising: DtypeConversion
    autocast: torch.dtype | None
    has_reference: bool


def save(call: Call, data: ReproductionData, directory: Path, device: torch.device) -> Path:
    """Write the tensors of a call as ``.pt`` files, and a script beside them that runs it.

    Inputs have their values before the call, in the recorded dtypes. The names of tensors in containers have
    a further number or key, those of keyword arguments the keyword, so that no file overwrites another.

    Args:
        call: The call.
        data: Its values.
        directory: The directory to write to.
        device: The device that ran the call.

    Returns:
        The path of the script.
    """
    name = make_file_name(call.name)
    arguments = data.arguments
    for part, value in (("input", arguments.positional), ("kwargs", arguments.keywords)):
        _save_all(value, directory, f"{name}.forward.{part}")
    _save_all(list(iterate_tensors(data.bench.output)), directory, f"{name}.forward.output.bench")
    _save_all(list(iterate_tensors(data.device.output)), directory, f"{name}.forward.output.device")
    _save_all([gradient for _, gradient in data.gradients], directory, f"{name}.backward.input")
    _save_all(data.bench_gradients or [], directory, f"{name}.backward.output.bench")
    _save_all(data.device_gradients or [], directory, f"{name}.backward.output.device")
    path = directory / f"{name}.py"
    write_text(path, format_script(call, name, data, device))
    return path


def _save_all(value: Any, directory: Path, name: str) -> None:
    for place, tensor in _iterate_tensors(value, name):
        with replace_file(directory / f"{place}.pt") as file:
            torch.save(tensor.detach().cpu().clone(), file)


def _iterate_tensors(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _iterate_tensors(item, f"{name}.{i}")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _iterate_tensors(item, f"{name}.{make_file_name(str(key))}")


# -- the script ------------------------------------------------------------------------------------


def format_literal(value: Any, name: str) -> str:
    """Return a Python expression for ``value``; tensors are loaded from files beside the script."""
    return render_literal(value, name, _format_torch_value)


def _format_torch_value(value: Any, name: str) -> str | None:
    if isinstance(value, torch.Tensor):
        return f"load({name + '.pt'!r}, requires_grad={value.requires_grad})"
    if isinstance(value, torch.Size):
        return f"torch.Size({list(value)})"
    if isinstance(value, np.ndarray):
        return f"torch.tensor({format_literal(value.tolist(), name)}, dtype=torch.{value.dtype}).numpy()"
    if isinstance(value, torch.device):
        return "DEVICE"
    return str(value) if isinstance(value, (torch.dtype, torch.memory_format)) else None


def _find_function(call: Call) -> tuple[str, str]:
    """Return the expression by which the script calls the API, and the import that it needs."""
    scope, api, _ = call.parts
    if scope == NPU:
        return f"torch_npu.{api}", "import torch_npu\n"
    place = PLACES[scope]
    name = getattr(find_function(scope, api), "__name__", api)
    return f"{place}.{name if scope == 'Tensor' and api.startswith('__') else api}", ""


def format_script(call: Call, name: str, data: ReproductionData, device: torch.device) -> str:
    """Return a script that runs a call on the device and as the reference, with torch but without probe."""
    function, import_line = _find_function(call)
    if device.type == "npu" and not import_line:
        import_line = "import torch_npu\n"
    changed = rules("changed").get(call.api, {})
    values = {
        "@IMPORTS@": import_line,
        "@DEVICE@": str(device),
        "@FUNCTION@": function,
        "@RAISE@": "{" + ", ".join(f"{low}: {high}" for low, high in data.raising.to.items()) + "}",
        "@FIRST@": str(data.raising.first),
        "@AUTOCAST@": str(data.autocast),
        "@OUTPUTS@": repr([i for i, _ in data.gradients]),
        "@GRADIENTS@": ", ".join(f"load({f'{name}.backward.input.{i}.pt'!r})" for i in range(len(data.gradients))),
        "@CHANGED@": repr(dict(changed)),
        "@SAVED@": repr(name if data.has_reference else ""),
    }
    arguments = data.arguments
    return render_script(__package__, call, arguments.positional, arguments.keywords, _format_torch_value, values)
