"""The process of a PyTorch program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from probe_recording.api import Process
from torch.optim import Optimizer

from probe_pytorch import compat_hooks


class TorchProcess(Process):
    """A process that uses PyTorch: its rank in the default process group, and hooks of its optimizers."""

    distributed = torch.distributed

    def hook_optimizers(self, before: Callable[[], None]) -> Callable[[], None]:
        """Call ``before`` before each step of each optimizer; return a function that ends this."""

        def hook(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            before()

        handles = compat_hooks.register_step_hooks(hook, None)

        def remove() -> None:
            for handle in handles:
                handle.remove()

        return remove
