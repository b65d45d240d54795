"""Opening of two runs: choice of the reader, and checks that the runs can be compared."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from probe_core.errors import UserError
from probe_core.files.user_files import check_regular
from probe_core.model import Mode
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.plugins.blame import PluginError, blame_plugin
from probe_core.plugins.distributions import find_provider
from probe_core.plugins.manager import Manager, warn
from probe_core.plugins.protocols import Reader
from probe_core.plugins.specs import ReaderSpec
from probe_core.store.sniff import read_framework


def open_runs(plan: Plan, manager: Manager, target: Path, golden: Path) -> tuple[Run, Run]:
    """Return the target and the golden, opened.

    Raises:
        UserError: A run cannot be read or is empty, or the two hold different kinds of data.
    """
    framework = plan.framework
    if framework is not None:
        readers = [_find_readers(manager, path, framework) for path in (target, golden)]
        applies = [any(candidate.confidence for candidate in candidates) for candidates in readers]
        if any(applies) and not all(applies):
            framework = None  # the option does not apply to a run of another framework
    with ExitStack() as stack:  # closes the runs if they cannot be compared
        run_iterator = (open_run(manager, path, framework) for path in (target, golden))
        target_run, golden_run = [stack.enter_context(closing(run)) for run in run_iterator]
        if _can_compare_statistics(target_run, golden_run):
            target_run.mode = golden_run.mode = Mode.STATISTICS
        _check_contents(target_run, golden_run)
        stack.pop_all()
    return target_run, golden_run


def _check_contents(target: Run, golden: Run) -> None:
    """Raise UserError if a run is empty, or the two hold different kinds of data."""
    if target.is_debug != golden.is_debug:
        raise UserError(
            f"{target.path.name} and {golden.path.name} do not hold the same kind of records.",
            "Compare dump.json with dump.json, or debug.json with debug.json.",
        )
    if target.mode is not golden.mode:
        raise UserError(
            f"The target holds {_describe_contents(target)} and the golden holds {_describe_contents(golden)}.",
            "Record both runs with the same task (and the same summary_mode).",
        )
    if target.header.slices != golden.header.slices:
        target_parts, golden_parts = (run.header.slices or "whole tensors" for run in (target, golden))
        raise UserError(
            f"The target holds {target_parts}, and the golden holds {golden_parts}.",
            'Record both runs with the same "slice" and "request_id".',
        )
    for run in (target, golden):
        if not run.starts[-1]:
            raise UserError(f"{run.path} holds no values.", "Record it again; check scope and list in config.json.")


def _can_compare_statistics(*runs: Run) -> bool:
    """Return True for a run of tensors and a run of statistics that saves the tensors of selected calls."""
    modes = {run.mode for run in runs}
    return modes == {Mode.TENSOR, Mode.STATISTICS} and any(run.header.selects_tensors for run in runs)


class _ReaderCandidate(NamedTuple):
    """A reader with its confidence that it can read a record file."""

    confidence: int
    spec: ReaderSpec
    reader: Reader


def _find_readers(manager: Manager, path: Path, framework: str | None) -> list[_ReaderCandidate]:
    """Return all readers (of ``framework``, if given) with their confidence in a record file."""
    try:
        check_regular(path)
    except OSError as error:
        raise _create_read_error(path, error) from None
    candidates: list[_ReaderCandidate] = []
    for spec in manager.specs("readers", ReaderSpec):
        if framework is None or spec.framework == framework:
            spec = manager.find("readers", spec.name, ReaderSpec)
            try:
                reader: Reader = spec.make()
                with blame_plugin(spec.title, spec.origin):
                    confidence = int(reader.sniff(path))
            except PluginError as error:
                if framework is not None:
                    raise
                warn(error, "The other readers are used instead.")
                continue
            candidates.append(_ReaderCandidate(confidence, spec, reader))
    return candidates


def _describe_contents(run: Run) -> str:
    return {
        Mode.TENSOR: "tensors (task tensor)",
        Mode.STATISTICS: "statistics (task statistics)",
        Mode.MD5: "checksums (task statistics with md5)",
    }[run.mode]


def open_run(manager: Manager, path: Path, framework: str | None = None) -> Run:
    """Open the run in a ``dump.json`` or ``debug.json``, by a reader of ``framework`` if it is not None.

    Raises:
        UserError: The file cannot be read, or no installed reader knows its format.
    """
    readers = _find_readers(manager, path, framework)
    known_frameworks = sorted({reader.spec.framework for reader in readers})
    if not any(reader.confidence for reader in readers):
        recorded = framework or _find_recorded_framework(path)
        if recorded and recorded not in known_frameworks and find_provider("readers", recorded) is not None:
            raise manager.create_missing_error("readers", recorded)
    if not readers:
        wanted = f' for framework "{framework}"' if framework else ""
        frameworks = {spec.framework for spec in manager.specs("readers", ReaderSpec)}
        raise UserError(
            f"No reader{wanted} is installed.",
            "Use one of these frameworks, or install its plugin:"
            if frameworks
            else "List the installed plugins with: probe plugins",
            sorted(frameworks),
        )
    best = max(readers, key=lambda reader: reader.confidence)
    if not best.confidence:
        try:
            path.open("rb").close()
        except OSError as error:
            raise _create_read_error(path, error) from None
        raise UserError(
            f"{path} was not recorded from {' or '.join(known_frameworks)}.",
            "Leave --framework out to detect the framework."
            if framework
            else "Install the plugin of its framework. If the file is incomplete, record the run again.",
        )
    with blame_plugin(best.spec.title, best.spec.origin):
        return best.reader.open(path)


def _create_read_error(path: Path, error: OSError) -> UserError:
    return UserError(f"{path} cannot be read: {error.strerror or error}.", "Check the path and its permissions.")


def _find_recorded_framework(path: Path) -> str | None:
    """Return the framework in the record file; None if the file cannot be read or names no framework."""
    try:
        return read_framework(path)
    except OSError:
        return None
