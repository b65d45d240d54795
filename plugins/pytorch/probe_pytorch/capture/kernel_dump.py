"""Level L2 on an NPU: the kernels of one API, dumped by the device's own tool.

This uses the documented interface of torch_npu (``torch_npu.npu.init_dump``, ``set_dump``,
``finalize_dump``, and the dump configuration of ACL). It was tested with a stand-in only, not on an NPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def acl_config(directory: Path) -> dict[str, Any]:
    """Return an ACL dump configuration for the inputs and outputs of all kernels, into ``directory``."""
    return {
        "dump": {"dump_list": [], "dump_path": str(directory), "dump_mode": "all", "dump_op_switch": "on"}
    }


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

    def __init__(
        self, npu: Any, directory: Path, config: Path | None = None, failed: Failed | None = None
    ) -> None:
        self._failed = failed
        self._npu = require_npu(npu).npu
        self._config = config or directory / ACL_CONFIG
        make_directory(directory)
        if config is None:
            write_text(self._config, json.dumps(acl_config(directory), indent=1))

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

    def attach(self, node: Any) -> None:
        """Dump the kernels of a node of the autograd graph when it runs."""
        node.register_prehook(lambda _: self.begin())
        node.register_hook(lambda *_: self.end())
