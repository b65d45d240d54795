"""Opening two runs for comparison: by the reader that knows them, and only if they go together."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from probe_core.errors import UserError
from probe_core.files.given import check_regular
from probe_core.model import Mode
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.plugins.blame import PluginError, blamed
from probe_core.plugins.distributions import provider
from probe_core.plugins.manager import Manager, warn
from probe_core.plugins.protocols import Reader
from probe_core.plugins.specs import ReaderSpec
from probe_core.store.sniff import framework_of


def open_runs(plan: Plan, manager: Manager, target: Path, golden: Path) -> tuple[Run, Run]:
    """Both runs, read and found comparable: one sort of file, one mode, values in both."""
    ours, theirs = _open_both(manager, target, golden, plan.framework)
    if ours.is_debug != theirs.is_debug:
        raise UserError(
            f"{target.name} and {golden.name} do not hold the same sort of records.",
            "Compare dump.json with dump.json, or debug.json with debug.json.",
        )
    if ours.mode is not theirs.mode:
        raise UserError(
            f"The target holds {_what(ours)} and the golden holds {_what(theirs)}.",
            "Record both runs with the same task (and the same summary_mode).",
        )
    for run in (ours, theirs):
        if not run.starts[-1]:
            raise UserError(f"{run.path} holds no values.", "Record the run again; check scope and list.")
    return ours, theirs


def _open_both(manager: Manager, target: Path, golden: Path, framework: str | None) -> tuple[Run, Run]:
    """Both runs; where ``framework`` recorded only one of them, the other by the reader that knows it."""
    if framework is not None and _knows(manager, target, framework) is not _knows(manager, golden, framework):
        return open_run(manager, target), open_run(manager, golden)
    return open_run(manager, target, framework), open_run(manager, golden, framework)


def _knows(manager: Manager, path: Path, framework: str) -> bool:
    return any(one.sure for one in _readers(manager, path, framework))


class _Known(NamedTuple):
    """A reader, and how sure it is of a record file."""

    sure: int
    spec: ReaderSpec
    reader: Reader


def _readers(manager: Manager, path: Path, framework: str | None) -> list[_Known]:
    """Each reader, or each of a framework, and how sure it is of a record file.

    Raises:
        UserError: The record file is a pipe, a device or the like, which might never end.
    """
    try:
        check_regular(path)
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror or error}.", "Check the path and its permissions."
        ) from None
    found: list[_Known] = []
    for item in manager.contributions("readers"):
        spec = item.spec
        assert isinstance(spec, ReaderSpec)
        if framework is None or spec.framework == framework:
            spec = manager.find("readers", spec.name, ReaderSpec)
            try:
                reader: Reader = spec.make()
                with blamed(spec.title, spec.origin):
                    sure = int(reader.sniff(path))
            except PluginError as error:
                if framework is not None:
                    raise
                warn(error, "Runs are read by the other readers.")
                continue
            found.append(_Known(sure, spec, reader))
    return found


def _what(run: Run) -> str:
    return {
        Mode.TENSOR: "tensors (task tensor)",
        Mode.STATISTICS: "statistics (task statistics)",
        Mode.MD5: "checksums (task statistics with md5)",
    }[run.mode]


def open_run(manager: Manager, path: Path, framework: str | None = None) -> Run:
    """The run in the record file ``path``, read by the reader that knows it.

    Args:
        manager: Where the readers come from.
        path: A ``dump.json`` or ``debug.json``.
        framework: The framework to take it for; None to find out.
    """
    readers = _readers(manager, path, framework)
    known = sorted({one.spec.framework for one in readers})
    if not any(one.sure for one in readers):
        recorded = framework or _recorded_from(path)
        if recorded and recorded not in known and provider("readers", recorded) is not None:
            raise manager.missing("readers", recorded)
    if not readers:
        wanted = f' for framework "{framework}"' if framework else ""
        frameworks = {item.spec.framework for item in manager.contributions("readers")
                      if isinstance(item.spec, ReaderSpec)}  # fmt: skip
        raise UserError(
            f"No reader{wanted} is installed.",
            "Use one of these frameworks, or install its plugin:"
            if frameworks
            else "See probe plugins for what is installed.",
            sorted(frameworks),
        )
    best = max(readers, key=lambda one: one.sure)
    if not best.sure:
        try:
            path.open("rb").close()
        except OSError as error:
            raise UserError(
                f"{path} cannot be read: {error.strerror or error}.", "Check the path and its permissions."
            ) from None
        raise UserError(
            f"{path} was not recorded from {' or '.join(known)}.",
            "Leave --framework out to find the reader."
            if framework
            else "Install the plugin of the framework that recorded it.",
        )
    with blamed(best.spec.title, best.spec.origin):
        return best.reader.open(path)


def _recorded_from(path: Path) -> str | None:
    """Return the framework that the record file names, if it can be read and names any."""
    try:
        return framework_of(path)
    except OSError:
        return None
