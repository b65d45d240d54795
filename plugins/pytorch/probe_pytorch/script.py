"""A training script that ``probe run`` runs in this process as python does."""

from __future__ import annotations

import builtins
import importlib.util
import runpy
import sys
import traceback
import types
from dataclasses import dataclass
from pathlib import Path

from probe_recording.sites import STAND_IN

from probe_core import console
from probe_core.errors import UserError
from probe_core.terminal.exit_codes import EXIT_INTERRUPTED


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """The exit code of a script and the exception that ended it.

    Attributes:
        exit_code: The exit code.
        exception: The name of the exception that ended the script; empty for none.
    """

    exit_code: int = 0
    exception: str = ""

    @property
    def is_interrupted(self) -> bool:
        """True if the user interrupted the script."""
        return self.exception == "KeyboardInterrupt"

    @property
    def is_error(self) -> bool:
        """True if an exception ended the script which neither the user nor ``sys.exit`` raised."""
        return bool(self.exception) and not self.is_interrupted and self.exception != "SystemExit"


@dataclass(frozen=True, slots=True)
class Script:
    """A script or module with its arguments.

    Attributes:
        name: The path of the script, or the name of the module.
        arguments: Its arguments.
        is_module: True for a module, as in ``python -m``.
    """

    name: str
    arguments: tuple[str, ...]
    is_module: bool

    def check(self) -> None:
        """Raise a UserError if the script or module does not exist or cannot be read."""
        if self.is_module:
            if not _has_module(self.name):
                raise UserError(
                    f'There is no module "{self.name}".',
                    "Give a name that python -m accepts, from this directory or installed.",
                )
            return
        if not Path(self.name).is_file():
            raise UserError(
                f'There is no script "{self.name}".',
                "Give the path of a Python file, or -m and the name of a module.",
            )
        try:
            Path(self.name).open("rb").close()
        except OSError as error:
            raise UserError(
                f'The script "{self.name}" cannot be read: {error.strerror or error}.',
                "Change its permissions, or give another script.",
            ) from None

    def run(self) -> ScriptEnd:
        """Run the script.

        An exception of the script is printed as python prints it, without the recorder's frames.

        Raises:
            UserError: The script used probe incorrectly.
        """
        is_path_safe = sys.flags.isolated or getattr(sys.flags, "safe_path", False)  # no entry for the launcher
        earlier_arguments, launcher_path = sys.argv, sys.path[: 0 if is_path_safe else 1]
        sys.argv = [self.name, *self.arguments]
        sys.path[: len(launcher_path)] = ["" if self.is_module else str(Path(self.name).resolve().parent)]
        try:
            if self.is_module:
                runpy.run_module(self.name, run_name="__main__", alter_sys=True)
            else:
                _run_file(self.name)
            return ScriptEnd()
        except SystemExit as stop:
            if stop.code is None or isinstance(stop.code, int):
                return ScriptEnd(stop.code or 0, "SystemExit" if stop.code else "")
            console.note(str(stop.code), lines=True)
            return ScriptEnd(1, "SystemExit")
        except KeyboardInterrupt:
            console.note("Interrupted; the steps recorded so far are kept.")
            return ScriptEnd(EXIT_INTERRUPTED, "KeyboardInterrupt")
        except UserError:
            raise
        except Exception as error:
            _show_error(error)
            return ScriptEnd(1, type(error).__name__)
        finally:
            sys.argv, sys.path[:1] = earlier_arguments, launcher_path


def _has_module(name: str) -> bool:
    sys.path.insert(0, "")
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
    finally:
        sys.path.remove("")


def _run_file(script: str) -> None:
    """Run a file as ``__main__``, as python does: ``__file__`` is absolute, ``sys.argv[0]`` unchanged."""
    path = str(Path(script).absolute())
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins)
    launcher_main = sys.modules["__main__"]
    sys.modules["__main__"] = main
    try:
        exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), main.__dict__)
    finally:
        sys.modules["__main__"] = launcher_main


def _show_error(error: Exception) -> None:
    """Print the traceback of an exception without the frames of the recorder."""
    hidden_prefixes = (str(Path(__file__).parent), "<frozen runpy>", runpy.__file__)
    shown = traceback.TracebackException(type(error), error, error.__traceback__)
    part: traceback.TracebackException | None = shown
    while part is not None:
        frames = [f for f in part.stack if not f.filename.startswith(hidden_prefixes) and f.name != STAND_IN]
        part.stack = traceback.StackSummary.from_list(frames)
        part = part.__cause__ or part.__context__
    console.note("".join(shown.format()).rstrip(), lines=True)
