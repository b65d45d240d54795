"""What the debuggers of all frameworks share of their interface."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, TypeVar

from probe_core.errors import UserError

Method = TypeVar("Method", bound=Callable[..., Any])


class _OfTheProcess:
    """A method that may be called on the class, too: ``PrecisionDebugger.start()`` means the one there is."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

        @functools.wraps(method)
        def nobody(*_: Any, **__: Any) -> None:
            name = method.__name__
            raise UserError(f"{name}() is called without a debugger.", "Construct a PrecisionDebugger first.")

        self._nobody = nobody

    def __get__(self, debugger: Any, owner: Any) -> Any:
        found = debugger if debugger is not None else owner._instance
        return MethodType(self._method, found) if found is not None else self._nobody


def of_the_process(method: Method) -> Method:
    """Let ``method`` be called on the class as well as on the debugger."""
    return _OfTheProcess(method)  # type: ignore[return-value]


def parse_token_range(value: Sequence[int] | None) -> tuple[int, int] | None:
    """First and last token as a script gives them; None for all."""
    if value is None:
        return None
    if (
        not isinstance(value, (list, tuple))
        or len(value) != 2
        or any(type(item) is not int for item in value)
        or not 0 <= value[0] <= value[1]
    ):
        raise UserError(f"token_range must be [first, last], not {value!r:.60}.", "For example [0, 3].")
    return value[0], value[1]
