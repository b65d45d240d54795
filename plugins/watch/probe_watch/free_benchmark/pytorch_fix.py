"""Replacement of the result of a call by that of its second run, for ``"handler_type": "fix"``."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from probe_recording.api import InterceptedCall

from probe_watch.free_benchmark.arguments import map_results
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
    return map_results(partial(_convert_tensor, arguments=arguments), original, changed, torch.Tensor)


def _convert_tensor(original: torch.Tensor, changed: Any, arguments: set[int]) -> torch.Tensor:
    if not isinstance(changed, torch.Tensor) or original.shape != changed.shape:
        return original
    return original.copy_(changed) if id(original) in arguments else changed.to(original)
