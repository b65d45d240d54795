"""Level L1: the capture of API calls, which torch passes to a mode or which are wrapped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from probe_recording.api import Capture, Config
from probe_recording.capture.threads import Threads
from probe_recording.messages import Notices

from probe_core.errors import format_list
from probe_pytorch.capture.call_recorder import TorchCallRecorder
from probe_pytorch.capture.families import Families
from probe_pytorch.capture.function_patches import Patches
from probe_pytorch.capture.functions import FunctionCapture
from probe_pytorch.capture.names import Patch, load_names
from probe_pytorch.capture.operators import CustomOperators
from probe_pytorch.capture.yaml_lists import read_lists
from probe_pytorch.session import TorchSession


class CallCapture(Capture[TorchSession]):
    """The capture of the calls of torch's functions, of custom operators and of functions of the user.

    Args:
        config: The settings of the recording.
        threads: The state of the threads.
        notices: The messages of the recorder.
        create_calls: A function that returns a recorder of calls into a session.
        records_inside: True to record the calls inside of recorded Python functions as well.
        records_families: True to record custom operators and autograd functions.
    """

    def __init__(
        self,
        config: Config,
        threads: Threads,
        notices: Notices,
        create_calls: Callable[[TorchSession], TorchCallRecorder],
        *,
        records_inside: bool = False,
        records_families: bool = True,
    ) -> None:
        self._config = config
        self._threads = threads
        self._notices = notices
        self._create_calls = create_calls
        self._records_inside = records_inside
        self._records_families = records_families
        self._families = Families()
        self._functions: FunctionCapture | None = None
        self._patches: Patches | None = None
        self._custom: list[Patch] = []
        self._listed = ListedFunctions(config.wrapped_functions) if config.wrapped_functions else None
        self._calls: TorchCallRecorder | None = None

    def begin_step(self, session: TorchSession) -> None:
        """Note in the header of a new session which families of calls are recorded."""
        if session.config.apis and self._records_families:
            for name, value in self._families.begin_step().items():
                session.note(name, value)

    def install(self, session: TorchSession, model: Any) -> None:
        """Record the calls of all functions into a session, at levels L1 and mix."""
        if session.config.apis:
            self.receive(self._create_calls(session))

    def receive(self, calls: TorchCallRecorder) -> None:
        """Pass the calls of all functions to ``calls``."""
        if self._functions is None or self._patches is None:
            self._functions, self._patches = self._create_captures()
        for patch in self._listed.iterate_importable() if self._listed else ():
            self._patches.add(patch)
        self._calls = calls
        self._pass_to(calls)
        self._functions.install()
        self._patches.install()

    def _create_captures(self) -> tuple[FunctionCapture, Patches]:
        """Return the captures of functions, whose names are loaded when the recording starts."""
        names = load_names(self._config.wrap_ops, self._config.risk_level)
        custom = None
        if self._records_families:
            custom = CustomOperators(names.internal_namespaces, self._config.operator_namespaces, self._families)
        patches = Patches(names, self._threads)
        for patch in self._custom:
            patches.add(patch)
        return FunctionCapture(names, self._threads, custom, self._records_inside), patches

    def _pass_to(self, calls: TorchCallRecorder | None) -> None:
        for capture in (self._functions, self._patches):
            if capture is not None:
                capture.calls = calls

    def pause(self) -> None:
        """Record no call."""
        self._pass_to(None)

    def resume(self) -> None:
        """Record calls again."""
        self._pass_to(self._calls)

    def remove(self) -> None:
        """Restore the functions."""
        self._calls = None
        self._pass_to(None)
        if self._patches is not None:
            self._patches.remove()
        if self._functions is not None:
            self._functions.remove()

    def close(self) -> None:
        """Print which listed functions were not found."""
        if self._listed is not None and self._listed.missing:
            self._notices.print_once(
                f"probe: {format_list(self._listed.missing)} of {self._config.wrapped_functions} "
                "not found, and therefore not recorded."
            )

    # -- functions of the user ---------------------------------------------------------------

    def add(self, patch: Patch) -> None:
        """Record the calls of one more function."""
        self._custom.append(patch)
        if self._patches is not None:
            self._patches.add(patch)

    def drop(self, holder: Any, attribute: str) -> bool:
        """Stop recording a function; return False if it was not added."""
        dropped = [p for p in self._custom if p.holder is holder and p.attribute == attribute]
        for patch in dropped:
            self._custom.remove(patch)
        if self._patches is not None:
            self._patches.drop(holder, attribute)
        return bool(dropped)


# -- python functions that ``custom_wrap_ops`` lists (docs/recording.md#your-own-functions) ---------


class ListedFunctions:
    """The functions of a list. Each function is recorded as soon as its module is imported.

    Args:
        path: A yaml file that maps the names of modules to names of functions in them.

    Raises:
        UserError: The file cannot be read, or has an invalid structure.
    """

    def __init__(self, path: Path) -> None:
        listed = read_lists(path, "custom_wrap_ops", "names of modules")
        self._pending = [(module, name) for module, names in listed.items() for name in names or ()]

    def iterate_importable(self) -> Iterator[Patch]:
        """Yield the functions that became importable since the last call."""
        for module, name in list(self._pending):
            owner = _find_owner(module)
            if callable(getattr(owner, name, None)):
                self._pending.remove((module, name))
                yield Patch(owner, name, f"{module}.{name}")

    @property
    def missing(self) -> list[str]:
        """The names of the functions that are not importable yet."""
        return [f"{module}.{name}" for module, name in self._pending]


def _find_owner(path: str) -> Any:
    """Return the imported module or class with a dotted path; None if it does not exist."""
    if path in sys.modules:
        return sys.modules[path]
    parent, _, name = path.rpartition(".")
    return getattr(_find_owner(parent), name, None) if parent else None
