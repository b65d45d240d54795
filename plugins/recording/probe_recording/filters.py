"""Which records are wanted: scope, list and data mode (spec/dump 2)."""

from __future__ import annotations

from probe_recording.config import Config


class Filter:
    """Decides by name and order whether a call is recorded.

    ``scope`` opens when its first name comes and closes behind its last; ``list`` wants names that
    hold one of its entries, and at level mix also everything inside a module that does.
    """

    def __init__(self, config: Config) -> None:
        self._scope = config.scope
        self._names = config.names
        self._mix = config.level == "mix"
        self._open = not config.scope
        self._inside = 0
        self.takes_all = not (config.scope or config.names)

    def api(self, name: str) -> bool:
        """Is the record ``name`` wanted, of a call or of any backward? Asked once, when it comes."""
        if self.takes_all:
            return True
        if not self._scope:
            return self._listed(name)
        if name == self._scope[0]:
            self._open = True
        wanted = self._open and (not self._names or self._listed(name))
        if name == self._scope[1]:
            self._open = False
        return wanted

    def enter_module(self, name: str) -> bool:
        """A module's forward begins: is its record wanted?"""
        if self.takes_all:
            return True
        if self._scope and name == self._scope[0]:
            self._open = True
        if self._mix and self._names and any(part in name for part in self._names):
            self._inside += 1
        return self._open and (not self._names or self._listed(name))

    def leave_module(self, name: str) -> None:
        """A module's forward has ended."""
        if self.takes_all:
            return
        if self._scope and name == self._scope[1]:
            self._open = False
        if self._mix and self._inside and any(part in name for part in self._names):
            self._inside -= 1

    @property
    def inside(self) -> bool:
        """Is this inside a module that is listed, where everything is wanted?"""
        return self._inside > 0

    def _listed(self, name: str) -> bool:
        return self._inside > 0 or any(part in name for part in self._names)
