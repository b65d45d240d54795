"""The calls of ptdbg_ascend, for scripts that have them: change the import, and probe records.

::

    from probe_legacy.ptdbg import *

    set_dump_path("./npu_dump.pkl")
    register_hook(model, acc_cmp_dump)
    set_dump_switch("ON")
    ...                                # forward and backward
    set_dump_switch("OFF")

As in ptdbg_ascend, importing this module calls ``seed_all()``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from probe_core.errors import UserError
from probe_legacy.calls import checks, comparing
from probe_legacy.calls.comparing import compare, compare_distributed, parse
from probe_legacy.calls.dumping import Period, PtdbgRecording, find_rank
from probe_legacy.calls.selection import MODES, CallSelection
from probe_legacy.calls.versions import find_version

__all__ = [
    "acc_cmp_dump",
    "compare",
    "compare_distributed",
    "overflow_check",
    "parse",
    "register_hook",
    "seed_all",
    "set_backward_input",
    "set_dump_path",
    "set_dump_switch",
    "set_overflow_check_switch",
    "set_version",
]

_dumping = PtdbgRecording()
comparing.before.append(_dumping.flush)


def seed_all(seed: int = 1234, mode: bool = False) -> None:
    """Set all random seeds; ``mode`` True asks for deterministic algorithms."""
    import probe_pytorch

    probe_pytorch.seed_all(seed, mode)


def set_version(version: str) -> None:
    """Choose the format to write, ``"2.3"`` (the default) or ``"4.0"``; call it before all others.

    Raises:
        UserError: The version cannot be written.
    """
    _dumping.version = find_version(version)


def set_dump_path(fpath: str | os.PathLike[str], dump_tag: str = "ptdbg_dump") -> None:
    """Set the file to write, or for 4.0 its directory.

    Args:
        fpath: The file; the ranks have directories ``{dump_tag}_v2.3/rank{n}`` beside it.
        dump_tag: The first part of the name of that directory.

    Raises:
        UserError: The path is none, or is of the other kind.
    """
    takes_directory = _dumping.version.takes_directory
    path = checks.check_directory_path(fpath) if takes_directory else checks.check_file_path(fpath, has_directory=True)
    _dumping.set_path(path, dump_tag)


def acc_cmp_dump(*_: Any, **__: Any) -> None:
    """Name the recording to ``register_hook``; it is not called itself.

    Raises:
        UserError: It was called.
    """
    raise checks.create_not_called_error("acc_cmp_dump")


def overflow_check(*_: Any, **__: Any) -> None:
    """Name the overflow check to ``register_hook``; it is not called itself.

    Raises:
        UserError: It was called.
    """
    raise checks.create_not_called_error("overflow_check")


def register_hook(model: Any, hook: Any, **kwargs: Any) -> None:
    """Make probe record, or check for overflows, from now on.

    Args:
        model: The model.
        hook: ``acc_cmp_dump`` or ``overflow_check``.
        **kwargs: ``overflow_nums``, the number of overflows that ends the program; ``dump_mode``, ``"acl"``
            for the device's own dump with the configuration ``dump_config``; for 2.3 also ``rank``.

    Raises:
        UserError: An argument is wrong.
    """
    checks.check_model(model)
    options = checks.parse_hook_options(kwargs, _dumping.version)
    rank = options.get("rank")
    rank = find_rank(model) if rank is None else rank
    config = options["dump_config"] if options["dump_mode"] == "acl" else None
    if hook is acc_cmp_dump:
        _dumping.register(model, rank, config)
    elif hook is overflow_check:
        _dumping.register_check(rank, options["overflow_nums"], config)
    else:
        raise UserError(f"register_hook knows no {hook!r:.60}.", "Pass acc_cmp_dump or overflow_check.")


def set_dump_switch(
    switch: str,
    mode: str = "all",
    scope: Sequence[str] = (),
    api_list: Sequence[str] = (),
    filter_switch: str | None = None,
    dump_mode: str | Sequence[str] = "all",
) -> None:
    """Start or end a recording.

    Args:
        switch: ``"ON"`` or ``"OFF"``; OFF writes the files.
        mode: One of all, list, range, stack, acl, api_list, api_stack.
        scope: The names that list, range, stack and acl select by.
        api_list: The operators that api_list selects.
        filter_switch: ``"ON"`` to record only floating tensors with a dimension and an element, ``"OFF"`` to
            record all tensors and numbers; by default ON for 2.3, OFF for 4.0.
        dump_mode: ``"all"``, ``"forward"`` or ``"backward"``; for 4.0 a list, also of input and output.

    Raises:
        UserError: An argument is wrong, or ``register_hook`` was not called.
    """
    version = _dumping.version
    if filter_switch is None:
        filter_switch = "ON" if version.filters else "OFF"
    checks.check_choice("filter_switch", filter_switch, checks.SWITCHES)
    directions, sides = checks.parse_dump_mode(dump_mode, version)
    if checks.check_choice("switch", switch, checks.SWITCHES) == "OFF":
        checks.check_choice("mode", mode, MODES)
        count = _dumping.switch_off()
        if mode == "list":
            from probe_core import console  # which imports click

            console.show(f"The number of matched dump is {count}")
        return
    selection = CallSelection(version, checks.check_mode(mode, scope, api_list), scope, api_list)
    _dumping.switch_on(Period(selection, filter_switch == "ON", directions, sides), scope)


def set_backward_input(backward_input: Sequence[str | os.PathLike[str]]) -> None:
    """Give the gradient with which mode acl runs the backward of the call in ``scope``.

    Args:
        backward_input: The file of the gradient, as an earlier dump holds it: ``..._backward_input.0.npy``.

    Raises:
        UserError: There is not one file for each name of ``scope``, or one cannot be read.
    """
    _dumping.set_gradients(backward_input)


def set_overflow_check_switch(switch: str, filter_switch: str = "ON") -> None:
    """Turn the overflow check on or off; ``filter_switch`` OFF also writes numbers.

    Raises:
        UserError: An argument is wrong.
    """
    is_on = checks.check_choice("switch", switch, checks.SWITCHES) == "ON"
    filters = checks.check_choice("filter_switch", filter_switch, checks.SWITCHES) == "ON"
    _dumping.switch_check(is_on, filters)


seed_all()
