"""The calls of torch_npu.hooks, for scripts that have them: change the import, and probe records.

::

    from probe_legacy.hooks import compare, register_acc_cmp_hook, seed_all, set_dump_path

    register_acc_cmp_hook(model)
    seed_all()
    set_dump_path("./npu.pkl")
    model(x).sum().backward()
    compare("./npu.pkl", "./cpu.pkl", "./result.csv")
"""

from __future__ import annotations

import os
from typing import Any

from probe_core.errors import UserError
from probe_legacy.calls import checks, comparing
from probe_legacy.calls.comparing import compare_values as compare
from probe_legacy.calls.rows import HooksRows
from probe_legacy.calls.values import HooksRecording

__all__ = [
    "compare",
    "register_acc_cmp_hook",
    "register_hook",
    "seed_all",
    "set_dump_path",
    "wrap_acc_cmp_hook",
]

_dumping = HooksRecording()
comparing.before.append(_dumping.flush)


def seed_all(seed: int = 1234) -> None:
    """Set all random seeds."""
    import probe_pytorch
    import torch

    probe_pytorch.seed_all(seed, torch.are_deterministic_algorithms_enabled())


def set_dump_path(fpath: str | os.PathLike[str] | None = None) -> None:
    """Write to this file from now on; None changes nothing.

    Raises:
        UserError: The path is that of a directory.
    """
    if fpath is not None:
        _dumping.set_path(checks.check_file_path(fpath))


def register_acc_cmp_hook(model: Any, dump_path: str | os.PathLike[str] | None = None) -> None:
    """Record the calls and the modules of a model, in the format of 3.0.rc3.

    Args:
        model: The model.
        dump_path: The file to write; otherwise ``set_dump_path`` gives it, or the variable ``DUMP_PATH``.

    Raises:
        UserError: ``model`` is no module, or the path is that of a directory.
    """
    checks.check_model(model)
    if dump_path is None and _dumping.path is None:
        dump_path = os.environ.get("DUMP_PATH")
    set_dump_path(dump_path)
    _dumping.register(model, HooksRows())


def wrap_acc_cmp_hook(*_: Any, **__: Any) -> None:
    """Name the recording to ``register_hook``; it is not called itself.

    Raises:
        UserError: It was called.
    """
    raise checks.create_not_called_error("wrap_acc_cmp_hook")


def register_hook(model: Any, hook: Any, *, sample: bool = True, seed: int | None = None) -> None:
    """Record the calls of a model, in the format of 3.0.0.

    Args:
        model: The model.
        hook: ``wrap_acc_cmp_hook``.
        sample: True for the first ten values, maximum, minimum and mean of each tensor; False for all values.
        seed: The random seed to set; None to set none.

    Raises:
        UserError: ``model`` is no module, or the hook is another one.
    """
    checks.check_model(model)
    if hook is not wrap_acc_cmp_hook:
        raise UserError(
            f"register_hook records with wrap_acc_cmp_hook only, not {hook!r:.60}.",
            "For overflows use overflow_check of probe_legacy.ptdbg.",
        )
    if seed is not None:
        seed_all(seed)
    _dumping.register(model, HooksRows(is_numbered=True, sampled=sample))
