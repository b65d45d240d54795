"""Running a script in float64 (``probe run --double``, docs/recording.md#in-float64).

Every operator that reaches torch's dispatcher is called with float64 instead of float32, bfloat16 and
float16, also where the script names a dtype. Integers and booleans are unchanged. Random numbers are drawn in
the dtype that the script would have used, and converted: weights and dropout masks are those of the script as
it is. Autocast has no effect, because it does not cast float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from probe_pytorch import compat
from probe_pytorch.double_draws import DRAWING_OPERATORS, draw_in_script_dtype
from probe_pytorch.double_dtypes import ROUNDED_DTYPES, WIDE_DTYPES, is_narrow, narrow_nested, widen, widen_nested
from probe_pytorch.statistics import PLAIN

STATE_IN_FLOAT32 = frozenset({"state_steps", "found_inf", "grad_scale"})
"""Arguments of fused optimizers that their kernels read as float32."""


class DoublePrecision(TorchDispatchMode):
    """A dispatch mode that calls operators in float64.

    Attributes:
        nominal: The default dtype that the script has set. Random numbers are drawn in it.
        rounds_weights: True while parameters and buffers are converted to 16 bits: they are rounded, because
            the weights of the model in 16 bits are meant, and kept as float64.
    """

    def __init__(self) -> None:
        super().__init__()
        self.nominal = torch.get_default_dtype()
        self.rounds_weights = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import the compiler, which takes a second

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator ``func`` in float64; function modes do not see the conversions."""
        with compat.disable_functions():
            return self._call(func, types, args, kwargs or {})

    def _call(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func.namespace != "aten" or not all(kind in PLAIN for kind in types):
            return func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        if name in DRAWING_OPERATORS:
            return draw_in_script_dtype(func, args, kwargs, self.nominal)
        if name in SCALER_OPERATORS:
            return SCALER_OPERATORS[name](*args, **kwargs)
        if name == "lift_fresh":  # new data, such as that of a NumPy array
            return widen(func(*args, **kwargs))
        if name == "_to_copy" and self.rounds_weights and kwargs.get("dtype") in ROUNDED_DTYPES:
            return widen(func(*args, **kwargs))
        if is_view(func) or _is_storage_allocation(name, args):
            return func(*args, **kwargs)
        return func(*_convert_arguments(func, args, kwargs), **_convert_keywords(func, args, kwargs))


@cache
def is_view(func: Any) -> bool:
    """Return True for an operator whose results share the memory of an argument."""
    return any(
        argument.alias_info is not None and not argument.alias_info.is_write for argument in func._schema.arguments
    )


@cache
def _list_written_arguments(func: Any) -> frozenset[str]:
    """Return the names of the arguments that an operator writes to."""
    return frozenset(
        argument.name
        for argument in func._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _is_storage_allocation(name: str, args: tuple[Any, ...]) -> bool:
    """Return True for an allocation that receives a storage of its dtype, as in ``torch.load`` and copies."""
    is_empty = name == "empty" and bool(args) and list(args[0]) == [0]
    return is_empty or (name == "new_empty" and len(args) > 1 and list(args[1]) == [])


def _find_written_dtype(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.dtype | None:
    """Return the dtype of the first tensor that an operator writes to, if it is narrow; else None."""
    names = [argument.name for argument in func._schema.arguments]
    for name in _list_written_arguments(func):
        place = names.index(name)
        value = args[place] if place < len(args) else kwargs.get(name)
        first = value[0] if isinstance(value, (list, tuple)) and value else value
        if is_narrow(first):
            return first.dtype
    return None


def _convert_arguments(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the arguments of a call, without tensors of fewer bits than those it writes to."""
    written_dtype = _find_written_dtype(func, args, kwargs) if _list_written_arguments(func) else None
    for argument, value in zip(func._schema.arguments, args):
        yield _convert_argument(func, argument.name, value, written_dtype)


def _convert_keywords(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    written_dtype = _find_written_dtype(func, args, kwargs) if _list_written_arguments(func) else None
    return {name: _convert_argument(func, name, value, written_dtype) for name, value in kwargs.items()}


def _convert_argument(func: Any, name: str, value: Any, written_dtype: torch.dtype | None) -> Any:
    """Return an argument in float64, or in the dtype of the tensor that the call writes to.

    Memory that a script shares with others, such as a NumPy array, keeps its dtype.
    """
    if name in _list_written_arguments(func):
        return value
    if name in STATE_IN_FLOAT32:
        return narrow_nested(value, torch.float32)
    if isinstance(value, torch.dtype):
        return WIDE_DTYPES.get(value, value)
    return widen_nested(value) if written_dtype is None else narrow_nested(value, written_dtype)


# -- what does not reach the dispatcher ----------------------------------------------------------


def _convert_module(module: torch.nn.Module, args: Any) -> Any:
    """Convert the parameters and buffers of a module that is called, and its inputs.

    Tensors from files are of the dtype of the file; autograd must know a parameter as float64.
    """
    with compat.disable_functions(), torch.no_grad():
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            if is_narrow(tensor) and type(tensor) in PLAIN:
                tensor.data = widen(tensor.data)
                if tensor.grad is not None:
                    tensor.grad = widen(tensor.grad)
    with compat.disable_functions():
        converted = widen_nested(args)
    return converted if converted is not args else None


@contextmanager
def run_in_double_precision() -> Iterator[None]:
    """Run what is inside in float64."""
    mode, default = DoublePrecision(), torch.get_default_dtype()
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, default)
        torch.set_default_dtype(torch.float64)
        _replace(stack, torch, "set_default_dtype", lambda _: lambda dtype: setattr(mode, "nominal", dtype))
        _replace(stack, torch, "get_default_dtype", lambda _: lambda: mode.nominal)
        for name in ("to", "half", "bfloat16"):
            _replace(stack, torch.nn.Module, name, lambda original: _wrap_rounding(mode, original))
        handle = register_module_forward_pre_hook(_convert_module)
        stack.callback(handle.remove)
        stack.enter_context(mode)
        yield


def _replace(stack: ExitStack, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace an attribute until the end of the context."""
    original = getattr(owner, name)
    replacement = wraps(original)(make(original))
    setattr(owner, name, replacement)
    stack.callback(setattr, owner, name, original)


def _wrap_rounding(mode: DoublePrecision, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of modules that rounds weights which it converts to 16 bits."""

    def convert(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        before, mode.rounds_weights = mode.rounds_weights, True
        try:
            return original(self, *args, **kwargs)
        finally:
            mode.rounds_weights = before

    return convert


def _unscale(gradients: Sequence[torch.Tensor], found_inf: torch.Tensor, inverse: torch.Tensor) -> None:
    """Multiply gradients by ``inverse``; set ``found_inf`` to 1 if one of them holds nan or inf."""
    for gradient in gradients:
        if not bool(torch.isfinite(gradient).all()):
            found_inf.fill_(1.0)
        gradient.mul_(inverse.to(gradient.dtype))


def _update(
    scale: torch.Tensor,
    tracker: torch.Tensor,
    found_inf: torch.Tensor,
    growth: float,
    backoff: float,
    interval: int,
) -> torch.Tensor:
    """Update the scale of the loss as ``torch._amp_update_scale_`` does."""
    if float(found_inf):
        scale.mul_(backoff)
        tracker.zero_()
    elif int(tracker) + 1 == interval:
        scale.mul_(growth)
        tracker.zero_()
    else:
        tracker.add_(1)
    return scale


SCALER_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "_amp_foreach_non_finite_check_and_unscale_": _unscale,
    "_amp_update_scale_": _update,
}
"""Replacements of operators by their names."""
