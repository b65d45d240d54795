"""Level L2 on an NPU: the kernels of one API, dumped by the device's own tool.

This uses the documented interface of torch_npu (``torch_npu.npu.init_dump``, ``set_dump``,
``finalize_dump``, and the dump configuration of ACL). It was tested with a stand-in only, not on an NPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_map

from probe_core.errors import UserError
from probe_core.files.atomic import make_directory, write_text

Failed = Callable[[str, str, Exception], None]
ACL_CONFIG = "acl_dump.json"


def require_npu(module: Any) -> Any:
    """Return torch_npu.

    Raises:
        UserError: ``module`` is None or lacks the dump of kernels.
    """
    if module is None or not hasattr(getattr(module, "npu", None), "init_dump"):
        raise UserError(
            "The dump of kernels needs torch_npu, which is not imported.",
            "Import torch_npu in the script; on other devices leave acl_config out, and level L2 records "
            "aten operators.",
        )
    return module


def create_acl_config(directory: Path) -> dict[str, Any]:
    """Return an ACL dump configuration for the inputs and outputs of all kernels, into ``directory``."""
    return {"dump": {"dump_list": [], "dump_path": str(directory), "dump_mode": "all", "dump_op_switch": "on"}}


class KernelDump:
    """The dump of the kernels of one call.

    Args:
        npu: The module ``torch_npu``.
        directory: The directory for the data; it is created.
        config: A user's ACL configuration; None to write a default one.
        failed: A callback for errors of the device's tool: stage, name and exception. Without it they are
            raised.

    Raises:
        UserError: torch_npu is missing or lacks the dump of kernels.
    """

    def __init__(self, npu: Any, directory: Path, config: Path | None = None, failed: Failed | None = None) -> None:
        self._failed = failed
        self._npu = require_npu(npu).npu
        self._config = config or directory / ACL_CONFIG
        make_directory(directory)
        if config is None:
            write_text(self._config, json.dumps(create_acl_config(directory), indent=1))

    def begin(self) -> None:
        """Turn the device's dump on, after earlier kernels have finished."""
        self._npu.synchronize()
        with self._guard("begin"):
            self._npu.init_dump()
            self._npu.set_dump(str(self._config))

    def end(self) -> None:
        """Turn the device's dump off, after the dumped kernels have finished."""
        self._npu.synchronize()
        with self._guard("end"):
            self._npu.finalize_dump()

    @contextmanager
    def _guard(self, stage: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the device's tool may raise anything, for example on a full disk
            if self._failed is None:
                raise
            self._failed("kernel dump", stage, error)

    def run(self, function: Callable[[], Any]) -> Any:
        """Run ``function`` with the device's dump turned on, and return its result."""
        self.begin()
        try:
            return function()
        finally:
            self.end()

    def replay(
        self, function: Callable[..., Any], args: Any, kwargs: Any, gradient: torch.Tensor | None = None
    ) -> None:
        """Run a call a second time on copies of its inputs, with the device's dump turned on.

        The random state stays as it was, and no gradient reaches the program.

        Args:
            function: The function.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            gradient: The gradient of the first result; the kernels of the backward are dumped then, and
                those of the forward are not. None to dump the forward.
        """
        args, kwargs = tree_map(_copy, (args, kwargs))
        devices = {leaf.device for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)}
        others = sorted({device.type for device in devices} - {"cpu"})
        with ExitStack() as stack:
            for kind in others or ["cuda"]:
                indices = [device.index or 0 for device in devices if device.type == kind]
                stack.enter_context(torch.random.fork_rng(indices, device_type=kind))
            if gradient is None:
                self.run(lambda: function(*args, **kwargs))
                return
            stack.enter_context(torch.enable_grad())
            result = function(*args, **kwargs)
            first = next((leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor)), None)
            if first is not None and first.requires_grad:
                self.run(lambda: first.backward(gradient.to(first.device)))

    def attach(self, node: Any) -> None:
        """Dump the kernels of a node of the autograd graph when it runs."""
        node.register_prehook(lambda _: self.begin())
        node.register_hook(lambda *_: self.end())


def _copy(value: Any) -> Any:
    """Return a copy of a tensor that is cut off from the graph, and other values as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def load_gradient(path: Path) -> torch.Tensor:
    """Return the gradient in a .pt or .npy file.

    Raises:
        UserError: The file cannot be read.
    """
    try:
        if path.suffix == ".npy":
            return torch.from_numpy(np.load(path, allow_pickle=False))
        loaded = torch.load(path, map_location="cpu", weights_only=True)
        if isinstance(loaded, torch.Tensor):
            return loaded
        problem = f"holds {type(loaded).__name__} in place of a tensor"
    except Exception as error:  # torch raises many kinds of errors for a damaged file
        problem = f"cannot be read: {error!s:.200}"
    raise UserError(f"The gradient {path} {problem}.", "Give a .pt or .npy file of an earlier dump, one tensor a file.")
