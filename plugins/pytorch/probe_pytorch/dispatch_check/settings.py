"""Settings of a dispatch check, checked (docs/dispatch-check.md#arguments)."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import torch

from probe_core.errors import UserError, find_nearest_names
from probe_core.files.user_files import describe_yaml_error, parse_yaml, read_regular_file

MIN_MEMORY_BYTES = 1 << 20
MAX_PROCESSES = 64
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class OnError(str, Enum):
    """Reaction to a wrong operator."""

    CONTINUE = "continue"
    RAISE = "raise"


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """Settings of a dispatch check.

    Attributes:
        dump_path: The directory of the csv files.
        skip: Operators that are not compared: ``aten.mm``, or with an overload ``aten.mm.default``.
        processes: The number of processes that compute references; 0 for the process of the training.
        memory: Bytes that copies of arguments and results may take.
        device: The type of the devices whose operators are compared; empty for all.
        on_error: The reaction to a wrong operator.
    """

    dump_path: Path
    skip: frozenset[str]
    processes: int
    memory: int
    device: str
    on_error: OnError


def parse_settings(
    dump_path: Any, skip: Any, processes: Any, memory: Any, device: Any, on_error: Any
) -> DispatchSettings:
    """Return the checked settings.

    Raises:
        UserError: One has a wrong type or value.
    """
    count = _parse_process_count(processes)
    reaction = _parse_on_error(on_error)
    if count and reaction is OnError.RAISE:
        raise UserError(
            'on_error="raise" cannot be used with processes, because their results arrive after the call.',
            "Leave processes out.",
        )
    return DispatchSettings(
        _parse_path(dump_path), _parse_skip(skip), count, _parse_memory(memory), _parse_device_type(device), reaction
    )


def _parse_path(value: Any) -> Path:
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise UserError(f"dump_path must be a path, not {value!r:.40}.", 'For example "./dispatch_check".')
    return Path(value)


def _parse_process_count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_PROCESSES:
        raise UserError(
            f"processes must be a whole number from 0 to {MAX_PROCESSES}, not {value!r:.40}.",
            "0 computes references in the process of the training.",
        )
    return value


def _parse_memory(value: Any) -> int:
    size = value
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        size = int(float(match[1]) * _UNITS[match[2].lower()]) if match else None
    if type(size) is not int or size < MIN_MEMORY_BYTES:
        raise UserError(f"memory must be a size of at least 1 MiB, not {value!r:.40}.", 'For example "2GiB".')
    return size


def _parse_device_type(value: Any) -> str:
    if value is None:
        return ""
    try:
        return torch.device(value).type
    except (RuntimeError, TypeError):
        raise UserError(
            f"device must be a device of torch, not {value!r:.40}.", 'For example "npu" or "cuda".'
        ) from None


def _parse_on_error(value: Any) -> OnError:
    try:
        return OnError(value)
    except ValueError:
        raise UserError(
            f"on_error must be one of these, not {value!r:.40}.", "Use:", [each.value for each in OnError]
        ) from None


# -- operators to skip -----------------------------------------------------------------------------


def _parse_skip(value: Any) -> frozenset[str]:
    """Return the operators in a list, or in a YAML file."""
    if value is None:
        return frozenset()
    if isinstance(value, (str, os.PathLike)):
        return _read_skip_file(Path(value))
    if not isinstance(value, Collection):
        raise UserError(
            f"skip must be a YAML file or a list of operators, not {value!r:.40}.", 'For example ["aten.mm"].'
        )
    return frozenset(_parse_operator(name, "skip") for name in value)


def _read_skip_file(path: Path) -> frozenset[str]:
    import yaml

    try:
        document = parse_yaml(read_regular_file(path).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise UserError(f"The list {path} cannot be read: {problem}.", "Pass the path of a YAML file.") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UserError(f"{path} is not valid YAML{describe_yaml_error(error)}.", "Correct the file.") from None
    names = document.get("skip") if isinstance(document, dict) else document
    if not isinstance(names, Sequence) or isinstance(names, str):
        raise UserError(f"{path} does not contain a list of operators.", "Write a list, for example: skip: [aten.mm]")
    return frozenset(_parse_operator(name, str(path)) for name in names)


def _parse_operator(name: Any, source: str) -> str:
    """Return an operator as ``aten.mm`` or ``aten.mm.default``."""
    if not isinstance(name, str) or not name.strip():
        raise UserError(
            f"{source} contains {name!r:.40}, which is not the name of an operator.", "For example aten.mm."
        )
    parts = name.strip().replace("::", ".").split(".")
    if parts[0] != ATEN and hasattr(torch.ops.aten, parts[0]):
        parts.insert(0, ATEN)
    packet = getattr(torch.ops.aten, parts[1], None) if parts[0] == ATEN and len(parts) in (2, 3) else None
    if packet is None:
        nearest_names = find_nearest_names(parts[-1] if len(parts) == 1 else parts[1], dir(torch.ops.aten))
        raise UserError(
            f"{source} names an unknown operator {name!r:.80}.", "Did you mean one of these?", nearest_names
        )
    if len(parts) == 3 and parts[2] not in packet.overloads():
        raise UserError(
            f"{source} names an unknown overload {name!r:.80}.", "It has these:", sorted(packet.overloads())
        )
    return ".".join(parts)


# -- definitions of operators that the CPU has no kernel for: the references of the pre-check -------


ATEN = "aten"
SCOPES = {ATEN: "Aten", "npu": "NPU"}
"""Scopes of the names of references, by the namespaces of operators."""


@cache
def find_definition(namespace: str, name: str) -> Any:
    """Return the reference that a plugin has for an operator, such as ``NPU.npu_rms_norm``; else None."""
    scope = SCOPES.get(namespace)
    spec = None if scope is None else _load_specs().get(f"{scope}.{name}")
    return None if spec is None else spec.make()


@cache
def _load_specs() -> dict[str, Any]:
    from probe_pytorch.precheck.runner import reference_specs

    return reference_specs()
