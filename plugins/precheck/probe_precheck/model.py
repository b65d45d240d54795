"""Data types of the pre-check: calls, outputs, statuses, rows.

A *call* is a recorded API with the arguments to rebuild. The *runner* of a framework runs it on the device
and as the reference (*bench*). The result is the *outcome*: the outputs of both sides, forward and backward.
The first stage gives each output a *status*, and the *standard* of its API measures it. The second stage
(``api_precision_compare``) judges these numbers of two machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

T = TypeVar("T")

FORWARD, BACKWARD = "forward", "backward"
MAX_MESSAGE_CHARACTERS = 1000
"""Characters of an error's text that a row shows."""
NO_RECORDED_GRADIENT_TEXT = "No gradient of its outputs was recorded, skip backward."
NO_GRADIENT_TEXT = "None of its outputs has a gradient, skip backward."
"""Messages of rows whose backward is skipped, the same for all frameworks."""


class Status(str, Enum):
    """Verdict on an output, a direction or an API, in the spelling of the tables."""

    SKIP = "SKIP"
    PASS = "pass"
    WARNING = "warning"
    ERROR = "error"


class Message(NamedTuple):
    """Message of a table in Chinese, as in msprobe, and in English; if empty, the Chinese text is used."""

    chinese: str
    english: str = ""

    def text(self, language: str) -> str:
        """Return the message in ``zh`` or ``en``."""
        return self.english if language == "en" and self.english else self.chinese


BEYOND_ROUNDING = Message(
    "未超出上述限值; 误差超出舍入误差: 为舍入误差所能解释的{}倍 (误差{}, 舍入误差可解释{})",
    "Within the limits; beyond rounding: {} times what rounding explains (error {}, rounding explains {})",
)
"""Message that fails an output although its status passes; the second stage reads it."""
FRAGILE_MESSAGE = Message(
    "结果对舍入误差敏感, 并非错误: 误差为舍入误差所能解释的{}倍 (误差{}, 舍入误差可解释{})",
    "Fragile, not wrong: {} times what rounding explains (error {}, rounding explains {})",
)
"""Message of an output that misses a limit of the first stage, and whose error rounding explains."""


class Array(NamedTuple):
    """Tensor of either side.

    Attributes:
        values: The elements, in a dtype of NumPy. bfloat16 is stored as float32.
        dtype: The dtype as the framework writes it, such as ``torch.bfloat16``.
    """

    values: np.ndarray[Any, Any]
    dtype: str

    @property
    def kind(self) -> str:
        """Dtype without the framework's name, in lower case, such as ``bfloat16``."""
        return strip_framework(self.dtype)


def strip_framework(dtype: str) -> str:
    """Return a dtype without the framework's name: ``float32`` for ``torch.float32`` and ``Float32``."""
    return dtype.rpartition(".")[2].lower()


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """Output of an API on both sides, to be measured and judged.

    Attributes:
        api: The API's bare name, with its prefix if it has one, such as ``conv2d`` or ``linalg.matmul``.
        bench: The output of the reference: an ``Array``, a plain value, or None.
        device: The output of the device under test, likewise.
        is_random: True if the API draws random numbers, so that both sides are expected to differ.
        moved: A function that returns the output of the reference for inputs that were each changed by a part of
            their rounding, or None if that is not possible; None if the runner does not compute it.
        direction: ``forward`` or ``backward``.
        summands: The largest number of elements that are summed for one element of the output.
    """

    api: str
    bench: Any
    device: Any
    is_random: bool = False
    moved: Callable[[], Any] | None = None
    direction: str = FORWARD
    summands: float = 1.0
    _shared: dict[Any, Any] = field(default_factory=dict, repr=False)

    def once(self, function: Callable[[Output], T]) -> T:
        """Return ``function(self)``, computed once and shared by all callers."""
        if function not in self._shared:
            self._shared[function] = function(self)
        return self._shared[function]  # type: ignore[no-any-return]


