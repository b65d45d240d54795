"""Recorded calls computed in higher precision, beside what the run recorded (docs/explain.md#reference)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from probe_precheck.api import Call as RecordedCall
from probe_precheck.api import NotRun, Unbuildable
from probe_precheck.model import format_one_line
from probe_precheck.rebuild import is_recorded, list_descriptions
from probe_precheck.replaying import NOTHING_TO_JUDGE, RecomputedResult, Replay

from probe_pytorch import compat
from probe_pytorch.capture.gradients import attach_api, has_single_node, list_sources
from probe_pytorch.precheck.execution import CallSide, create_side, pair_gradients
from probe_pytorch.precheck.failures import raise_memory_errors
from probe_pytorch.precheck.outputs import convert_to_array
from probe_pytorch.precheck.raising import (
    HALVES,
    DtypeConversion,
    iterate_tensors,
    list_float_dtypes,
    map_leaves,
    narrow_to_autocast,
)
from probe_pytorch.precheck.random_tensors import create_generator
from probe_pytorch.precheck.rebuild import Arguments, Rebuilder
from probe_pytorch.precheck.rules import rules

JUDGED_DTYPES = (torch.float32, *HALVES)
"""Dtypes whose results are computed again; there is none above float64 to compute its results in."""
CPU = torch.device("cpu")
ATTENTION = "scaled_dot_product_attention"

RANDOM = "draws random numbers"
NO_VALUES = "an input was recorded without its values"
NO_RESULT = "its results were recorded without their values"
NO_GRADIENT = "the gradients that it took in were not recorded"
OTHER_STRUCTURE = "its results were recorded in another structure than they are computed in"
SHARED_GRADIENT = "its gradient may include gradients of other calls, which share autocast's copy of the argument"
PARTIAL_GRADIENT = "its gradient, which probe did not record, may belong to the last of several operators"
NO_BACKWARD = "has no backward that can be computed alone"
UNINITIALIZED_MEMORY = "returns uninitialized memory"


class RecordedRebuilder(Rebuilder):
    """A builder of arguments that takes recorded values alone, and exactly as they were recorded."""

    exact = True

    def rebuild_tensor(self, leaf: Mapping[str, Any], place: str) -> torch.Tensor:
        """Return a tensor with its recorded data.

        Raises:
            Unbuildable: Its data were not recorded, or cannot be read.
        """
        if not is_recorded(leaf) and "datapath" not in leaf and math.prod(leaf.get("shape") or ()):
            raise Unbuildable(NO_VALUES)
        return super().rebuild_tensor(leaf, place)


@dataclass(frozen=True, slots=True)
class PerturbedConversion(DtypeConversion):
    """The conversion of a call's dtypes that also moves each value by a random part of its rounding.

    Attributes:
        generator: The source of random numbers.
    """

    generator: torch.Generator = field(default_factory=torch.Generator)

    def convert_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor converted for the reference, each element moved by up to one rounding."""
        raised = DtypeConversion.convert_tensor(self, tensor)
        if not raised.is_floating_point():
            return raised
        rounding_dtype = self.first if self.first is not None and tensor.dtype is torch.float32 else tensor.dtype
        part = torch.rand(raised.shape, generator=self.generator, dtype=raised.dtype).mul_(2).sub_(1)
        return raised * part.mul_(compute_rounding(rounding_dtype)).add_(1)


def compute_rounding(dtype: torch.dtype) -> float:
    """Return the largest relative change by rounding to a dtype."""
    return torch.finfo(dtype).eps / 2


@dataclass(frozen=True, slots=True)
class ReplayPlan:
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
    limit_memory: Callable[[Arguments, DtypeConversion, bool], None] = lambda arguments, raising, with_gradients: None


