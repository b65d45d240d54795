from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from probe_recording.values.leaves import Four

_Labels = dict[torch.dtype, tuple[str, int]]
_Checksum = Callable[[memoryview], str] | None
_Cached = dict[tuple[str, str, int], str] | None

def measure(address: int, count: int, code: int, /) -> tuple[float, float, float, float]: ...
def describe(
    tensor: torch.Tensor,
    dtypes: _Labels,
    strided: torch.layout,
    is_transformed: Callable[[torch.Tensor], bool],
    /,
) -> tuple[str, list[int], bool, Four] | None: ...
def encode(
    tensor: torch.Tensor,
    dtypes: _Labels,
    strided: torch.layout,
    is_transformed: Callable[[torch.Tensor], bool],
    checksum: _Checksum,
    cached: _Cached,
    /,
) -> str | None: ...
def encode_all(
    groups: tuple[tuple[Any, ...] | list[Any] | Mapping[str, Any], ...],
    dtypes: _Labels,
    strided: torch.layout,
    is_transformed: Callable[[torch.Tensor], bool],
    checksum: _Checksum,
    cached: _Cached,
    plain: tuple[type, ...],
    by_key: frozenset[str],
    /,
) -> tuple[str, ...] | None: ...
def encode_each(
    values: Sequence[Any],
    dtypes: _Labels,
    strided: torch.layout,
    is_transformed: Callable[[torch.Tensor], bool],
    checksum: _Checksum,
    cached: _Cached,
    plain: tuple[type, ...],
    /,
) -> list[str | None]: ...
