"""Checks of the arguments of the older tools' calls."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from probe_core.errors import UserError
from probe_legacy.calls.selection import MODES
from probe_legacy.calls.versions import Version

SWITCHES = ("ON", "OFF")
DIRECTIONS = ("forward", "backward")
SIDES = ("input", "output")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return an argument that is one of several texts.

    Raises:
        UserError: It is none of them.
    """
    if value not in choices:
        raise UserError(f"{name} cannot be {value!r:.40}.", "Choose one of:", choices)
    return str(value)


def check_file_path(path: Any, has_directory: bool = False) -> Path:
    """Return the file that ``set_dump_path`` names.

    Args:
        path: The argument.
        has_directory: True if a directory of the file's name without its suffix is written beside it.

    Raises:
        UserError: It is no path, or an existing directory, or lacks the suffix.
    """
    real = _resolve(path, "file", "./npu_dump.pkl")
    if real.is_dir():
        raise UserError(
            f"set_dump_path needs a file, and {real} is a directory.", f'For example "{real}/npu_dump.pkl".'
        )
    if has_directory and not real.suffix:
        raise UserError(
            f"set_dump_path needs a file with a suffix, and {real.name} has none.",
            f'For example "{real.name}.pkl"; the tensors are written to the directory {real.name}.',
        )
    return real


def _resolve(path: Any, kind: str, example: str) -> Path:
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise UserError(
            f"set_dump_path needs the path of a {kind}, not {path!r:.40}.", f'For example set_dump_path("{example}").'
        )
    return Path(os.path.realpath(path))


def check_mode(mode: Any, scope: Any, api_list: Any) -> str:
    """Return the mode of ``set_dump_switch``.

    Raises:
        UserError: The mode is unknown, or lacks what it selects by.
    """
    check_choice("mode", mode, MODES)
    for name, value in (("scope", scope), ("api_list", api_list)):
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) and item for item in value):
            raise UserError(f"{name} must be a list of names, not {value!r:.60}.", f'For example {name}=["relu"].')
    min_count, max_count = {"range": (2, 2), "list": (1, None), "stack": (0, 2), "acl": (1, 1)}.get(mode, (0, None))
    if len(scope) < min_count or (max_count is not None and len(scope) > max_count):
        wanted = (
            f"{min_count}"
            if min_count == max_count
            else f"{min_count} or more"
            if max_count is None
            else f"{min_count} to {max_count}"
        )
        raise UserError(
            f'The mode "{mode}" needs {wanted} names in scope, not {len(scope)}.',
            'For example scope=["Functional_conv2d_1_forward", "Functional_linear_0_forward"].'
            if min_count != 1
            else 'For example scope=["Functional_conv2d_1_forward"].',
        )
    if mode == "api_list" and not api_list:
        raise UserError('The mode "api_list" needs names in api_list.', 'For example api_list=["relu"].')
    return str(mode)


def parse_dump_mode(dump_mode: Any, version: Version) -> tuple[frozenset[str], frozenset[str]]:
    """Return the directions and the sides that ``dump_mode`` selects.

    Raises:
        UserError: It has another form than the version asks for.
    """
    directions, sides = frozenset(DIRECTIONS), frozenset(SIDES)
    if not version.sides:
        chosen = check_choice("dump_mode", dump_mode, ("all", *DIRECTIONS))
        return (directions if chosen == "all" else frozenset({chosen})), sides
    modes = [dump_mode] if isinstance(dump_mode, str) else dump_mode
    if not isinstance(modes, (list, tuple)) or not modes:
        raise UserError(f"dump_mode must be a list, not {dump_mode!r:.40}.", 'For example dump_mode=["forward"].')
    for item in modes:
        check_choice("dump_mode", item, ("all", *DIRECTIONS, *SIDES))
    if "all" in modes:
        return directions, sides
    return directions & set(modes) or directions, sides & set(modes) or sides


def check_directory_path(path: Any) -> Path:
    """Return the directory that ``set_dump_path`` names from 3.0 on.

    Raises:
        UserError: It is no path, or an existing file.
    """
    real = _resolve(path, "directory", "./npu")
    if real.is_file():
        raise UserError(
            f"set_dump_path needs a directory from 3.0 on, and {real} is a file.",
            f'For example "{real.parent}".',
        )
    return real


def parse_hook_options(keywords: dict[str, Any], version: Version) -> dict[str, Any]:
    """Return the keywords of ``register_hook``, with defaults.

    Raises:
        UserError: A keyword is unknown, or has a wrong value.
    """
    options: dict[str, Any] = {"overflow_nums": 1, "dump_mode": "api", "dump_config": None}
    if not version.takes_directory:
        options.update(rank=None, dump_step=1)
    for name in keywords.keys() - options.keys():
        raise UserError(f"register_hook of {version.name} takes no {name}.", "It takes:", list(options))
    options.update(keywords)
    check_choice("dump_mode", options["dump_mode"], ("api", "acl"))
    count, rank, config = options["overflow_nums"], options.get("rank"), options["dump_config"]
    if type(count) is not int or count < 1:
        raise UserError(f"overflow_nums must be a positive integer, not {count!r:.40}.", "For example 3.")
    if rank is not None and (type(rank) is not int or rank < 0):
        raise UserError(f"rank must be a non-negative integer, not {rank!r:.40}.", "Leave it out to find it.")
    if options["dump_mode"] == "acl" and not (
        isinstance(config, (str, os.PathLike)) and str(config).endswith(".json") and Path(config).is_file()
    ):
        raise UserError(
            f'dump_mode "acl" needs dump_config, the path of a .json file, not {config!r:.80}.',
            'For example register_hook(model, acc_cmp_dump, dump_mode="acl", dump_config="dump.json").',
        )
    return options


def check_model(model: Any) -> None:
    """Check the model of ``register_hook``.

    Raises:
        UserError: It is no module.
    """
    if not hasattr(model, "named_modules"):
        raise UserError(f"The model must be a torch.nn.Module, not {type(model).__name__}.", "Pass the model itself.")


def create_not_called_error(name: str) -> UserError:
    """Return the error of a hook that was called instead of passed on."""
    return UserError(f"{name} is not called.", f"Pass it on: register_hook(model, {name}).")
