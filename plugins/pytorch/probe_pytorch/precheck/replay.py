"""Recorded calls computed in higher precision, beside what the run recorded (docs/explain.md#reference)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from probe_precheck import (
    NOTHING_TO_JUDGE,
    NotRun,
    Recomputed,
    Replay,
    Unbuildable,
    described_leaves,
    is_recorded,
    one_line,
)
from probe_precheck import Call as RecordedCall

from probe_pytorch import compat
from probe_pytorch.capture.gradients import attach_api, made_one_node, sources_of
from probe_pytorch.precheck.execution import Side, gradient_pairs, side_of
from probe_pytorch.precheck.failures import memory_errors
from probe_pytorch.precheck.outputs import array_of
from probe_pytorch.precheck.raising import HALVES, Raising, float_dtypes, mapped, narrowed, tensors_in
from probe_pytorch.precheck.random_tensors import generator_for
from probe_pytorch.precheck.rebuild import Arguments, Rebuilder
from probe_pytorch.precheck.rules import rules
from probe_pytorch.precheck.saved_results import moved_attention

JUDGED = (torch.float32, *HALVES)
"""Dtypes whose results are computed again; there is none above float64 to compute its results in."""
CPU = torch.device("cpu")
ATTENTION = "scaled_dot_product_attention"

RANDOM = "draws random numbers"
NO_VALUES = "an input was recorded without its values"
NO_RESULT = "its results were recorded without their values"
NO_GRADIENT = "the gradients that it took in were not recorded"
OTHER_STRUCTURE = "its results were recorded in another structure than they are computed in"
SHARED = "its gradient may hold those of other calls, which share autocast's copy of the argument"
PARTIAL = "its gradient, which probe did not record, may be that of the last of several operators"
NO_BACKWARD = "has no backward that can be computed alone"
NOT_COMPUTED = "returns memory that holds nothing yet"


class RecordedOnly(Rebuilder):
    """A builder of arguments that takes recorded values alone, and exactly as they were recorded."""

    exact = True

    def tensor(self, leaf: Mapping[str, Any], place: str) -> torch.Tensor:
        """Return a tensor with its recorded data.

        Raises:
            Unbuildable: Its data were not recorded, or cannot be read.
        """
        if not is_recorded(leaf) and "datapath" not in leaf and math.prod(leaf.get("shape") or ()):
            raise Unbuildable(NO_VALUES)
        return super().tensor(leaf, place)


@dataclass(frozen=True, slots=True)
class Moved(Raising):
    """The conversion of a call's dtypes that also moves each value by a random part of its rounding.

    Attributes:
        generator: The source of random numbers.
    """

    generator: torch.Generator = field(default_factory=torch.Generator)

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor converted for the reference, each element moved by up to one rounding."""
        raised = Raising.tensor(self, tensor)
        if not raised.is_floating_point():
            return raised
        own = self.first if self.first is not None and tensor.dtype is torch.float32 else tensor.dtype
        part = torch.rand(raised.shape, generator=self.generator, dtype=raised.dtype).mul_(2).sub_(1)
        return raised * part.mul_(rounding_of(own)).add_(1)


def rounding_of(dtype: torch.dtype) -> float:
    """Return the largest relative change by rounding to a dtype."""
    return torch.finfo(dtype).eps / 2


@dataclass(frozen=True, slots=True)
class Plan:
    """Details of computing a call that the runner knows.

    Attributes:
        function: The function to compute it with.
        autocast_of: Returns the autocast dtype of the run, and True if the call was computed in it.
        prepare: Restores in the arguments what records cannot express, or raises NotRun.
        compared: Numbers of the outputs that the function computes; None for all.
        chosen: The output that the only recorded gradient belongs to, if that is known.
        is_ours: True if probe recorded the call. Msprobe notes the gradients that leave the last node, which
            are those of the call's arguments only if it made no other.
        limit_memory: Raises Unbuildable if the call needs too much memory with these arguments, in the dtypes
            of the reference, with or without gradients.
    """

    function: Callable[..., Any]
    autocast_of: Callable[[Arguments], tuple[torch.dtype | None, bool]]
    prepare: Callable[[Arguments], None]
    compared: tuple[int, ...] | None = None
    chosen: int | None = None
    is_ours: bool = True
    limit_memory: Callable[[Arguments, Raising, bool], None] = lambda arguments, raising, with_gradients: None


