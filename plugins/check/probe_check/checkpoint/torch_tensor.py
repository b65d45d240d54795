"""Tensors that a pickle of ``torch.save`` describes, as ranges of the bytes of its storages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from probe_recording.reading.pickle_data import PickledCall, PickledName

from probe_check.checkpoint.byte_source import ByteSource
from probe_check.checkpoint.checkpoint_pickle import StorageReference, load_pickle_names
from probe_check.checkpoint.elements import ElementType, get_element_type
from probe_check.checkpoint.errors import TensorProblem
from probe_check.checkpoint.tensors import MAX_DIMENSIONS, StoredTensor, StridedTensor, Tensor

MAX_WRAPPERS = 8
Storages = Callable[[StorageReference], ByteSource]
"""A function that returns the bytes of a storage."""


def build_tensor(description: Any, storages: Storages, *, is_big_endian: bool = False) -> Tensor:
    """Return the tensor of a description.

    Raises:
        TensorProblem: The tensor is of a kind that is not supported, or its description is not valid.
    """
    names = load_pickle_names()
    for _ in range(MAX_WRAPPERS):
        if not isinstance(description, PickledCall):
            break
        function, arguments = description.function.name, description.arguments
        if function in names["wrapping_functions"] and arguments:
            description = arguments[names["wrapping_functions"][function]]
        elif function == "_rebuild_from_type_v2" and len(arguments) >= 3:
            inner, inner_arguments = arguments[0], arguments[2]
            if not isinstance(inner, PickledName) or not isinstance(inner_arguments, tuple):
                break
            description = PickledCall(inner, inner_arguments)
        elif function in names["tensor_functions"]:
            return _build_plain_tensor(function, arguments, storages, is_big_endian=is_big_endian)
        else:
            raise TensorProblem(f"is a tensor made by {function:.60}, which is not supported")
    raise TensorProblem("is not described as torch.save describes tensors")


def _build_plain_tensor(
    function: str, arguments: tuple[Any, ...], storages: Storages, *, is_big_endian: bool
) -> Tensor:
    names = load_pickle_names()
    if len(arguments) < 4 or not isinstance(arguments[0], StorageReference):
        raise TensorProblem("is not described as torch.save describes tensors")
    storage, offset, shape, strides = arguments[:4]
    position = names["tensor_functions"][function]
    if position is None:
        kind = names["storages"].get(storage.kind, storage.kind)
    else:
        kind = getattr(arguments[position], "name", "") if len(arguments) > position else ""
    element = get_element_type(str(kind), is_big_endian=is_big_endian)
    if any(
        isinstance(argument, dict) and (argument.get("conj") is True or argument.get("neg") is True)
        for argument in arguments[4:]
    ):
        raise TensorProblem("is stored conjugated or negated, which is not supported")
    return _build_view(element, offset, shape, strides, storages(storage))


def _build_view(element: ElementType, offset: Any, shape: Any, strides: Any, source: ByteSource) -> Tensor:
    """Return the tensor with a shape and strides in a storage; all elements must be in the storage."""
    if not isinstance(shape, (tuple, list)) or not isinstance(strides, (tuple, list)):
        raise TensorProblem("has no shape")
    numbers = (offset, *shape, *strides)
    if any(type(number) is not int or number < 0 for number in numbers) or len(shape) != len(strides):
        raise TensorProblem("has an invalid shape, stride or offset")
    if len(shape) > MAX_DIMENSIONS:
        raise TensorProblem("has too many dimensions")
    shape, strides, size = tuple(shape), tuple(strides), element.size
    if 0 in shape:
        return StoredTensor(element, shape, source.select_range(0, 0))
    reach = offset + 1 + sum((n - 1) * stride for n, stride in zip(shape, strides))
    if reach * size > source.size:
        raise TensorProblem(f"reaches beyond the {source.size // size} elements of its storage")
    span = source.select_range(offset * size, (reach - offset) * size)
    if _is_contiguous(shape, strides):
        return StoredTensor(element, shape, span)
    tensor = StridedTensor(element, shape, span, strides)
    if tensor.count > reach - offset:
        raise TensorProblem("repeats its elements: it is an expanded tensor, which is not supported")
    return tensor


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
