"""Names and arguments of two frameworks in common words, as data; what a ``NameRule`` makes.

The common words are those of the rule's target framework. Each framework has a ``Dialect``: which API of its
own is which of the common ones, and what its arguments are called there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

_API = re.compile(r"(.+)\.(\d+)\.(forward|backward)$")
_MODULE = re.compile(r"(?:Module|Cell)\.((?:.*\.)?)([^.]+)\.(forward|backward|parameters_grad)((?:\.\d+)?)$")
PRIMITIVE = "Primitive."


@dataclass(frozen=True, slots=True)
class SlotMap:
    """The paths that values of a call have in its partner, by their own, such as ``weight`` by ``w``.

    A path that a map does not list has no partner. An attribute that is None leaves those values where they
    are; gradients go by the parameters then.
    """

    inputs: Mapping[str, str] | None = None
    outputs: Mapping[str, str] | None = None
    parameters: Mapping[str, str] | None = None
    gradients: Mapping[str, str] | None = None


AS_THEY_ARE = SlotMap()


class Overload(NamedTuple):
    """The API of the same framework that a call is which takes more than ``above`` inputs beside tensors."""

    above: int
    api: str


@dataclass(frozen=True, slots=True)
class Dialect:
    """The names that one framework gives to what both have; those that are not listed stay as they are.

    Attributes:
        apis: The common name of an API, such as ``Functional.add`` of ``Mint.add``, both without call count.
        arguments: The parameters of an own API by position, in its own words; several words for one, its
            common one among them, are joined by ``|``; the last may end in ``*``: it takes all arguments that
            follow. The target's dialect lists those of the common APIs.
        slots: Own APIs, and own classes of modules, whose values stand elsewhere than their partner's.
        classes: The common name of an own class of modules.
        composites: Common names of APIs that the framework computes by calls of others, and from how many
            dimensions of an input on. Recorders that look at the last node of a call alone note for them
            what that node gave, and no gradient of an input.
        overloads: Own APIs that are another own one when they are called with more values.
    """

    apis: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    slots: Mapping[str, SlotMap] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    composites: Mapping[str, int] = field(default_factory=dict)
    overloads: Mapping[str, Overload] = field(default_factory=dict)

    def word(self, api: str) -> str:
        """The common name of an API."""
        return self.apis.get(api) or self.apis.get(plain(api), api)

    def places(self, name: str) -> SlotMap:
        """Where the values of an API, or of a module of a class, stand in its partner."""
        return self.slots.get(name) or self.slots.get(plain(name)) or AS_THEY_ARE


@dataclass(frozen=True, slots=True)
class Hint:
    """A known difference of two frameworks, told where it may explain what is seen.

    Attributes:
        names: The APIs, in common words, and the classes of modules, in either's, that it is about.
        text: What a person is told.
        differs: Told only where such a call differs; else wherever such a pair is met.
    """

    names: frozenset[str]
    text: str
    differs: bool = True


@dataclass(frozen=True, slots=True)
class NameTable:
    """Two dialects and what is known of their differences. ``source`` and ``target`` are frameworks."""

    source: Dialect = field(default_factory=Dialect)
    target: Dialect = field(default_factory=Dialect)
    hints: tuple[Hint, ...] = ()

    def with_source(self, **changes: object) -> NameTable:
        """The same with another dialect of the source."""
        return replace(self, source=replace(self.source, **changes))  # type: ignore[arg-type]


def api_parts(key: str) -> tuple[str, str, str] | None:
    """The API, its call number and the phase of a record's name; None for modules and other records."""
    found = _API.match(key)
    if found is None or _MODULE.match(key):
        return None
    return found[1], found[2], found[3]


def plain(api: str) -> str:
    """An API without what its user called it: ``Primitive.<attribute>.<Class>`` is ``Primitive.<Class>``."""
    return f"{PRIMITIVE}{api.rpartition('.')[2]}" if api.startswith(PRIMITIVE) else api


def module_parts(key: str) -> tuple[str, str, str] | None:
    """The path of a module, its class, and what follows; None for other records."""
    found = _MODULE.match(key)
    return (found[1][:-1], found[2], f"{found[3]}{found[4]}") if found else None


class Positions:
    """Where arguments of APIs stand, in the common API's positions, whichever way they were written."""

    def __init__(self, own: Dialect, common: Dialect) -> None:
        self._own, self._common = own, common

    def place(self, api: str, path: str, *, is_scalar: bool) -> str:
        """The place of an argument that a record has under ``path``; two that agree are one argument."""
        head, _, rest = path.partition(".")
        word = self._own.word(api)
        theirs = self._common.arguments.get(word, ())
        ours = self._own.arguments.get(api, theirs)
        position = int(head) if head.isdecimal() else _position(ours, {head})
        if position is None:
            return path
        last = len(ours) - 1
        if ours and position >= last and ours[last].endswith("*") and is_scalar and not rest:
            position, rest = last, str(position - last)
        if ours is not theirs and position < len(ours):
            found = _position(theirs, set(ours[position].rstrip("*").split("|")))
            if found is None and theirs:
                return f"{ours[position]}.{rest}" if rest else ours[position]
            position = position if found is None else found
        return f"{position}.{rest}" if rest else str(position)

    def common_place(self, word: str, path: str) -> str:
        """The place of what the common API has under ``path``."""
        head, _, rest = path.partition(".")
        position = None if head.isdecimal() else _position(self._common.arguments.get(word, ()), {head})
        if position is None:
            return path
        return f"{position}.{rest}" if rest else str(position)


def _position(names: Sequence[str], wanted: set[str]) -> int | None:
    for position, name in enumerate(names):
        if wanted & set(name.rstrip("*").split("|")):
            return position
    return None