def replay(call: RecordedCall, plan: Plan, rebuilder: RecordedOnly, seed: int | None) -> Replay:
    """Return the recorded results of a call beside the same computed in higher precision.

    Args:
        call: The call.
        plan: Details of computing it.
        rebuilder: The builder of its arguments.
        seed: Random seed of the changes of the inputs; None to leave these as they are.

    Raises:
        NotRun: Nothing is known to expect of the call.
        Unbuildable: An input cannot be rebuilt, or the call needs too much memory.
    """
    recorded = _recorded(call, call.forward.get("output"), "forward.output", rebuilder)
    gradients = _recorded(call, (call.backward or {}).get("output"), "backward.output", rebuilder)
    if plan.compared is not None:
        recorded = [tensor if i in plan.compared else None for i, tensor in enumerate(recorded)]
    if not _holds(recorded) and not _holds(gradients):
        raise NotRun(_nothing(call))
    arguments = rebuilder.arguments(call)
    plan.prepare(arguments)
    with_gradients = call.backward is not None and "out" not in arguments.keywords
    widest = raising_for(call.api, arguments, recorded, None, False)
    plan.limit_memory(arguments, widest, with_gradients)
    autocast, is_narrow = plan.autocast_of(arguments)
    doubts = [SHARED if autocast is not None and is_float32(tensor) else "" for tensor in gradients]
    recorded, gradients = narrowed(recorded, autocast), narrowed(gradients, autocast)
    raising = raising_for(call.api, arguments, recorded, autocast, is_narrow)
    function = plan.function
    if seed is not None:
        generator = generator_for(seed, call.name)
        own = [tensor.dtype for tensor in recorded if tensor is not None]
        function, arguments, raising = moved_call(call.api, function, arguments, raising, own, generator)
    side = side_of(arguments, CPU, raising, with_gradients)
    collected: dict[int, torch.Tensor] = {}
    with torch.set_grad_enabled(with_gradients):
        sources = sources_of((*side.positional, *side.keywords.values()))
        first_new = compat.sequence_number()
        side.output = function(*side.positional, **side.keywords)
        if side.output is None and side.positional:  # the function overwrites its argument instead
            side.output = side.positional[0]
        outputs = tuple(side.output) if isinstance(side.output, tuple) else (side.output,)
        forward = _beside(recorded, list(_leaves(outputs)))
        if call.backward is None:
            return Replay(forward)
        if not with_gradients or call.api in rules("no_backward"):
            return Replay(forward, NO_BACKWARD)
        try:
            attach_api(outputs, sources, lambda: _receiver(collected), first_new)
            with memory_errors():
                backward = _backward(call, side, rebuilder, raising, plan, collected, gradients)
            if not plan.is_ours and not made_one_node(outputs, sources):
                doubts = [PARTIAL] * len(doubts)
            if isinstance(backward, tuple):
                backward = tuple(one._replace(doubt=doubts[int(one.name[7:])]) for one in backward)
            return Replay(forward, backward)
        except (Unbuildable, MemoryError) as error:
            return Replay(forward, one_line(error).removesuffix(" SKIP."))
        except Exception as error:  # torch may raise anything; the forward is judged nevertheless
            return Replay(forward, f"cannot be computed alone: {one_line(error)}")


def _backward(
    call: RecordedCall,
    side: Side,
    rebuilder: RecordedOnly,
    raising: Raising,
    plan: Plan,
    collected: dict[int, torch.Tensor],
    gradients: Sequence[torch.Tensor | None],
) -> tuple[Recomputed, ...] | str:
    if not _holds(gradients):
        return NO_RESULT
    incoming = rebuilder.gradients(call)
    outputs, places = gradient_pairs(side, incoming, plan.chosen)
    flat = list(tensors_in(side.output))
    given = [raising.tensor(gradient) for k in places if (gradient := incoming[k]) is not None]
    if not outputs or len(given) < len(places):
        return NO_GRADIENT
    if any(gradient.shape != flat[i].shape for i, gradient in zip(outputs, given)):
        return OTHER_STRUCTURE
    torch.autograd.backward(
        [flat[i] for i in outputs], [gradient.to(flat[i].dtype) for i, gradient in zip(outputs, given)]
    )
    return _beside(gradients, [collected.get(i) for i in range(len(gradients))])


