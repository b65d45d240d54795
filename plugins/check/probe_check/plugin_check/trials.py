"""Trials of each kind of contribution, in comparisons of a small pair of runs."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from probe_check.plugin_check.trial import Trial, TrialError, TrialFault, TrialManager, raise_error
from probe_check.plugin_check.trial_runs import FRAMEWORK
from probe_core.errors import UserError
from probe_core.flow.comparison import RunComparison
from probe_core.flow.pipeline import add_rows, compare_further, compare_pair
from probe_core.model import MetricFailure, Mode
from probe_core.model.report import LineNumbers, ReportDraft, RowCheck
from probe_core.plugins.blame import PluginError
from probe_core.plugins.manager import Manager, Plugin
from probe_core.plugins.protocols import AllResults, PairResult
from probe_core.plugins.specs import (
    AnswerSpec,
    CommandSpec,
    MatcherSpec,
    MetricSpec,
    Needs,
    OptionSpec,
    OutputSpec,
    ReaderSpec,
    Spec,
    ViewSpec,
    import_address,
)
from probe_core.store.layout import Pairing

REFUSING_SPECS = (MatcherSpec, ViewSpec, ReaderSpec, AnswerSpec)
"""Specs whose contributions may refuse the trial with a UserError, because they need a file or
runs of another kind."""

CALLED_OPTION_COMMANDS = ("compare", "merge_result", "plugins")
"""Commands for whose options the factory is a function."""

OBSERVER_HOOKS = ("probe_run_started", "probe_run_finished", "probe_advise")
"""Hooks that are called for each comparison instead of giving contributions."""


def try_contribution(manager: Manager, kind: str, spec: Spec) -> None:
    """Let a contribution take part in comparisons of the trial runs.

    Raises:
        TrialError: A result of the contribution is not valid.
        BaseException: The contribution raised it, or a comparison in which it took part.
    """
    trial = _find_trial(manager, kind)
    if trial is None:
        return
    with TemporaryDirectory(prefix="probe_trial_") as directory, _silence():
        trial(Trial(spec, TrialManager(manager, kind, spec), Path(directory)))


def try_observers(manager: Manager) -> Iterator[tuple[str, Plugin, BaseException | None]]:
    """Call the hooks that observe comparisons, and yield each with its plugin and the exception it raised."""
    with TemporaryDirectory(prefix="probe_trial_") as directory, _silence():
        trial_spec = Spec(FRAMEWORK, "trial", dict)
        trial = Trial(trial_spec, TrialManager(manager, "", trial_spec), Path(directory))
        for mode in Mode:
            pair = trial.create_pair(mode)
            report = compare_pair(trial.create_plan(mode), trial.manager, pair).report
            arguments = {"target": str(pair.target), "golden": str(pair.golden), "report": report}
            for hook in OBSERVER_HOOKS:
                for plugin, error in trial.manager.call(hook, **arguments):
                    yield hook, plugin, error


def _find_trial(manager: Manager, kind: str) -> Callable[[Trial], None] | None:
    """Return the trial of a kind: the core's, or that of the kit that declares the kind."""
    if kind in TRIALS:
        return TRIALS[kind]
    for module in manager.hookspecs:
        declared: Mapping[str, str] = getattr(module, "TRIALS", {})
        if kind in declared:
            check: Callable[[Any], None] = import_address(declared[kind])
            return lambda trial: check(trial.spec)
    return None


