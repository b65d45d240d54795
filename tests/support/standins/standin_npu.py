"""A device named ``npu`` written in Python: a test double, not an NPU.

Every operator runs on the CPU and its result is labelled ``npu``, so that code with an "npu" path
can be run on any machine and be given faults on purpose. Nothing measured on it, neither a value
nor a time, speaks for an NPU. It needs torch 2.13 and changes the process for good: use it in a
subprocess.

    device = install()
    model.to(device)
    with fault("aten::gelu", lambda x, approximate="none": F.gelu(x, approximate="tanh")):
        model(x)

A storage of the device carries, as a Python attribute, the CPU storage that holds its bytes. A
tensor is handed to a CPU operator as a CPU tensor over those bytes, with the same size, stride and
offset; a result over bytes that came in is a view of what came in. So views alias, and in-place
and ``out=`` operators write through. Random numbers come from a stream of the device's own.

Operators arrive as at any device: those that torch composes of others (``aten::linear``,
``aten::layer_norm``) arrive as their parts (``aten::addmm``, ``aten::native_layer_norm``).

Not implemented: nn.LSTM and nn.GRU, ``torch.Generator("npu")``, ``torch.accelerator.synchronize()``,
resizing a storage, ``torch.UntypedStorage(n, device="npu")`` (it crashes the process), sparse
tensors. ``torch.autocast("npu")`` can be entered and changes nothing.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils import backend_registration

NAME = "npu"
_aten = torch.ops.aten
_CPU_KERNEL = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

# Operators that also take CPU tensors with dimensions; the others take only CPU scalars, as on other devices.
_MIXED = {"copy_", "_copy_from", "_copy_from_and_resize", "index", "index_put", "index_put_"}
_MIXED |= {"_index_put_impl_", "_pack_padded_sequence"}

_libraries: list[torch.library.Library] = []
_wrong: dict[str, list[Callable[..., Any]]] = {}
_random = torch.Generator()


# ---- storages and tensors


def _storage_over(held: torch.UntypedStorage) -> torch.UntypedStorage:
    """Make a storage of the device over the bytes of a CPU storage."""
    device = torch.device(NAME, 0)
    storage = torch._C._construct_storage_from_data_pointer(held.data_ptr(), device, held.nbytes())
    storage._standin_bytes = held  # lives as long as the storage, whoever holds that
    return storage


def _cpu_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the CPU tensor over the same bytes."""
    cpu = torch.empty(0, dtype=tensor.dtype)
    place = (tensor.storage_offset(), tensor.size(), tensor.stride())
    cpu.set_(tensor.untyped_storage()._standin_bytes, *place)
    cpu = cpu.conj() if tensor.is_conj() else cpu
    return cpu._neg_view() if tensor.is_neg() else cpu


def _point(tensor: torch.Tensor, storage: torch.UntypedStorage, cpu: torch.Tensor) -> None:
    """Give a tensor of the device this storage, and the size, stride and offset of the CPU tensor."""
    place = (cpu.storage_offset(), cpu.size(), cpu.stride())
    _aten.set_.source_Storage_storage_offset.redispatch(_CPU_KERNEL, tensor, storage, *place)


