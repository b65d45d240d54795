"""Descriptions of contributions, as hooks return them.

A factory is a callable, or its address as ``"package.module:attribute"``, which is imported only when the
contribution is used. It is called with the parameters that the user gave.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Union

from probe_core.errors import UserError
from probe_core.model.values import Mode
from probe_core.plugins.blame import Origin, blame_plugin
from probe_core.plugins.parameters import Parameter
from probe_core.store.files import DEFAULT_RECORD_FILES

Factory = Union[str, Callable[..., Any]]


class Needs(str, Enum):
    """Kinds of data that a metric reads from a pair."""

    STATISTICS = "statistics"
    TENSOR = "tensor"
    CHECKSUM = "checksum"


@dataclass(frozen=True, slots=True)
class Spec:
    """The description of a contribution: its name, a line about it, and its factory.

    Attributes:
        name: The name that users select it by.
        summary: A line for ``probe plugins``.
        factory: A callable or its address.
        parameters: Keyword arguments of the factory, which users give as ``name:parameter=value``.
        values: The parameters that the user gave.
        origin: The distribution that it comes from; the manager fills it in.
    """

    name: str
    summary: str
    factory: Factory
    parameters: tuple[Parameter, ...] = field(default=(), kw_only=True)
    values: Mapping[str, Any] = field(default_factory=dict, kw_only=True, compare=False, repr=False)
    origin: Origin = field(default=Origin(), kw_only=True, compare=False, repr=False)

    @property
    def title(self) -> str:
        """The name in messages, such as ``The metric "mine"``."""
        word = re.sub(r"(?<!^)(?=[A-Z])", " ", type(self).__name__.removesuffix("Spec")).lower()
        word = "format" if word == "reporter" else word
        return f'The {word} "{self.name}"'

    def make(self) -> Any:
        """Import the factory and call it.

        Raises:
            PluginError: The plugin raised an exception.
        """
        with blame_plugin(self.title, self.origin):
            factory = import_address(self.factory) if isinstance(self.factory, str) else self.factory
            return factory(**self.values)


def find_spec_problem(spec: Spec) -> str:
    """Return a sentence on a field of a spec that is not valid; empty if all are."""
    if not isinstance(spec.name, str) or not spec.name or not isinstance(spec.summary, str):
        return f"a name and a summary must be texts, not {spec.name!r:.80} and {spec.summary!r:.80}"
    if not callable(spec.factory) and not (isinstance(spec.factory, str) and ":" in spec.factory):
        return f'{spec.title}: a factory is a callable or "module:attribute", not {spec.factory!r:.80}'
    for attribute in fields(spec):
        if isinstance(attribute.default, tuple) and isinstance(getattr(spec, attribute.name), str):
            return f"{spec.title}: {attribute.name} must be a tuple, not a text"
    if not (isinstance(spec.parameters, tuple) and all(isinstance(p, Parameter) for p in spec.parameters)):
        return f"{spec.title}: parameters must be a tuple of Parameter, not {spec.parameters!r:.80}"
    return ""


def import_address(text: str) -> Any:
    """Import and return the object at ``"package.module:attribute"``."""
    module, _, attribute = text.partition(":")
    return getattr(importlib.import_module(module), attribute)


@dataclass(frozen=True, slots=True)
class MetricSpec(Spec):
    """A metric (makes a ``protocols.Metric``).

    Attributes:
        columns: The names of its columns.
        needs: The kind of data that it reads.
        ahead: The address of a function that may be called on another thread with the open pairs before they
            are measured, to ``pair.share`` results that the metric gets from ``pair.once``.
    """

    columns: tuple[str, ...] = ()
    needs: Needs = Needs.TENSOR
    ahead: str = ""


@dataclass(frozen=True, slots=True)
class PolicySpec(Spec):
    """A policy (makes a ``protocols.Policy``).

    Attributes:
        standard: The standard that it implements.
        metrics: The metrics that it reads, which are then measured.
        modes: The kinds of data in runs that it can judge; all by default.
    """

    standard: str = ""
    metrics: tuple[str, ...] = ()
    modes: tuple[Mode, ...] = tuple(Mode)


@dataclass(frozen=True, slots=True)
class JudgeSpec(Spec):
    """A judge, which may change verdicts after the policy (makes a ``protocols.Judge``).

    Judges are called in ascending ``order``; each sees the changes of those before it.
    """

    order: int = 100


@dataclass(frozen=True, slots=True)
class FinderSpec(Spec):
    """A finder of suspects (makes a ``protocols.Finder`` for each comparison).

    Attributes:
        policies: Policies whose verdicts it reads from ``Row.further``.
        metrics: Metrics that it needs in addition to the table's, by mode.
    """

    policies: tuple[str, ...] = ()
    metrics: Mapping[Mode, tuple[str, ...]] = field(default_factory=dict)


class AnswerStage(str, Enum):
    """Times at which conclusions are printed: before and after all summaries, or if an option asks for them."""

    FIRST = "first"
    LAST = "last"
    ASKED = "asked"


@dataclass(frozen=True, slots=True)
class AnswerSpec(Spec):
    """An answer to a question about all comparisons of a plan (makes a ``protocols.Answerer``).

    Attributes:
        policies: Policies whose verdicts it reads from ``Row.further``.
        metrics: Metrics that it needs in addition to the table's, by mode.
        given: The stage at which its conclusions are printed; every plan has the stages other than ``ASKED``.
    """

    policies: tuple[str, ...] = ()
    metrics: Mapping[Mode, tuple[str, ...]] = field(default_factory=dict)
    given: AnswerStage = AnswerStage.ASKED

    def __post_init__(self) -> None:
        object.__setattr__(self, "given", AnswerStage(self.given))  # plugins for version 0.2 give its value


@dataclass(frozen=True, slots=True)
class Option:
    """An option that a plugin adds to a command.

    Attributes:
        name: The key of its value.
        flags: The spellings on the command line: ``("-da", "--diff_analyze")``.
        help: The line in the help.
        kind: ``"flag"``, ``"text"``, ``"numbers"`` (``0,2-4``), ``"file"`` (a path), or ``"run"`` (a path or URL
            of a run).
        metavar: The word for its value in the help.
        choices: The valid values; any if empty.
        needs: The name of an option of the same spec that must be given with it.
        also: Other spellings, listed at the end of the command's help.
        value_optional: True if it may be given without a value, which then is True.
        python_name: The name in Python if it is not that of the last flag.
    """

    name: str
    flags: tuple[str, ...]
    help: str
    kind: str = "flag"
    metavar: str = ""
    choices: tuple[str, ...] = ()
    needs: str = ""
    also: tuple[str, ...] = ()
    value_optional: bool = False
    python_name: str = ""

    @property
    def keyword(self) -> str:
        """The name in Python: ``diff_analyze`` for ``--diff-analyze``."""
        return self.python_name or self.flags[-1].lstrip("-").replace("-", "_")


class ImportedSpec(Spec):
    """A contribution that is the imported object itself, which is not called."""

    __slots__ = ()

    def make(self) -> Any:
        """Return the contribution, imported if the factory is an address.

        Raises:
            PluginError: It cannot be imported.
        """
        with blame_plugin(self.title, self.origin):
            return import_address(self.factory) if isinstance(self.factory, str) else self.factory()


@dataclass(frozen=True, slots=True)
class OptionSpec(ImportedSpec):
    """Options of a command that belong together.

    The factory is the function that is called if one of them is given: for ``compare`` a
    ``protocols.PlanOption``, for ``merge_result`` a ``probe_reporters.MergeOption``, for ``plugins`` a function of the
    manager and of True for JSON, which replaces the list and returns the exit code.

    Attributes:
        command: The command.
        options: The options.
        defaults: For ``compare``, the names in ``Plan.options`` that the factory sets, with the values that
            they have otherwise.
        wrapper: The address of a function that returns the command to run in place of the one with the options.
    """

    command: str = ""
    options: tuple[Option, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    wrapper: str = ""

    def action(self, values: Mapping[str, Any]) -> Any:
        """Return the function to call for the options that are given, by their names.

        Raises:
            UserError: An option is given without one that it needs.
        """
        flags = {option.name: option.flags[-1] for option in self.options}
        for option in self.options:
            if option.name in values and option.needs and option.needs not in values:
                what = f"{flags[option.name]} needs {flags[option.needs]}."
                raise UserError(what, "Leave it out, or give both.")
        return self.make()


@dataclass(frozen=True, slots=True)
class ReaderSpec(Spec):
    """A reader of recorded runs (makes a ``protocols.Reader``).

    Attributes:
        framework: The framework that its runs were recorded from.
        record_files: The end of the name of the record file in each rank's directory, followed by that of the
            file of saved variables, if the format has one.
        framework_frames: Texts that occur in frames of the framework or the recorder and not in those of a
            user's program, such as ``-packages/mine/``.
    """

    framework: str = ""
    record_files: tuple[str, ...] = DEFAULT_RECORD_FILES
    framework_frames: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MatcherSpec(Spec):
    """A matcher of two runs (makes a ``protocols.Matcher``).

    Attributes:
        option: The name in ``Plan.options`` of the option that selects it; it then pairs the rows that the
            option names, and leaves the others to the plan's matcher.
        advice: A clause that recommends it for calls that do not pair by their names and counts, such as
            ``-f pairs calls in their order``; empty for none.
    """

    option: str = ""
    advice: str = ""

    def is_selected_by(self, options: Mapping[str, Any]) -> bool:
        """Return True if the plan's options of plugins have a value for its option."""
        return bool(self.option) and options.get(self.option) is not None


