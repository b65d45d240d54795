"""What a run recorded of a call's outputs and gradients, and whether running it again gives the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from probe_precheck import Array, Call, Message, Unbuildable, described_leaves, is_recorded

from probe_mindspore.precheck.rebuild import Rebuilder
from probe_mindspore.precheck.rules import rules
from probe_mindspore.precheck.tensors import Made, leaves

SAME = Message(
    "测试对象为真实数据的输出；在本设备上重新运行，结果一致。",
    "The recorded values were tested; run again here they are the same, up to rounding.",
)
AGAIN = Message(
    "未记录输出数据，测试对象为在本设备上重新运行的结果。",
    "No values of its outputs were recorded: what it gives out here was tested.",
)


def has_recorded(call: Call) -> bool:
    """Were the values of the call's inputs and outputs kept?"""
    described = described_leaves(call.forward.get("output"))
    tensors = [leaf for leaf in described if isinstance(leaf, Mapping) and "dtype" in leaf]
    kept = [leaf for leaf in tensors if is_recorded(leaf)]
    return bool(kept) and all(is_recorded(leaf) or 0 in leaf.get("shape", ()) for leaf in tensors)


def recorded_outputs(rebuilder: Rebuilder, call: Call, like: Any) -> Any:
    """The recorded outputs in the structure of ``like``, the outputs of the reference.

    Records keep one list of all that a call gives out, be it a tuple or a single value.
    """
    found = [_value(rebuilder, leaf, f"{call.name}.forward.output") for leaf in _outputs(call)]
    return found[0] if len(found) == 1 and not isinstance(like, list) else found


def _outputs(call: Call) -> list[Any]:
    return described_leaves(call.forward.get("output"))


def _value(rebuilder: Rebuilder, leaf: Any, place: str) -> Any:
    if isinstance(leaf, Mapping) and "dtype" in leaf:
        return rebuilder.tensor(leaf, place).array
    return leaf.get("value") if isinstance(leaf, Mapping) else leaf


def recorded_gradients(
    rebuilder: Rebuilder, call: Call, tensors: Sequence[Made]
) -> list[Array | None] | None:
    """The recorded gradients of the floating-point tensors of a call, one each; None where none was kept.

    A recorder lists them for all tensors or for those by position alone, those without a gradient as null;
    which it was shows in their number and shapes.

    Raises:
        Unbuildable: They cannot be told to be whose, or not be read.
    """
    assert call.backward is not None
    described = described_leaves(call.backward.get("output"))
    if not any(is_recorded(leaf) for leaf in described):
        return None
    floats = [made for made in tensors if made.is_float]
    by_position = [made for made in tensors if ".input." in made.place]
    for owners in (tensors, by_position, floats, [made for made in by_position if made.is_float]):
        if _fits(described, owners):
            found = {
                id(made): rebuilder.tensor(leaf, f"{call.name}.backward.output").array
                for made, leaf in zip(owners, described)
                if is_recorded(leaf)
            }
            return [found.get(id(made)) for made in floats]
    raise Unbuildable("The recorded gradients do not fit its inputs in number and shape. SKIP.")


def _fits(described: Sequence[Any], owners: Sequence[Made]) -> bool:
    if len(described) != len(owners):
        return False
    return all(
        leaf is None or (isinstance(leaf, Mapping) and leaf.get("shape") == list(made.values.shape))
        for leaf, made in zip(described, owners)
    )


def compared_again(recorded: Any, again: Any) -> Message:
    """What is to be said of values that were recorded, and those of the same call run again here."""
    worst = 0.0
    pairs = list(zip(leaves(recorded), leaves(again)))
    for first, second in pairs:
        if not (isinstance(first, Array) and isinstance(second, Array)):
            continue
        if first.values.shape != second.values.shape:
            return _differs("its shape")
        worst = max(worst, _distance(first, second))
    if worst == 0:
        return SAME
    return _differs(f"by up to {worst:.3g}")


def not_again(reason: str) -> Message:
    """That the recorded values were tested, and the call could not be run again here."""
    return Message(
        f"测试对象为真实数据的输出；无法在本设备上重新运行: {reason}",
        f"The recorded values were tested; it could not be run again here: {reason}",
    )


def _differs(how: str) -> Message:
    return Message(
        f"测试对象为真实数据的输出；在本设备上重新运行，结果不同 ({how})。",
        f"The recorded values were tested; RUN AGAIN HERE THEY DIFFER beyond rounding ({how}): what was "
        "computed then depended on more than these inputs.",
    )


def _distance(first: Array, second: Array) -> float:
    """The largest difference, 0 where it may be rounding."""
    limits = rules("again")
    wide = np.complex128 if first.values.dtype.kind == "c" else np.float64
    one, other = (np.asarray(side.values.reshape(-1), wide) for side in (first, second))
    with np.errstate(all="ignore"):
        kept = np.isfinite(one) & np.isfinite(other)
        if not np.array_equal(np.isfinite(one), np.isfinite(other)):
            return float("inf")
        one, other = one[kept], other[kept]
        if not one.size:
            return 0.0
        largest = float(np.abs(one - other).max())
        scale = max(float(np.abs(one).max()), float(np.abs(other).max()))
    if first.values.dtype.kind not in "fc":
        return largest
    eps = 2.0**-7 if first.kind == "bfloat16" else float(np.finfo(first.values.dtype).eps)
    return 0.0 if largest <= limits["eps"] * eps * scale else largest
