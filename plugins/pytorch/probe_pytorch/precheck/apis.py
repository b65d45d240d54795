"""Look-up of the torch function that a record is a call of, limited to functions that only compute."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from probe_precheck.model import describe_unknown_function

from probe_pytorch import compat
from probe_pytorch.precheck.rules import rules

PLACES: dict[str, Callable[[], Any]] = {
    "Functional": lambda: torch.nn.functional,
    "Tensor": lambda: torch.Tensor,
    "Torch": lambda: torch,
    "VF": lambda: compat.get_low_level_functions(),
    "Aten": lambda: torch.ops.aten,
}
NPU = "NPU"
SECTION_BY_SCOPE = {"Functional": "functional", "Tensor": "tensor", "Torch": "torch", "VF": "_VF", "NPU": "torch_npu"}
"""The sections of ``support_wrap_ops.yaml``, by the first part of a record's name."""
OLD_NAMES = {"__idiv__": "__itruediv__", "__div__": "__truediv__", "__rdiv__": "__rtruediv__"}


class NoSuchApi(Exception):
    """An API that this version of torch lacks, or that cannot be run alone."""


def find_function(scope: str, api: str) -> Callable[..., Any]:
    """Return the function whose calls are recorded as ``{scope}.{api}.{count}``.

    Args:
        scope: The first part of the name, such as ``Functional``.
        api: The rest of the name without its count, such as ``relu``.

    Raises:
        NoSuchApi: Calls of this scope are not run, or torch has no such function.
    """
    if scope == NPU:
        place = _import_npu()
        if place is None:
            raise NoSuchApi("torch_npu is not installed here.")
    elif scope in PLACES:
        place = PLACES[scope]()
    else:
        raise NoSuchApi(f"API type {scope} is not supported for run ut. SKIP.")
    value = place
    for part in api.split("."):
        if part.startswith("_") and part in OLD_NAMES and not hasattr(value, part):
            part = OLD_NAMES[part]
        value = getattr(value, part, None)
    if callable(value) and not is_operator(scope, api, value):
        raise NoSuchApi(describe_unknown_function(f"{scope}.{api}"))
    if not callable(value):
        raise NoSuchApi(f"{scope}.{api} is not there in torch {torch.__version__}. SKIP.")
    function: Callable[..., Any] = value
    return function


def is_operator(scope: str, api: str, function: Any) -> bool:
    """Return True if a record may name the function, which then computes with tensors and does nothing else.

    Names come from files, and ``torch.os.system`` is callable. Allowed are the functions that the recorder
    lists, those under ``runs`` in ``rules.yaml``, the functions of ``torch.nn.functional`` that take tensors,
    and the operators that torch's registry describes as computing only.
    """
    space, dot, name = api.rpartition(".")
    if dot and not (scope == "Torch" and space in rules("namespaces")):
        return scope == NPU and api in _read_api_section(SECTION_BY_SCOPE[NPU])
    if scope == "Aten":
        return is_pure(api)
    if api in _read_api_section(SECTION_BY_SCOPE[scope]) or api in rules("runs").get(scope, ()):
        return True
    if scope == NPU or name.startswith("_"):
        return False
    if scope == "Functional":
        return _is_overridable(function)
    is_known = compat.is_torch_function(api) or _is_overridable(function)
    return is_known and is_pure(api.replace(".", "_"))


def _is_overridable(function: Any) -> bool:
    try:
        return function in _list_overridable()
    except TypeError:  # cannot be hashed
        return False


@cache
def _read_api_section(section: str) -> frozenset[str]:
    """Return the APIs in a section of ``support_wrap_ops.yaml``."""
    import yaml

    text = (files("probe_pytorch") / "capture" / "support_wrap_ops.yaml").read_text("utf-8")
    return frozenset(yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)).get(section) or ())


@cache
def _list_overridable() -> frozenset[Any]:
    """Return all functions that torch lists for ``__torch_function__``, which all take tensors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return frozenset(
            function for functions in torch.overrides.get_overridable_functions().values() for function in functions
        )


def has_npu_function(api: str) -> bool:
    """Return True if torch_npu is installed and has a function of that name."""
    return callable(getattr(_import_npu(), api, None))


def _import_npu() -> Any:
    try:
        return importlib.import_module("torch_npu")
    except ImportError:
        return None


# -- recognition of operators that only compute, from torch's registry ------------------------------


_ARGUMENT_TYPES = frozenset({"Tensor", "int", "float", "bool", "complex", "number", "Device", "Generator"})
"""The types of arguments, also optional or in lists, of operators that compute: no storage or stream."""
_WRAPPED_TYPE = re.compile(r"(?:Optional|List)\[(.*)\]")
_COMPUTING_TAGS = ("core", "pointwise", "reduction", "nondeterministic_seeded")
"""The tags that torch gives to operators that compute."""


@cache
def is_pure(name: str) -> bool:
    """Return True if all overloads of the operator ``aten::{name}`` compute and do nothing else.

    An operator with a leading underscore is internal and must in addition have one of ``_COMPUTING_TAGS`` or be listed.
    """
    packet = getattr(torch.ops.aten, name, None) if name.isidentifier() else None
    if not isinstance(packet, torch._ops.OpOverloadPacket) or name.startswith(tuple(rules("not_pure"))):
        return False
    overloads = [
        getattr(packet, overload)
        for overload in packet.overloads()
        if _format_full_name(name, overload) in _list_registered_operators()
    ]
    is_listed = name in rules("pure")
    if not overloads or not all(_is_pure_schema(overload._schema, is_listed) for overload in overloads):
        return False
    tags = {tag.name for overload in overloads for tag in getattr(overload, "tags", ())}
    return is_listed or not name.startswith("_") or not tags.isdisjoint(_COMPUTING_TAGS)


def _format_full_name(name: str, overload: str) -> str:
    return f"aten::{name}" if overload == "default" else f"aten::{name}.{overload}"


@cache
def _list_registered_operators() -> frozenset[str]:
    """Return the operators of the dispatcher, without those of TorchScript, which are never recorded."""
    return frozenset(getattr(torch._C, "_dispatch_get_all_op_names", list)())


def _is_pure_schema(schema: Any, may_return_nothing: bool) -> bool:
    if not schema.returns and not may_return_nothing:
        return False
    is_of_tensors = any("Tensor" in str(part.type) for part in (*schema.arguments, *schema.returns))
    texts = (*rules("choices"), *rules("dimensions"))
    return is_of_tensors and all(
        _find_base_type(str(part.type)) in _ARGUMENT_TYPES
        or (_find_base_type(str(part.type)) == "str" and part.name in texts)
        for part in schema.arguments
    )


def _find_base_type(type_name: str) -> str:
    while wrapped := _WRAPPED_TYPE.fullmatch(type_name):
        type_name = wrapped[1]
    return type_name
