"""What the hooks return: small frozen descriptions whose factories import the heavy parts.

A factory is a callable without arguments, or its address as ``"package.module:attribute"``,
which is imported only when the contribution is used.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Union

from probe_core.plugins.blame import Origin, blamed
from probe_core.store.layout import FILES

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
    for name in (
        "columns",
        "metrics",
        "levels",
        "tasks",
        "preload",
        "record_files",
        "framework_frames",
        "killed",
    ):
        if isinstance(getattr(spec, name, ()), str):
            return f"{spec.title}: {name} must be a tuple, not a text"
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
    """A reader of recorded runs (makes a ``protocols.Reader``).

    Attributes:
        framework: The framework that its runs were recorded from.
        record_files: The file that stands for a run in each rank's directory, by the end of its name; behind
            it, if the format has one, that of variables saved on their own.
        framework_frames: Parts of the call stacks' frames that lie in the framework or the recorder, and not
            in a user's program, such as ``-packages/mine/``.
    """

    framework: str = ""
    record_files: tuple[str, ...] = FILES
    framework_frames: tuple[str, ...] = ()


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
class ImportedSpec(Spec):
    """A contribution that the factory's address leads to, and that is imported and not called."""

    def make(self) -> Any:
        """The contribution itself: a factory that is an address names it.

        Raises:
            PluginError: It cannot be imported.
        """
        with blamed(self.title, self.origin):
            return address(self.factory) if isinstance(self.factory, str) else self.factory()


@dataclass(frozen=True, slots=True)
class CommandSpec(ImportedSpec):
    """A command: the factory's address leads to a click command."""


@dataclass(frozen=True, slots=True)
class DumperSpec(ImportedSpec):
    """A recorder of runs, which scripts import and set up: its framework, levels and tasks."""

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
class ReferenceSpec(Spec):
    """How an API is computed in higher precision (makes a ``protocols.Reference``).

    ``api`` is the name of the recorded API without its call count, such as ``Tensor.norm``; a reference takes
    the place of the framework's own API in the run that is held against the device.
    """

    api: str = ""
    framework: str = ""


@dataclass(frozen=True, slots=True)
class RunnerSpec(Spec):
    """Runs recorded calls of one framework alone, for the pre-check (makes a ``protocols.Runner``).

    ``preload`` names modules that every worker process needs, imported once before processes are forked.
    """

    framework: str = ""
    preload: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StatusRuleSpec(Spec):
    """The pre-check's first stage for one framework, or for all (makes a ``protocols.StatusRule``).

    Attributes:
        framework: Whose calls it judges; empty for all that have no rule of their own.
        result, details: The columns of both csv files, as (key, Chinese header, English header); empty for
            ``precheck.tables.RESULT`` and ``DETAILS``. Keys are those of there, and ``standard`` and
            ``standard_message`` for the verdicts of a ``protocols.SoloRule``.
    """

    framework: str = ""
    result: tuple[tuple[str, str, str], ...] = ()
    details: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StandardSpec(Spec):
    """A precision standard of the pre-check's second stage (makes a ``protocols.Standard``).

    Attributes:
        label, english_label: What the column 比对算法 says.
        apis: Where the APIs that it judges are listed: ``"package:file.yaml"``, a mapping from the names of
            standards to lists of APIs; a mapping inside, from a release to a list, adds APIs from it on.
        judges: What it judges besides: ``"listed"`` nothing, ``"exact"`` all outputs that are no
            floating-point numbers, ``"rest"`` all floating-point outputs that no list names.
        columns: Columns of its own, as (key, Chinese header, English header): details get those of an
            installed plugin's standard appended. Those of ``precheck.tables`` need not be named.
    """

    label: str = ""
    english_label: str = ""
    apis: str = ""
    judges: str = "listed"
    columns: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ExecutorSpec(Spec):
    """Where comparisons run (makes a ``protocols.Executor``).

    Attributes:
        has_scheduler: True for one that ``--scheduler`` chooses.
        killed: The names of the exceptions that say that workers died over a call.
    """

    has_scheduler: bool = False
    killed: tuple[str, ...] = ()
