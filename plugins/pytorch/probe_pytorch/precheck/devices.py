"""Selection of the device that calls are run on: an NPU, a GPU or the CPU."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from probe_precheck.runner_options import create_device_error

from probe_core.errors import UserError

CPU = "cpu"


def select_device(text: str, jit_compile: bool) -> torch.device:
    """Return the device to run on, after making it the current one.

    Args:
        text: ``cpu``, the index of an accelerator, or "" for the first accelerator, else the CPU.
        jit_compile: True to compile operators just in time, on an NPU.

    Raises:
        UserError: There is no such device, or it cannot be used.
    """
    if text == CPU:
        return torch.device(CPU)
    kind, module = find_accelerator()
    if module is None:
        if not text:
            return torch.device(CPU)
        raise create_device_error(text)
    index = int(text or 0)
    count = module.device_count()
    if index >= count:
        raise create_device_error(str(index), count)
    device = torch.device(kind, index)
    try:
        module.set_device(device)
        if kind == "npu":
            module.set_compile_mode(jit_compile=jit_compile)
    except Exception as error:
        raise UserError(
            f"Device {device} cannot be used: {str(error).splitlines()[0] if str(error) else error!r}.",
            "Check its driver, or choose another device with -d.",
        ) from None
    return device


def find_accelerator() -> tuple[str, Any]:
    """Return the kind of this machine's accelerator and torch's module for it, or ``("cpu", None)``."""
    try:
        importlib.import_module("torch_npu")
    except ImportError:
        pass
    else:
        npu = getattr(torch, "npu", None)
        if npu is not None and npu.is_available():
            return "npu", npu
    return ("cuda", torch.cuda) if torch.cuda.is_available() else (CPU, None)
