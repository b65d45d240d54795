"""Reading of YAML files that users name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from probe_core.errors import UserError
from probe_core.files.user_files import describe_yaml_error, parse_yaml, read_regular_file


def load_yaml_file(path: Path, subject: str) -> Any:
    """Return the content of a YAML file.

    Args:
        path: The file.
        subject: The subject of error messages, such as "The configuration config.yaml".

    Raises:
        UserError: The file cannot be read, or is not valid YAML.
    """
    try:
        text = read_regular_file(path).decode("utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: bytes that are not UTF-8
        problem = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UserError(f"{subject} cannot be read: {problem}.", "Check the path and its permissions.") from None
    return parse_yaml_text(text, subject)


def parse_yaml_text(text: str, subject: str) -> Any:
    """Return the value of a YAML text.

    Raises:
        UserError: The text is not valid YAML.
    """
    import yaml

    try:
        return parse_yaml(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UserError(f"{subject} is not valid YAML{describe_yaml_error(error)}.", "Correct the file.") from None
