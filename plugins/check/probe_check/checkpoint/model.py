"""A checkpoint as the comparison sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

from probe_check.checkpoint.tensors import Tensor

Setting = Union[None, bool, int, float, str, tuple["Setting", ...]]
"""A value that is not a tensor: a learning rate, an iteration, a size of the model."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint.

    Attributes:
        path: The file or directory.
        tensors: The tensors by name, in the order of the file.
        settings: Other values by name.
        unreadable: The names of tensors that cannot be compared, with the reasons.
        remarks: Sentences on what does not fit together in the checkpoint.
    """

    path: Path
    tensors: Mapping[str, Tensor]
    settings: Mapping[str, Setting] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
