"""Recorded outputs and gradients of calls, and their comparison with running the calls again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from probe_precheck.api import Array, Call, Message, Unbuildable
from probe_precheck.rebuild import is_recorded, list_descriptions

from probe_mindspore.precheck.rebuild import Rebuilder
from probe_mindspore.precheck.tensors import TensorArgument, iterate_leaves, rules

SAME_RESULT = Message(
    "测试对象为真实数据的输出；在本设备上重新运行，结果一致。",
    "The recorded values were tested; run again here they are the same, up to rounding.",
)
"""Note on recorded values that running the call again reproduces."""

AGAIN = Message(
    "未记录输出数据，测试对象为在本设备上重新运行的结果。",
    "The values of the outputs were not recorded: those of running the call again here were tested.",
)
"""Note on a call of whose tensors only the inputs were recorded with their values."""


def has_recorded(call: Call) -> bool:
    """Return True if the values of all outputs of a call were recorded."""
    described = list_descriptions(call.forward.get("output"))
    tensors = [leaf for leaf in described if isinstance(leaf, Mapping) and "dtype" in leaf]
    recorded = [leaf for leaf in tensors if is_recorded(leaf)]
    return bool(recorded) and all(is_recorded(leaf) or 0 in leaf.get("shape", ()) for leaf in tensors)


def read_recorded_outputs(rebuilder: Rebuilder, call: Call, like: Any) -> Any:
    """Return the recorded outputs in the structure of the reference's.

    A record lists all outputs of a call, whether the call returned a tuple or a single value.

    Args:
        rebuilder: Reads the values.
        call: The call.
        like: The outputs of the reference.
    """
    outputs = [_read_value(rebuilder, leaf, f"{call.name}.forward.output") for leaf in _list_outputs(call)]
    return outputs[0] if len(outputs) == 1 and not isinstance(like, list) else outputs


def _list_outputs(call: Call) -> list[Any]:
    """Return the descriptions of a call's outputs."""
    return list_descriptions(call.forward.get("output"))


def _read_value(rebuilder: Rebuilder, leaf: Any, place: str) -> Any:
    """Return the value of a recorded leaf; tensors as arrays."""
    if isinstance(leaf, Mapping) and "dtype" in leaf:
        return rebuilder.rebuild_tensor(leaf, place).array
    return leaf.get("value") if isinstance(leaf, Mapping) else leaf


def read_recorded_gradients(
    rebuilder: Rebuilder, call: Call, tensors: Sequence[TensorArgument]
) -> list[Array | None] | None:
    """Return the recorded gradient of each floating-point tensor of a call.

    Recorders list a gradient, or null, for each tensor among the arguments, or for each positional one. The
    number and the shapes of the gradients show to which tensors they belong.

    Args:
        rebuilder: Reads the values.
        call: The call.
        tensors: All tensors among its arguments.

    Returns:
        The gradients, with None for each that was not recorded; None if no gradient was recorded.

    Raises:
        Unbuildable: The gradients do not fit the tensors, or cannot be read.
    """
    assert call.backward is not None
    described = list_descriptions(call.backward.get("output"))
    if not any(is_recorded(leaf) for leaf in described):
        return None
    floats = [tensor for tensor in tensors if tensor.is_float]
    by_position = [tensor for tensor in tensors if ".input." in tensor.place]
    for owners in (tensors, by_position, floats, [tensor for tensor in by_position if tensor.is_float]):
        if _has_matching_shapes(described, owners):
            gradients = {
                id(tensor): rebuilder.rebuild_tensor(leaf, f"{call.name}.backward.output").array
                for tensor, leaf in zip(owners, described)
                if is_recorded(leaf)
            }
            return [gradients.get(id(tensor)) for tensor in floats]
    raise Unbuildable("The recorded gradients do not fit its inputs in number and shape. SKIP.")


def _has_matching_shapes(described: Sequence[Any], owners: Sequence[TensorArgument]) -> bool:
    """Return True if gradients have the number and the shapes of these tensors."""
    if len(described) != len(owners):
        return False
    return all(
        leaf is None or (isinstance(leaf, Mapping) and leaf.get("shape") == list(tensor.values.shape))
        for leaf, tensor in zip(described, owners)
    )


def describe_rerun_difference(recorded: Any, again: Any) -> Message:
    """Return the note on recorded values that were compared with those of running the call again here."""
    worst = 0.0
    pairs = list(zip(iterate_leaves(recorded), iterate_leaves(again)))
    for first, second in pairs:
        if not (isinstance(first, Array) and isinstance(second, Array)):
            continue
        if first.values.shape != second.values.shape:
            return _describe_difference("in shape")
        worst = max(worst, _compute_distance(first, second))
    if worst == 0:
        return SAME_RESULT
    return _describe_difference(f"by up to {worst:.3g}")


def describe_failed_rerun(reason: str) -> Message:
    """Return the note that recorded values were tested, but the call could not be run again here."""
    return Message(
        f"测试对象为真实数据的输出；无法在本设备上重新运行: {reason}",
        f"The recorded values were tested; the call could not be run again here: {reason}",
    )


def _describe_difference(extent: str) -> Message:
    """Return the note that running the call again gives other values, with a text on how far they differ."""
    return Message(
        f"测试对象为真实数据的输出；在本设备上重新运行，结果不同 ({extent})。",
        f"The recorded values were tested; NOT REPRODUCED HERE: the results of a second run differ beyond rounding "
        f"({extent}), so the recorded values depend on more than the recorded inputs.",
    )


def _compute_distance(first: Array, second: Array) -> float:
    """Return the largest difference of two arrays; 0 if it may be rounding, by the rule ``again``."""
    limits = rules("again")
    wide = np.complex128 if first.values.dtype.kind == "c" else np.float64
    left, right = (np.asarray(side.values.reshape(-1), wide) for side in (first, second))
    with np.errstate(all="ignore"):
        finite = np.isfinite(left) & np.isfinite(right)
        if not np.array_equal(np.isfinite(left), np.isfinite(right)):
            return float("inf")
        left, right = left[finite], right[finite]
        if not left.size:
            return 0.0
        largest = float(np.abs(left - right).max())
        scale = max(float(np.abs(left).max()), float(np.abs(right).max()))
    if first.values.dtype.kind not in "fc":
        return largest
    eps = 2.0**-7 if first.kind == "bfloat16" else float(np.finfo(first.values.dtype).eps)
    return 0.0 if largest <= limits["eps"] * eps * scale else largest