def raising_for(
    api: str,
    arguments: Arguments,
    recorded: Sequence[torch.Tensor | None],
    autocast: torch.dtype | None,
    is_narrow: bool,
) -> Raising:
    """Return the dtypes to compute a call in: float32 for one in 16 bits alone, else float64.

    An API that only moves values of one dtype is computed in it. Under autocast float32 inputs are first
    rounded as autocast rounds them.
    """
    if autocast is not None and is_narrow:
        return Raising(dict.fromkeys(JUDGED, torch.float32), autocast)
    dtypes = float_dtypes(arguments) | {tensor.dtype for tensor in recorded if tensor is not None}
    if api in rules("moves") and len(dtypes) == 1 and autocast is None:
        return Raising()
    above = torch.float64 if dtypes - set(HALVES) else torch.float32
    return Raising(dict.fromkeys(JUDGED, above))


def is_float32(tensor: torch.Tensor | None) -> bool:
    """Return True for a tensor of float32; a gradient that left autocast's copy of an argument is one."""
    return tensor is not None and tensor.dtype is torch.float32


def _holds(tensors: Sequence[torch.Tensor | None]) -> bool:
    return any(tensor is not None for tensor in tensors)


def _receiver(collected: dict[int, torch.Tensor]) -> Callable[[str, int, Any, bool], None]:
    def take(side: str, position: int, gradient: Any, last: bool) -> None:
        if side == "output" and gradient is not None:
            collected[position] = gradient.detach()

    return take


def _recorded(
    call: RecordedCall, described: Any, side: str, rebuilder: RecordedOnly
) -> list[torch.Tensor | None]:
    """Return the recorded results of one direction; None for each that is not judged."""
    found: list[torch.Tensor | None] = []
    for place, leaf in enumerate(described_leaves(described)):
        dtype = leaf.get("dtype") if isinstance(leaf, Mapping) else None
        judged = is_recorded(leaf) and any(str(known) == dtype for known in JUDGED) and "layout" not in leaf
        found.append(rebuilder.tensor(leaf, f"{call.name}.{side}.{place}") if judged else None)
    return found


def _nothing(call: RecordedCall) -> str:
    """Return the reason why no result of a call is judged."""
    leaves = described_leaves([call.forward.get("output"), (call.backward or {}).get("output")])
    dtypes = [leaf.get("dtype") for leaf in leaves if isinstance(leaf, Mapping)]
    return NO_RESULT if any(str(known) in dtypes for known in JUDGED) else NOTHING_TO_JUDGE


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the leaves of nested lists, tuples and dicts, depth first, as records number them."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _beside(recorded: Sequence[torch.Tensor | None], computed: Sequence[Any]) -> tuple[Recomputed, ...] | str:
    """Return the recorded results beside the computed ones, or the reason why they do not fit."""
    if not _holds(recorded):
        return NOTHING_TO_JUDGE
    if len(recorded) != len(computed):
        return OTHER_STRUCTURE
    pairs: list[Recomputed] = []
    for place, (tensor, reference) in enumerate(zip(recorded, computed)):
        if tensor is None:
            continue
        if not isinstance(reference, torch.Tensor) or reference.shape != tensor.shape:
            return OTHER_STRUCTURE
        pairs.append(Recomputed(f"output.{place}", array_of(tensor), array_of(reference).values))
    return tuple(pairs)


def moved_call(
    api: str,
    function: Callable[..., Any],
    arguments: Arguments,
    raising: Raising,
    own: Sequence[torch.dtype],
    generator: torch.Generator,
) -> tuple[Callable[..., Any], Arguments, Moved]:
    """Return the function, arguments and conversion of a call with inputs moved by parts of their rounding.

    Args:
        api: The bare name of the API.
        function: The function that computes it.
        arguments: The arguments, which stay as they are.
        raising: The dtypes to compute it in.
        own: The dtypes of its results.
        generator: The source of random numbers.
    """
    unit = rounding_of(torch.float32)

    def moved(value: Any) -> Any:
        """Return a number moved as well, since kernels round it; whole numbers stay."""
        if not isinstance(value, float) or not math.isfinite(value) or value == int(value):
            return value
        return value * (1 + unit * (2 * float(torch.rand((), generator=generator)) - 1))

    change = Moved(raising.to, raising.first, generator)
    positional, keywords = mapped(arguments.positional, moved), mapped(arguments.keywords, moved)
    if api == ATTENTION and own:
        function = moved_attention(function, rounding_of(own[0]), generator)
    return function, Arguments(positional, keywords), change
