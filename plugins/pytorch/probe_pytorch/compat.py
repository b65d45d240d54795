"""All private API of torch that probe uses, each use with a test that names the version.

Written for torch 2.1 to 2.13. Where a name is missing, the function says what then holds.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType, FunctionType
from typing import Any, cast

import torch
from torch import _C


def graph_task() -> int:
    """The number of the running backward pass of this thread; -1 outside of one."""
    return int(_C._current_graph_task_id())


def sequence_number() -> int:
    """What the next node of the autograd graph of this thread is numbered; 0 where that cannot be told."""
    try:
        return int(_C._autograd._get_sequence_nr())
    except AttributeError:
        return 0


def number_of(node: Any) -> int:
    """What a node of the autograd graph is numbered, in the order in which nodes were made."""
    return int(node._sequence_nr())


def stored_values(tensor: torch.Tensor) -> torch.Tensor:
    """The values that a sparse COO tensor stores, coalesced or not."""
    return tensor._values()


def no_functions() -> AbstractContextManager[Any]:
    """No function mode and no ``__torch_function__`` inside."""
    return _C.DisableTorchFunction()


def low_level_functions() -> Any:
    """What the layers of torch call for recurrent networks and the like; records call it ``VF``."""
    return torch._VF


def is_torch_function(name: str) -> bool:
    """Is it the name of a function that torch makes of an operator?"""
    return name in dir(_C._VariableFunctions)


def quiet() -> AbstractContextManager[Any]:
    """No mode of either kind inside: what the recorder computes is nobody else's business."""
    if not _C._len_torch_dispatch_stack():
        return no_functions()
    return _quiet_everywhere()


@contextmanager
def _quiet_everywhere() -> Iterator[None]:
    from torch.utils._python_dispatch import _disable_current_modes

    with no_functions(), _disable_current_modes():
        yield


def enter_below(mode: Any) -> None:
    """Put a function mode under all others of this thread, save that of the default device.

    That one must stay lowest: ``torch.set_default_device`` looks for it there.
    """
    above = [_C._pop_torch_function_stack() for _ in range(_C._len_torch_function_stack())]
    lowest = [above.pop()] if above and above[-1] is _default_device() else []
    for one in (*lowest, mode, *reversed(above)):
        _C._push_on_torch_function_stack(one)


def _default_device() -> Any:
    """The mode that ``torch.set_default_device`` has put on this thread's stack; None without one."""
    context = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    return getattr(context, "device_context", None)


def take_out(mode: Any) -> None:
    """Take a function mode from under others of this thread."""
    if mode not in function_modes():
        return
    above = [_C._pop_torch_function_stack() for _ in range(_C._len_torch_function_stack())]
    above.remove(mode)
    for one in reversed(above):
        _C._push_on_torch_function_stack(one)


def function_modes() -> list[Any]:
    """The function modes of this thread, outermost first."""
    return [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]


def is_fake(tensor: torch.Tensor) -> bool:
    """True for a tensor that has a shape and no data."""
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    return fake is not None and isinstance(tensor, fake.FakeTensor)


def is_dense(tensor: torch.Tensor) -> bool:
    """True where the elements lie in memory without gaps, in whatever order."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


_NEVER = {
    "has_torch_function": lambda *_: False,
    "has_torch_function_unary": lambda *_: False,
    "has_torch_function_variadic": lambda *_: False,
}


class _Instead:
    """A module in which some names stand for something else."""

    def __init__(self, module: Any, **names: Any) -> None:
        self.__dict__.update(names, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


_UNCHECKED = _Instead(torch, overrides=_Instead(torch.overrides, **_NEVER))


def hands_itself_over(function: Any) -> bool:
    """Does a Python function of torch hand itself to function modes? Its decorators are looked through."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return isinstance(function, FunctionType) and not _NEVER.keys().isdisjoint(function.__code__.co_names)


def without_check(function: Any) -> Any:
    """A private copy of a Python function of torch whose body runs without handing itself to a mode.

    Called with a mode on, the calls inside it are seen one by one. None for what is no such function.
    The copy is made anew each time, for it takes the module's names as they are at that moment.
    """
    if not isinstance(function, FunctionType) or _NEVER.keys().isdisjoint(function.__code__.co_names):
        return None
    names = {**function.__globals__, **_NEVER}
    if "overrides" in function.__code__.co_names:  # it asks torch.overrides, as those of torch.nn.init do
        names["torch"] = _UNCHECKED
    copy = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def is_wrapper(tensor: torch.Tensor) -> bool:
    """True for a tensor whose data lie elsewhere, in tensors that its class keeps."""
    try:
        return tensor.untyped_storage().data_ptr() == 0 and tensor.numel() > 0
    except Exception:
        return True


