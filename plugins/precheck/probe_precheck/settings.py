"""What a pre-check is asked to do: the command line and its configuration file, parsed."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe_core.errors import UserError, meant, nearest
from probe_core.files.given import parse_yaml, read_given, yaml_problem
from probe_core.files.jsonstream import load_object

RELEASES = ("guide", "8.3")
"""Releases of msprobe whose thresholds the standards have, oldest first (docs/standards.md#releases).

``guide`` is the guide of msprobe 1.0.4.
"""
FORMER_RELEASES = {"seed": "guide"}
"""Earlier names of releases, which are accepted wherever a release is named."""
LANGUAGES = ("zh", "en")
PRECISION = 14
SEED = 1234
TIMEOUT = 600.0
MOST_DIGITS = 100
SECTIONS = ("run_ut", "acc_check")
FIELDS = ("white_list", "black_list", "error_data_path", "precision")
ONLINE = frozenset({"is_online", "nfs_path", "host", "port", "rank_list", "tls_path", "master_ip",
                    "master_port", "is_golden", "quantization_api_list"})  # fmt: skip
"""Fields of the peer's files that the pre-check of a recorded run has no use for."""


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """What a runner needs to know.

    Attributes:
        dump: The ``dump.json`` whose calls are run; tensors lie beside it.
        device: ``""`` for the accelerator where there is one and the CPU where not, ``"cpu"``, or an index.
        jit_compile: Compile operators just in time, on devices that can be told.
        error_directory: Where the data of calls that do not pass go; None to save none.
        threads: How many threads the reference may use.
        seed: What the seeds of random inputs are made from.
    """

    dump: Path
    device: str = ""
    jit_compile: bool = False
    error_directory: Path | None = None
    threads: int = 1
    seed: int = SEED


def release_named(name: str) -> str:
    """Return the present name of a release that may be given by a former one."""
    return FORMER_RELEASES.get(name, name)


def missing_device(text: str, count: int | None = None) -> UserError:
    """Return the error of a device that ``-d`` asks for: of ``count`` there are, or where there is none."""
    if count is None:
        return UserError(
            f"There is no accelerator here for device {text}.", "Give -d cpu, or run where there is one."
        )
    return UserError(f"There is no device {text}.", "These are there:", [str(i) for i in range(count)])


@dataclass(frozen=True, slots=True)
class Settings:
    """What the configuration file says.

    Attributes:
        white_list, black_list: Bare names of APIs; an empty white list lets every API through.
        error_data_path: The directory in which a directory for the error data is made.
        precision: Digits of the numbers in the tables.
    """

    white_list: frozenset[str] = frozenset()
    black_list: frozenset[str] = frozenset()
    error_data_path: Path = Path()
    precision: int = PRECISION

    def lets_through(self, api: str) -> bool:
        """Is the API to be run? Outside of a white list and on the black list it is not."""
        return (not self.white_list or api in self.white_list) and api not in self.black_list


def read_settings(path: Path | None) -> Settings:
    """The configuration in ``path``: a ``config.json`` with a section ``run_ut``, or a ``config.yaml``.

    Raises:
        UserError: It cannot be read, or a field is not what it must be.
    """
    if path is None:
        return Settings()
    what = f"The configuration {path}"
    if path.suffix.lower() in (".yaml", ".yml"):
        return parse_settings(_read_yaml(path), what)
    found = load_object(path, "configuration")
    for section in SECTIONS:
        inner = found.get(section)
        if isinstance(inner, dict):
            return parse_settings(inner, what)
        if inner is not None:
            raise UserError(
                f'{what}: "{section}" must be an object.', 'For example {"run_ut": {"white_list": []}}.'
            )
    raise UserError(
        f'{what} has no section "run_ut".', 'For example {"task": "run_ut", "run_ut": {"white_list": []}}.'
    )


def _read_yaml(path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        found = parse_yaml(read_given(path).decode("utf-8-sig"))
    except (OSError, ValueError) as error:  # ValueError: bytes that are no UTF-8
        problem = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise UserError(
            f"The configuration {path} cannot be read: {problem}.", "Check the path and its permissions."
        ) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(
            f"The configuration {path} is no valid yaml{yaml_problem(error)}.", "Mend the file."
        ) from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise UserError(f"The configuration {path} must hold fields.", "For example white_list: [conv1d].")
    return found


def parse_settings(fields: Mapping[Any, Any], what: str) -> Settings:
    """The settings in ``fields``; ``what`` opens the messages.

    Raises:
        UserError: An unknown field, or one that is not what it must be.
    """
    for key in fields:
        if key not in FIELDS and key not in ONLINE:
            close = meant(str(key), FIELDS)
            raise UserError(
                f'{what} has an unknown field "{key}".',
                f"Did you mean {close}? Known fields:" if close else "Known fields:",
                FIELDS,
            )
    if fields.get("is_online") not in (None, False):
        raise UserError(
            f"{what} asks for the online pre-check, which probe does not have.",
            "Record the run, and check its dump.json; set is_online to false.",
        )
    path = fields.get("error_data_path", "./")
    if not isinstance(path, str):
        raise UserError(f"{what}: error_data_path must be a path.", 'For example "./".')
    digits = fields.get("precision", PRECISION)
    if type(digits) is not int or not 0 <= digits <= MOST_DIGITS:
        raise UserError(
            f"{what}: precision must be a whole number from 0 to {MOST_DIGITS}.", "For example 14."
        )
    return Settings(
        _names(fields, "white_list", what), _names(fields, "black_list", what), Path(path or "."), digits
    )


def _names(fields: Mapping[Any, Any], key: str, what: str) -> frozenset[str]:
    value = fields.get(key)
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise UserError(
            f"{what}: {key} must be a list of API names.", f"For example {key}: [conv1d, linear]."
        )
    return frozenset(value)


def check_names(settings: Settings, known: Set[str]) -> None:
    """See that both lists name APIs.

    Raises:
        UserError: One that is not ``known``.
    """
    for key, names in (("white_list", settings.white_list), ("black_list", settings.black_list)):
        for name in sorted(names - known):
            bare = name.split(".")
            close = nearest(bare[1] if len(bare) > 2 else name, sorted(known))
            raise UserError(
                f'Invalid api: {key} names "{name}", which is no API that is recorded.',
                "Names are bare, such as conv1d. Nearest:" if close else "Names are bare, such as conv1d.",
                close,
            )
