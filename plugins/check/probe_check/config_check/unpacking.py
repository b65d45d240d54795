"""Unpacking of zip packs beside the results, as msprobe does; only what a pack documents is written."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

from probe_recording.step_facts.environment import VARIABLES

from probe_check.config_check.items import PackItem
from probe_check.config_check.pack import Pack, Scalar, open_pack
from probe_check.config_check.rules import HIDDEN_TEXT, ConfigRules
from probe_core.errors import UserError
from probe_core.files.atomic import create_path_error, make_directory, refuse_link, write_text


def unpack(pack: Pack, directory: Path, rules: ConfigRules) -> None:
    """Write the members of a pack into a directory, in place of an earlier content.

    Of the environment variables, those that are compared or recorded are written. Secrets are hidden.

    Raises:
        UserError: The directory cannot be written.
    """
    refuse_link(directory)
    if directory.exists():
        _remove(directory)
    has_variables = PackItem.ENVIRONMENT in pack.list_items()
    variables = select_shown_variables(pack.read_variables(), rules) if has_variables else {}
    texts = {"env": json.dumps(variables, indent=4) + "\n"}
    texts |= {
        f"hyperparameters/{file}": json.dumps(_hide_secrets(pack.read_hyperparameters(file), rules), indent=4) + "\n"
        for file in pack.list_hyperparameter_files()
    }
    for name in pack.list_members():
        path = directory / name
        make_directory(path.parent)
        text = texts[name] if name in texts else pack.read_content(name).decode("utf-8", "replace")
        write_text(path, text)


def _hide_secrets(parameters: dict[str, Scalar], rules: ConfigRules) -> dict[str, Scalar]:
    return {name: HIDDEN_TEXT if rules.is_secret(name) else value for name, value in parameters.items()}


def select_shown_variables(variables: dict[str, str], rules: ConfigRules) -> dict[str, str]:
    """Return the variables that may be written, and the names of those that show that a machine has NPUs."""
    names = {name for rule in rules.variables for name in (rule.npu, rule.gpu) if name} | {*VARIABLES}
    return {
        name: value if name in names else ""
        for name, value in variables.items()
        if name in names or rules.npu_mark in name
    }


def _remove(directory: Path) -> None:
    """Remove an earlier unpacked pack, and nothing else.

    Raises:
        UserError: The directory holds something else, or cannot be removed.
    """
    try:
        files = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir()}
        with closing(open_pack(directory)) as earlier:
            others = files.difference(earlier.list_members())
        if others:
            raise UserError(
                f"{directory} holds files that are not of a pack and would be lost, such as {min(others)}.",
                "Remove it, or give another directory with -o.",
            )
        shutil.rmtree(directory)
    except OSError as error:
        raise create_path_error(directory, error) from None
