"""The interface of captures, from which a recorder is composed, and the captures that all frameworks share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from probe_recording.sessions.session import Session
from probe_recording.settings.config import Config

C = TypeVar("C", bound=Session, contravariant=True)
S = TypeVar("S", bound=Session)


class ModuleHookInterface(Protocol[C]):
    """A capture of modules by hooks, for level L0 and ``module_dump``.

    Attributes:
        paused: True to record nothing although the hooks stay in place.
    """

    paused: bool

    def begin_step(self, session: C) -> None:
        """Record into ``session`` from now on."""

    def install(self, named: Iterable[tuple[str, Any]], gradients: bool) -> None:
        """Hook the modules, given as pairs of a name ``{path}.{Class}`` and a module."""

    def remove(self) -> None:
        """Remove all hooks."""


class NoModuleHooks:
    """A capture that records nothing, for a framework without modules."""

    paused = False

    def begin_step(self, session: Any) -> None:
        """Record nothing."""

    def install(self, named: Iterable[tuple[str, Any]], gradients: bool) -> None:
        """Hook nothing."""

    def remove(self) -> None:
        """Remove nothing."""


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


# -- the captures of a recorder, which are installed, paused and removed together -------------------


class CaptureControl(Generic[S]):
    """The captures of a recorder, and the hooks of a module that is recorded alone while they are paused.

    Args:
        hook_calls: A function that calls another before each forward of a model, and returns a handle with a
            method ``remove``.

    Attributes:
        captures: The captures, in the order in which they are installed.
    """

    def __init__(self, hook_calls: Callable[[Any, Callable[..., None]], Any]) -> None:
        self.captures: list[Capture[S]] = []
        self._tokens: TokenWindow[S] = TokenWindow(hook_calls)
        self._single: ModuleHookInterface[S] | None = None

    def install(self, session: S, model: Any) -> None:
        """Install all captures."""
        for capture in self.captures:
            capture.install(session, model)

    def select_tokens(self, session: S, model: Any, tokens: tuple[int, int]) -> None:
        """Record only some forwards of a model, each of which generates a token, until the captures are removed.

        Args:
            session: The session.
            model: The model; the first one of several.
            tokens: The numbers of the first and the last forward, counted from 0.
        """
        self._tokens.install(session, model, tokens)

    def complete(self, session: S) -> None:
        """Record what is known only when the recording stops."""
        for capture in self.captures:
            capture.complete(session)

    def pause(self) -> None:
        """Record nothing, with all hooks in place."""
        for capture in self.captures:
            capture.pause()

    def remove(self) -> None:
        """Remove all captures, in reverse order."""
        self.end_single()
        self._tokens.remove()
        for capture in reversed(self.captures):
            capture.remove()

    def close(self) -> None:
        """Release what stays in place between steps."""
        for capture in self.captures:
            capture.close()

    def record_single(self, session: S, hooks: ModuleHookInterface[S], name: str, module: Any) -> None:
        """Pause all captures and record one module by its own hooks, until ``end_single`` or ``remove``.

        Args:
            session: The session.
            hooks: New hooks.
            name: The name of the module in its records.
            module: The module.
        """
        self.pause()
        self._single = hooks
        hooks.begin_step(session)
        hooks.install([(f"{name}.{type(module).__name__}", module)], gradients=False)

    def end_single(self) -> bool:
        """Remove the hooks of the single module and resume the captures; return False if there are no hooks."""
        if self._single is None:
            return False
        self._single.remove()
        self._single = None
        for capture in self.captures:
            capture.resume()
        return True
