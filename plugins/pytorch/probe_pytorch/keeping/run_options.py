"""The options of ``probe run`` that keep the last steps."""

from __future__ import annotations

import ast
import importlib.util
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from probe_recording.api import Config
from probe_recording.keeping.options import KeepOptions, keep_config, parse_options
from probe_recording.keeping.watch import DEFAULT_PATH

from probe_core import console
from probe_core.errors import UserError, format_count

if TYPE_CHECKING:
    from probe_pytorch.follower import Follower
    from probe_pytorch.keeping.keeping_recorder import KeepingFollower

DEFAULT_OUTPUT = DEFAULT_PATH
"""The directory of the run, unless ``-o`` gives another."""

MINDSPORE = "mindspore"
_USE_WATCH = (
    "probe run --keep-last observes optimizers of torch, and this script uses MindSpore.",
    "In the script, write watch = probe_mindspore.watch(10, model=net), and `with watch:` around each step.",
)


def keep_options(
    keep_last: int | None, memory: str | None, signal: str | None, events: int | None, *, rerun: bool
) -> KeepOptions | None:
    """Return the settings of keeping; None if no steps are kept.

    Raises:
        UserError: An option has a wrong value, or belongs to one that is missing.
    """
    if rerun:
        raise UserError(
            "--rerun needs a step function, and probe run does not know one.",
            "In the script, write watch = probe_pytorch.watch(10, model, optimizer, rerun=True), and "
            "watch.step(function, batch) for each step.",
        )
    if keep_last is None:
        if memory is not None or signal is not None or events is not None:
            raise UserError("--keep-memory, --signal and --events belong to --keep-last.", "Give --keep-last 10.")
        return None
    return parse_options(keep_last, memory, signal, events=events, is_command=True)


def refuse_with_keeping(step: str | None, send_to: str | None, against: Path | None) -> None:
    """Raise a UserError for options that contradict ``--keep-last``."""
    for name, value in (("--step", step), ("--send-to", send_to), ("--against", against)):
        if value is not None:
            raise UserError(
                f"{name} and --keep-last exclude each other, because every step is kept in memory.",
                f"Leave out one of {name} and --keep-last.",
            )


def refuse_mindspore(script: str, *, is_module: bool) -> None:
    """Raise a UserError for a script that imports MindSpore and not torch, of which nothing can be kept.

    Args:
        script: The path of the script, or the name of a module.
        is_module: True for the name of a module.
    """
    try:
        tree = ast.parse((_module_file(script) if is_module else Path(script)).read_bytes())
    except (ImportError, OSError, SyntaxError, ValueError):
        return  # the run itself reports it
    imported = _list_imports(tree)
    if MINDSPORE in imported and "torch" not in imported:
        raise UserError(*_USE_WATCH)


def _module_file(name: str) -> Path:
    """Return the file that ``python -m`` runs for a module of this directory or an installed one."""
    sys.path.insert(0, "")
    try:
        spec = importlib.util.find_spec(name)
    finally:
        sys.path.remove("")
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))) / "__main__.py"
    return Path((spec.origin if spec is not None else None) or "")


def _list_imports(tree: ast.AST) -> set[str]:
    """Return the top-level packages that a program imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def create_follower(config: Config, options: KeepOptions, *, replaces: bool) -> KeepingFollower:
    """Return the driver of a script whose last steps are kept.

    Raises:
        UserError: The settings select something else than statistics of all steps.
    """
    from probe_pytorch.keeping.keeping_recorder import KeepingFollower, TorchKeepingRecorder

    config = keep_config(config)
    return KeepingFollower(TorchKeepingRecorder(config, options, finds_models=True, replaces=replaces))


def report_kept(follower: Follower) -> bool:
    """Print how many events there were; return False if steps of an event could not be written."""
    from probe_pytorch.keeping.keeping_recorder import KeepingFollower

    assert isinstance(follower, KeepingFollower)
    recorder = follower.recorder
    keeper = recorder.keeper
    with suppress(OSError):  # the disk of the terminal's log may be full
        if keeper.events_left_out:
            console.note(f"probe: {format_count(keeper.events_left_out, 'further event')} not written (--events).")
        if not keeper.events:
            console.note(
                f"probe: {format_count(keeper.step_count, 'step')} observed without an event; nothing was written."
            )
        if not follower.has_stepped and MINDSPORE in sys.modules:
            console.warn(" ".join(_USE_WATCH))
        elif not follower.has_stepped:
            console.warn("no optimizer of torch stepped, so no step was judged. Call a watch in the script.")
    return bool(recorder.is_complete)
