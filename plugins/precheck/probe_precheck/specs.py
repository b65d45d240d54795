"""What the hooks of the pre-check return; see ``probe_core.plugins.specs``."""

from __future__ import annotations

from dataclasses import dataclass

from probe_core.plugins.specs import Spec


@dataclass(frozen=True, slots=True)
class ReferenceSpec(Spec):
    """How an API is computed in higher precision (makes a ``protocols.Reference``).

    ``api`` is the name of the recorded API without its call count, such as ``NPU.npu_rms_norm``; a reference
    takes the place of the framework's own API in the run that is held against the device.
    """

    api: str = ""
    framework: str = ""


@dataclass(frozen=True, slots=True)
class RunnerSpec(Spec):
    """Runs recorded calls of one framework alone, for the pre-check (makes a ``protocols.Runner``).

    ``preload`` names modules that every worker process needs, imported once before processes are forked.
    """

    framework: str = ""
    preload: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StatusRuleSpec(Spec):
    """The pre-check's first stage for one framework, or for all (makes a ``protocols.StatusRule``).

    Attributes:
        framework: Whose calls it judges; empty for all that have no rule of their own.
        result, details: The columns of both csv files, as (key, Chinese header, English header); empty for
            ``probe_precheck.tables.RESULT`` and ``DETAILS``. Keys are those of there, and ``standard`` and
            ``standard_message`` for the verdicts of a ``protocols.SoloRule``.
    """

    framework: str = ""
    result: tuple[tuple[str, str, str], ...] = ()
    details: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class StandardSpec(Spec):
    """A precision standard of the pre-check's second stage (makes a ``protocols.Standard``).

    Attributes:
        label, english_label: What the column 比对算法 says.
        apis: Where the APIs that it judges are listed: ``"package:file.yaml"``, a mapping from the names of
            standards to lists of APIs; a mapping inside, from a release to a list, adds APIs from it on.
        judges: What it judges besides: ``"listed"`` nothing, ``"exact"`` all outputs that are no
            floating-point numbers, ``"rest"`` all floating-point outputs that no list names.
        columns: Columns of its own, as (key, Chinese header, English header): details get those of an
            installed plugin's standard appended. Those of ``probe_precheck.tables`` need not be named.
    """

    label: str = ""
    english_label: str = ""
    apis: str = ""
    judges: str = "listed"
    columns: tuple[tuple[str, str, str], ...] = ()
