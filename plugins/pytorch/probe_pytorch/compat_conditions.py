"""Settings, library versions and generators, whose API differs between versions of torch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from functools import cache
from typing import Any

import torch
from probe_recording.step_facts.conditions import Fact

_SETTINGS = {
    "matmul_precision": "get_float32_matmul_precision",
    "deterministic_algorithms": "are_deterministic_algorithms_enabled",
    "default_dtype": "get_default_dtype",
    "threads": "get_num_threads",
    "autocast_cpu": "is_autocast_cpu_enabled",
    "autocast": "is_autocast_enabled",
    "grad_enabled": "is_grad_enabled",
    "inference_mode": "is_inference_mode_enabled",
    "sdpa_flash": "backends.cuda.flash_sdp_enabled",
    "sdpa_memory_efficient": "backends.cuda.mem_efficient_sdp_enabled",
    "sdpa_math": "backends.cuda.math_sdp_enabled",
    "sdpa_cudnn": "backends.cuda.cudnn_sdp_enabled",
    "cuda_matmul_allow_tf32": "backends.cuda.matmul.allow_tf32",
    "fp16_reduced_precision_reduction": "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "bf16_reduced_precision_reduction": "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cudnn_allow_tf32": "backends.cudnn.allow_tf32",
    "cudnn_enabled": "backends.cudnn.enabled",
    "cudnn_benchmark": "backends.cudnn.benchmark",
    "cudnn_deterministic": "backends.cudnn.deterministic",
    "mkldnn_enabled": "backends.mkldnn.enabled",
    "npu_matmul_allow_hf32": "npu.matmul.allow_hf32",
    "npu_conv_allow_hf32": "npu.conv.allow_hf32",
    "fp32_precision": "backends.fp32_precision",
    "cuda_matmul_fp32_precision": "backends.cuda.matmul.fp32_precision",
    "cudnn_conv_fp32_precision": "backends.cudnn.conv.fp32_precision",
    "cudnn_rnn_fp32_precision": "backends.cudnn.rnn.fp32_precision",
    "mkldnn_matmul_fp32_precision": "backends.mkldnn.matmul.fp32_precision",
    "mkldnn_conv_fp32_precision": "backends.mkldnn.conv.fp32_precision",
    "mkldnn_deterministic": "backends.mkldnn.deterministic",
    "deterministic_warn_only": "is_deterministic_algorithms_warn_only_enabled",
    "interop_threads": "get_num_interop_threads",
    "default_device": "get_default_device",
    "einsum_optimizer": "backends.opt_einsum.enabled",
    "attention_fast_path": "backends.mha.get_fastpath_enabled",
    "anomaly_detection": "is_anomaly_enabled",
}
"""Functions and attributes of torch that hold settings, by their recorded names."""


def read_numerics() -> dict[str, Fact]:
    """Return the settings of torch that may change numbers; unreadable settings are left out."""
    facts: dict[str, Fact] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, path in _SETTINGS.items():
            with suppress(Exception):
                value = _get_nested_attribute(torch, path)
                facts[name] = _convert_to_fact(value() if callable(value) else value)
        for name, device in (("autocast_cpu", "cpu"), ("autocast", "cuda")):
            if facts.get(name) is True:
                facts[name] = _read_autocast_dtype(device)
    return facts


def _read_autocast_dtype(device: str) -> str:
    """Return the dtype of autocast on a device."""
    try:
        return str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    except (AttributeError, RuntimeError):  # before torch 2.4
        get_dtype: Any = torch.get_autocast_cpu_dtype if device == "cpu" else torch.get_autocast_gpu_dtype
        return str(get_dtype()).removeprefix("torch.")


def _get_nested_attribute(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name)
    return owner


def _convert_to_fact(value: Any) -> Fact:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value).removeprefix("torch.")


@cache
def read_library_versions() -> dict[str, Fact]:
    """Return the versions of the device libraries that torch was built with."""
    facts: dict[str, Fact] = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    with suppress(Exception):
        facts["cudnn"] = torch.backends.cudnn.version() if torch.cuda.is_initialized() else None
    cann = getattr(getattr(torch, "version", None), "cann", None)
    facts["cann"] = cann if isinstance(cann, str) else None
    return {name: version for name, version in facts.items() if version is not None}


def read_instruction_set() -> str:
    """Return the instruction set that the kernels of the CPU use; empty if torch does not report it."""
    with suppress(Exception):
        return str(torch.backends.cpu.get_cpu_capability())
    return ""


def iterate_device_modules() -> Iterator[tuple[str, Any]]:
    """Yield the name and the module of each device type in use, such as ``torch.cuda``."""
    names = ["cuda"]
    with suppress(Exception):
        names.append(str(torch._C._get_privateuse1_backend_name()))
    for name in names:
        module = getattr(torch, name, None)
        with suppress(Exception):
            if module is not None and module.is_initialized() and module.default_generators:
                yield name, module


def iterate_modules_without_generators() -> Iterator[Any]:
    """Yield the modules of device types in use that do not list their generators."""
    with suppress(Exception):
        module = getattr(torch, str(torch._C._get_privateuse1_backend_name()), None)
        if module is not None and module.is_initialized() and not hasattr(module, "default_generators"):
            yield module


def is_random(name: str) -> bool | None:
    """Return True if an operator of torch may draw random numbers; None if there is no such operator."""
    packet = None if name.startswith("__") else getattr(torch.ops.aten, name, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return None
    tag = torch.Tag.nondeterministic_seeded
    return any(tag in getattr(packet, overload).tags for overload in packet.overloads())


def disable_transforms() -> AbstractContextManager[Any]:
    """Return a context in which transforms such as ``vmap`` do not wrap tensors."""
    return torch._C._DisableFuncTorch()
