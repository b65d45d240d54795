"""Replacement of the result of a call by that of its second run, for ``"handler_type": "fix"``."""

from __future__ import annotations

from typing import Any

import torch
from probe_recording.api import InterceptedCall

from probe_watch.free_benchmark.pytorch_arguments import iterate_torch_tensors


def fix_result(call: InterceptedCall, original: Any, changed: Any) -> Any:
    """Return the second result in the dtypes and on the devices of the program's.

    A result that the call wrote into one of its arguments is written there again.

    Args:
        call: The call.
        original: Its result.
        changed: The result of its second run, of the same structure.
    """
    arguments = {id(tensor) for tensor in iterate_torch_tensors((call.args, call.kwargs))} if call.writes else set()
    return _convert_result(original, changed, arguments)


def _convert_result(original: Any, changed: Any, arguments: set[int]) -> Any:
    if isinstance(original, torch.Tensor):
        if not isinstance(changed, torch.Tensor) or original.shape != changed.shape:
            return original
        if id(original) in arguments:
            return original.copy_(changed)
        return changed.to(original)
    if isinstance(original, (list, tuple)) and isinstance(changed, (list, tuple)):
        items = [_convert_result(first, second, arguments) for first, second in zip(original, changed)]
        is_named = isinstance(original, tuple) and type(original) is not tuple
        if not is_named:
            return type(original)(items)
        named: Any = type(original)
        return named(*items) if hasattr(original, "_fields") else named(items)
    return original
