"""Captures of modules, as a recorder uses them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from probe_recording.sessions.session import Session

C = TypeVar("C", bound=Session, contravariant=True)


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
