"""The calls that a mode of ptdbg_ascend selects, by their names as the tool wrote them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from probe_legacy.calls.versions import Version

_API = re.compile(r"[A-Za-z0-9]+_+([A-Za-z0-9]+_*[A-Za-z0-9]+)_+\d+_+[A-Za-z0-9]+")
MODES = ("all", "list", "range", "stack", "acl", "api_list", "api_stack")
STACK_MODES = ("list", "range", "stack", "acl", "api_stack")
"""Modes that write call stacks."""


def format_old_name(key: str) -> str:
    """Return the name of a call in ptdbg_ascend's words: ``Torch_relu_0_forward``."""
    prefix, number, phase = key.rsplit(".", 2)
    family, _, op = prefix.partition(".")
    return f"{family}_{op}_{number}_{phase}"


class CallSelection:
    """A selection of calls by a mode.

    A range begins with the first call whose name begins with its first entry, and ends for good with the
    first whose name begins with its second, as in the tool.

    Args:
        version: The version of the tool.
        mode: One of ``MODES``.
        scope: The argument ``scope`` of ``set_dump_switch``.
        api_list: Its argument ``api_list``.
    """

    def __init__(
        self, version: Version, mode: str = "all", scope: Sequence[str] = (), api_list: Sequence[str] = ()
    ) -> None:
        self.mode = mode
        self._scope = tuple(name.replace("backward", "forward") if mode == "acl" else name for name in scope)
        self._apis = tuple(api.lower() for api in api_list)
        self._by_part = version.sides
        self._has_begun = self._has_ended = False

    def may_take(self, name: str) -> bool:
        """Return False for a call that is not selected, whatever came before it."""
        if self.mode == "api_list":
            return self._is_listed(name)
        if self.mode in ("list", "acl") or (self.mode == "stack" and len(self._scope) == 1):
            return name.startswith(self._scope)
        return True

    def takes(self, name: str) -> bool:
        """Return True for a call that is selected; ask once for each call, in their order."""
        if self.mode != "range" and not (self.mode == "stack" and len(self._scope) == 2):
            return self.may_take(name)
        first, last = self._scope
        if name.startswith(first):
            self._has_begun = True
            return True
        if name.startswith(last):
            self._has_ended = True
            return True
        return self._has_begun and not self._has_ended

    def _is_listed(self, name: str) -> bool:
        if self._by_part:
            return any(api in name.lower() for api in self._apis)
        api = _API.match(name)
        return api is not None and api[1] in self._apis


class EarlySelection:
    """The selection while a program is recorded, in the form of a filter of probe's sessions."""

    takes_all = False
    is_in_selected_module = False

    def __init__(self, selection: CallSelection) -> None:
        self._selection = selection

    def is_api_selected(self, name: str) -> bool:
        """Return True for a call that may be selected."""
        return self._selection.may_take(format_old_name(name))
