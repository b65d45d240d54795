"""The captures of a recorder, which are installed, paused and removed together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from probe_recording.capture.captures import Capture, TokenWindow
from probe_recording.capture.module_hook_interface import ModuleHookInterface
from probe_recording.sessions.session import Session

S = TypeVar("S", bound=Session)


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
