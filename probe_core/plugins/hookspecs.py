"""The plugin manual: every hook, when it is called, what to return, an example.

A plugin is an installed distribution with an entry point in the group ``probe``::

    [project.entry-points.probe]
    mine = "my_package.hooks"

whose module implements any of the hooks below with ``@hookimpl``. All of them are registration
hooks: called once, they return descriptions (``probe_core.plugins.specs``); none is ever called while
values are measured.

A plugin that others build on declares further hooks in a module like this one, with ``KINDS``, a mapping
from each kind (``metrics`` of ``probe_metrics``) to the type of what its hook returns, or the address of that
type as text, which leaves its module unimported until the kind is asked for::

    [project.entry-points."probe.hookspecs"]
    mine = "my_package.hookspecs"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from probe_core.model import Advice
    from probe_core.model.messages import Text
    from probe_core.model.report import Report
    from probe_core.plugins import specs

GROUP = "probe"
HOOKSPECS = "probe.hookspecs"

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@hookspec
def probe_readers() -> list[specs.ReaderSpec]:  # type: ignore[empty-body]
    """Readers of recorded runs. Called when a run is to be opened.

    Example::

        return [ReaderSpec(name="mine", summary="runs of my recorder", framework="mine",
                           factory="my_package.reader:Reader")]
    """


@hookspec
def probe_dumpers() -> list[specs.DumperSpec]:  # type: ignore[empty-body]
    """Recorders of runs. ``probe plugins`` lists them; scripts import the recorder itself.

    Example::

        return [DumperSpec(name="mine", summary="records my framework", framework="mine",
                           levels=("L1",), tasks=("tensor",), factory="my_package:Debugger")]
    """


@hookspec
def probe_matchers() -> list[specs.MatcherSpec]:  # type: ignore[empty-body]
    """Ways of pairing two runs. Called when a comparison is planned.

    Example::

        return [MatcherSpec(name="by_order", summary="the n-th with the n-th",
                            factory="my_package.matcher:ByOrder")]
    """


@hookspec
def probe_views() -> list[specs.ViewSpec]:  # type: ignore[empty-body]
    """Views: two runs in words that both have, for matchers to pair. Called when a comparison is planned.

    Of several views the first one is taken that does not leave both runs as they are.

    Example::

        return [ViewSpec(name="renamed", summary="modules by their new names",
                         factory="my_package.renamed:Renamed")]
    """


@hookspec
def probe_metrics() -> list[specs.MetricSpec]:  # type: ignore[empty-body]
    """Metrics, asked for with ``--metric NAME``. Called when a comparison is planned.

    Example::

        return [MetricSpec(name="chebyshev", summary="largest absolute difference",
                           columns=("Chebyshev",), factory="my_package.chebyshev:Chebyshev")]
    """


@hookspec
def probe_policies() -> list[specs.PolicySpec]:  # type: ignore[empty-body]
    """Policies: what turns measurements into verdicts. Called when a comparison is planned.

    Example::

        return [PolicySpec(name="strict", summary="bitwise or nothing", metrics=("equal",),
                           standard="my team's rule", factory="my_package.strict:Strict")]
    """


@hookspec
def probe_judges() -> list[specs.JudgeSpec]:  # type: ignore[empty-body]
    """Judges: what may change verdicts after the policy, op by op. Called when a comparison begins.

    Example::

        return [JudgeSpec(name="dropout", summary="random masks say nothing", order=50,
                          factory="my_package.dropout:Dropout")]
    """


@hookspec
def probe_finders() -> list[specs.FinderSpec]:  # type: ignore[empty-body]
    """Finders of the rows to look at first, which the summary names. Called when a comparison begins.

    Of several finders the first plugin's is taken.

    Example::

        return [FinderSpec(name="mine", summary="the largest error", factory="my_package.largest:Largest")]
    """


@hookspec
def probe_answers() -> list[specs.AnswerSpec]:  # type: ignore[empty-body]
    """What a comparison over all its ranks may be asked for. Called when an option asks for one.

    Example::

        return [AnswerSpec(name="worst", summary="the worst op of all ranks",
                           factory="my_package.worst:Worst")]
    """


@hookspec
def probe_options() -> list[specs.OptionSpec]:  # type: ignore[empty-body]
    """Options that a plugin adds to commands.

    Called when a command is, so the module of hooks must import fast.

    Example::

        return [OptionSpec(name="worst", summary="the worst op", command="compare",
                           options=(Option("worst", ("--worst",), "Name the worst op."),),
                           factory="my_package.worst:ask")]
    """


@hookspec
def probe_highlighters() -> list[specs.HighlightSpec]:  # type: ignore[empty-body]
    """Policies over all rows of one op, which mark rows. Called when marking is asked for.

    Example::

        return [HighlightSpec(name="mine", summary="marks what jumps", metrics=("cosine",),
                              factory="my_package.marks:Marks")]
    """


@hookspec
def probe_executors() -> list[specs.ExecutorSpec]:  # type: ignore[empty-body]
    """Where comparisons run, chosen with ``--executor NAME``: in threads, in processes, on a cluster.

    The factory makes an object whose ``open`` gives workers with the interface of ``concurrent.futures``.

    Example::

        return [ExecutorSpec(name="cluster", summary="my cluster", factory="my_package:Cluster")]
    """


@hookspec
def probe_reporters() -> list[specs.ReporterSpec]:  # type: ignore[empty-body]
    """Output formats, asked for with ``--format NAME``. Called when a comparison is planned.

    Example::

        return [ReporterSpec(name="tsv", summary="tab separated", suffix=".tsv",
                             factory="my_package.tsv:TsvReporter")]
    """


@hookspec
def probe_tables() -> list[specs.TableSpec]:  # type: ignore[empty-body]
    """Tables: for a mode the columns that reporters write. Called when a comparison begins.

    Example::

        return [TableSpec(name="tensor", summary="few columns", policy="accuracy",
                          factory="my_package.tables:tensor")]
    """


@hookspec
def probe_reasons() -> Mapping[str, Text]:  # type: ignore[empty-body]
    """Texts of a plugin's reasons in tables, by their codes. Called before the first table is made.

    Example::

        return {"my_reason": Text("Values are not finite.", rank=50)}
    """


@hookspec
def probe_commands() -> list[specs.CommandSpec]:  # type: ignore[empty-body]
    """Commands of ``probe``. Called at every start, so the module of hooks must import fast.

    Example::

        return [CommandSpec(name="hello", summary="Say hello.", factory="my_package.cli:hello")]
    """


@hookspec
def probe_advise(report: Report) -> Advice | None:
    """Advice on a finished comparison. Called once a comparison, unless ``-c`` turns it off.

    Example::

        return Advice(line="12", node="Functional.exp.0.forward.output.0", text="Look at exp.")
    """


@hookspec
def probe_run_started(target: str, golden: str) -> None:
    """A comparison begins. For observers; what they raise is logged and otherwise ignored.

    Example::

        print("comparing", target, "with", golden)
    """


@hookspec
def probe_run_finished(report: Report) -> None:
    """A comparison ended. For observers; what they raise is logged and otherwise ignored.

    Example::

        print(report.counts.rows, "rows")
    """
