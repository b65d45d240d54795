"""The names of recorded calls (docs/formats.md#names), from two yaml files.

``support_wrap_ops.yaml`` lists the functions to record. ``names.yaml`` contains the rules that give calls the
same names as msprobe: ``Tensor.__add__`` for ``a + b``, ``Functional.linear``, ``VF.lstm``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from probe_pytorch import compat
from probe_pytorch.capture.yaml_lists import read_lists

FAMILIES = ("functional", "tensor", "torch", "_VF", "aten", "torch_npu", "distributed", "npu_distributed",
            "mindspeed")  # fmt: skip
ANY_NAME = "*"
MAX_CACHED_LISTS = 8
"""Number of lists of functions whose names are cached."""


@dataclass(frozen=True, slots=True)
class CapturedApi:
    """The names of a function's calls in a run.

    Attributes:
        name: The usual name; None if such calls are not recorded.
        operator: The name if an operator makes the call; None if such calls are not recorded.
        has_operator: True if there is an operator that makes the call.
        reflected: The name if an operator with the tensor on its right makes the call.
        recurrent: The name if torch.nn.modules.rnn makes the call.
        in_place: True if the call overwrites its first argument.
        filled: Positions of output buffers, which have no values before the call.
    """

    name: str | None
    operator: str | None = None
    has_operator: bool = False
    reflected: str | None = None
    recurrent: str | None = None
    in_place: bool = False
    filled: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Patch:
    """A function that no mode sees and that must be wrapped.

    Attributes:
        holder: The module or class that has the function as an attribute.
        attribute: The name of this attribute.
        name: The name of the records of its calls.
    """

    holder: Any
    attribute: str
    name: str


@dataclass(slots=True)
class Names:
    """The names of everything that is recorded.

    Attributes:
        by_function: The names of the functions that a mode receives.
        by_code: The names of functions seen only by the calls inside them, by the ids of their code.
        dispatched: The names of functions that torch's dispatchers choose between, by the ids of their code.
        aten: A function that returns True if the operator of this name in torch.ops.aten is recorded.
        patches: The functions that must be wrapped to be recorded.
        receives: The positions of the buffers that each collective fills.
        receive_keywords: The keywords of such buffers.
        internal_namespaces: The namespaces of torch.ops that torch uses internally.
    """

    by_function: dict[Any, CapturedApi] = field(default_factory=dict)
    by_code: dict[int, str] = field(default_factory=dict)
    dispatched: dict[int, str] = field(default_factory=dict)
    aten: Callable[[str], bool] = bool
    patches: list[Patch] = field(default_factory=list)
    receives: dict[str, list[int]] = field(default_factory=dict)
    receive_keywords: frozenset[str] = frozenset()
    internal_namespaces: frozenset[str] = frozenset()


def load_names(ops: Path | None = None, risk_level: str = "ALL") -> Names:
    """Return the names of all functions that are recorded.

    Args:
        ops: A list of functions in the form of support_wrap_ops.yaml; None for the list of this package.
        risk_level: ``ALL``, ``CORE`` or ``FOCUS``; the latter two leave out functions that rarely go wrong.

    Raises:
        UserError: The list cannot be read, or has another form.
    """
    rules = _load_package_yaml("names.yaml")
    listed = _load_families(ops)
    allow = _create_risk_filter(risk_level, rules, listed)
    return _NameTableBuilder(rules, listed, allow).build()


@cache
def _load_package_yaml(name: str) -> Any:
    """Return the content of a yaml file of this package; yaml is imported only if calls are recorded."""
    import yaml

    text = (files("probe_pytorch.capture") / name).read_text("utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _load_families(path: Path | None) -> dict[str, list[str]]:
    if path is None:
        listed = _load_package_yaml("support_wrap_ops.yaml")
    else:
        listed = read_lists(path, "support_wrap_ops", "families of APIs", FAMILIES)
    return {family: listed.get(family) or [] for family in FAMILIES}


def _create_risk_filter(level: str, rules: dict[str, Any], listed: dict[str, list[str]]) -> Callable[[str], bool]:
    if level == "ALL":
        return lambda name: True
    low = frozenset(rules["low_risk"])
    if level == "FOCUS":
        return lambda name: name not in low
    families = ("mindspeed", "torch_npu", "distributed", "npu_distributed")
    core = frozenset(rules["core"]) | {n.rpartition(".")[2] for f in families for n in listed[f]}
    return lambda name: name in core


class _NameTableBuilder:
    """A builder of the names, family by family; a function in two families has the name of the first."""

    def __init__(self, rules: dict[str, Any], listed: dict[str, list[str]], allow: Callable[[str], bool]) -> None:
        self._rules = rules
        self._allow = allow
        self._listed = {family: [n for n in names if n == ANY_NAME or allow(n)] for family, names in listed.items()}
        self.names = Names(
            receives=rules["receives"],
            receive_keywords=frozenset(rules["receive_keywords"]),
            internal_namespaces=frozenset(rules["internal_namespaces"]),
        )

    def build(self) -> Names:
        """Return the names of all families."""
        self._add_functional()
        self._add_tensor()
        self._add_torch()
        for name in ("torch_npu", "mindspeed"):
            self._add_third_party(name)
        self._add_distributed()
        listed = frozenset(self._listed["aten"])
        self.names.aten = self._allow if ANY_NAME in listed else listed.__contains__
        return self.names

    def _add_functional(self) -> None:
        holder = torch.nn.functional
        for name in self._listed["functional"]:
            function = getattr(holder, name, None)
            if function is None:
                continue
            full = f"Functional.{name}"
            if name in self._rules["hidden_functional"]:
                self.names.by_code[id(function.__code__)] = full
                continue
            for inner in _find_dispatcher_targets(function):
                self.names.dispatched[id(inner.__code__)] = full
            self._put(function, CapturedApi(full, in_place=name.endswith("_")))

    def _add_tensor(self) -> None:
        for name, api in _describe_tensor_methods(tuple(self._listed["tensor"])):
            function = getattr(torch.Tensor, name, None)
            if function is not None:
                self._put(function, api)

    def _add_torch(self) -> None:
        for path, api in _describe_torch_functions(tuple(self._listed["torch"]), tuple(self._listed["_VF"])):
            holder: Any = torch
            for part in path:
                holder = getattr(holder, part, None)
            if holder is not None:
                self._put(holder, api)

    def _add_third_party(self, family: str) -> None:
        """Add the Python functions of torch_npu or mindspeed.ops, if the package is imported."""
        prefix = {"torch_npu": "NPU", "mindspeed": "MindSpeed"}[family]
        if sys.modules.get(family) is None:
            return
        operators = getattr(torch.ops, "npu", None) if family == "torch_npu" else None
        for name in self._listed[family]:
            path, _, attribute = name.rpartition(".")
            holder = sys.modules[family] if family == "torch_npu" else _find_module(f"mindspeed.ops.{path}")
            if callable(getattr(holder, attribute, None)):
                self.names.patches.append(Patch(holder, attribute, f"{prefix}.{attribute}"))
            packet = getattr(operators, attribute, None) if operators is not None else None
            if packet is not None:
                self._put(packet, CapturedApi(f"{prefix}.{attribute}"))

    def _add_distributed(self) -> None:
        if torch.distributed.is_available():
            self._patch(torch.distributed, self._listed["distributed"])
        npu = sys.modules.get("torch_npu")
        if npu is not None and hasattr(npu, "distributed"):
            self._patch(npu.distributed, self._listed["npu_distributed"])

    def _patch(self, holder: Any, listed: Iterable[str]) -> None:
        for name in listed:
            function = getattr(holder, name, None)
            if function is None:
                continue
            self._put(function, CapturedApi(f"Distributed.{name}"))
            if not compat.is_self_dispatching(function):
                self.names.patches.append(Patch(holder, name, f"Distributed.{name}"))

    def _put(self, function: Any, api: CapturedApi) -> None:
        try:
            self.names.by_function.setdefault(function, api)
        except TypeError:  # it cannot be hashed, so no mode receives it
            return


@lru_cache(MAX_CACHED_LISTS)
def _describe_tensor_methods(names: tuple[str, ...]) -> list[tuple[str, CapturedApi]]:
    """Return the names of the methods of tensors that are recorded, with the names of their calls."""
    rules, listed = _load_package_yaml("names.yaml"), frozenset(names)
    operators, reflected = rules["operators"], rules["reflected"]
    return [
        (
            name,
            CapturedApi(
                f"Tensor.{name}" if name in listed else None,
                f"Tensor.{operators[name]}" if operators.get(name) in listed else None,
                name in operators,
                f"Tensor.{reflected[name]}" if reflected.get(name) in listed else None,
                in_place=_is_in_place(name),
                filled=(0,) if name in rules["overwrites"] else (),
            ),
        )
        for name in dict.fromkeys([*names, *operators])
        if name not in rules["renamed"]
    ]


@lru_cache(MAX_CACHED_LISTS)
def _describe_torch_functions(
    names: tuple[str, ...], vf_names: tuple[str, ...]
) -> list[tuple[tuple[str, ...], CapturedApi]]:
    """Return the paths of the functions of torch that are recorded, with the names of their calls."""
    rules, listed = _load_package_yaml("names.yaml"), frozenset(names)
    return [
        (
            tuple(name.split(".")),
            CapturedApi(
                f"Torch.{name}" if name in listed else None,
                recurrent=f"VF.{name}" if name in rules["recurrent"] else None,
                in_place=_is_in_place(name),
            ),
        )
        for name in dict.fromkeys([*names, *vf_names, *rules["recurrent"]])
        if name not in rules["synonyms"]  # the same function under a second name, which the mode cannot distinguish
    ]


def _is_in_place(name: str) -> bool:
    return name in _load_package_yaml("names.yaml")["in_place"] or (name.endswith("_") and not name.endswith("__"))


def _find_dispatcher_targets(function: Any) -> list[Any]:
    """Return the two functions that a function made by torch's boolean_dispatch chooses between."""
    code = getattr(function, "__code__", None)
    if code is None or code is not DISPATCHER:
        return []
    cells = (cell.cell_contents for cell in function.__closure__ or ())
    return [item for item in cells if hasattr(item, "__code__")]


def _find_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


DISPATCHER: CodeType = torch.nn.functional.max_pool2d.__code__
"""The code object that all functions made by boolean_dispatch share."""
