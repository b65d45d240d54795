"""What the hooks return: small frozen descriptions whose factories import the heavy parts.

A factory is a callable without arguments, or its address as ``"package.module:attribute"``,
which is imported only when the contribution is used.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from probe_core.model.values import Mode
from probe_core.plugins.blame import Origin, blamed
from probe_core.plugins.parameters import Parameter
from probe_core.store.files import FILES

if TYPE_CHECKING:
    from concurrent import futures

Factory = Union[str, Callable[..., Any]]


class Needs(str, Enum):
    """What of a pair a metric looks at."""

    STATISTICS = "statistics"
    TENSOR = "tensor"
    CHECKSUM = "checksum"


@dataclass(frozen=True, slots=True)
class Spec:
    """What every contribution has: a name to ask for it by, a line about it, and how to make it.

    Attributes:
        parameters: Keywords that the factory takes, given as ``name:parameter=value``.
        values: Those that were given.
    """

    name: str
    summary: str
    factory: Factory
    parameters: tuple[Parameter, ...] = field(default=(), kw_only=True)
    values: Mapping[str, Any] = field(default_factory=dict, kw_only=True, compare=False, repr=False)
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
            made = address(self.factory) if isinstance(self.factory, str) else self.factory
            return made(**self.values)


def problem_of(spec: Spec) -> str:
    """Return what of a description is no description, in words; an empty text where all is well."""
    if not isinstance(spec.name, str) or not spec.name or not isinstance(spec.summary, str):
        return f"a name and a summary must be texts, not {spec.name!r:.80} and {spec.summary!r:.80}"
    if not callable(spec.factory) and not (isinstance(spec.factory, str) and ":" in spec.factory):
        return f'{spec.title}: a factory is a callable or "module:attribute", not {spec.factory!r:.80}'
    for one in fields(spec):
        if isinstance(one.default, tuple) and isinstance(getattr(spec, one.name), str):
            return f"{spec.title}: {one.name} must be a tuple, not a text"
    if not (isinstance(spec.parameters, tuple) and all(isinstance(p, Parameter) for p in spec.parameters)):
        return f"{spec.title}: parameters must be a tuple of Parameter, not {spec.parameters!r:.80}"
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
    """A policy (makes a ``protocols.Policy``).

    Attributes:
        standard: The standard that it implements.
        metrics: The metrics that it reads, which are measured for it.
        modes: What runs may hold for it to judge them; all by default.
    """

    standard: str = ""
    metrics: tuple[str, ...] = ()
    modes: tuple[Mode, ...] = tuple(Mode)


@dataclass(frozen=True, slots=True)
class JudgeSpec(Spec):
    """A judge: may change verdicts after the policy, op by op (makes a ``protocols.Judge``).

    Judges are asked in the order of ``order``, each seeing what those before it made of the rows.
    """

    order: int = 100


class FinderSpec(Spec):
    """A finder of the rows to look at first (makes a ``model.report.Finder`` for each comparison)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AnswerSpec(Spec):
    """What a comparison as a whole is asked for, over all its ranks (makes a ``protocols.Answerer``).

    Attributes:
        policies: Policies whose verdicts it needs beside the table's, in ``Row.further``.
        metrics: Metrics that it needs beside the table's, by mode.
    """

    policies: tuple[str, ...] = ()
    metrics: Mapping[Mode, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Option:
    """An option that a plugin adds to a command, as data.

    Attributes:
        name: The key of its value.
        flags: As typed: ``("-da", "--diff_analyze")``.
        help: Its line in the help.
        kind: ``"flag"``, ``"text"`` or ``"run"`` (a path or an address of a run).
        metavar: The word for its value in the help.
        choices: The texts it may be; any where there are none.
        needs: The name of an option of the same spec that it is nothing without.
    """

    name: str
    flags: tuple[str, ...]
    help: str
    kind: str = "flag"
    metavar: str = ""
    choices: tuple[str, ...] = ()
    needs: str = ""


@dataclass(frozen=True, slots=True)
class OptionSpec(Spec):
    """Options of a command that go together.

    The factory's address leads to what is called when one of them is given: for ``compare`` a
    ``protocols.PlanOption``, for ``merge_result`` a ``protocols.MergeOption``.
    """

    command: str = ""
    options: tuple[Option, ...] = ()

    def make(self) -> Any:
        """What is called.

        Raises:
            PluginError: It cannot be imported.
        """
        return _found(self)


class HighlightSpec(PolicySpec):
    """A policy over the rows of one op that marks them (makes a ``protocols.Highlighter``)."""

    __slots__ = ()


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


class MatcherSpec(Spec):
    """A matcher of two runs (makes a ``protocols.Matcher``)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ViewSpec(Spec):
    """A way of showing two runs to matchers (makes a ``protocols.Viewer``).

    Attributes:
        asks: The kinds of contributions, declared by its kit, that it asks plugins for.
    """

    asks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableSpec(Spec):
    """The table of one mode (makes its columns, a sequence of ``model.Column``).

    Its name is that of the mode, and the metrics that its columns name are measured whenever runs hold that.

    Attributes:
        policy: The policy behind its column of verdicts.
    """

    policy: str = ""


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


class ImportedSpec(Spec):
    """A contribution that the factory's address leads to, and that is imported and not called."""

    __slots__ = ()

    def make(self) -> Any:
        """The contribution itself: a factory that is an address names it.

        Raises:
            PluginError: It cannot be imported.
        """
        return _found(self)


def _found(spec: Spec) -> Any:
    """What the factory's address leads to, not called."""
    with blamed(spec.title, spec.origin):
        return address(spec.factory) if isinstance(spec.factory, str) else spec.factory()


@dataclass(frozen=True, slots=True)
class CommandSpec(ImportedSpec):
    """A command: the factory's address leads to a click command.

    Attributes:
        aliases: Further names that it answers to; an underscore may replace each dash of a name.
    """

    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DumperSpec(ImportedSpec):
    """A recorder of runs, which scripts import and set up: its framework, levels and tasks."""

    framework: str = ""
    levels: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()


class Place(Enum):
    """Where the workers of a pool are."""

    HERE = "in this process"
    MACHINE = "in processes of this machine"
    CLUSTER = "on other machines, or as good as"


class Pool(NamedTuple):
    """Workers, and how many calls they take at a time."""

    executor: futures.Executor
    size: int


@dataclass(frozen=True, slots=True)
class ExecutorSpec(Spec):
    """Where comparisons run (makes a ``protocols.Executor``).

    Attributes:
        has_scheduler: True for one that ``--scheduler`` chooses.
        killed: The names of the exceptions that say that workers died over a call.
    """

    has_scheduler: bool = False
    killed: tuple[str, ...] = ()


KINDS: Mapping[str, type[Spec]] = {
    "readers": ReaderSpec,
    "matchers": MatcherSpec,
    "views": ViewSpec,
    "metrics": MetricSpec,
    "policies": PolicySpec,
    "judges": JudgeSpec,
    "finders": FinderSpec,
    "answers": AnswerSpec,
    "options": OptionSpec,
    "highlighters": HighlightSpec,
    "tables": TableSpec,
    "reporters": ReporterSpec,
    "commands": CommandSpec,
    "dumpers": DumperSpec,
    "executors": ExecutorSpec,
}
"""What the hook of each kind returns."""
