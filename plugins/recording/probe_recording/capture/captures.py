"""The interface of captures, from which a recorder is composed, and the captures that all frameworks share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from probe_recording.capture.module_hook_interface import ModuleHookInterface
from probe_recording.sessions.session import Session
from probe_recording.settings.config import Config

C = TypeVar("C", bound=Session, contravariant=True)
S = TypeVar("S", bound=Session)


class Capture(Protocol[C]):
    """A part of a recorder that observes one kind of events, such as API calls or forwards of modules.

    A recorder installs its captures in the order of its list and removes them in reverse order. Only
    ``install`` and ``remove`` must be defined; the other methods do nothing by default.
    """

    def install(self, session: C, model: Any) -> None:
        """Observe the program and record into a session, until ``remove``.

        A recorder calls this at each start, even if the capture is already installed. If it raises an
        exception, all captures are removed.

        Args:
            session: The session of the step; its ``config`` says what is recorded.
            model: The model or models of the script, or None.
        """

    def remove(self) -> None:
        """Stop observing the program and restore what ``install`` changed; do nothing if that is done."""

    def pause(self) -> None:
        """Record nothing, with all hooks in place, because a single module is recorded."""
        return None

    def resume(self) -> None:
        """Record again after ``pause``."""
        return None

    def complete(self, session: C) -> None:
        """Record what is known only when the recording stops; called before any capture is removed."""
        return None

    def close(self) -> None:
        """Release what stays in place between steps; called once, at the end of the recording."""
        return None


class ModuleCapture(Capture[S]):
    """The capture of the modules of models, at levels L0 and mix.

    Args:
        hooks: The hooks of modules of a framework.
        list_modules: A function that returns the modules in a model or several, each with its name
            ``{path}.{Class}``.

    Attributes:
        hooks: The hooks.
    """

    def __init__(self, hooks: ModuleHookInterface[S], list_modules: Callable[[Any], Sequence[tuple[str, Any]]]) -> None:
        self.hooks = hooks
        self._list_modules = list_modules

    def install(self, session: S, model: Any) -> None:
        """Hook the modules of the model."""
        if session.config.modules:
            self.hooks.begin_step(session)
            if model is not None:
                self.hook(self._list_modules(model), session.config)

    def hook(self, named: Sequence[tuple[str, Any]], config: Config) -> None:
        """Hook modules, given with their names, and their parameters if gradients are recorded."""
        if config.modules:
            self.hooks.install(named, "backward" in config.directions and config.parameter_gradients)

    def remove(self) -> None:
        """Remove all hooks."""
        self.hooks.remove()

    def pause(self) -> None:
        """Record no module."""
        self.hooks.paused = True

    def resume(self) -> None:
        """Record the modules again."""
        self.hooks.paused = False


class TokenWindow(Generic[S]):
    """The selection of some forwards of a model, each of which generates a token.

    Args:
        hook_calls: A function that calls another before each forward of a model, and returns a handle with a
            method ``remove``.
    """

    def __init__(self, hook_calls: Callable[[Any, Callable[..., None]], Any]) -> None:
        self._hook_calls = hook_calls
        self._handles: list[Any] = []

    def install(self, session: S, model: Any, tokens: tuple[int, int]) -> None:
        """Record only some forwards of the model into a session.

        Args:
            session: The session.
            model: The model; the first one of several.
            tokens: The numbers of the first and the last forward, counted from 0.
        """
        outer = model[0] if isinstance(model, (list, tuple)) else model
        count = itertools.count()
        session.active = False

        def count_forward(*_: Any) -> None:
            session.active = tokens[0] <= next(count) <= tokens[1] and session.lost is None

        self._handles.append(self._hook_calls(outer, count_forward))

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
