"""All uses of torch's private API, each with a test that names the version of torch.

They are for torch 2.1 to 2.15; a function says what it does if its version lacks a name. Those that concern
hooks, autograd functions and files are in ``compat_hooks.py`` and ``compat_files.py``.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from operator import methodcaller
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, cast

import torch
from torch import _C
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from probe_core.errors import UserError


def get_graph_task() -> int:
    """Return the number of the running backward pass of this thread; -1 outside of one."""
    return int(_C._current_graph_task_id())


def get_sequence_number() -> int:
    """Return the sequence number of this thread's next autograd node; 0 if torch does not tell it."""
    try:
        return int(_C._autograd._get_sequence_nr())
    except AttributeError:
        return 0


get_node_number: Callable[[Any], int] = methodcaller("_sequence_nr")
"""A function that returns the sequence number of an autograd node, which counts nodes as they are created."""


def get_stored_values(tensor: torch.Tensor) -> torch.Tensor:
    """Return the stored values of a sparse COO tensor, coalesced or not."""
    return tensor._values()


def get_operator_function(operator: Any) -> Any:
    """Return a function in C that runs an operator, or ``operator`` if it must be called in Python.

    Since torch 2.15, warnings of an operator name the innermost line of Python. If this function is called
    directly, that is not a line of torch.
    """
    return operator._op if type(operator) is torch._ops.OpOverload else operator


_TORCH_DIRECTORY = Path(torch.__file__).parent
_SKIPPING_FILES = frozenset(
    map(str, (_TORCH_DIRECTORY / "_compile.py", _TORCH_DIRECTORY / "_dynamo" / "eval_frame.py"))
)


def find_dispatch_caller(frame: FrameType) -> FrameType:
    """Return the frame of the line that called an operator, for the frame that called a dispatch mode.

    They differ if torch keeps the mode from being compiled: it then calls the mode through other functions.
    """
    while frame.f_code.co_filename in _SKIPPING_FILES and frame.f_back is not None:
        frame = frame.f_back
    return frame


def disable_functions() -> AbstractContextManager[Any]:
    """Return a context without function modes and ``__torch_function__``."""
    return _C.DisableTorchFunction()


def get_low_level_functions() -> Any:
    """Return ``torch._VF``, whose functions torch's recurrent layers call; records call it ``VF``."""
    return torch._VF


def is_torch_function(name: str) -> bool:
    """Return True for the name of a function that torch generates from an operator."""
    return name in dir(_C._VariableFunctions)


def disable_modes() -> AbstractContextManager[Any]:
    """Return a context without function and dispatch modes, in which the recorder computes unseen."""
    return _disable_modes_everywhere() if _C._len_torch_dispatch_stack() else _C.DisableTorchFunction()


@contextmanager
def _disable_modes_everywhere() -> Iterator[None]:
    from torch.utils._python_dispatch import _disable_current_modes

    with disable_functions(), _disable_current_modes():
        yield


def enter_below(mode: Any) -> None:
    """Put a function mode below all others of this thread except the mode of the default device.

    ``torch.set_default_device`` expects its own mode at the bottom.
    """
    above = [_C._pop_torch_function_stack() for _ in range(_C._len_torch_function_stack())]
    lowest = [above.pop()] if above and above[-1] is _get_default_device_mode() else []
    for each in (*lowest, mode, *reversed(above)):
        _C._push_on_torch_function_stack(each)


def _get_default_device_mode() -> Any:
    """Return the mode that ``torch.set_default_device`` put on this thread's stack, or None."""
    context = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    return getattr(context, "device_context", None)


def take_out(mode: Any) -> None:
    """Remove a function mode from this thread's stack, also from below others."""
    if mode not in list_function_modes():
        return
    above = [_C._pop_torch_function_stack() for _ in range(_C._len_torch_function_stack())]
    above.remove(mode)
    for each in reversed(above):
        _C._push_on_torch_function_stack(each)


def list_function_modes() -> list[Any]:
    """Return the function modes of this thread, outermost first."""
    return [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]


def is_fake(tensor: torch.Tensor) -> bool:
    """Return True for a FakeTensor, which has a shape but no data."""
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    return fake is not None and isinstance(tensor, fake.FakeTensor)


def is_dense(tensor: torch.Tensor) -> bool:
    """Return True if the elements are in memory without gaps, in any order."""
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


_NO_TORCH_FUNCTION = {
    "has_torch_function": lambda *_: False,
    "has_torch_function_unary": lambda *_: False,
    "has_torch_function_variadic": lambda *_: False,
}


