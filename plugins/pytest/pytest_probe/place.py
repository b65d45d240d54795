"""The device that a test computes on, and the version of torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from pytest_probe.golden_file import Place
from pytest_probe.repetitions import iterate_tensors

CPU = "cpu"


def find_place(models: Sequence[nn.Module], arguments: Any) -> Place:
    """Return the place of a test: the device of its models' parameters, else that of its first tensor."""
    parameters = [parameter for model in models for parameter in model.parameters()]
    devices = [tensor.device for tensor in (*parameters, *iterate_tensors(arguments))]
    device = next((device for device in devices if device.type != CPU), torch.device(CPU))
    return Place(_describe_device(device), torch.__version__.partition("+")[0])


def _describe_device(device: torch.device) -> str:
    """Return the type of a device, followed by the name of its model if torch knows it."""
    read_name = getattr(getattr(torch, device.type, None), "get_device_name", None)
    return device.type if read_name is None else f"{device.type} {read_name(device)}"
