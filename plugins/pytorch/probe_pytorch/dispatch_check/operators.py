"""Kinds of aten operators: which ones are checked, and the reasons why others are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import torch
from probe_precheck.rules import Rules

from probe_pytorch.dispatch_check.settings import ATEN, find_definition

rules = Rules(__package__)
"""Reader of ``rules.yaml``."""

COLLECTIVE_NAMESPACES = frozenset(
    {"c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd", "symm_mem", "fsdp"}
)
"""Namespaces of operators that communicate."""


class SkipReason(Enum):
    """Reason why a call is not compared."""

    LISTED = "listed"
    VIEW = "view"
    UNINITIALISED = "uninitialised"
    RANDOM = "random"
    COLLECTIVE = "collective"
    OTHER_NAMESPACE = "other_namespace"
    NO_VALUES = "no_values"
    NOT_UNIQUE = "not_unique"
    SUBCLASS = "subclass"
    LAYOUT = "layout"
    DTYPE = "dtype"
    DEVICE = "device"
    ALIASED = "aliased"
    MEMORY = "memory"
    NO_CPU_KERNEL = "no_cpu_kernel"
    NOT_COMPUTED = "not_computed"
    FAILED = "failed"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class OperatorProperties:
    """Properties of an overload that do not depend on the call.

    Attributes:
        name: The name without namespace and overload, such as ``mm``.
        prefix: The beginning of the names of its calls, such as ``Aten.mm``.
        written: The names of the arguments that it writes to.
        returned: Those of them that it also returns.
        reason: The reason why no call of it is checked; None if calls are checked.
        draws: True if it draws random numbers, unless a probability of dropout is 0.
        is_exact: True if the reference computes in the dtype of the device.
        namespace: The namespace.
    """

    name: str
    prefix: str
    written: frozenset[str]
    returned: frozenset[str]
    reason: SkipReason | None
    draws: bool
    is_exact: bool
    namespace: str = ATEN

    @property
    def definition(self) -> Any:
        """The reference that a plugin has for the operator; None to run it on the CPU."""
        return find_definition(self.namespace, self.name)


@cache
def read_operator(overload: Any) -> OperatorProperties:
    """Return the properties of an overload of an operator."""
    name, namespace = overload.overloadpacket.__name__, overload.namespace
    schema = overload._schema
    written = {argument.name: argument for argument in schema.arguments if _is_written(argument)}
    sets = [result.alias_info.before_set for result in schema.returns if result.alias_info is not None]
    returned = frozenset(key for key, argument in written.items() if argument.alias_info.before_set in sets)
    undeclared = rules("writes").get(name, ()) if namespace == ATEN else ()
    return OperatorProperties(
        name,
        f"Aten.{name}" if namespace == ATEN else f"Aten.{namespace}.{name}",
        frozenset((*written, *undeclared)),
        returned,
        _find_skip_reason(overload, name, namespace, bool(written)),
        _is_random(overload),
        name in rules("exact") or any(argument.name == "rounding_mode" for argument in schema.arguments),
        namespace,
    )


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def _find_skip_reason(overload: Any, name: str, namespace: str, writes: bool) -> SkipReason | None:
    schema = overload._schema
    if namespace in COLLECTIVE_NAMESPACES:
        return SkipReason.COLLECTIVE
    if not writes and not any("Tensor" in str(result.type) for result in schema.returns):
        return SkipReason.NO_VALUES
    if namespace != ATEN:
        return SkipReason.OTHER_NAMESPACE if find_definition(namespace, name) is None else None
    if name in rules("uninitialised"):
        return SkipReason.UNINITIALISED
    if name in rules("not_unique"):
        return SkipReason.NOT_UNIQUE
    is_view = any(item.alias_info is not None and not item.alias_info.is_write for item in schema.arguments)
    return SkipReason.VIEW if is_view or name in rules("views") else None


def _is_random(overload: Any) -> bool:
    has_generator = any(argument.name == "generator" for argument in overload._schema.arguments)
    return has_generator or torch.Tag.nondeterministic_seeded in overload.tags


def name_arguments(overload: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by the names of the schema; those left at their default are missing."""
    names = (argument.name for argument in overload._schema.arguments)
    return {**dict(zip(names, args)), **kwargs}


def draws_random_numbers(operator: OperatorProperties, arguments: Mapping[str, Any]) -> bool:
    """Return True if a call draws random numbers that the reference cannot repeat."""
    if not operator.draws or operator.name in rules("masked"):
        return False
    shares = [arguments[name] for name in rules("dropouts") if name in arguments]
    return not shares or any(share != 0 for share in shares)


def iterate_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in arguments or results, depth first."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from iterate_tensors(item)


def collect_results(
    overload: Any, operator: OperatorProperties, arguments: Mapping[str, Any], result: Any
) -> list[Any]:
    """Return the values that a call returns, then the arguments that it writes to and does not return.

    Args:
        overload: The operator.
        operator: Its properties.
        arguments: The arguments of the call, by name.
        result: The value that the call returned.
    """
    results = list(result) if isinstance(result, (list, tuple)) else [result]
    flat = [item for value in results for item in (value if isinstance(value, (list, tuple)) else (value,))]
    names = [argument.name for argument in overload._schema.arguments]
    for name in names:
        if name in operator.written and name not in operator.returned:
            flat += iterate_tensors(arguments.get(name))
    return flat if result is not None else flat[1:]
