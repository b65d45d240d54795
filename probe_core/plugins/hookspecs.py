"""The plugin manual: every hook with its purpose, the time of its call, and an example.

A plugin is an installed distribution with an entry point in the group ``probe``::

    [project.entry-points.probe]
    mine = "my_package.hooks"

whose module implements any of the hooks below with ``@hookimpl``. Most of them are called once and return
descriptions (``probe_core.plugins.specs``). No hook is called while values are measured.

A plugin that other plugins extend (a kit) declares further hooks in a module like this one. Its ``KINDS``
maps each kind (``metrics`` for the hook ``probe_metrics``) to the class of the specs that the hook returns,
or to the address of that class, which is then imported only when it is needed::

    [project.entry-points."probe.hookspecs"]
    mine = "my_package.hookspecs"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from probe_core.plugins import specs

GROUP = "probe"
HOOKSPECS = "probe.hookspecs"

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@hookspec
def probe_readers() -> list[specs.ReaderSpec]:  # type: ignore[empty-body]
    """Return readers of recorded runs. Called when a run is opened.

    Example::

        return [ReaderSpec(name="mine", summary="runs of my recorder", framework="mine",
                           factory="my_package.reader:Reader")]
    """


@hookspec
def probe_matchers() -> list[specs.MatcherSpec]:  # type: ignore[empty-body]
    """Return matchers, which pair the records of two runs. Called when a comparison is planned.

    Example::

        return [MatcherSpec(name="by_order", summary="the n-th with the n-th",
                            factory="my_package.matcher:ByOrder")]
    """


@hookspec
def probe_views() -> list[specs.ViewSpec]:  # type: ignore[empty-body]
    """Return views, which translate the names of two runs for matchers. Called when a comparison is planned.

    Of several views, the first that changes a run is used.

    Example::

        return [ViewSpec(name="renamed", summary="modules by their new names",
                         factory="my_package.renamed:Renamed")]
    """


@hookspec
def probe_metrics() -> list[specs.MetricSpec]:  # type: ignore[empty-body]
    """Return metrics, selected with ``--metric NAME``. Called when a comparison is planned.

    Example::

        return [MetricSpec(name="chebyshev", summary="largest absolute difference",
                           columns=("Chebyshev",), factory="my_package.chebyshev:Chebyshev")]
    """


@hookspec
def probe_policies() -> list[specs.PolicySpec]:  # type: ignore[empty-body]
    """Return policies, which turn measurements into verdicts. Called when a comparison is planned.

    Example::

        return [PolicySpec(name="strict", summary="bitwise or nothing", metrics=("equal",),
                           standard="my team's rule", factory="my_package.strict:Strict")]
    """


@hookspec
def probe_judges() -> list[specs.JudgeSpec]:  # type: ignore[empty-body]
    """Return judges, which may change verdicts op by op after the policy. Called when a comparison begins.

    Example::

        return [JudgeSpec(name="dropout", summary="random masks say nothing", order=50,
                          factory="my_package.dropout:Dropout")]
    """


@hookspec
def probe_finders() -> list[specs.FinderSpec]:  # type: ignore[empty-body]
    """Return finders of the suspects that the summary names. Called when a comparison begins.

    Of several finders, that of the first plugin is used.

    Example::

        return [FinderSpec(name="mine", summary="the largest error", factory="my_package.largest:Largest")]
    """


@hookspec
def probe_answers() -> list[specs.AnswerSpec]:  # type: ignore[empty-body]
    """Return answers to questions about all ranks of a comparison. Called when an option asks for one.

    Example::

        return [AnswerSpec(name="worst", summary="the worst op of all ranks",
                           factory="my_package.worst:Worst")]
    """


@hookspec
def probe_options() -> list[specs.OptionSpec]:  # type: ignore[empty-body]
    """Return options that a plugin adds to commands.

    Called whenever such a command runs, so the module of hooks must import fast.

    Example::

        return [OptionSpec(name="worst", summary="the worst op", command="compare",
                           options=(Option("worst", ("--worst",), "Name the worst op."),),
                           factory="my_package.worst:ask")]
    """


@hookspec
def probe_schedulers() -> list[specs.SchedulerSpec]:  # type: ignore[empty-body]
    """Return schedulers, which distribute comparisons over workers. Called when a comparison begins.

    Of several schedulers, that of the first plugin is used.

    Example::

        return [SchedulerSpec(name="queue", summary="ranks on my queue", factory="my_package.queue:Scheduler")]
    """


@hookspec
def probe_reporters() -> list[specs.ReporterSpec]:  # type: ignore[empty-body]
    """Return output formats, selected with ``--format NAME``. Called when a comparison is planned.

    Example::

        return [ReporterSpec(name="tsv", summary="tab separated", suffix=".tsv",
                             factory="my_package.tsv:TsvReporter")]
    """


@hookspec
def probe_outputs() -> list[specs.OutputSpec]:  # type: ignore[empty-body]
    """Return outputs, which write the result files of comparisons. Called when a comparison begins.

    Of several outputs, that of the first plugin is used.

    Example::

        return [OutputSpec(name="mine", summary="rows in my database", factory="my_package.rows:Database")]
    """


@hookspec
def probe_tables() -> list[specs.TableSpec]:  # type: ignore[empty-body]
    """Return tables, the columns of the results for each mode. Called when a comparison begins.

    Example::

        return [TableSpec(name="tensor", summary="few columns", policy="accuracy",
                          factory="my_package.tables:tensor")]
    """


@hookspec
def probe_commands() -> list[specs.CommandSpec]:  # type: ignore[empty-body]
    """Return commands of ``probe``. Called at every start, so the module of hooks must import fast.

    Example::

        return [CommandSpec(name="hello", summary="Say hello.", factory="my_package.cli:hello")]
    """
