"""Yaml files of users that list functions to record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.user_files import parse_yaml, read_regular_file


def read_lists(path: Path, field: str, keys: str, allowed_keys: Sequence[str] = ()) -> dict[str, list[str] | None]:
    """Return the lists of names in a yaml file, by their keys.

    Args:
        path: The file.
        field: The field of the configuration that names it.
        keys: What its keys are, for the message.
        allowed_keys: The keys that mean something; empty if any may.

    Raises:
        UserError: The file cannot be read, or has another form.
    """
    import yaml

    leave_out = f'leave the field "{field}" out.'
    try:
        listed = parse_yaml(read_regular_file(path).decode("utf-8"))
    except OSError as error:
        raise UserError(
            f'The list of APIs "{path}" cannot be read: {error.strerror or error}.',
            f'Correct the path in "{field}", or {leave_out}',
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(
            f'The list of APIs "{path}" is not valid yaml: {error}.', f"Correct the file, or {leave_out}"
        ) from None
    if not isinstance(listed, dict) or not all(map(_is_list_of_names, listed.values())):
        raise UserError(
            f'The list of APIs "{path}" must map {keys} to lists of names.',
            "Use these keys:" if allowed_keys else f"Correct the file, or {leave_out}",
            allowed_keys,
        )
    return {str(key): names for key, names in listed.items()}


def _is_list_of_names(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(name, str) for name in value))
