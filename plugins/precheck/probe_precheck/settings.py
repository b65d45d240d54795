"""Configuration file of a pre-check."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probe_core.errors import UserError, find_nearest_names, suggest_name
from probe_core.files.user_files import load_object
from probe_precheck.yaml_files import load_yaml_file

LANGUAGES = ("zh", "en")
PRECISION = 14
"""Default number of digits after the decimal point in the csv files."""
MAX_PRECISION_DIGITS = 100
TIMEOUT = 600.0
"""Default time limit of one call in seconds."""
CONFIG_SECTIONS = ("run_ut", "acc_check")
CONFIG_FIELDS = ("white_list", "black_list", "error_data_path", "precision")
ONLINE_FIELDS = frozenset({"is_online", "nfs_path", "host", "port", "rank_list", "tls_path", "master_ip",
                    "master_port", "is_golden", "is_benchmark_device", "quantization_api_list"})  # fmt: skip
"""Fields of msprobe's configuration files that only the online pre-check uses. Others ignore them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Contents of the configuration file.

    Attributes:
        white_list: Bare names of the APIs to run; empty for all APIs.
        black_list: Bare names of APIs not to run.
        error_data_path: The directory that contains the directory of the error data.
        precision: The number of digits after the decimal point in the csv files.
        online: The fields if they select the online pre-check (``is_online``); otherwise None.
        dump_path: The directory of a receiver's files unless ``-o`` is given; None if the file has no such field.
    """

    white_list: frozenset[str] = frozenset()
    black_list: frozenset[str] = frozenset()
    error_data_path: Path = Path()
    precision: int = PRECISION
    online: Mapping[Any, Any] | None = None
    dump_path: Path | None = None

    def selects(self, api: str) -> bool:
        """Return True if the white list contains the API or is empty, and the black list does not contain it."""
        return (not self.white_list or api in self.white_list) and api not in self.black_list


def read_settings(path: Path | None) -> Settings:
    """Return the configuration in a ``config.json`` with a section ``run_ut``, or in a ``config.yaml``.

    Raises:
        UserError: The file cannot be read, or a field has an invalid value.
    """
    if path is None:
        return Settings()
    subject = f"The configuration {path}"
    if path.suffix.lower() in (".yaml", ".yml"):
        fields = load_yaml_file(path, subject)
        if fields is not None and not isinstance(fields, dict):
            raise UserError(f"{subject} must be a mapping of fields.", "For example white_list: [conv1d].")
        return parse_settings(fields or {}, subject)
    document = load_object(path, "configuration")
    for section in CONFIG_SECTIONS:
        inner = document.get(section)
        if isinstance(inner, dict):
            dump_path = _get_field(
                document, "dump_path", str, "", f"{subject}: dump_path must be a path.", '"./checked"'
            )
            return replace(parse_settings(inner, subject), dump_path=Path(dump_path) if dump_path else None)
        if inner is not None:
            raise UserError(f'{subject}: "{section}" must be an object.', 'For example {"run_ut": {"white_list": []}}.')
    raise UserError(
        f'{subject} has no section "run_ut".', 'For example {"task": "run_ut", "run_ut": {"white_list": []}}.'
    )


def parse_settings(fields: Mapping[Any, Any], subject: str) -> Settings:
    """Return the settings in ``fields``.

    Args:
        fields: The parsed configuration.
        subject: The subject of error messages, such as "The configuration config.yaml".

    Raises:
        UserError: A field is unknown or has an invalid value.
    """
    for key in fields:
        if key not in CONFIG_FIELDS and key not in ONLINE_FIELDS:
            close = suggest_name(str(key), CONFIG_FIELDS)
            raise UserError(
                f'{subject} has an unknown field "{key}".',
                f"Did you mean {close}? Known fields:" if close else "Known fields:",
                CONFIG_FIELDS,
            )
    digits_problem = f"{subject}: precision must be a whole number from 0 to {MAX_PRECISION_DIGITS}."
    digits = _get_field(fields, "precision", int, PRECISION, digits_problem, "14")
    if not 0 <= digits <= MAX_PRECISION_DIGITS:
        raise UserError(digits_problem, "For example 14.")
    is_online = _get_field(fields, "is_online", bool, False, f"{subject}: is_online must be true or false.", "false")
    path = _get_field(fields, "error_data_path", str, "./", f"{subject}: error_data_path must be a path.", '"./"')
    return Settings(
        _parse_names(fields, "white_list", subject),
        _parse_names(fields, "black_list", subject),
        Path(path or "."),
        digits,
        fields if is_online else None,
    )


def _get_field(fields: Mapping[Any, Any], key: str, kind: type, default: Any, problem: str, example: str) -> Any:
    """Return a field, or the default if it is missing or null.

    Raises:
        UserError: The field is not of the type ``kind``.
    """
    value = fields.get(key)
    if value is None:
        return default
    if type(value) is not kind:
        raise UserError(problem, f"For example {example}.")
    return value


def _parse_names(fields: Mapping[Any, Any], key: str, subject: str) -> frozenset[str]:
    value = fields.get(key)
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise UserError(f"{subject}: {key} must be a list of API names.", f"For example {key}: [conv1d, linear].")
    return frozenset(value)


def check_names(settings: Settings, api_names: Set[str]) -> None:
    """Check that the white list and the black list contain only APIs that can be recorded.

    Args:
        settings: The lists.
        api_names: The bare names of all APIs.

    Raises:
        UserError: A name is not in ``api_names``.
    """
    for key, names in (("white_list", settings.white_list), ("black_list", settings.black_list)):
        for name in sorted(names - api_names):
            parts = name.split(".")
            close = find_nearest_names(parts[1] if len(parts) > 2 else name, sorted(api_names))
            raise UserError(
                f'{key} contains "{name}", which is not a recorded API.',
                "Names have no prefix, such as conv1d. Nearest:" if close else "Names have no prefix, such as conv1d.",
                close,
            )
