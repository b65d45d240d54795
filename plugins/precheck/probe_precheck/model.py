"""The words of the pre-check as data: calls, outputs, statuses, rows.

A *call* is a recorded API with the arguments to rebuild. A framework's *runner* runs it on the device and
as the reference (*bench*), which gives the *outcome*: what each side gave out, forward and backward. Each
output is given a *status* at once (first stage) and the numbers of the *standard* that judges its API, from
which a second stage judges the details of two machines (``api_precision_compare``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeVar

import numpy as np

T = TypeVar("T")

FORWARD, BACKWARD = "forward", "backward"
LONGEST_MESSAGE = 1000
NOT_RECORDED = "No gradient of its outputs was recorded, skip backward."
NEEDS_NONE = "None of its outputs has a gradient, skip backward."
"""Why a backward is skipped, in rows of every framework."""


class Status(str, Enum):
    """What an output, a direction or an API comes to, spelled as the tables spell it."""

    SKIP = "SKIP"
    PASS = "pass"
    WARNING = "warning"
    ERROR = "error"


class Message(NamedTuple):
    """A message of the tables in Chinese, as the formats have it, and in English (the same where empty)."""

    chinese: str
    english: str = ""

    def text(self, language: str) -> str:
        """The message in ``zh`` or ``en``."""
        return self.english if language == "en" and self.english else self.chinese


class Array(NamedTuple):
    """A tensor of either side: its values and the text of its dtype in the framework (``torch.bfloat16``).

    ``values`` has numpy's own dtype; bfloat16, which numpy lacks, comes as float32.
    """

    values: np.ndarray[Any, Any]
    dtype: str

    @property
    def kind(self) -> str:
        """The dtype without the framework's name, in small letters: ``bfloat16``."""
        return kind_of(self.dtype)


def kind_of(dtype: str) -> str:
    """A framework's dtype without its name: ``float32`` of ``torch.float32`` and of ``Float32``."""
    return dtype.rpartition(".")[2].lower()


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """One output of an API, of both sides, to be measured and judged.

    Attributes:
        api: The API's bare name, with its prefix if it has one: ``conv2d``, ``linalg.matmul``.
        bench, device: An ``Array``, a plain value, or None.
        is_random: The API draws random numbers, so that both sides differ by nature.
    """

    api: str
    bench: Any
    device: Any
    is_random: bool = False
    _shared: dict[Any, Any] = field(default_factory=dict, repr=False)

    def once(self, function: Callable[[Output], T]) -> T:
        """``function(self)``, computed once and shared by all who ask for it."""
        if function not in self._shared:
            self._shared[function] = function(self)
        return self._shared[function]  # type: ignore[no-any-return]


class Judged(NamedTuple):
    """The first stage of one output: its status, the columns filled, and messages.

    ``shown`` is False for an output that gets no row in the details (dropout).
    """

    status: Status
    numbers: Mapping[str, float | int] = {}
    messages: tuple[Message, ...] = ()
    shown: bool = True


class Judgement(NamedTuple):
    """The second stage of one row: its status, the cells of the standard's columns, and messages.

    A cell is a number, a ``Status`` or a text; columns that are left out stay blank.
    """

    status: Status
    cells: Mapping[str, float | str]
    messages: tuple[Message, ...] = ()


class UnusableCell(Exception):
    """A cell that a standard needs and that holds no number; ``message`` goes into the table."""

    def __init__(self, message: Message) -> None:
        super().__init__(message.text("en"))
        self.message = message


class Numbers:
    """The cells of one details row, read late: a standard asks for those that it needs.

    Args:
        cells: The texts of the row by column key (``tables.DETAILS``).
    """

    def __init__(self, cells: Mapping[str, str]) -> None:
        self._cells = cells

    def __getitem__(self, key: str) -> float:
        """The number in the column ``key``; inf and nan as such.

        Raises:
            UnusableCell: It is blank, or no number.
        """
        text = self._cells.get(key, "").strip()
        if not text:
            raise UnusableCell(Message("ERROR: Input data is an empty string"))
        try:
            if not text.isascii() or "_" in text:  # which Python takes for digits as well
                raise ValueError(text)
            return float(text)
        except ValueError:
            raise UnusableCell(Message(f'ERROR: Input data "{text[:80]}" is not a number')) from None

    def get(self, key: str) -> float | None:
        """The number in the column ``key``; None where it is blank.

        Raises:
            UnusableCell: It holds something else.
        """
        return self[key] if self._cells.get(key, "").strip() else None

    def text(self, key: str) -> str:
        """The text in the column ``key``, without blanks around it."""
        return self._cells.get(key, "").strip()

    @property
    def kind(self) -> str:
        """The device's dtype without the framework's name: ``float16``."""
        return kind_of(self.text("device_dtype"))


