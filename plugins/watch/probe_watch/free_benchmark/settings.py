"""The section ``free_benchmark`` of config.json (docs/free-benchmark.md#fields)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from probe_recording.api import Config, Fields

from probe_core.errors import UserError

MAX_STEPS = 1_000_000
E = TypeVar("E", bound=Enum)


class ChangeMode(Enum):
    """The change of the inputs of the second run."""

    IMPROVE_PRECISION = "improve_precision"
    ADD_NOISE = "add_noise"
    BIT_NOISE = "bit_noise"
    NO_CHANGE = "no_change"
    CHANGE_VALUE = "change_value"
    TO_CPU = "to_cpu"

    @property
    def raises_precision(self) -> bool:
        """True if the second run computes all arguments in another dtype or on another device."""
        return self in (ChangeMode.IMPROVE_PRECISION, ChangeMode.TO_CPU)


class Handler(Enum):
    """The use of the second result."""

    CHECK = "check"
    FIX = "fix"


class Stage(Enum):
    """The part of a call that is repeated."""

    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class BenchmarkSettings:
    """The settings of the task.

    Attributes:
        mode: The change of the inputs (``pert_mode``).
        handler: The use of the second result (``handler_type``).
        stage: The part of a call that is repeated (``fuzz_stage``).
        preheat: True to learn thresholds in the first steps (``if_preheat``).
        preheat_step: The number of steps to learn in, the first of which only counts calls.
        max_sample: The largest number of calls of an API that one step of preheating examines.
        kinds: Parts of names (``list``); a call is examined if its name contains one of them.
        names: Names of single calls (``scope``), with or without phase.
    """

    mode: ChangeMode = ChangeMode.IMPROVE_PRECISION
    handler: Handler = Handler.CHECK
    stage: Stage = Stage.FORWARD
    preheat: bool = False
    preheat_step: int = 15
    max_sample: int = 20
    kinds: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()

    def selects(self, name: str) -> bool:
        """Return True if a call, named without phase, is examined."""
        if self.names:
            return name in self.names
        return not self.kinds or any(kind in f"{name}.{self.stage.value}" for kind in self.kinds)


FIELDS = (
    "scope", "list", "fuzz_device", "pert_mode", "handler_type", "fuzz_level", "fuzz_stage", "if_preheat",
    "preheat_step", "max_sample",
)  # fmt: skip


def parse(section: Fields) -> BenchmarkSettings:
    """Return the settings in the section.

    Raises:
        UserError: A field has a wrong value, or two fields contradict each other.
    """
    section.choice("fuzz_level", ("L1",), "L1")
    names = section.names("scope", "Functional.linear.0.forward")
    settings = BenchmarkSettings(
        mode=_parse_choice(section, "pert_mode", ChangeMode.IMPROVE_PRECISION),
        handler=_parse_choice(section, "handler_type", Handler.CHECK),
        stage=_parse_choice(section, "fuzz_stage", Stage.FORWARD),
        preheat=section.flag("if_preheat", False),
        preheat_step=section.number("preheat_step", 1, MAX_STEPS, 15),
        max_sample=section.number("max_sample", 1, MAX_STEPS, 20),
        kinds=section.names("list"),
        names=frozenset(name.removesuffix(".forward").removesuffix(".backward") for name in names),
    )
    _check_device(section, settings)
    _check_selection(section, settings)
    _check_fix(section, settings)
    return settings


def check_level(config: Config) -> None:
    """Raise a UserError if the configuration has another level than L1."""
    if config.level != "L1":
        raise UserError(
            f'The task "free_benchmark" examines API calls, which are level L1, not {config.level}.',
            'Set "level": "L1".',
        )


def _parse_choice(section: Fields, name: str, default: E) -> E:
    kind = type(default)
    return kind(section.choice(name, tuple(str(item.value) for item in kind), str(default.value)))


def _check_device(section: Fields, settings: BenchmarkSettings) -> None:
    device = section.choice("fuzz_device", ("npu", "cpu"), "npu")
    if (device == "cpu") != (settings.mode is ChangeMode.TO_CPU):
        raise section.wrong(
            "fuzz_device",
            f'is "{device}", which does not go with "pert_mode": "{settings.mode.value}"',
            'Set "fuzz_device": "cpu" for to_cpu, and "fuzz_device": "npu" for all other modes.',
        )


def _check_selection(section: Fields, settings: BenchmarkSettings) -> None:
    if settings.kinds and settings.names:
        raise section.wrong("list", 'and "scope" are both set', 'Leave one of "list" and "scope" empty.')
    if settings.stage is Stage.BACKWARD and not settings.kinds and not settings.names:
        raise section.wrong(
            "list",
            "is empty, but fuzz_stage backward keeps the inputs of all examined calls in memory",
            'Name the APIs to examine, for example "list": ["linear"].',
        )


def _check_fix(section: Fields, settings: BenchmarkSettings) -> None:
    if settings.handler is not Handler.FIX:
        return
    if settings.stage is Stage.BACKWARD:
        raise section.wrong(
            "handler_type",
            'is "fix", which replaces results of forward calls only',
            'Set "fuzz_stage": "forward", or "handler_type": "check".',
        )
    if not settings.mode.raises_precision:
        raise section.wrong(
            "handler_type",
            f'is "fix", but results changed by {settings.mode.value} are no better than the original ones',
            'Set "pert_mode" to improve_precision or to_cpu, or "handler_type": "check".',
        )
    if settings.preheat:
        raise section.wrong(
            "if_preheat",
            'is true, but preheating learns thresholds, which "handler_type": "fix" does not use',
            'Set "if_preheat": false, or "handler_type": "check".',
        )
