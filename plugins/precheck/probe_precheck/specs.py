"""Specifications that the hooks of the pre-check return; see ``probe_core.plugins.specs``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from probe_core.plugins.specs import Spec
from probe_precheck.tables import CsvColumn


class JudgedOutputs(str, Enum):
    """Outputs of unlisted APIs that a standard judges.

    LISTED is for none of them, EXACT for all outputs that are not floating-point numbers, and REST for all
    floating-point outputs.
    """

    LISTED = "listed"
    EXACT = "exact"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class ReferenceSpec(Spec):
    """Function that computes an API in higher precision (creates a ``protocols.Reference``).

    In the run that the device is compared with, the reference replaces the framework's own API.

    Attributes:
        api: The name of the recorded API without its call count, such as ``NPU.npu_rms_norm``.
        framework: The framework whose API it is; empty for all frameworks.
    """

    api: str = ""
    framework: str = ""


@dataclass(frozen=True, slots=True)
class RunnerSpec(Spec):
    """Runner of recorded calls of one framework (creates a ``protocols.Runner``).

    Attributes:
        framework: The framework whose calls it runs.
        preload: Names of modules that every worker process needs, imported once before processes are forked.
    """

    framework: str = ""
    preload: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StatusRuleSpec(Spec):
    """First stage of the pre-check for one framework, or for all (creates a ``protocols.StatusRule``).

    Attributes:
        framework: The framework whose calls it judges; empty for all frameworks that have no separate rule.
        result: The columns of the result csv; empty for ``probe_precheck.tables.RESULT``. The keys are those of
            that table, and ``standard`` and ``standard_message`` for the verdicts of a ``protocols.SoloRule``.
        details: The columns of the details csv; empty for ``probe_precheck.tables.DETAILS``.
    """

    framework: str = ""
    result: tuple[CsvColumn, ...] = ()
    details: tuple[CsvColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class StandardSpec(Spec):
    """Precision standard of the pre-check's second stage (creates a ``protocols.Standard``).

    Attributes:
        label: The name that the column 比对算法 (Compare Algorithm) shows in Chinese.
        english_label: The name in English.
        apis: The file that lists the APIs that it judges, as ``"package:file.yaml"``. The file maps names of
            standards to lists of APIs. A mapping inside a list, from a release to a list, adds APIs for that release
            and later releases.
        judges: The outputs of unlisted APIs that it judges.
        columns: Additional columns in the details. The columns of ``probe_precheck.tables`` always exist.
    """

    label: str = ""
    english_label: str = ""
    apis: str = ""
    judges: JudgedOutputs = JudgedOutputs.LISTED
    columns: tuple[CsvColumn, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "judges", JudgedOutputs(self.judges))  # plugins for version 0.2 give its value