@contextmanager
def _silence() -> Iterator[None]:
    """Discard what contributions print, and their warnings."""
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(io.StringIO()))
        stack.enter_context(redirect_stderr(io.StringIO()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _allow_refusal(spec: Spec) -> Iterator[None]:
    """Ignore the UserError of a contribution that may refuse a trial, so that further trials are made."""
    try:
        yield
    except UserError as error:
        if isinstance(error, PluginError) or not isinstance(spec, REFUSING_SPECS):
            raise


# -- the trial of each kind --------------------------------------------------------------------------


def _try_metric(trial: Trial) -> None:
    spec: MetricSpec = trial.spec
    for mode in (Mode.TENSOR,) if spec.needs is Needs.TENSOR else Mode:
        for row in trial.compare(mode, metrics=(spec.name,)):
            for column in spec.columns:
                reason = row.measurements[f"{spec.name}.{column}"].reason
                if isinstance(reason, MetricFailure):
                    raise TrialError(reason.detail)


def _try_policy(trial: Trial) -> None:
    metrics = [trial.manager.find("metrics", name, MetricSpec) for name in trial.spec.metrics]
    is_of_tensors = any(metric.needs is Needs.TENSOR for metric in metrics)
    for mode in trial.spec.modes:
        if mode is Mode.TENSOR or not is_of_tensors:
            trial.compare(mode, policies=(trial.spec.name,))


def _try_in_all_modes(trial: Trial) -> None:
    for mode in Mode:
        with _allow_refusal(trial.spec):
            trial.compare(mode, options={"highlight": True})


def _try_matcher(trial: Trial) -> None:
    option = trial.spec.option
    chosen: dict[str, Any] = {"options": {option: {}}} if option else {"matcher": trial.spec.name}
    for mode in Mode:
        with _allow_refusal(trial.spec):
            trial.compare(mode, **chosen)


def _has_output(trial: Trial) -> bool:
    """Return False if no plugin makes tables, so that columns and formats cannot be tried."""
    return bool(trial.manager.specs("outputs", OutputSpec))


def _try_table(trial: Trial) -> None:
    if _has_output(trial):
        trial.compare(Mode(trial.spec.name))


def _try_finder(trial: Trial) -> None:
    for mode in Mode:
        pair, plan = trial.create_pair(mode), trial.create_plan(mode)
        finder = trial.spec.make()
        compare = partial(compare_further, trial.manager, raise_error)
        with closing(RunComparison.open(plan, trial.manager, pair.target, pair.golden)) as comparison:
            draft = ReportDraft(pair.name, pair.target, pair.golden, mode, comparison.runs.row_count, RowCheck())
            for batch in trial.iterate_batches(comparison):
                add_rows(finder, batch, LineNumbers(str, 0))
                draft.add(batch)
            draft.conclude()
            draft.answer = finder.answer(draft, comparison.opened, pair, compare)
            _ = finder.found, finder.first_failure
        restored = trial.spec.make()
        restored.restore(json.loads(json.dumps(finder.plain())))


def _try_answer(trial: Trial) -> None:
    for mode in Mode:
        pair = trial.create_pair(mode)
        plan = trial.create_plan(mode, answers=(trial.spec.name,))
        with _allow_refusal(trial.spec):
            finished = compare_pair(plan, trial.manager, pair)
            results = AllResults(plan, trial.manager, Pairing([pair]), (finished,))
            for conclusion in trial.spec.make().conclude(results):
                _ = conclusion.answer, conclusion.is_judged
                conclusion.show(brief=True)
                conclusion.show()


def _try_reporter(trial: Trial) -> None:
    for mode in Mode if _has_output(trial) else ():
        plan = trial.create_plan(mode, formats=(trial.spec.name,), options={"highlight": True})
        report = compare_pair(plan, trial.manager, trial.create_pair(mode)).report
        if report is not None and report.faults:
            raise TrialFault(report.faults[0])


def _try_reader(trial: Trial) -> None:
    """Let the reader look at a file that it did not write, and refuse one that is not there."""
    stranger = trial.directory / trial.spec.record_files[0]
    stranger.write_text("{}")
    reader = trial.spec.make()
    with _allow_refusal(trial.spec):
        confidence = reader.sniff(stranger)
        if type(confidence) is not int or not 0 <= confidence <= 100:
            raise TrialError(f"sniff must return a whole number from 0 to 100, not {confidence!r:.40}")
    with _allow_refusal(trial.spec):
        reader.open(trial.directory / "absent" / stranger.name)
        raise TrialError("open must raise a UserError for a file that does not exist")


def _try_scheduler(trial: Trial) -> None:
    """Let the scheduler make a single comparison."""
    executor = trial.spec.make()
    results = [*executor.run(trial.create_plan(Mode.TENSOR), trial.manager, [trial.create_pair(Mode.TENSOR)])]
    if [type(result) for result in results] != [PairResult]:
        raise TrialError(f"run must yield a PairResult for each pair, not {results!r:.80}")


def _try_option(trial: Trial) -> None:
    spec: OptionSpec = trial.spec
    function = spec.make()
    if spec.command in CALLED_OPTION_COMMANDS and not callable(function):
        raise TrialError(f"its factory must be a function, not {type(function).__name__}")
    for option in spec.options:
        if not all(flag.startswith("-") for flag in option.flags):
            raise TrialError(f"the flags of {option.name} must begin with a dash")


def _try_command(trial: Trial) -> None:
    spec: CommandSpec = trial.spec
    command = spec.make()
    if not isinstance(command, click.Command):
        raise TrialError(f"its factory must be a command of click, not {type(command).__name__}")
    command.main(["--help"], prog_name=spec.name, standalone_mode=False)


TRIALS: Mapping[str, Callable[[Trial], None]] = {
    "metrics": _try_metric,
    "policies": _try_policy,
    "judges": _try_in_all_modes,
    "highlighters": _try_in_all_modes,
    "views": _try_in_all_modes,
    "matchers": _try_matcher,
    "outputs": _try_in_all_modes,
    "tables": _try_table,
    "finders": _try_finder,
    "answers": _try_answer,
    "reporters": _try_reporter,
    "readers": _try_reader,
    "schedulers": _try_scheduler,
    "options": _try_option,
    "commands": _try_command,
}
"""Trials of the kinds of the core. A kit declares those of its kinds as ``TRIALS`` beside ``KINDS``."""
