"""Custom operators: those of ``torch.ops`` that are not torch's own (docs/recording.md#custom-operators)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from typing import Any

from probe_pytorch.capture.families import Families

ATEN = "aten"
OUT = ("out",)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of ``torch.ops``.

    Attributes:
        namespace: Its namespace, such as ``torchvision``.
        name: Its name there, without overload, such as ``nms``.
    """

    namespace: str
    name: str

    @classmethod
    def from_function(cls, function: Any) -> Operator | None:
        """Return the operator that ``function``, an operator or one of its overloads, calls; else None."""
        namespace: str = getattr(function, "namespace", None) or ""
        if not namespace:
            namespace = getattr(function, "_qualified_op_name", "").partition("::")[0]
        packet = getattr(function, "overloadpacket", function)
        return cls(namespace, getattr(packet, "__name__", "")) if namespace else None


class CustomOperators:
    """The selection of the custom operators to record.

    Args:
        internal: Namespaces of torch that hold its own machinery, such as ``prim``.
        selected: The namespaces to record (``custom_op_namespaces``); None for all but the internal ones.
        families: The families of calls of the recording.
    """

    def __init__(self, internal: Collection[str], selected: Collection[str] | None, families: Families) -> None:
        self._internal, self._selected, self.families = internal, selected, families

    def records(self, operator: Operator) -> bool:
        """Return True if calls of an operator are recorded; count the call if they are not."""
        if operator.namespace in (self._selected or ()):
            is_recorded = True
        elif operator.namespace in self._internal:
            return False
        else:
            is_recorded = self._selected is None
        if is_recorded:
            self.families.operators.add(operator.namespace)
        else:
            self.families.count_unrecorded(f"{operator.namespace}.{operator.name}")
        return is_recorded


@dataclass(frozen=True, slots=True)
class Effects:
    """The arguments that one call of an operator writes to.

    Attributes:
        written: Their values, without buffers that only receive a result (``out=``).
        filled: Keywords of such buffers.
    """

    written: tuple[Any, ...]
    filled: tuple[str, ...]


NO_EFFECTS = Effects((), ())


def find_effects(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Effects:
    """Return what a call of an operator writes to, from its schema."""
    filled = tuple(name for name in OUT if name in kwargs)
    schema = find_schema(function, args, kwargs)
    if schema is None:
        return Effects((), filled)
    written: list[Any] = []
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write or argument.name in filled:
            continue
        if place < len(args) and not argument.kwarg_only:
            written.append(args[place])
        elif argument.name in kwargs:
            written.append(kwargs[argument.name])
    return Effects(tuple(value for value in written if value is not None), filled)


def find_schema(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the schema of an operator's overload; of several, the first that takes such arguments.

    Overloads that differ by the types of their arguments alone write to the same arguments.
    """
    schema = getattr(function, "_schema", None)
    if schema is not None:
        return schema
    overloads: list[str] = getattr(function, "overloads", list)()  # operators of higher order have neither
    schemas = (getattr(function, name)._schema for name in overloads)
    return next((schema for schema in schemas if _accepts(schema, len(args), kwargs.keys())), None)


def _accepts(schema: Any, positional: int, keywords: Set[str]) -> bool:
    """Return True if a schema allows a call with a number of positional arguments and these keywords."""
    names = [argument.name for argument in schema.arguments]
    passed_names = {*names[:positional], *keywords}
    most = sum(not argument.kwarg_only for argument in schema.arguments)
    required = {argument.name for argument in schema.arguments if not argument.has_default_value()}
    return positional <= most and required <= passed_names <= set(names)