def replay(call: RecordedCall, plan: ReplayPlan, rebuilder: RecordedRebuilder, seed: int | None) -> Replay:
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
    recorded = _read_recorded(call, call.forward.get("output"), "forward.output", rebuilder)
    gradients = _read_recorded(call, (call.backward or {}).get("output"), "backward.output", rebuilder)
    if plan.compared is not None:
        recorded = [tensor if i in plan.compared else None for i, tensor in enumerate(recorded)]
    if not _holds(recorded) and not _holds(gradients):
        raise NotRun(_find_unjudged_reason(call))
    arguments = rebuilder.rebuild_arguments(call)
    plan.prepare(arguments)
    with_gradients = call.backward is not None and "out" not in arguments.keywords
    widest = choose_conversion(call.api, arguments, recorded, None, False)
    plan.limit_memory(arguments, widest, with_gradients)
    autocast, is_narrow = plan.autocast_of(arguments)
    doubts = [SHARED_GRADIENT if autocast is not None and is_float32(tensor) else "" for tensor in gradients]
    recorded, gradients = narrow_to_autocast(recorded, autocast), narrow_to_autocast(gradients, autocast)
    raising = choose_conversion(call.api, arguments, recorded, autocast, is_narrow)
    function = plan.function
    if seed is not None:
        generator = create_generator(seed, call.name)
        result_dtypes = [tensor.dtype for tensor in recorded if tensor is not None]
        function, arguments, raising = perturb_call(call.api, function, arguments, raising, result_dtypes, generator)
    side = create_side(arguments, CPU, raising, with_gradients)
    collected: dict[int, torch.Tensor] = {}
    with torch.set_grad_enabled(with_gradients):
        sources = list_sources((*side.positional, *side.keywords.values()))
        first_new = compat.get_sequence_number()
        outputs = _run_forward(function, side)
        forward = _pair_results(recorded, list(_iterate_leaves(outputs)))
        if call.backward is None:
            return Replay(forward)
        if not with_gradients or call.api in rules("no_backward"):
            return Replay(forward, NO_BACKWARD)
        try:
            attach_api(outputs, sources, lambda: _create_receiver(collected), first_new)
            with raise_memory_errors():
                backward = _replay_backward(call, side, rebuilder, raising, plan, collected, gradients)
        except (Unbuildable, MemoryError) as error:
            return Replay(forward, format_one_line(error).removesuffix(" SKIP."))
        except Exception as error:  # torch may raise anything; the forward is judged nevertheless
            return Replay(forward, f"cannot be computed alone: {format_one_line(error)}")
    if isinstance(backward, str):
        return Replay(forward, backward)
    is_partial = not plan.is_ours and not has_single_node(outputs, sources)
    return Replay(forward, tuple(_add_doubt(pair, doubts, is_partial=is_partial) for pair in backward))


def _run_forward(function: Callable[..., Any], side: CallSide) -> tuple[Any, ...]:
    """Run a function, set the output of its side, and return the outputs as a tuple."""
    side.output = function(*side.positional, **side.keywords)
    if side.output is None and side.positional:  # the function overwrites its argument instead
        side.output = side.positional[0]
    return tuple(side.output) if isinstance(side.output, tuple) else (side.output,)


def _add_doubt(pair: RecomputedResult, doubts: Sequence[str], *, is_partial: bool) -> RecomputedResult:
    """Return a gradient with the reason why it may differ from the recorded one."""
    return pair._replace(doubt=PARTIAL_GRADIENT if is_partial else doubts[int(pair.name[7:])])


def _replay_backward(
    call: RecordedCall,
    side: CallSide,
    rebuilder: RecordedRebuilder,
    raising: DtypeConversion,
    plan: ReplayPlan,
    collected: dict[int, torch.Tensor],
    gradients: Sequence[torch.Tensor | None],
) -> tuple[RecomputedResult, ...] | str:
    if not _holds(gradients):
        return NO_RESULT
    incoming = rebuilder.rebuild_gradients(call)
    outputs, places = pair_gradients(side, incoming, plan.chosen)
    flat = list(iterate_tensors(side.output))
    output_gradients = [raising.convert_tensor(gradient) for k in places if (gradient := incoming[k]) is not None]
    if not outputs or len(output_gradients) < len(places):
        return NO_GRADIENT
    if any(gradient.shape != flat[i].shape for i, gradient in zip(outputs, output_gradients)):
        return OTHER_STRUCTURE
    torch.autograd.backward(
        [flat[i] for i in outputs], [gradient.to(flat[i].dtype) for i, gradient in zip(outputs, output_gradients)]
    )
    return _pair_results(gradients, [collected.get(i) for i in range(len(gradients))])


def choose_conversion(
    api: str,
    arguments: Arguments,
    recorded: Sequence[torch.Tensor | None],
    autocast: torch.dtype | None,
    is_narrow: bool,
) -> DtypeConversion:
    """Return the dtypes to compute a call in: float32 for one in 16 bits alone, else float64.

    An API that only moves values of one dtype is computed in it. Under autocast float32 inputs are first
    rounded as autocast rounds them.
    """
    if autocast is not None and is_narrow:
        return DtypeConversion(dict.fromkeys(JUDGED_DTYPES, torch.float32), autocast)
    dtypes = list_float_dtypes(arguments) | {tensor.dtype for tensor in recorded if tensor is not None}
    if api in rules("moves") and len(dtypes) == 1 and autocast is None:
        return DtypeConversion()
    above = torch.float64 if dtypes - set(HALVES) else torch.float32
    return DtypeConversion(dict.fromkeys(JUDGED_DTYPES, above))


def is_float32(tensor: torch.Tensor | None) -> bool:
    """Return True for a tensor of float32; a gradient that left autocast's copy of an argument is one."""
    return tensor is not None and tensor.dtype is torch.float32


def _holds(tensors: Sequence[torch.Tensor | None]) -> bool:
    return any(tensor is not None for tensor in tensors)


def _create_receiver(collected: dict[int, torch.Tensor]) -> Callable[[str, int, Any, bool], None]:
    def take(side: str, position: int, gradient: Any, last: bool) -> None:
        if side == "output" and gradient is not None:
            collected[position] = gradient.detach()

    return take