def may_have_compiled() -> bool:
    """True once torch.compile may have been used: it loads what compiles."""
    return "torch._dynamo" in sys.modules


def is_compiled(module: torch.nn.Module) -> bool:
    """True for a module that ``torch.compile`` made of another, or that was compiled in place."""
    made = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", None)
    in_place = getattr(module, "_compiled_call_impl", None) is not None
    return in_place or (made is not None and isinstance(module, made))


def force_eager() -> Callable[[], None] | None:
    """Let compiled code run as it was written; what undoes it. None before torch 2.6, which cannot.

    Of several that ask for it the last to undo it puts back what was there before the first.
    """
    global _forcing, _stance
    set_stance = getattr(torch.compiler, "set_stance", None)
    if set_stance is None:
        return None
    if not _forcing:
        _stance = set_stance("force_eager")
    _forcing += 1

    def undo() -> None:
        global _forcing
        _forcing -= 1
        if not _forcing:
            _stance.__exit__(None, None, None)

    return undo


_forcing = 0
_stance: Any = None


is_transformed: Callable[[torch.Tensor], bool] = getattr(
    getattr(_C, "_functorch", None), "is_functorch_wrapped_tensor", lambda tensor: False
)
"""True inside vmap and the like for a tensor that stands for many and has no values of its own."""


_tap_receiver: Callable[[torch.Tensor, str], None] | None = None


def register_tap(receiver: Callable[[torch.Tensor, str], None] | None) -> None:
    """Have the operator ``probe::tap`` tell ``receiver``; None tells nobody.

    The operator returns nothing and changes nothing; that it has an effect is said to the compiler,
    which keeps it in the graph, in order.
    """
    global _tap_receiver
    _tap_receiver = receiver
    if hasattr(torch.ops.probe, "tap"):
        return

    @torch.library.custom_op("probe::tap", mutates_args=(), schema="(Tensor x, str name) -> ()")
    def tap(x: torch.Tensor, name: str) -> None:
        if _tap_receiver is not None:
            _tap_receiver(x, name)

    @tap.register_fake
    def _(x: torch.Tensor, name: str) -> None:
        return None

    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

    _register_effectful_op(torch.ops.probe.tap.default, _EffectType.ORDERED)


def forget_compiled() -> None:
    """Have compiled code compiled anew when it is next called."""
    if may_have_compiled():
        torch._dynamo.reset()


def no_subclasses() -> AbstractContextManager[Any]:
    """No ``__torch_dispatch__`` of a subclass inside."""
    return _C._DisableTorchDispatch()


def is_freed(tensor: torch.Tensor) -> bool:
    """True for a tensor whose memory was given back, as FSDP does with parameters between uses."""
    storage = tensor.untyped_storage()
    return storage.nbytes() == 0 and tensor.numel() > 0


def enter_dispatch_below(mode: Any) -> None:
    """Put a dispatch mode under all others of the user's on this thread."""
    from torch.utils._python_dispatch import _pop_mode, _push_mode

    above = [_pop_mode() for _ in range(_C._len_torch_dispatch_stack())]
    for one in (mode, *reversed(above)):
        _push_mode(one)


def take_dispatch_out(mode: Any) -> None:
    """Take a dispatch mode from under others of this thread."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack, _pop_mode, _push_mode

    if mode not in _get_current_dispatch_mode_stack():
        return
    above = [_pop_mode() for _ in range(_C._len_torch_dispatch_stack())]
    above.remove(mode)
    for one in reversed(above):
        _push_mode(one)


is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)
"""True inside ``torch.export``; before torch 2.7 that cannot be told."""


def is_tracing() -> bool:
    """True inside ``torch.jit.trace`` and ``torch.export``, whose graphs would hold what we compute."""
    return is_exporting() or bool(_C._is_tracing())


def keywords(frame: FrameType) -> dict[str, Any]:
    """The keywords of the call of a module whose global forward pre-hooks ``frame`` runs.

    Such a hook is given positions only. Empty where the frame is another.
    """
    found = frame.f_locals.get("kwargs")
    return found if isinstance(found, dict) else {}


def silence_global_hooks() -> Callable[[], None]:
    """Have a compiled module not warn of the recorder's hooks of all modules; what undoes it."""
    warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
    filters: Any = warnings.filters
    silenced = filters[0]

    def undo() -> None:
        if silenced in warnings.filters:
            cast(Any, warnings.filters).remove(silenced)

    return undo


def dicts_of(handle: Any) -> list[Any]:
    """The dictionaries in which the hook of a handle stands, those that are still there."""
    found = (reference() for reference in (handle.hooks_dict_ref, *handle.extra_dict_ref))
    return [hooks for hooks in found if hooks is not None]