@dataclass(frozen=True, slots=True)
class ViewSpec(Spec):
    """A view, which translates the names of two runs for matchers (makes a ``protocols.Viewer``).

    Attributes:
        asks: The kinds of contributions that it uses, declared by its kit.
    """

    asks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableSpec(Spec):
    """The table of one mode (makes its columns, a sequence of ``model.Column``).

    Its name is that of the mode. The metrics that its columns name are measured for runs of that mode.

    Attributes:
        policy: The policy that fills its column of verdicts.
    """

    policy: str = ""


@dataclass(frozen=True, slots=True)
class OutputSpec(Spec):
    """The output of comparisons (makes a ``protocols.Output``)."""


@dataclass(frozen=True, slots=True)
class ReporterSpec(Spec):
    """A reporter (makes a ``probe_reporters.Reporter``).

    Attributes:
        suffix: The suffix of its files.
        all_digits: True for files that programs read, whose numbers are not rounded to 6 or 12 decimals.
        answers: True if its writers are ``probe_reporters.AnswerWriter``.
        page: True for a page: it makes ``PageWriter``, and ``head(comparison)``, the verdict as HTML. With a
            method ``open_page(path, headers, opened)``, its writers may read the two runs until they are closed.
        check: The address of a function that raises UserError if the format cannot be written here.
    """

    suffix: str = ""
    all_digits: bool = False
    answers: bool = False
    page: bool = False
    check: str = ""


@dataclass(frozen=True, slots=True)
class CommandSpec(ImportedSpec):
    """A command; the factory is the address of a click command.

    Attributes:
        aliases: Further names that it answers to; an underscore may replace each dash of a name.
    """

    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulerSpec(Spec):
    """A scheduler of the comparisons of a plan (makes a ``protocols.Scheduler`` for each plan)."""


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
    "tables": TableSpec,
    "outputs": OutputSpec,
    "reporters": ReporterSpec,
    "commands": CommandSpec,
    "schedulers": SchedulerSpec,
}
"""The spec class of each kind of contribution."""