def _read_recorded(
    call: RecordedCall, described: Any, side: str, rebuilder: RecordedRebuilder
) -> list[torch.Tensor | None]:
    """Return the recorded results of one direction; None for each that is not judged."""
    tensors: list[torch.Tensor | None] = []
    for place, leaf in enumerate(list_descriptions(described)):
        dtype = leaf.get("dtype") if isinstance(leaf, Mapping) else None
        is_judged = (
            is_recorded(leaf)
            and any(str(judged_dtype) == dtype for judged_dtype in JUDGED_DTYPES)
            and "layout" not in leaf
        )
        tensors.append(rebuilder.rebuild_tensor(leaf, f"{call.name}.{side}.{place}") if is_judged else None)
    return tensors


def _find_unjudged_reason(call: RecordedCall) -> str:
    """Return the reason why no result of a call is judged."""
    leaves = list_descriptions([call.forward.get("output"), (call.backward or {}).get("output")])
    dtypes = [leaf.get("dtype") for leaf in leaves if isinstance(leaf, Mapping)]
    return NO_RESULT if any(str(judged_dtype) in dtypes for judged_dtype in JUDGED_DTYPES) else NOTHING_TO_JUDGE


def _iterate_leaves(value: Any) -> Iterator[Any]:
    """Yield the leaves of nested lists, tuples and dicts, depth first, as records number them."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        for item in value:
            yield from _iterate_leaves(item)
    else:
        yield value


def _pair_results(
    recorded: Sequence[torch.Tensor | None], computed: Sequence[Any]
) -> tuple[RecomputedResult, ...] | str:
    """Return the recorded results beside the computed ones, or the reason why they do not fit."""
    if not _holds(recorded):
        return NOTHING_TO_JUDGE
    if len(recorded) != len(computed):
        return OTHER_STRUCTURE
    pairs: list[RecomputedResult] = []
    for place, (tensor, reference) in enumerate(zip(recorded, computed)):
        if tensor is None:
            continue
        if not isinstance(reference, torch.Tensor) or reference.shape != tensor.shape:
            return OTHER_STRUCTURE
        pairs.append(RecomputedResult(f"output.{place}", convert_to_array(tensor), convert_to_array(reference).values))
    return tuple(pairs)


def perturb_call(
    api: str,
    function: Callable[..., Any],
    arguments: Arguments,
    raising: DtypeConversion,
    result_dtypes: Sequence[torch.dtype],
    generator: torch.Generator,
) -> tuple[Callable[..., Any], Arguments, PerturbedConversion]:
    """Return the function, arguments and conversion of a call with inputs moved by parts of their rounding.

    Args:
        api: The bare name of the API.
        function: The function that computes it.
        arguments: The arguments, which stay as they are.
        raising: The dtypes to compute it in.
        result_dtypes: The dtypes of its results.
        generator: The source of random numbers.
    """
    unit = compute_rounding(torch.float32)

    def perturb_number(value: Any) -> Any:
        """Return a number moved as well, since kernels round it; whole numbers stay."""
        if not isinstance(value, float) or not math.isfinite(value) or value == int(value):
            return value
        return value * (1 + unit * (2 * float(torch.rand((), generator=generator)) - 1))

    change = PerturbedConversion(raising.to, raising.first, generator)
    positional, keywords = (
        map_leaves(arguments.positional, perturb_number),
        map_leaves(arguments.keywords, perturb_number),
    )
    if api == ATTENTION and result_dtypes:
        function = perturb_attention(function, compute_rounding(result_dtypes[0]), generator)
    return function, Arguments(positional, keywords), change


# -- backwards that read a rounded result of their forward (docs/explain.md#yardstick) --------------


def perturb_attention(function: Callable[..., Any], unit: float, generator: torch.Generator) -> Callable[..., Any]:
    """Return attention whose backward reads an output that is moved by a random part of its rounding.

    Fused kernels take the gradient of the scores, ``p (dp - d)``, with ``d = sum(gradient * output)`` of the
    output that the forward rounded. A term with the value zero adds what the change of ``d`` makes of the
    gradients: ``-d`` times the derivative of ``sum(p * scores)`` with constant ``p``, where
    ``sum(p * scores)`` is the scaled product of a query and the mean of the keys by its weights.

    Args:
        function: ``scaled_dot_product_attention``.
        unit: The largest relative change by rounding the output.
        generator: The source of random numbers.
    """

    def run_attention(query: Any, key: Any, value: Any, *rest: Any, **keywords: Any) -> Any:
        output = function(query, key, value, *rest, **keywords)
        mean = function(query.detach(), key.detach(), key, *rest, **keywords)
        scale = keywords.get("scale")
        scores = (query * mean).sum(-1, keepdim=True) * (query.shape[-1] ** -0.5 if scale is None else scale)
        part = torch.rand(output.shape, generator=generator, dtype=output.dtype).mul_(2 * unit).sub_(unit)
        return output - output.detach() * part * (scores - scores.detach())

    return run_attention
