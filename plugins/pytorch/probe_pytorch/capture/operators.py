"""Custom operators: operators in ``torch.ops`` that torch does not define (docs/recording.md#custom-operators)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from typing import Any

from probe_pytorch.capture.families import Families

ATEN = "aten"
OUTPUT_BUFFER_KEYWORDS = ("out",)
"""Keywords of buffers that only receive a result."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of ``torch.ops``.

    Attributes:
        namespace: The namespace of the operator, such as ``torchvision``.
        name: The name of the operator in the namespace, without the overload, such as ``nms``.
    """

    namespace: str
    name: str

    @classmethod
    def from_function(cls, function: Any) -> Operator | None:
        """Return the operator of ``function``, an operator or an overload of an operator; None for other functions."""
        namespace: str = getattr(function, "namespace", None) or ""
        if not namespace:
            namespace = getattr(function, "_qualified_op_name", "").partition("::")[0]
        packet = getattr(function, "overloadpacket", function)
        return cls(namespace, getattr(packet, "__name__", "")) if namespace else None


class CustomOperators:
    """Filter that decides which custom operators are recorded, and counts the calls of the others.

    Args:
        internal_namespaces: Namespaces that torch uses internally, such as ``prim``.
        selected_namespaces: The namespaces to record (``custom_op_namespaces``). None to record all namespaces
            that are not internal.
        families: The families of calls that the recorder captures, with the counts of calls that are not recorded.
    """

    def __init__(
        self, internal_namespaces: Collection[str], selected_namespaces: Collection[str] | None, families: Families
    ) -> None:
        self._internal_namespaces, self._selected_namespaces = internal_namespaces, selected_namespaces
        self.families = families

    def is_recorded(self, operator: Operator) -> bool:
        """Return True if calls of an operator are recorded."""
        if self._selected_namespaces is None:
            return operator.namespace not in self._internal_namespaces
        return operator.namespace in self._selected_namespaces

    def note_call(self, operator: Operator) -> None:
        """Note the namespace of a recorded call; count other calls, unless their namespace is internal."""
        if self.is_recorded(operator):
            self.families.operators.add(operator.namespace)
        elif operator.namespace not in self._internal_namespaces:
            self.families.count_unrecorded(f"{operator.namespace}.{operator.name}")


@dataclass(frozen=True, slots=True)
class WrittenArguments:
    """The arguments that one call of an operator writes to.

    Attributes:
        values: The values of these arguments, without the buffers that only receive a result (``out=``).
        buffer_keywords: The keywords of the buffers that only receive a result, such as ``out``.
    """

    values: tuple[Any, ...]
    buffer_keywords: tuple[str, ...]


NO_WRITTEN_ARGUMENTS = WrittenArguments((), ())


def find_written_arguments(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> WrittenArguments:
    """Return the arguments that a call of an operator writes to, as the schema of the operator declares."""
    buffer_keywords = tuple(name for name in OUTPUT_BUFFER_KEYWORDS if name in kwargs)
    schema = find_schema(function, args, kwargs)
    if schema is None:
        return WrittenArguments((), buffer_keywords)
    values: list[Any] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write or argument.name in buffer_keywords:
            continue
        if position < len(args) and not argument.kwarg_only:
            values.append(args[position])
        elif argument.name in kwargs:
            values.append(kwargs[argument.name])
    return WrittenArguments(tuple(value for value in values if value is not None), buffer_keywords)


def find_schema(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the schema of an operator.

    If the operator has several overloads, the schema of the first overload that accepts the arguments is returned, or
    None if no overload accepts them. Overloads that differ only by the types of their arguments write to the same
    arguments.
    """
    schema = getattr(function, "_schema", None)
    if schema is not None:
        return schema
    # higher-order operators have neither _schema nor overloads
    overloads: list[str] = getattr(function, "overloads", list)()
    schemas = (getattr(function, name)._schema for name in overloads)
    return next((schema for schema in schemas if _accepts(schema, len(args), kwargs.keys())), None)


def _accepts(schema: Any, positional_count: int, keywords: Set[str]) -> bool:
    """Return True if a schema accepts ``positional_count`` positional arguments together with ``keywords``."""
    names = [argument.name for argument in schema.arguments]
    passed_names = {*names[:positional_count], *keywords}
    max_positional_count = sum(not argument.kwarg_only for argument in schema.arguments)
    required = {argument.name for argument in schema.arguments if not argument.has_default_value()}
    return positional_count <= max_positional_count and required <= passed_names <= set(names)