class _Call:
    """One operator call: its inputs as CPU tensors, its outputs as tensors of the device."""

    def __init__(self, op: torch._ops.OpOverload) -> None:
        self.op = op
        self.pairs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.owners: dict[int, torch.Tensor] = {}
        self.to_cpu = False
        self.mixed = op._schema.name.split("::")[1] in _MIXED

    def unwrap(self, value: Any) -> Any:
        if isinstance(value, torch.device):
            self.to_cpu = value.type == "cpu"
            return torch.device("cpu") if value.type == NAME else value
        if not isinstance(value, torch.Tensor):
            return value
        if value.device.type == NAME:
            cpu = _cpu_of(value)
            self.pairs[id(cpu)] = (cpu, value)
            self.owners.setdefault(cpu.untyped_storage()._cdata, value)
            return cpu
        if value.dim() and not self.mixed:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{NAME}:0 and {value.device}! ({self.op})"
            )
        return value

    def wrap(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or self.to_cpu or value.device.type != "cpu":
            return value
        if id(value) in self.pairs:
            return self.pairs[id(value)][1]
        owner = self.owners.get(value.untyped_storage()._cdata)
        if owner is not None and owner.dtype == value.dtype:  # keeps the conjugate and negative bits
            place = (value.size(), value.stride(), value.storage_offset())
            return _aten.as_strided.default.redispatch(_CPU_KERNEL, owner, *place)
        if owner is None:
            value = value.resolve_conj().resolve_neg()
        made = torch._C._acc.create_empty_tensor((0,), value.dtype)
        held = value.untyped_storage()
        _point(made, _storage_over(held) if owner is None else owner.untyped_storage(), value)
        self.owners.setdefault(held._cdata, made)
        return made

    def fresh(self, value: Any) -> Any:
        shared = isinstance(value, torch.Tensor) and value.untyped_storage()._cdata in self.owners
        return value.clone() if shared else value

    def follow(self) -> None:
        """Give the written tensors the size and storage that the operator left them with."""
        for cpu, tensor in self.pairs.values():
            held, storage = cpu.untyped_storage(), tensor.untyped_storage()
            new = storage._standin_bytes._cdata != held._cdata or storage.nbytes() != held.nbytes()
            place = (tensor.size(), tensor.stride(), tensor.storage_offset())
            if new or place != (cpu.size(), cpu.stride(), cpu.storage_offset()):
                _point(tensor, _storage_over(held) if new else storage, cpu)


@contextmanager
def _own_random(op: torch._ops.OpOverload) -> Iterator[None]:
    """Let a random operator draw from the device's stream in place of the CPU's."""
    if torch.Tag.nondeterministic_seeded not in op.tags:
        yield
        return
    kept = torch.default_generator.get_state()
    torch.default_generator.set_state(_random.get_state())
    try:
        yield
    finally:
        _random.set_state(torch.default_generator.get_state())
        torch.default_generator.set_state(kept)


def _run(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Run an operator that reached the device: on the CPU, unseen by modes, autograd and autocast."""
    with (
        torch._C.DisableTorchFunction(),
        torch._C._AutoDispatchBelowAutograd(),
        torch._C._ExcludeDispatchKeyGuard(_AUTOCAST),
        _own_random(op),
    ):
        call = _Call(op)
        args, kwargs = pytree.tree_map(call.unwrap, (args, kwargs))
        wrong = _wrong.get(op.name())
        result = _run_wrong(call, wrong[-1], args, kwargs) if wrong else op(*args, **kwargs)
        if op._schema.is_mutable:
            call.follow()
        return pytree.tree_map(call.wrap, result)


# ---- faults


def _run_wrong(call: _Call, wrong: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run the replacement, and write its results into the arguments that the operator writes."""
    schema, written = call.op._schema, []
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            by_place = not argument.kwarg_only and place < len(args)
            taken = kwargs.pop if argument.kwarg_only else kwargs.get
            written.append(args[place] if by_place else taken(argument.name))
    result = wrong(*args, **kwargs)
    if not written:
        views = any(each.alias_info is not None for each in schema.returns)
        return result if views else pytree.tree_map(call.fresh, result)
    targets = pytree.tree_leaves(written)
    for target, value in zip(targets, pytree.tree_leaves(result)):
        if target is not value:
            target.resize_(value.shape).copy_(value)
    if len(schema.returns) == 1:
        return targets[0]
    return tuple(targets) if schema.returns else None


def _overloads(name: str) -> list[torch._ops.OpOverload]:
    """Find the overloads that reach a device, for ``aten::sum`` (all of them) or ``aten::sum.dim_IntList``."""
    space, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, space), base, None)
    names = [each for each in packet.overloads() if overload in ("", each)] if packet else []
    found = [op for op in (getattr(packet, each) for each in names) if torch._C._dispatch_has_kernel(op.name())]
    if not found:
        raise ValueError(f"standin_npu: no operator is named {name!r}; names look like 'aten::gelu'")
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    arriving = [op for op in found if not has(op.name(), "CompositeImplicitAutograd")]
    if not any(overload or base.endswith("_") or not op._schema.is_mutable for op in arriving):
        raise ValueError(
            f"standin_npu: {name} never reaches a device: torch composes it of other operators. "
            "Name one of those (a TorchDispatchMode shows them); aten::linear, for example, is aten::addmm."
        )
    return arriving


@contextmanager
def fault(op: str, wrong: Callable[..., Any]) -> Iterator[None]:
    """Replace one operator on this device only.

    As on any device, an operator that torch implements by calling this one carries the fault
    (``aten::sum`` calls ``aten::sum.dim_IntList``); gradients are operators of their own.

    Args:
        op: The operator, ``aten::gelu`` for all its overloads (``out=`` too; in-place ones have a
            name of their own, ``aten::gelu_``) or ``aten::sum.dim_IntList`` for one.
        wrong: Called with the operator's arguments, CPU tensors in place of this device's and
            without ``out=``; returns CPU tensors. Arguments left at their default are not passed.

    Raises:
        ValueError: No such operator, or one that is composed of others and never arrives.
    """
    install()
    overloads = _overloads(op)
    library = torch.library.Library(op.partition("::")[0], "IMPL")
    for each in overloads:
        # Without a kernel of its own the functional form would arrive as its ``out=`` form.
        if not torch._C._dispatch_has_kernel_for_dispatch_key(each.name(), "PrivateUse1"):
            library.impl(each, partial(_run, each), "PrivateUse1")
        _wrong.setdefault(each.name(), []).append(wrong)
    try:
        yield
    finally:
        for each in overloads:
            _wrong[each.name()].pop()
        library._destroy()


