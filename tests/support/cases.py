"""Many cases of microseconds within one test: pytest spends more on a test than they take."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import Any


def every(names: str, cases: Iterable[Any], ids: Any = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each case in a loop, and fail with every case that failed.

    Takes the place of ``pytest.mark.parametrize`` for tests that share nothing from case to case: fixtures are made
    once. Several of them are a product, as they are with ``parametrize``.

    Args:
        names: The arguments of the test that a case gives, separated by commas.
        cases: Their values; a tuple for several names.
        ids: Names of the cases, or a function of one value; ``repr`` if left out.
    """
    arguments = [name.strip() for name in names.split(",")]
    listed = [tuple(case) if len(arguments) > 1 else (case,) for case in cases]
    assert listed and all(len(case) == len(arguments) for case in listed)
    if ids is None or callable(ids):
        named = ["-".join(str((ids or repr)(value)) for value in case) for case in listed]
    else:
        named = [str(name) for name in ids]
    assert len(named) == len(listed)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def all_of_them(**given: Any) -> None:
            failed = []
            for name, case in zip(named, listed):
                try:
                    test(**given, **dict(zip(arguments, case)))
                except Exception:
                    failed.append(f"[{name}] {traceback.format_exc()}")
            assert not failed, f"{len(failed)} of {len(listed)} cases failed:\n\n" + "\n".join(failed)

        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in arguments]
        assert len(left) == len(signature.parameters) - len(arguments), "the test takes other arguments"
        all_of_them.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return all_of_them

    return decorate
