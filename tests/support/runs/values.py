"""Values described by the recorder."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, NamedTuple

import torch
from probe_pytorch.values import TorchCollector
from probe_recording.values.leaves import encode

STATISTICS = ("Max", "Min", "Mean", "Norm")


def tree(value: Any, collector: TorchCollector | None = None) -> Any:
    """The JSON of ``value``, as a reader finds it."""
    return json.loads(encode((collector or TorchCollector()).tree(value, "x")))


def leaf(dtype: str, shape: list[int], four: Any = (None,) * 4, grad: bool = False, **more: Any) -> Any:
    return {
        "type": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": shape, **dict(zip(STATISTICS, four)),
        "requires_grad": grad, **more,
    }  # fmt: skip


def int_leaf(value: int) -> dict[str, Any]:
    return {"type": "int", "value": value}


class Saved:
    """A store that keeps what it was given."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}

    def __call__(self, name: str, tensor: torch.Tensor) -> str:
        self.tensors[name] = tensor
        return f"{name}.pt"


# -- the table of the format ---------------------------------------------------------------------------


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = None


# -- tensors ---------------------------------------------------------------------------------------------


DENSE = torch.tensor([[0.0, 3.0, 0.0], [0.0, 0.0, -4.0]])
# -- classes of tensors ----------------------------------------------------------------------------------


class Wrapper(torch.Tensor):
    """Keeps its data in another tensor."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        found: Wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]
        found.inner = inner
        return found

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} was called")