@contextmanager
def slow_precision(op: str, dtype: torch.dtype) -> Iterator[None]:
    """Run one operator on this device in a lower precision.

    Its floating inputs are rounded to the dtype, the operator runs in it, and floating results
    are cast back to the widest dtype that the inputs had: a lower-precision accumulation.

    Args:
        op: The operator, as for `fault`.
        dtype: For example ``torch.bfloat16``.
    """
    packet = _overloads(op)[0].overloadpacket

    def lower(*args: Any, **kwargs: Any) -> Any:
        before = [dtype]

        def down(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                return value
            before.append(value.dtype)
            return value.to(dtype)

        def up(value: Any) -> Any:
            low = isinstance(value, torch.Tensor) and value.dtype == dtype
            return value.to(max(before, key=lambda each: torch.finfo(each).bits)) if low else value

        args, kwargs = pytree.tree_map(down, (args, kwargs))
        return pytree.tree_map(up, packet(*args, **kwargs))

    with fault(op, lower):
        yield


# ---- the device


def _mend_storages() -> None:
    """Let deepcopy and torch.load copy storages: torch would call an allocator that is not there, and crash."""
    clone, to = torch.UntypedStorage.clone, torch.UntypedStorage.to

    def npu_clone(self: torch.UntypedStorage) -> torch.UntypedStorage:
        return _storage_over(self._standin_bytes.clone()) if self.device.type == NAME else clone(self)

    def npu_to(self: torch.UntypedStorage, *, device: Any, non_blocking: bool = False) -> torch.UntypedStorage:
        if torch.device(device).type != NAME:
            return to(self, device=device, non_blocking=non_blocking)
        return self if self.device.type == NAME else _storage_over(self.cpu().clone())

    torch.UntypedStorage.clone, torch.UntypedStorage.to = npu_clone, npu_to  # type: ignore[method-assign]


def _device_module() -> types.ModuleType:
    """Return the module ``torch.npu``: one device, always available, always idle."""
    module = types.ModuleType(f"torch.{NAME}", "A stand-in for torch_npu's torch.npu.")
    functions: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "set_device": lambda device: None,
        "device": lambda device: contextlib.nullcontext(),
        "get_device_name": lambda device=None: "stand-in NPU (CPU)",
        "synchronize": lambda device=None: None,
        "manual_seed": lambda seed: _random.manual_seed(seed) and None,
        "manual_seed_all": lambda seed: _random.manual_seed(seed) and None,
        "get_rng_state": lambda device=NAME: _random.get_state(),
        "set_rng_state": lambda state, device=NAME: _random.set_state(state) and None,
        "get_amp_supported_dtype": lambda: [torch.float16, torch.bfloat16],
    }
    for name, function in functions.items():
        setattr(module, name, function)
    return module


def install() -> torch.device:
    """Register the device with this process, once, and return it.

    Raises:
        RuntimeError: Another backend, such as torch_npu, has registered a device here.
    """
    if _libraries:
        return torch.device(NAME, 0)
    if torch._C._get_privateuse1_backend_name() != "privateuseone" or f"torch.{NAME}" in sys.modules:
        raise RuntimeError("standin_npu: this process has a device of its own; use a fresh subprocess")
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_device_module())
    everything, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    _libraries.extend([everything, aten])
    everything.fallback(_run, "PrivateUse1")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    kernels: dict[Any, Callable[..., Any]] = {}
    # torch has kernels for any device that do not know this one, or that differ from the CPU's: take the CPU's.
    having = torch._C._dispatch_get_registrations_for_dispatch_key
    names = {"aten::copy_", "aten::convolution", "aten::convolution_backward"}
    for name in sorted(names | set(having("CPU")) & set(having("CompositeExplicitAutograd"))):
        op = _overloads(name if "." in name else f"{name}.default")[0]
        kernels[op] = partial(_run, op)
    for op in (_aten.set_.source_Storage, _aten.set_.source_Storage_storage_offset):
        kernels[op] = partial(op.redispatch, _CPU_KERNEL)
    for op, kernel in kernels.items():
        aten.impl(op, kernel, "PrivateUse1")
    _mend_storages()
    return torch.device(NAME, 0)
