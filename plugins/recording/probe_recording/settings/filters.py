"""The filter of records by ``scope`` and ``list`` (docs/configuration.md#scope)."""

from __future__ import annotations

from probe_recording.settings.config import Config
from probe_recording.settings.name_selector import NameSelector


class Filter:
    """A filter that selects records by their names and order.

    ``scope`` selects all records from its first name to its last. ``list`` selects the records whose names
    contain one of its entries or match one of its expressions; at level mix also everything inside a module
    that it selects.

    Attributes:
        takes_all: True if there is neither a scope nor a list.
    """

    def __init__(self, config: Config) -> None:
        self._scope = config.scope
        self._names = config.names
        self._selects = NameSelector(config.names).is_selected
        self._mix = config.level == "mix"
        self._open = not config.scope
        self._selected_module_depth = 0
        self.takes_all = not (config.scope or config.names)

    def is_api_selected(self, name: str) -> bool:
        """Return True if a record of a call, or of any backward, is selected.

        Call it once per record, in the order of the run: it opens and closes the scope.
        """
        if self.takes_all:
            return True
        if not self._scope:
            return self._is_selected(name)
        if name == self._scope[0]:
            self._open = True
        is_recorded = self._open and (not self._names or self._is_selected(name))
        if name == self._scope[1]:
            self._open = False
        return is_recorded

    def enter_module(self, name: str) -> bool:
        """Note that the forward of a module begins, and return True if its record is selected."""
        if self.takes_all:
            return True
        if self._scope and name == self._scope[0]:
            self._open = True
        if self._mix and self._names and self._selects(name):
            self._selected_module_depth += 1
        return self._open and (not self._names or self._is_selected(name))

    def leave_module(self, name: str) -> None:
        """Note that the forward of a module has ended."""
        if self.takes_all:
            return
        if self._scope and name == self._scope[1]:
            self._open = False
        if self._mix and self._selected_module_depth and self._selects(name):
            self._selected_module_depth -= 1

    @property
    def is_in_selected_module(self) -> bool:
        """True while a module that ``list`` selects is running, so that every record is selected."""
        return self._selected_module_depth > 0

    def _is_selected(self, name: str) -> bool:
        return self._selected_module_depth > 0 or self._selects(name)