class OutputVerdict(NamedTuple):
    """Result of the first stage for one output.

    Attributes:
        status: The verdict.
        numbers: The numbers of the details row, by column key.
        messages: The messages of the row.
        shown: False for an output without a row in the details, such as that of a dropout.
    """

    status: Status
    numbers: Mapping[str, float | int] = {}
    messages: tuple[Message, ...] = ()
    shown: bool = True


class Judgement(NamedTuple):
    """Result of the second stage for one row.

    Attributes:
        status: The verdict.
        cells: The cells of the standard's columns by key: numbers, ``Status`` or texts. Other cells are blank.
        messages: The messages of the row.
        beyond: Messages that fail the call although its standard passes: the error is larger than rounding
            explains.
    """

    status: Status
    cells: Mapping[str, float | str]
    messages: tuple[Message, ...] = ()
    beyond: tuple[Message, ...] = ()


class UnusableCell(Exception):
    """Error of a cell that a standard needs and that does not contain a number; the table shows ``message``."""

    def __init__(self, message: Message) -> None:
        super().__init__(message.text("en"))
        self.message = message


class Numbers:
    """Cells of one details row, parsed on access.

    Args:
        cells: The texts of the row, by column key (``tables.DETAILS``).
    """

    def __init__(self, cells: Mapping[str, str]) -> None:
        self._cells = cells

    def __getitem__(self, key: str) -> float:
        """Return the number in the column ``key``, which may be inf or nan.

        Raises:
            UnusableCell: The cell is blank, or does not contain a number.
        """
        text = self._cells.get(key, "").strip()
        if not text:
            raise UnusableCell(Message("ERROR: Input data is an empty string"))
        try:
            if not text.isascii() or "_" in text:  # float() would accept these
                raise ValueError(text)
            return float(text)
        except ValueError:
            raise UnusableCell(Message(f'ERROR: Input data "{text[:80]}" is not a number')) from None

    def get(self, key: str) -> float | None:
        """Return the number in the column ``key``; None if it is blank.

        Raises:
            UnusableCell: The cell contains anything else.
        """
        return self[key] if self._cells.get(key, "").strip() else None

    def text(self, key: str) -> str:
        """Return the text in the column ``key``, without surrounding blanks."""
        return self._cells.get(key, "").strip()

    @property
    def kind(self) -> str:
        """Device's dtype without the framework's name, such as ``float16``."""
        return strip_framework(self.text("device_dtype"))


@dataclass(frozen=True, slots=True)
class Call:
    """Recorded API call to run alone.

    Attributes:
        name: The record's name without its direction, such as ``Functional.conv2d.0``.
        index: The index of the call among the calls of the run.
        forward: The fields of the forward record, as in ``dump.json``.
        backward: The fields of the backward record; None if there is none.
        problem: The reason in the record why the call cannot be run; empty if there is no such reason.
    """

    name: str
    index: int
    forward: Mapping[str, Any]
    backward: Mapping[str, Any] | None = None
    problem: str = ""

    @property
    def parts(self) -> tuple[str, str, str]:
        """Scope, API with its prefix, and call count, such as ``("Torch", "linalg.inv", "0")``."""
        scope, _, rest = self.name.partition(".")
        api, _, count = rest.rpartition(".")
        return scope, api, count

    @property
    def api(self) -> str:
        """Bare name of the API with its prefix."""
        return self.parts[1]


class NotRun(Exception):
    """Exception for a call that is not run; its text is the reason."""


def describe_unlisted(name: str) -> str:
    """Return the message of a call that the black list or the white list excludes."""
    return f"API {name} in black list or not in white list. SKIP."


def describe_unknown_function(name: str) -> str:
    """Return the message of a function that is not run because it might do more than compute."""
    return f"{name} is not run: it is not known to only compute. SKIP."


def format_one_line(error: BaseException) -> str:
    """Return the text of an error on one line, cut to the length that a row shows."""
    return (" ".join(str(error).split()) or type(error).__name__)[:MAX_MESSAGE_CHARACTERS]


class Skipped(NamedTuple):
    """Direction of a call that was not run, or not completely.

    Attributes:
        message: The reason.
        status: The status of its row.
        internal: True if the reason is in the runner or its installation, not in the call.
    """

    message: str
    status: Status = Status.SKIP
    internal: bool = False