class _Instead:
    """A stand-in for a module in which some names are replaced.

    Args:
        module: The module.
        names: The replacements.
    """

    def __init__(self, module: Any, **names: Any) -> None:
        self.__dict__.update(names, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


_UNCHECKED_TORCH = _Instead(torch, overrides=_Instead(torch.overrides, **_NO_TORCH_FUNCTION))


def is_self_dispatching(function: Any) -> bool:
    """Return True if a Python function of torch, under its decorators, passes itself to function modes."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return isinstance(function, FunctionType) and not _NO_TORCH_FUNCTION.keys().isdisjoint(function.__code__.co_names)


def drop_dispatch_check(function: Any) -> Any:
    """Return a copy of a Python function of torch that does not pass itself to function modes.

    If the copy is called while a mode is on, the mode sees the calls inside it. The result is None for other
    functions. A new copy is made each time, because it takes over the current names of its module.
    """
    if not isinstance(function, FunctionType) or _NO_TORCH_FUNCTION.keys().isdisjoint(function.__code__.co_names):
        return None
    names = {**function.__globals__, **_NO_TORCH_FUNCTION}
    if "overrides" in function.__code__.co_names:  # it checks by torch.overrides, as in torch.nn.init
        names["torch"] = _UNCHECKED_TORCH
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def is_jagged(tensor: torch.Tensor) -> bool:
    """Return True for a nested tensor of the jagged layout, which torch has since version 2.2."""
    return tensor.layout is getattr(torch, "jagged", None)


def get_nested_parts(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the tensors that a nested tensor stores: its values, and where each part of it begins.

    These are ``offsets``, and ``lengths`` if parts do not follow each other directly, for the jagged layout,
    and ``sizes`` for the older layout.
    """
    if is_jagged(tensor):
        inner: Any = tensor
        parts = {"values": inner._values, "offsets": inner._offsets, "lengths": inner._lengths}
        return {name: part.detach() for name, part in parts.items() if part is not None}
    values = [part.reshape(-1) for part in tensor.detach().unbind()]
    empty = torch.empty(0, dtype=tensor.dtype)
    return {"values": torch.cat(values) if values else empty, "sizes": tensor._nested_tensor_size()}


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Return True for a tensor without data of its own, whose class keeps them in other tensors."""
    try:
        return tensor.untyped_storage().data_ptr() == 0 and tensor.numel() > 0
    except Exception:
        return True


def may_have_compiled() -> bool:
    """Return True if torch.compile may have been used in this process, because its compiler is imported."""
    return "torch._dynamo" in sys.modules


def count_compiled_frames() -> int:
    """Return the number of frames that torch.compile compiled in this process so far."""
    utilities = sys.modules.get("torch._dynamo.utils")
    frames = getattr(utilities, "counters", {}).get("frames", {})
    return int(frames.get("ok", 0))


def is_compiled(module: torch.nn.Module) -> bool:
    """Return True for a module that ``torch.compile`` returned or that was compiled in place."""
    wrapper = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", None)
    in_place = getattr(module, "_compiled_call_impl", None) is not None
    return in_place or (wrapper is not None and isinstance(module, wrapper))


def force_eager() -> Callable[[], None]:
    """Make compiled code run uncompiled, and return a function that undoes this.

    After several calls, the last undo restores the state before the first call.
    """
    global _forcing, _stance
    if not _forcing:
        set_stance = getattr(torch.compiler, "set_stance", None)
        _stance = _disable_compiler() if set_stance is None else set_stance("force_eager")
        if set_stance is None:
            _stance.__enter__()
    _forcing += 1

    def undo() -> None:
        global _forcing
        _forcing -= 1
        if not _forcing:
            _stance.__exit__(None, None, None)

    return undo


@contextmanager
def _disable_compiler() -> Iterator[None]:
    """Switch the compiler off where compiled code would switch it on: before torch 2.6, no stance does."""
    from torch._dynamo import eval_frame

    module: Any = eval_frame
    set_eval_frame = module.set_eval_frame
    module.set_eval_frame = lambda callback: set_eval_frame(None)
    try:
        yield
    finally:
        module.set_eval_frame = set_eval_frame


_forcing = 0
_stance: Any = None


def get_raw_stream(device_index: int) -> int:
    """Return the handle of the current stream of a GPU, in a tenth of the time of ``torch.cuda.current_stream``."""
    get: Callable[[int], int] | None = getattr(_C, "_cuda_getCurrentRawStream", None)
    return torch.cuda.current_stream(device_index).cuda_stream if get is None else get(device_index)


is_transformed: Callable[[torch.Tensor], bool] = getattr(
    getattr(_C, "_functorch", None), "is_functorch_wrapped_tensor", lambda tensor: False
)
"""A test for tensors inside vmap and similar transforms, which have no values of their own."""


_tap_receiver: Callable[[torch.Tensor, str], None] | None = None


def register_tap(receiver: Callable[[torch.Tensor, str], None] | None) -> None:
    """Register the operator ``probe::tap`` and make it call ``receiver``; None makes it do nothing.

    The operator returns and changes nothing. It is declared to have a side effect, so that the compiler keeps
    it in the graph and in order.

    Raises:
        UserError: This torch cannot register operators in Python, which it can since version 2.4.
    """
    if receiver is not None and not hasattr(torch.library, "custom_op"):
        raise UserError(
            f'"compile": "tap" needs torch 2.4 or later, and this is torch {torch.__version__}: '
            "calls inside compiled code cannot be recorded.",
            'Set "compile": "eager".',
        )
    global _tap_receiver
    _tap_receiver = receiver
    if receiver is None or hasattr(torch.ops.probe, "tap"):
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
    """Discard all compiled code, so that it is compiled again when it is called."""
    if may_have_compiled():
        torch._dynamo.reset()


def disable_subclasses() -> AbstractContextManager[Any]:
    """Return a context without the ``__torch_dispatch__`` of subclasses."""
    return _C._DisableTorchDispatch()


def is_freed(tensor: torch.Tensor) -> bool:
    """Return True for a tensor whose memory was freed, as FSDP frees parameters between uses."""
    storage = tensor.untyped_storage()
    return storage.nbytes() == 0 and tensor.numel() > 0


def get_version(tensor: torch.Tensor) -> int | None:
    """Return the number of writes that torch counted to a tensor and its views; None if it counts none."""
    try:
        return int(tensor._version)
    except RuntimeError:  # a tensor of inference mode
        return None


def get_storage_key(tensor: torch.Tensor) -> int:
    """Return a number that views of the same memory share; 0 for a tensor without a storage of its own."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except RuntimeError:  # a sparse tensor, or one inside a transformation such as vmap
        return 0


def get_storage_reference(tensor: torch.Tensor) -> Any:
    """Return a weak reference to the storage of a tensor, whose ``cdata`` is its ``get_storage_key``.

    While the reference exists, no other storage has the same key.
    """
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(tensor.untyped_storage())


def enter_dispatch_below(mode: Any) -> None:
    """Put a dispatch mode below all others of this thread."""
    from torch.utils._python_dispatch import _pop_mode, _push_mode

    above = [_pop_mode() for _ in range(_C._len_torch_dispatch_stack())]
    for each in (mode, *reversed(above)):
        _push_mode(each)


def take_dispatch_out(mode: Any) -> None:
    """Remove a dispatch mode from this thread's stack, also from below others."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack, _pop_mode, _push_mode

    if mode not in _get_current_dispatch_mode_stack():
        return
    above = [_pop_mode() for _ in range(_C._len_torch_dispatch_stack())]
    above.remove(mode)
    for each in reversed(above):
        _push_mode(each)


_EXPORT_FLAG = "_is_exporting_flag" if hasattr(torch.compiler, "is_exporting") else "_is_compiling_flag"


def is_exporting() -> bool:
    """Return True inside ``torch.export``; torch 2.1 and 2.2 do not tell, so that it returns False.

    The flag is read because compiled code of torch 2.11 takes ``torch.compiler.is_exporting()`` for true.
    """
    return getattr(torch.compiler, _EXPORT_FLAG, False)


def is_tracing() -> bool:
    """Return True inside ``torch.jit.trace`` and ``torch.export``, whose graphs would hold the recorder."""
    return is_exporting() or bool(_C._is_tracing())


def read_keywords(frame: FrameType) -> dict[str, Any]:
    """Return the keyword arguments of the module call in ``frame``, which runs global forward pre-hooks.

    Such hooks receive positional arguments only. The result is empty for any other frame.
    """
    kwargs = frame.f_locals.get("kwargs")
    return kwargs if isinstance(kwargs, dict) else {}


def silence_global_hooks() -> Callable[[], None]:
    """Silence the warning of compiled modules about global hooks; return a function that undoes this."""
    warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
    filters: Any = warnings.filters
    silenced = filters[0]

    def undo() -> None:
        if silenced in warnings.filters:
            cast(Any, warnings.filters).remove(silenced)

    return undo


def get_grad_scaler() -> Any:
    """Return the class of gradient scalers; before torch 2.3 that of CUDA."""
    from torch.cuda.amp import GradScaler

    return getattr(torch.amp, "GradScaler", GradScaler)


class AllocationTally(TorchDispatchMode):
    """Tally of the memory that operators on meta tensors would hold.

    Tensors that operators create inside of the context are on the device ``meta``, whatever device they name.

    Args:
        counted_elsewhere: Tensors whose memory is not counted.

    Attributes:
        peak_bytes: Largest number of bytes that tensors held at one time.
    """

    def __init__(self, counted_elsewhere: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.peak_bytes = 0
        self._ignored = {StorageWeakRef(tensor.untyped_storage()) for tensor in counted_elsewhere}
        self._held: dict[StorageWeakRef, int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import the compiler, which takes a second

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(argument.name == "device" and argument.kwarg_only for argument in func._schema.arguments):
            kwargs = {**kwargs, "device": torch.device("meta")}
        result = func(*args, **kwargs)
        for value in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(value, torch.Tensor):
                self._note(value.untyped_storage())
        return result

    def _note(self, storage: Any) -> None:
        reference = StorageWeakRef(storage)
        if reference in self._ignored:
            return
        self._held = {
            held_reference: size for held_reference, size in self._held.items() if not held_reference.expired()
        }
        self._held[reference] = storage.nbytes()
        self.peak_bytes = max(self.peak_bytes, sum(self._held.values()))
