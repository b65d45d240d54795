from collections.abc import Callable

import torch
from probe_recording import Four

_Labels = dict[torch.dtype, tuple[str, int]]

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
    /,
) -> str | None: ...
