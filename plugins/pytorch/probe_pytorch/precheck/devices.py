"""The device that calls are run on: the accelerator of this machine, or the CPU."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from probe_precheck import missing_device

from probe_core.errors import UserError

CPU = "cpu"


def device_for(text: str, jit_compile: bool) -> torch.device:
    """The device that ``text`` means: ``cpu``, an index, or nothing for what there is.

    Raises:
        UserError: There is no such device.
    """
    if text == CPU:
        return torch.device(CPU)
    kind, module = accelerator()
    if module is None:
        if not text:
            return torch.device(CPU)
        raise missing_device(text)
    index = int(text or 0)
    count = module.device_count()
    if index >= count:
        raise missing_device(str(index), count)
    device = torch.device(kind, index)
    try:
        module.set_device(device)
        if kind == "npu":
            module.set_compile_mode(jit_compile=jit_compile)
    except Exception as error:
        raise UserError(
            f"Device {device} cannot be used: {str(error).splitlines()[0] if str(error) else error!r}.",
            "See that its driver works, or give another with -d.",
        ) from None
    return device


def accelerator() -> tuple[str, Any]:
    """The kind of accelerator there is, with torch's module for it; ``("cpu", None)`` where there is none."""
    try:
        importlib.import_module("torch_npu")
    except ImportError:
        pass
    else:
        npu = getattr(torch, "npu", None)
        if npu is not None and npu.is_available():
            return "npu", npu
    return ("cuda", torch.cuda) if torch.cuda.is_available() else (CPU, None)
