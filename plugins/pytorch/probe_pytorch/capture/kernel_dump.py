"""Level L2 on an NPU: the kernels of one API, dumped by the device's own tool.

Written against the documented interface of torch_npu (``torch_npu.npu.init_dump``, ``set_dump``,
``finalize_dump``, and the dump configuration of ACL); it has been tried with a stand-in only.
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
    """torch_npu, or a message that says what level L2 does without it."""
    if module is None or not hasattr(getattr(module, "npu", None), "init_dump"):
        raise UserError(
            "The dump of kernels needs torch_npu, which is not here.",
            "On other devices level L2 records aten operators: leave acl_config out.",
        )
    return module


def acl_config(directory: Path) -> dict[str, Any]:
    """The dump configuration of ACL: everything that runs, inputs and outputs, into ``directory``."""
    return {
        "dump": {"dump_list": [], "dump_path": str(directory), "dump_mode": "all", "dump_op_switch": "on"}
    }


class KernelDump:
    """Dumps the kernels of one call.

    Args:
        npu: ``torch_npu``.
        directory: Where the kernels' data go.
        config: A configuration of ACL of the user's, or None for ours.
        failed: Told of errors of the device's tool, after which training goes on; without it they are raised.
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
        """Turn the device's dump on, once what came before is done."""
        self._npu.synchronize()
        with self._guard("begin"):
            self._npu.init_dump()
            self._npu.set_dump(str(self._config))

    def end(self) -> None:
        """Turn it off, once what was dumped is done."""
        self._npu.synchronize()
        with self._guard("end"):
            self._npu.finalize_dump()

    @contextmanager
    def _guard(self, stage: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # of a tool that is not ours: a full disk, say
            if self._failed is None:
                raise
            self._failed("kernel dump", stage, error)

    def run(self, function: Callable[[], Any]) -> Any:
        """Run ``function`` with the device's dump on."""
        self.begin()
        try:
            return function()
        finally:
            self.end()

    def attach(self, node: Any) -> None:
        """Have the kernels of a node of the autograd graph dumped when it runs."""
        node.register_prehook(lambda _: self.begin())
        node.register_hook(lambda *_: self.end())
