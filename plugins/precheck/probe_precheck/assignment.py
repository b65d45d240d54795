"""Assignment of standards to outputs, by lists of the standards and the user (docs/standards.md#methods)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from probe_core.errors import UserError
from probe_core.plugins.blame import Origin, PluginError, blame_plugin, create_plugin_error
from probe_core.plugins.distributions import create_missing_error
from probe_core.plugins.manager import Manager, PluginWarning, warn
from probe_precheck.model import Message, strip_framework
from probe_precheck.protocols import Standard
from probe_precheck.releases import RELEASES, resolve_release
from probe_precheck.specs import JudgedOutputs, StandardSpec
from probe_precheck.tables import CsvColumn
from probe_precheck.yaml_files import load_yaml_file, parse_yaml_text

MEASURED_DTYPES = frozenset({"float16", "bfloat16", "float32"})
"""Floating-point dtypes that the standards measure."""

UNMEASURED_DTYPES = frozenset({"float64", "double", "complex64", "complex128"})
"""Dtypes that no standard judges; their rows are skipped."""


@dataclass(frozen=True, slots=True)
class ChosenStandard:
    """Standard in use, with its specification."""

    spec: StandardSpec
    standard: Standard


class Assignment:
    """Standards in use, and the lists that assign APIs to them.

    Args:
        manager: The plugin manager that finds the standards.
        release: The release of msprobe whose thresholds and lists apply: ``guide`` or ``8.3``.
        path: A YAML file of the user, whose lists override those of plugins.

    Raises:
        UserError: A list cannot be read, or names a standard that is not installed.
    """

    def __init__(self, manager: Manager, release: str, path: Path | None = None) -> None:
        self.release = resolve_release(release)
        self._chosen: dict[str, ChosenStandard] = {}
        lists: dict[str, tuple[str, Origin]] = {}
        for name in manager.names("standards"):
            spec = manager.find("standards", name, StandardSpec)
            try:
                self._chosen[name] = ChosenStandard(spec, spec.make())
                if spec.apis and spec.apis not in lists:
                    with blame_plugin(f"{spec.title}: {spec.apis}", spec.origin):
                        package, _, file = spec.apis.partition(":")
                        lists[spec.apis] = files(package).joinpath(file).read_text("utf-8"), spec.origin
            except PluginError as error:
                self._chosen.pop(name, None)
                warn(error, "It is ignored, so other standards judge its APIs.")
        if not self._chosen:
            raise create_missing_error("A precision standard", "probe-metrics")
        self._blamed: set[str] = set()
        self._by_api: dict[str, str] = {}
        self._owners: dict[str, Origin] = {}
        self._conflicts: dict[str, str] = {}
        lists_of_probe_first = sorted(lists.items(), key=lambda item: not item[1][1].is_of_probe)
        for address, (text, origin) in lists_of_probe_first:
            self._add_lists(parse_yaml_text(text, address), address, origin)
        if path is not None:
            self._add_lists(load_yaml_file(path, f"The list of standards {path}"), str(path))
        self._exact = _find_first(self._chosen, JudgedOutputs.EXACT)
        self._rest = _find_first(self._chosen, JudgedOutputs.REST)

    def _add_lists(self, lists: Any, subject: str, origin: Origin | None = None) -> None:
        """Add the lists of a plugin, or of the user if there is no ``origin``; later lists take precedence."""
        if not isinstance(lists, Mapping):
            raise UserError(f"{subject} must map standards to APIs.", "For example ulp: [matmul, linear].")
        for name, apis in lists.items():
            if name not in self._chosen:
                raise UserError(
                    f'{subject} names a standard "{name}" that is not installed.',
                    "Use these:",
                    list(self._chosen),
                )
            for api in _parse_apis(apis, self.release, f"{subject}: {name}"):
                self._note_conflict(api, str(name), origin)
                self._by_api[api] = str(name)

    def _note_conflict(self, api: str, name: str, origin: Origin | None) -> None:
        """Warn if a plugin replaces the standard of a list of probe; remember a conflict of two plugins."""
        self._conflicts.pop(api, None)
        owner = self._owners.get(api)
        if origin is None:
            return
        self._owners[api] = origin
        former = self._by_api.get(api, name)
        if owner is None or former == name:
            return
        if owner.is_of_probe and not origin.is_of_probe:
            warnings.warn(
                f'{origin} assigns {api} to the standard "{name}", and {owner} to "{former}". '
                f'"{name}" judges it; to change that, put {api} into a list and pass it with --assign.',
                PluginWarning,
                stacklevel=2,
            )
        else:
            self._conflicts[api] = f'{owner} assigns {api} to the standard "{former}", and {origin} to "{name}".'

    def _check_conflict(self, api: str) -> None:
        """Raise ``UserError`` if two plugins assign an API to different standards."""
        if problem := self._conflicts.get(api):
            standard = self._by_api[api]
            raise UserError(problem, f'Choose one: put "{standard}: [{api}]" into a file for --assign FILE.')

    def report_failure(self, chosen: ChosenStandard, error: BaseException) -> Message:
        """Return the message of a row whose standard raised ``error``, and warn about the standard once.

        Raises:
            BaseException: ``error`` itself, if it is not a fault of the plugin that provides the standard.
        """
        blame = create_plugin_error(error, chosen.spec.title, chosen.spec.origin)
        if blame is None:
            raise error
        if chosen.spec.name not in self._blamed:
            self._blamed.add(chosen.spec.name)
            warn(blame, "Rows that it judges have this as their message.")
        return Message(blame.what)

    def list_columns(self, apis: Iterable[str] | None = None) -> tuple[CsvColumn, ...]:
        """Return the columns that standards add: all standards, or only those that judge any of ``apis``."""
        names = self._chosen if apis is None else {self._by_api.get(api) for api in apis}
        tables = (chosen.spec.columns for name, chosen in self._chosen.items() if name in names)
        return tuple(dict.fromkeys(column for columns in tables for column in columns))

    def get_listed_standard(self, api: str) -> str:
        """Return the name of the standard that lists an API; empty if no standard lists it.

        Raises:
            UserError: Two plugins assign the API to different standards.
        """
        self._check_conflict(api)
        return self._by_api.get(api, "")

    def find_standard(self, api: str, dtype: str) -> ChosenStandard | None:
        """Return the standard that judges outputs of an API; None if no standard judges them.

        The dtype takes precedence over the API: outputs that are not floating-point numbers must be equal.

        Args:
            api: The bare name of the API, such as ``matmul``.
            dtype: The dtype as the framework writes it, such as ``torch.float32``.

        Raises:
            UserError: Two plugins assign the API to different standards.
        """
        kind = strip_framework(dtype)
        if kind in UNMEASURED_DTYPES:
            return None
        if kind not in MEASURED_DTYPES:
            return self._exact
        self._check_conflict(api)
        name = self._by_api.get(api)
        return self._chosen[name] if name is not None else self._rest


def _find_first(chosen: Mapping[str, ChosenStandard], judges: JudgedOutputs) -> ChosenStandard | None:
    return next((item for item in chosen.values() if item.spec.judges is judges), None)


def _parse_apis(value: Any, release: str, subject: str) -> Sequence[str]:
    """Return the names in a list; a mapping in the list adds names for a release and all later releases."""
    names: list[str] = []
    if not isinstance(value, list):
        raise UserError(f"{subject} must be a list of APIs.", "For example [matmul, linear].")
    for item in value:
        if isinstance(item, str):
            names.append(item)
        elif isinstance(item, Mapping) and all(
            _is_release(key) and isinstance(inner, list) and all(isinstance(name, str) for name in inner)
            for key, inner in item.items()
        ):
            for key, inner in item.items():
                if RELEASES.index(release) >= RELEASES.index(resolve_release(key)):
                    names += inner
        else:
            raise UserError(
                f"{subject} contains {item!r}, which is not an API.",
                'Write a bare name, or {"8.3": [names]} with quotes around 8.3.',
            )
    return names


def _is_release(key: Any) -> bool:
    return isinstance(key, str) and resolve_release(key) in RELEASES
