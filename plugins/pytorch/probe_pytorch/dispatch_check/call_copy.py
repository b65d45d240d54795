"""Copies of a call's arguments on the CPU, made before the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from probe_pytorch import compat
from probe_pytorch.dispatch_check.operators import SkipReason
from probe_pytorch.precheck.raising import DtypeConversion, map_leaves
from probe_pytorch.statistics import PLAIN

CPU = torch.device("cpu")
SMALL_FLOATS = frozenset(
    getattr(torch, name)
    for name in (
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "float4_e2m1fn_x2",
    )
    if hasattr(torch, name)
)
"""Dtypes of 8 or fewer bits, which have no limits of rounding."""

MAX_REFERENCE_ELEMENT_BYTES = 8
"""Bytes of an element of the reference at most."""


class SkippedCallError(Exception):
    """Error of a call whose arguments are not copied.

    Attributes:
        reason: The reason.
    """

    def __init__(self, reason: SkipReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TensorPlacement:
    """Place of a tensor among the copied elements.

    Attributes:
        buffer: The number of the buffer.
        size: The shape.
        stride: The strides.
        offset: The first element.
    """

    buffer: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(slots=True)
class CallCopy:
    """Arguments of a call, with a ``Place`` for each tensor.

    Attributes:
        args: The positional arguments.
        kwargs: The keyword arguments.
        buffers: The copied elements, on the CPU.
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    buffers: list[torch.Tensor] = field(default_factory=list)

    def create_arguments(
        self, conversion: DtypeConversion, unconverted_names: frozenset[str], names: list[str]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return independent arguments for the reference.

        Args:
            conversion: The conversion of dtypes.
            unconverted_names: The names of arguments whose dtype stays.
            names: The names of the positional arguments.
        """
        converted_buffers: dict[tuple[int, bool], torch.Tensor] = {}

        def build(value: Any, keeps_dtype: bool) -> Any:
            if isinstance(value, TensorPlacement):
                key = (value.buffer, keeps_dtype)
                if key not in converted_buffers:
                    buffer = self.buffers[value.buffer]
                    raised = buffer if keeps_dtype else conversion.convert_tensor(buffer)
                    converted_buffers[key] = raised.clone() if raised is buffer else raised
                return converted_buffers[key].as_strided(value.size, value.stride, value.offset)
            if isinstance(value, torch.dtype):
                return conversion.convert_dtype(value)
            return CPU if isinstance(value, torch.device) else value

        def convert(name: str, value: Any) -> Any:
            keeps_dtype = name in unconverted_names
            return map_leaves(value, lambda item: build(item, keeps_dtype))

        args = [convert(name, value) for name, value in zip(names, self.args)]
        kwargs = {name: convert(name, value) for name, value in self.kwargs.items()}
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return args, kwargs

    def list_dtypes(self) -> set[torch.dtype]:
        """Return the floating-point dtypes of the tensors."""
        return {buffer.dtype for buffer in self.buffers if buffer.is_floating_point()}

    def __getstate__(self) -> tuple[Any, ...]:
        args, kwargs = map_leaves(list(self.args), encode_constant), map_leaves(self.kwargs, encode_constant)
        return args, kwargs, [pack_tensor(buffer) for buffer in self.buffers]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        args, kwargs, buffers = state
        self.args, self.kwargs = tuple(map_leaves(args, decode_constant)), map_leaves(kwargs, decode_constant)
        self.buffers = [unpack_tensor(buffer) for buffer in buffers]


@dataclass(frozen=True, slots=True)
class TorchName:
    """Constant of torch, such as a dtype, by its name.

    Pickle would look for a module that has the constant, and might find one of the program.
    """

    name: str


def encode_constant(value: Any) -> Any:
    """Return a constant of torch as its name, and any other value as it is."""
    is_constant = isinstance(value, (torch.dtype, torch.layout, torch.memory_format))
    return TorchName(str(value).rpartition(".")[2]) if is_constant else value


def decode_constant(value: Any) -> Any:
    """Return the value of ``named``."""
    return getattr(torch, value.name) if isinstance(value, TorchName) else value


class PackedTensor(NamedTuple):
    """Tensor of the CPU without gaps in memory, as bytes that are pickled without torch's own format."""

    dtype: TorchName
    size: tuple[int, ...]
    stride: tuple[int, ...]
    data: np.ndarray[Any, Any]


def pack_tensor(tensor: torch.Tensor) -> PackedTensor:
    """Return a tensor without gaps as bytes."""
    flat = tensor.as_strided((tensor.numel(),), (1,))
    return PackedTensor(
        encode_constant(tensor.dtype), tuple(tensor.shape), tensor.stride(), flat.view(torch.uint8).numpy()
    )


def unpack_tensor(parts: PackedTensor) -> torch.Tensor:
    """Return the tensor of ``packed``."""
    dtype = decode_constant(parts.dtype)
    if not parts.data.size:
        return torch.empty(parts.size, dtype=dtype)
    data = parts.data if parts.data.flags.writeable else parts.data.copy()
    return torch.from_numpy(data).view(dtype).as_strided(parts.size, parts.stride)


def check_tensors(tensors: list[torch.Tensor], types: Any) -> None:
    """Check that the arguments of a call can be copied.

    Raises:
        NotCopied: They cannot.
    """
    if not all(kind in PLAIN for kind in types):
        raise SkippedCallError(SkipReason.SUBCLASS)
    for tensor in tensors:
        if type(tensor) not in PLAIN or compat.is_transformed(tensor) or compat.is_fake(tensor):
            raise SkippedCallError(SkipReason.SUBCLASS)
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
            raise SkippedCallError(SkipReason.LAYOUT)
        if tensor.is_meta:
            raise SkippedCallError(SkipReason.DEVICE)
        if tensor.dtype in SMALL_FLOATS or tensor.is_complex():
            raise SkippedCallError(SkipReason.DTYPE)


def copy_call(
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    tensors: list[torch.Tensor],
    limit: int,
    *,
    is_writing: bool,
) -> CallCopy:
    """Copy the arguments of a call to the CPU.

    Arguments that share memory share it in the copy as well, if the call writes.

    Args:
        args: The positional arguments.
        kwargs: The keyword arguments.
        tensors: The tensors among them.
        limit: The bytes that the copies, in the precision of the reference, may take.
        is_writing: True if the call writes to an argument.

    Raises:
        NotCopied: They need more memory, or share memory in different dtypes.
    """
    copier = _Copier(tensors, limit, is_writing=is_writing)
    return CallCopy(
        tuple(map_leaves(value, copier.place) for value in args),
        {name: map_leaves(value, copier.place) for name, value in kwargs.items()},
        copier.buffers,
    )


class _Copier:
    """Copier of the tensors of one call."""

    def __init__(self, tensors: list[torch.Tensor], limit: int, *, is_writing: bool) -> None:
        self.buffers: list[torch.Tensor] = []
        self._left = limit
        self._places: dict[int, TensorPlacement] = {}
        self._groups = (
            {id(tensor): group for group in group_overlapping_tensors(tensors) for tensor in group}
            if is_writing
            else {}
        )

    def place(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self._places:
            group = self._groups.get(id(value), ())
            if len(group) > 1:
                self._place_group(list(group))
            else:
                self._place_single(value)
        return self._places[id(value)]

    def _place_single(self, tensor: torch.Tensor) -> None:
        """Copy one tensor; elements that an expanded dimension repeats are copied once."""
        repeats = [stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape)]
        narrowed = tensor.detach()
        for dim, is_repeated in enumerate(repeats):
            if is_repeated:
                narrowed = narrowed.narrow(dim, 0, 1)
        copy = self._copy(narrowed)
        stride = tuple(0 if is_repeated else step for step, is_repeated in zip(copy.stride(), repeats))
        self._places[id(tensor)] = TensorPlacement(len(self.buffers), tuple(tensor.shape), stride, 0)
        self.buffers.append(copy)

    def _place_group(self, group: list[torch.Tensor]) -> None:
        """Copy the part of a storage that several arguments share."""
        if len({tensor.dtype for tensor in group}) > 1:
            raise SkippedCallError(SkipReason.ALIASED)
        first = min(_find_element_range(tensor)[0] for tensor in group)
        end = max(_find_element_range(tensor)[1] for tensor in group)
        for tensor in group:
            offset = int(tensor.storage_offset() - first)
            self._places[id(tensor)] = TensorPlacement(len(self.buffers), tuple(tensor.shape), tensor.stride(), offset)
        self.buffers.append(self._copy(group[0].detach().as_strided((end - first,), (1,), first)))

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        self._left -= tensor.numel() * (tensor.element_size() + MAX_REFERENCE_ELEMENT_BYTES)
        if self._left < 0:
            raise SkippedCallError(SkipReason.MEMORY)
        tensor = tensor.resolve_conj().resolve_neg()
        return tensor.clone() if tensor.device.type == "cpu" else tensor.to("cpu")


def group_overlapping_tensors(tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Return groups of different tensors whose memory overlaps, or may overlap."""
    spans: dict[int, list[tuple[int, int, torch.Tensor]]] = {}
    for tensor in {id(tensor): tensor for tensor in tensors}.values():
        if tensor.numel():
            first, end = (place * tensor.element_size() for place in _find_element_range(tensor))
            spans.setdefault(compat.get_storage_key(tensor), []).append((first, end, tensor))
    groups: list[list[torch.Tensor]] = []
    for storage_spans in spans.values():
        reached = -1
        for first, end, tensor in sorted(storage_spans, key=lambda span: span[0]):
            if first >= reached:
                groups.append([])
            groups[-1].append(tensor)
            reached = max(reached, end)
    return groups


def _find_element_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first element of a tensor in its storage, and the one after the last."""
    first = int(tensor.storage_offset())
    return first, first + 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
