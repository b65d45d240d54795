"""Parts of the script's interface that the debuggers of all frameworks share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, TypeVar

from probe_core.errors import UserError

Method = TypeVar("Method", bound=Callable[..., Any])


class _ClassCallable:
    """A descriptor for methods that also work on the class: ``PrecisionDebugger.start()``.

    Called on the class, the method acts on the one debugger of the process.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

        @functools.wraps(method)
        def nobody(*_: Any, **__: Any) -> None:
            name = method.__name__
            raise UserError(
                f"{name}() is called without a debugger, so nothing is recorded.",
                'Construct one first: PrecisionDebugger(config_path="config.json").',
            )

        self._nobody = nobody

    def __get__(self, debugger: Any, owner: Any) -> Any:
        instance = debugger if debugger is not None else owner._instance
        return MethodType(self._method, instance) if instance is not None else self._nobody


def allow_class_call(method: Method) -> Method:
    """Decorate a method so that it can be called on the class as well as on the debugger."""
    return _ClassCallable(method)  # type: ignore[return-value]


def check_rank_id(value: int | None) -> int | None:
    """Return the rank that a script passes to ``start``, if it is valid.

    Raises:
        UserError: It is not a non-negative integer.
    """
    if value is None or (type(value) is int and value >= 0):
        return value
    raise UserError(f"rank_id must be a non-negative integer, not {value!r:.40}.", "For example rank_id=0.")


def parse_token_range(value: Sequence[int] | None) -> tuple[int, int] | None:
    """Return the first and last token of a range that a script gives; None for all tokens.

    Raises:
        UserError: The range is not a list of two whole numbers in order.
    """
    if value is None:
        return None
    if (
        not isinstance(value, (list, tuple))
        or len(value) != 2
        or any(type(item) is not int for item in value)
        or not 0 <= value[0] <= value[1]
    ):
        raise UserError(
            f"token_range must be [first, last], two whole numbers in order, not {value!r:.60}.",
            "For example token_range=[0, 3].",
        )
    return value[0], value[1]
