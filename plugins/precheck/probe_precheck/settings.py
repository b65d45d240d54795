"""Settings of a pre-check: constants of the command line, and the parsed configuration file."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probe_core.errors import UserError, find_nearest_names, suggest_name
from probe_core.files.user_files import describe_yaml_error, load_object, parse_yaml, read_regular_file

RELEASES = ("guide", "8.3")
"""Releases of msprobe whose thresholds the standards have, oldest first (docs/standards.md#releases).

``guide`` is the guide of msprobe 1.0.4.
"""
RELEASE_BY_FORMER_NAME = {"seed": "guide"}
"""Earlier names of releases, which are accepted wherever a release is named."""
LANGUAGES = ("zh", "en")
PRECISION = 14
"""Digits after the point of numbers in the csv files, unless the configuration says another number."""
SEED = 1234
"""Number that the seeds of made-up inputs are derived from."""
TIMEOUT = 600.0
"""Seconds that one call may take."""
MAX_PRECISION_DIGITS = 100
CONFIG_SECTIONS = ("run_ut", "acc_check")
CONFIG_FIELDS = ("white_list", "black_list", "error_data_path", "precision")
ONLINE_FIELDS = frozenset({"is_online", "nfs_path", "host", "port", "rank_list", "tls_path", "master_ip",
                    "master_port", "is_golden", "is_benchmark_device", "quantization_api_list"})  # fmt: skip
"""Fields of msprobe's configuration files that concern the online pre-check alone; others ignore them."""


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """Options that a runner is opened with.

    Attributes:
        dump: The ``dump.json`` whose calls are run; the tensor files are next to it.
        device: ``"cpu"``, the index of an accelerator, or ``""`` for an accelerator if there is one, else the
            CPU.
        jit_compile: True to compile operators just in time, on devices with that option.
        error_directory: The directory for the data of calls that do not pass; None to save none.
        threads: The number of threads that the reference may use.
        seed: The number that the seeds of made-up inputs are derived from.
        is_ours: True if probe recorded the calls; another recorder may note other gradients.
    """

    dump: Path
    device: str = ""
    jit_compile: bool = False
    error_directory: Path | None = None
    threads: int = 1
    seed: int = SEED
    is_ours: bool = True


def release_named(name: str) -> str:
    """Return the present name of a release that may be given by a former one."""
    return RELEASE_BY_FORMER_NAME.get(name, name)


def missing_device(text: str, count: int | None = None) -> UserError:
    """Return the error for a device of ``-d`` that this machine does not have.

    Args:
        text: The device as given.
        count: The number of accelerators here; None if there is none.
    """
    if count is None:
        return UserError(
            f"There is no accelerator here for device {text}, so no call can be run on it.",
            "Give -d cpu, or run on a machine with an accelerator.",
        )
    return UserError(
        f"There is no device {text} on this machine.",
        "Give one of these with -d:",
        [str(i) for i in range(count)],
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Contents of the configuration file.

    Attributes:
        white_list: Bare names of the APIs to run; empty for all.
        black_list: Bare names of APIs not to run.
        error_data_path: The directory in which the directory of the error data is made.
        precision: Digits after the point of the numbers in the csv files.
        online: The fields if they ask for the online pre-check (``is_online``); else None.
        dump_path: The directory of a receiver's files unless ``-o`` is given; None if the file names none.
    """

    white_list: frozenset[str] = frozenset()
    black_list: frozenset[str] = frozenset()
    error_data_path: Path = Path()
    precision: int = PRECISION
    online: Mapping[Any, Any] | None = None
    dump_path: Path | None = None

    def lets_through(self, api: str) -> bool:
        """Return True if the lists let the API run; both a white and a black list may exclude it."""
        return (not self.white_list or api in self.white_list) and api not in self.black_list


def read_settings(path: Path | None) -> Settings:
    """Return the configuration in a ``config.json`` with a section ``run_ut``, or in a ``config.yaml``.

    Raises:
        UserError: The file cannot be read, or a field has a wrong value.
    """
    if path is None:
        return Settings()
    what = f"The configuration {path}"
    if path.suffix.lower() in (".yaml", ".yml"):
        return parse_settings(_read_yaml(path), what)
    document = load_object(path, "configuration")
    for section in CONFIG_SECTIONS:
        inner = document.get(section)
        if isinstance(inner, dict):
            return replace(parse_settings(inner, what), dump_path=_parse_dump_path(document, what))
        if inner is not None:
            raise UserError(f'{what}: "{section}" must be an object.', 'For example {"run_ut": {"white_list": []}}.')
    raise UserError(f'{what} has no section "run_ut".', 'For example {"task": "run_ut", "run_ut": {"white_list": []}}.')


def _parse_dump_path(document: Mapping[str, Any], what: str) -> Path | None:
    path = document.get("dump_path")
    if path is not None and not isinstance(path, str):
        raise UserError(f"{what}: dump_path must be a path.", 'For example "./checked".')
    return Path(path) if path else None


def _read_yaml(path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        fields = parse_yaml(read_regular_file(path).decode("utf-8-sig"))
    except (OSError, ValueError) as error:  # ValueError: bytes that are not UTF-8
        problem = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise UserError(
            f"The configuration {path} cannot be read: {problem}.", "Check the path and its permissions."
        ) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(
            f"The configuration {path} is no valid yaml{describe_yaml_error(error)}.", "Correct the file."
        ) from None
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise UserError(f"The configuration {path} must hold fields.", "For example white_list: [conv1d].")
    return fields


def parse_settings(fields: Mapping[Any, Any], what: str) -> Settings:
    """Return the settings in ``fields``.

    Args:
        fields: The parsed configuration.
        what: The subject of error messages, such as "The configuration config.yaml".

    Raises:
        UserError: A field is unknown or has a wrong value.
    """
    for key in fields:
        if key not in CONFIG_FIELDS and key not in ONLINE_FIELDS:
            close = suggest_name(str(key), CONFIG_FIELDS)
            raise UserError(
                f'{what} has an unknown field "{key}".',
                f"Did you mean {close}? Known fields:" if close else "Known fields:",
                CONFIG_FIELDS,
            )
    is_online = fields.get("is_online")
    if is_online is not None and not isinstance(is_online, bool):
        raise UserError(f"{what}: is_online must be true or false.", "For example false.")
    path = fields.get("error_data_path", "./")
    if not isinstance(path, str):
        raise UserError(f"{what}: error_data_path must be a path.", 'For example "./".')
    digits = fields.get("precision", PRECISION)
    if type(digits) is not int or not 0 <= digits <= MAX_PRECISION_DIGITS:
        raise UserError(
            f"{what}: precision must be a whole number from 0 to {MAX_PRECISION_DIGITS}.", "For example 14."
        )
    return Settings(
        _parse_names(fields, "white_list", what),
        _parse_names(fields, "black_list", what),
        Path(path or "."),
        digits,
        fields if is_online else None,
    )


def _parse_names(fields: Mapping[Any, Any], key: str, what: str) -> frozenset[str]:
    value = fields.get(key)
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise UserError(f"{what}: {key} must be a list of API names.", f"For example {key}: [conv1d, linear].")
    return frozenset(value)


def check_names(settings: Settings, api_names: Set[str]) -> None:
    """Check that both lists name APIs that can be recorded.

    Args:
        settings: The lists.
        api_names: The bare names of all APIs.

    Raises:
        UserError: A name is not among ``api_names``.
    """
    for key, names in (("white_list", settings.white_list), ("black_list", settings.black_list)):
        for name in sorted(names - api_names):
            bare = name.split(".")
            close = find_nearest_names(bare[1] if len(bare) > 2 else name, sorted(api_names))
            raise UserError(
                f'Invalid api: {key} names "{name}", which is no API that is recorded.',
                "Names are bare, such as conv1d. Nearest:" if close else "Names are bare, such as conv1d.",
                close,
            )
