"""The rules of ``rules.yaml``: what is compared, and how names match."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from probe_check.config_check.items import DifferenceLevel
from probe_core.files.packaged import load_yaml

HIDDEN_TEXT = "(hidden)"
"""Text in place of the value of a secret."""


@dataclass(frozen=True, slots=True)
class VariableRule:
    """An environment variable that is compared.

    Attributes:
        npu: Its name on an NPU; empty if NPUs have no such variable.
        gpu: Its name on a GPU; empty if GPUs have no such variable.
        default: The value that holds if it is not set.
    """

    npu: str
    gpu: str
    default: str

    def get_name(self, *, is_npu: bool) -> str:
        """Return the name on a side; empty for none."""
        return self.npu if is_npu else self.gpu


@dataclass(frozen=True, slots=True)
class ConfigRules:
    """The content of ``rules.yaml``.

    Attributes:
        variables: The environment variables that are compared.
        npu_mark: A text in names of variables that shows that the side is an NPU.
        packages: The packages that are compared.
        framework_packages: The package of a framework whose name differs.
        aliases: Other spellings of hyper-parameters.
        flags: Flags that set a hyper-parameter to a certain value.
        name_similarity: The ratio above which two names match.
        frame_similarity: The smallest similarity at which two frames match.
        without_effect: A pattern of hyper-parameters that change no number.
        secret: A pattern of hyper-parameters whose values are hidden.
        condition_levels: The level of a condition that differs, by its kind.
        launchers: Programs that start a training.
        wrappers: Programs that start other programs.
        launcher_modules: Modules of Python that start a training.
    """

    variables: tuple[VariableRule, ...]
    npu_mark: str
    packages: tuple[str, ...]
    framework_packages: Mapping[str, str]
    aliases: Mapping[str, tuple[str, ...]]
    flags: Mapping[str, tuple[str, ...]]
    name_similarity: float
    frame_similarity: float
    without_effect: re.Pattern[str]
    secret: re.Pattern[str]
    condition_levels: Mapping[str, DifferenceLevel]
    launchers: frozenset[str]
    wrappers: frozenset[str]
    launcher_modules: frozenset[str]

    def is_secret(self, name: str) -> bool:
        """Return True if the value of a hyper-parameter must not be stored or shown."""
        return self.secret.search(normalize_parameter_name(name)) is not None


@cache
def load_rules() -> ConfigRules:
    """Return the content of ``rules.yaml``."""
    data = load_yaml("probe_check.config_check", "rules.yaml")
    return ConfigRules(
        tuple(VariableRule(rule.get("npu", ""), rule.get("gpu", ""), rule["default"]) for rule in data["variables"]),
        data["npu_mark"],
        tuple(data["packages"]),
        data["framework_packages"],
        {name: tuple(others) for name, others in data["aliases"].items()},
        {name: tuple(flags) for name, flags in data["flags"].items()},
        data["name_similarity"],
        data["frame_similarity"],
        re.compile(data["without_effect"], re.IGNORECASE),
        re.compile(data["secret"], re.IGNORECASE),
        {kind: DifferenceLevel(level) for kind, level in data["condition_levels"].items()},
        frozenset(data["launchers"]),
        frozenset(data["wrappers"]),
        frozenset(data["launcher_modules"]),
    )


def normalize_parameter_name(name: str) -> str:
    """Return the last part of the name of a hyper-parameter, with underscores."""
    return name.rpartition(".")[2].replace("-", "_")