class Outputs(NamedTuple):
    """Outputs of both sides: an ``Array``, a plain value, None, or lists, tuples and dicts of these."""

    bench: Any
    device: Any


def convert_output(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert a call's output from types of the framework to lists, dicts, arrays and plain values.

    Args:
        value: The output.
        convert: Converts a value of the framework: a tensor to an ``Array``, anything else to a plain value.
    """
    if isinstance(value, (list, tuple)):
        return [convert_output(item, convert) for item in value]
    if isinstance(value, dict):
        return {str(key): convert_output(item, convert) for key, item in value.items()}
    return value if value is None or isinstance(value, (bool, int, float, complex, str)) else convert(value)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of running a call alone.

    Attributes:
        forward: The outputs of the forward, or the reason why it was not run; None for a call that is part of
            a backward pass itself.
        backward: The same of the backward; None if the run recorded none.
        is_random: True if the API draws random numbers.
        notes: Messages for all rows of the call.
        kept: The data that the runner needs to save the call and to write its script.
        notes_of: Messages for the rows of one direction, by ``forward`` and ``backward``.
        moved: A function that runs the reference again with inputs that are each changed by a part of their
            rounding, and returns its outputs as both sides; None if the runner cannot do this. It is called for few
            calls.
    """

    forward: Outputs | Skipped | None
    backward: Outputs | Skipped | None = None
    is_random: bool = False
    notes: tuple[Message, ...] = ()
    kept: Any = None
    notes_of: Mapping[str, tuple[Message, ...]] = field(default_factory=dict)
    moved: Callable[[], Outcome] | None = None


@dataclass(frozen=True, slots=True)
class Detail:
    """Row of the details: one output of one direction.

    ``standard`` is the verdict of the API's standard without a second machine; None if the framework's first
    stage does not request it.
    """

    name: str
    status: Status
    bench_dtype: str = ""
    device_dtype: str = ""
    shape: str = ""
    numbers: Mapping[str, float | int] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    standard: Status | None = None
    standard_messages: tuple[Message, ...] = ()

    @property
    def statuses(self) -> tuple[Status, ...]:
        """Status of the first stage, and the second verdict if there is one; a warning replaces an error."""
        if self.standard in (None, Status.WARNING):
            return (self.standard or self.status,)
        return self.status, self.standard


@dataclass(frozen=True, slots=True)
class Result:
    """Row of one API call in the result csv, with its rows in the details.

    Attributes:
        name: The call's name.
        forward: The status of the forward; None if there is none.
        backward: The status of the backward; None if there is none.
        messages: The messages of the row.
        details: The rows of the call's outputs.
        script: The path of the script that repeats the call; empty if none was written.
        lost: True if the process of the call ended before the call did.
        standard: The verdict of the API's standard without a second machine; None if it was not requested.
        internal: True if the call was skipped because of the runner or its installation.
    """

    name: str
    forward: Status | None
    backward: Status | None
    messages: tuple[Message, ...] = ()
    details: Sequence[Detail] = ()
    script: str = ""
    lost: bool = False
    standard: Status | None = None
    internal: bool = False

    @property
    def passes_standard_alone(self) -> bool:
        """True if the first stage fails the call, and the standard of its API passes it."""
        return self.standard is Status.PASS and Status.ERROR in (self.forward, self.backward)

    @property
    def statuses(self) -> tuple[Status, ...]:
        """Statuses of the outputs and of the standard, or of both directions if no output is shown."""
        if self.details:
            return tuple(status for detail in self.details for status in detail.statuses)
        return tuple(status for status in (self.forward, self.backward, self.standard) if status is not None)


@dataclass(frozen=True, slots=True)
class ResultPaths:
    """Files of a finished pre-check.

    Attributes:
        result: The result csv of either stage.
        npu: The details of the device, if a second stage read them.
        gpu: The details of the trusted device, if a second stage read them.
        again: A function that returns the command that repeats a call; None if the run is unknown.
    """

    result: Path
    npu: Path | None = None
    gpu: Path | None = None
    again: Callable[[str], str] | None = None
