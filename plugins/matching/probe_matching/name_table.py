"""Tables of names and arguments of two frameworks, as a ``NameRule`` makes them (docs/pairing.md#frameworks).

The common names are those of the rule's target framework. Each framework has a ``Dialect``, which maps its
APIs to the common ones and names their arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

PRIMITIVE_PREFIX = "Primitive."


@dataclass(frozen=True, slots=True)
class SlotMap:
    """The paths of a call's values in its partner, by their own paths, such as ``weight`` by ``w``.

    A path that a map does not list has no partner. An attribute that is None leaves those values in their
    places; if ``gradients`` is None, gradients follow ``parameters``.
    """

    inputs: Mapping[str, str] | None = None
    outputs: Mapping[str, str] | None = None
    parameters: Mapping[str, str] | None = None
    gradients: Mapping[str, str] | None = None


UNCHANGED_SLOTS = SlotMap()


class Overload(NamedTuple):
    """The API that a call really is if it has more than ``above`` inputs other than tensors."""

    above: int
    api: str


@dataclass(frozen=True, slots=True)
class Dialect:
    """The names of one framework in terms of the common names; names that are not listed are equal.

    Attributes:
        apis: The common name of an API, such as ``Functional.add`` for ``Mint.add``, both without call count.
        arguments: The names of an API's parameters by position. Several names of the same parameter, the
            common one among them, are joined by ``|``; the last may end in ``*`` if it takes all further
            arguments. The target's dialect lists the parameters of the common APIs.
        slots: The APIs and classes of modules whose values have other places than their partner's.
        classes: The common name of a class of modules.
        composites: Common names of APIs that the framework computes by calling others, with the smallest
            number of dimensions of an input for which it does. Recorders that see only the last node of
            the backward graph record the gradients of an inner call for these.
        overloads: The APIs that are another API if they are called with more values.
    """

    apis: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    slots: Mapping[str, SlotMap] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    composites: Mapping[str, int] = field(default_factory=dict)
    overloads: Mapping[str, Overload] = field(default_factory=dict)

    def word(self, api: str) -> str:
        """Return the common name of an API."""
        return self.apis.get(api) or self.apis.get(drop_attribute(api), api)

    def places(self, name: str) -> SlotMap:
        """Return the places of an API's, or a module's, values in its partner."""
        return self.slots.get(name) or self.slots.get(drop_attribute(name)) or UNCHANGED_SLOTS


@dataclass(frozen=True, slots=True)
class Hint:
    """A known difference of two frameworks that may explain a difference between runs.

    Attributes:
        names: The APIs (common names) and the classes of modules (of either framework) that it concerns.
        text: The sentence for the user.
        differs: True to show it only if such a call differs; False to show it for every such pair.
    """

    names: frozenset[str]
    text: str
    differs: bool = True


@dataclass(frozen=True, slots=True)
class NameTable:
    """The dialects of two frameworks, with hints on their differences."""

    source: Dialect = field(default_factory=Dialect)
    target: Dialect = field(default_factory=Dialect)
    hints: tuple[Hint, ...] = ()

    def with_source(self, **changes: object) -> NameTable:
        """Return a copy with changes in the dialect of the source."""
        return replace(self, source=replace(self.source, **changes))  # type: ignore[arg-type]


def drop_attribute(api: str) -> str:
    """Return an API without its attribute: ``Primitive.<attribute>.<Class>`` is ``Primitive.<Class>``."""
    return f"{PRIMITIVE_PREFIX}{api.rpartition('.')[2]}" if api.startswith(PRIMITIVE_PREFIX) else api


class Positions:
    """The places of arguments as positions of the common API, for positional and keyword arguments."""

    def __init__(self, dialect: Dialect, common: Dialect) -> None:
        self._dialect, self._common = dialect, common

    def find_place(self, api: str, path: str, *, is_scalar: bool) -> str:
        """Return the place of an argument recorded under ``path``; equal places are the same argument."""
        head, _, rest = path.partition(".")
        word = self._dialect.word(api)
        common_names = self._common.arguments.get(word, ())
        dialect_names = self._dialect.arguments.get(api, common_names)
        position = int(head) if head.isdecimal() else _find_position(dialect_names, {head})
        if position is None:
            return path
        last = len(dialect_names) - 1
        if dialect_names and position >= last and dialect_names[last].endswith("*") and is_scalar and not rest:
            position, rest = last, str(position - last)
        if dialect_names is not common_names and position < len(dialect_names):
            common_position = _find_position(common_names, set(dialect_names[position].rstrip("*").split("|")))
            if common_position is None and common_names:
                return f"{dialect_names[position]}.{rest}" if rest else dialect_names[position]
            position = position if common_position is None else common_position
        return f"{position}.{rest}" if rest else str(position)

    def find_common_place(self, word: str, path: str) -> str:
        """Return the place of an argument that the common API has under ``path``."""
        head, _, rest = path.partition(".")
        position = None if head.isdecimal() else _find_position(self._common.arguments.get(word, ()), {head})
        if position is None:
            return path
        return f"{position}.{rest}" if rest else str(position)


def _find_position(names: Sequence[str], wanted: set[str]) -> int | None:
    for position, name in enumerate(names):
        if wanted & set(name.rstrip("*").split("|")):
            return position
    return None