@dataclass(frozen=True, slots=True)
class Call:
    """A recorded API call that is to be run alone.

    Attributes:
        name: The record's name without its direction: ``Functional.conv2d.0``.
        index: Its place among the calls of the run.
        forward: The fields of its forward record, as the file has them.
        backward: The same of its backward record; None where there is none.
        problem: Why it cannot be run, where that is known from the record alone.
    """

    name: str
    index: int
    forward: Mapping[str, Any]
    backward: Mapping[str, Any] | None = None
    problem: str = ""

    @property
    def parts(self) -> tuple[str, str, str]:
        """Type, API with its prefix, and count: ``("Torch", "linalg.inv", "0")``."""
        scope, _, rest = self.name.partition(".")
        api, _, count = rest.rpartition(".")
        return scope, api, count

    @property
    def api(self) -> str:
        """The bare name of the API with its prefix."""
        return self.parts[1]


class NotRun(Exception):
    """A call that is left out, and why."""


def unlisted(name: str) -> str:
    """Return why a call is not run that a list leaves out."""
    return f"API {name} in black list or not in white list. SKIP."


def unknown_function(name: str) -> str:
    """Return why a function is not run that a record names, for all that is known of it."""
    return f"{name} is not run: it is not known to only compute. SKIP."


def one_line(error: BaseException) -> str:
    """Return the first words of an error without line breaks, as a row shows them."""
    return (" ".join(str(error).split()) or type(error).__name__)[:LONGEST_MESSAGE]


class Skipped(NamedTuple):
    """A direction that was not run to its end, and why.

    ``internal`` is True where the reason is the runner or its installation, and not the call.
    """

    message: str
    status: Status = Status.SKIP
    internal: bool = False


class Outputs(NamedTuple):
    """What both sides gave out: an ``Array``, a plain value, None, or lists, tuples and dicts of these."""

    bench: Any
    device: Any


def plain_output(value: Any, own: Callable[[Any], Any]) -> Any:
    """Return what a call gave out without the framework: lists, dicts and plain values of the same.

    Args:
        value: The output.
        own: Makes an ``Array`` of a tensor, and a plain value of whatever else the framework gives out.
    """
    if isinstance(value, (list, tuple)):
        return [plain_output(item, own) for item in value]
    if isinstance(value, dict):
        return {str(key): plain_output(item, own) for key, item in value.items()}
    return value if value is None or isinstance(value, (bool, int, float, complex, str)) else own(value)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What running a call alone came to.

    ``backward`` is None where the run recorded none. ``notes`` are messages for all rows of the call,
    ``notes_of`` for those of one direction. ``kept`` is whatever the runner needs to save the call's data and
    to write its script.
    """

    forward: Outputs | Skipped
    backward: Outputs | Skipped | None = None
    is_random: bool = False
    notes: tuple[Message, ...] = ()
    kept: Any = None
    notes_of: Mapping[str, tuple[Message, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Detail:
    """A row of the details: one output of one direction.

    ``standard`` is what the API's standard says of it alone, where the framework's rule asks for that.
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
        """All that was said of it."""
        return (self.status,) if self.standard is None else (self.status, self.standard)


@dataclass(frozen=True, slots=True)
class Result:
    """The row of one API, with its details.

    ``backward`` is None where there was none, ``standard`` where no standard was asked alone. ``internal`` is
    True for a call that was skipped because of the runner or its installation.
    """

    name: str
    forward: Status
    backward: Status | None
    messages: tuple[Message, ...] = ()
    details: Sequence[Detail] = ()
    script: str = ""
    lost: bool = False
    standard: Status | None = None
    internal: bool = False

    @property
    def passes_standard_alone(self) -> bool:
        """True where the rule of the table fails it, and the standard that knows its dtype does not."""
        return self.standard is Status.PASS and Status.ERROR in (self.forward, self.backward)

    @property
    def statuses(self) -> tuple[Status, ...]:
        """All that was said of it, skipped directions included."""
        return tuple(one for one in (self.forward, self.backward, self.standard) if one is not None)
