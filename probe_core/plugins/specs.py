"""What the hooks return: small frozen descriptions whose factories import the heavy parts.

A factory is a callable without arguments, or its address as ``"package.module:attribute"``,
which is imported only when the contribution is used.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Union

from probe_core.plugins.blame import Origin, blamed

Factory = Union[str, Callable[[], Any]]


class Needs(str, Enum):
    """What of a pair a metric looks at."""

    STATISTICS = "statistics"
    TENSOR = "tensor"
    CHECKSUM = "checksum"


@dataclass(frozen=True, slots=True)
class Spec:
    """What every contribution has: a name to ask for it by, a line about it, and how to make it."""

    name: str
    summary: str
    factory: Factory
    origin: Origin = field(default=Origin(), kw_only=True, compare=False, repr=False)
    """Who gives it; the manager fills it in."""

    @property
    def title(self) -> str:
        """What messages call it, such as ``The metric "mine"``."""
        word = re.sub(r"(?<!^)(?=[A-Z])", " ", type(self).__name__.removesuffix("Spec")).lower()
        return f'The {"highlighter" if word == "highlight" else word} "{self.name}"'

    def make(self) -> Any:
        """Import what the factory needs and call it.

        Raises:
            PluginError: That failed.
        """
        with blamed(self.title, self.origin):
            return address(self.factory)() if isinstance(self.factory, str) else self.factory()


def problem_of(spec: Spec) -> str:
    """Return what of a description is no description, in words; an empty text where all is well."""
    if not isinstance(spec.name, str) or not spec.name or not isinstance(spec.summary, str):
        return f"a name and a summary must be texts, not {spec.name!r:.80} and {spec.summary!r:.80}"
    if not callable(spec.factory) and not (isinstance(spec.factory, str) and ":" in spec.factory):
        return f'{spec.title}: a factory is a callable or "module:attribute", not {spec.factory!r:.80}'
    for one in fields(spec):
        if isinstance(one.default, tuple) and isinstance(getattr(spec, one.name), str):
            return f"{spec.title}: {one.name} must be a tuple, not a text"
    return ""


def address(text: str) -> Any:
    """The object at ``"package.module:attribute"``."""
    module, _, attribute = text.partition(":")
    return getattr(importlib.import_module(module), attribute)


@dataclass(frozen=True, slots=True)
class MetricSpec(Spec):
    """A metric: its columns, and what it needs of a pair (factory makes a ``protocols.Metric``).

    ``ahead`` is the address of a function that may be called with several large pairs before the metric
    is asked, on another thread, to leave with ``pair.share`` what the metric will ask ``pair.once`` for.
    """

    columns: tuple[str, ...] = ()
    needs: Needs = Needs.TENSOR
    ahead: str = ""


@dataclass(frozen=True, slots=True)
class PolicySpec(Spec):
    """A policy: the standard it implements and the metrics it reads (makes a ``protocols.Policy``)."""

    standard: str = ""
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HighlightSpec(PolicySpec):
    """A policy over the rows of one op that marks them (makes a ``protocols.Highlighter``)."""


@dataclass(frozen=True, slots=True)
class ReaderSpec(Spec):
    """A reader of recorded runs (makes a ``protocols.Reader``)."""

    framework: str = ""


@dataclass(frozen=True, slots=True)
class MatcherSpec(Spec):
    """A matcher of two runs (makes a ``protocols.Matcher``)."""


@dataclass(frozen=True, slots=True)
class ReporterSpec(Spec):
    """A reporter (makes a ``protocols.Reporter``).

    Attributes:
        suffix: That of its files.
        all_digits: True for files that machines read: numbers keep all their digits, which the columns of
            the guide round to 6 or 12 decimals.
    """

    suffix: str = ""
    all_digits: bool = False


@dataclass(frozen=True, slots=True)
class CommandSpec(Spec):
    """A command: the factory's address leads to a click command, imported when it is called."""

    def make(self) -> Any:
        """The click command itself: a factory that is an address names the command.

        Raises:
            PluginError: It cannot be imported.
        """
        with blamed(self.title, self.origin):
            return address(self.factory) if isinstance(self.factory, str) else self.factory()


@dataclass(frozen=True, slots=True)
class DumperSpec(Spec):
    """A recorder of runs: its framework, levels and tasks."""

    framework: str = ""
    levels: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NameRule(Spec):
    """Names and arguments of one framework in another, as data (makes a ``matching.name_table.NameTable``).

    The common words are those of ``target``; whichever run is compared with which does not matter.
    """

    source: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class ExecutorSpec(Spec):
    """Where comparisons run (makes a ``protocols.Executor``)."""
