"""A small pair of recorded runs in memory, for trying contributions on."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.model import Kind, Mode, Record, Side, Slot, Statistics, Value
from probe_core.model.run import Construct, Header, HeldRun
from probe_core.store.names import is_module
from probe_core.testing.pairs import Array, value_of

FRAMEWORK = "trial"
MODULE = "Module.net.Net.forward.0"
TRIAL_FRAME = "File train.py, line 7, in step, \n y = net(x)"
GOLDEN, TARGET = "golden", "target"


class TrialReader:
    """A reader of the trial runs; the name of a directory says which side the run is of, and the mode."""

    def sniff(self, path: Path) -> int:
        """Return 100 for files in a directory of ``record_file``."""
        return 100 if path.parent.name in (GOLDEN, TARGET) else 0

    def open(self, path: Path) -> TrialRun:
        """Return the run that the path names."""
        return TrialRun(path, Mode(path.parent.parent.name), is_target=path.parent.name == TARGET)


def record_file(directory: Path, mode: Mode, side: str) -> Path:
    """Make the record file of a run, which is empty, and return its path."""
    path = directory / mode.value / side / "dump.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


class TrialRun(HeldRun):
    """A run of a training step whose values are in memory.

    The target differs from the golden, starting at the second call: in rounding, in values, in a shape, in a
    scalar argument, and in calls that only one run made.
    """

    def __init__(self, path: Path, mode: Mode, *, is_target: bool) -> None:
        self._arrays: dict[str, Array] = {}
        self._has_stacks = False
        records = []
        for index, (key, sides) in enumerate(_iterate_calls(is_target)):
            slots = [
                Slot(name := f"{key}.{side.value}.{place}", side, place, self._create_value(name, value, mode))
                for side, values in sides.items()
                for place, value in values.items()
            ]
            records.append(Record(index, key, tuple(slots)))
        task = "tensor" if mode is Mode.TENSOR else "statistics"
        super().__init__(path, Header(task, "mix", FRAMEWORK), mode, records)

    def _create_value(self, name: str, value: Any, mode: Mode) -> Value:
        if value is None:
            return Value(Kind.NULL, "None", "None")
        if not isinstance(value, np.ndarray):
            checksum = f"{zlib.crc32(str(value).encode()):08x}"
            return Value(Kind.SCALAR, str(type(value)), "[]", None, Statistics(*[value] * 4), checksum)
        described = value_of(value)
        if mode is Mode.MD5:
            return described._replace(statistics=Statistics(), checksum=f"{zlib.crc32(value.tobytes()):08x}")
        if mode is Mode.TENSOR:
            self._arrays[name] = value
            return described._replace(data_name=name)
        return described

    def tensor(self, value: Value) -> Array:
        """Return the array of a value."""
        if value.data_name not in self._arrays:
            raise UnreadableTensor(f"there is no {value.data_name}", missing=True)
        return self._arrays[value.data_name]

    @property
    def construct(self) -> Construct:
        """The module around each call."""
        return Construct({key: MODULE for key in self.names() if not is_module(key)})

    @property
    def stack_path(self) -> Path:
        """The file of the call stacks, for which the record file stands."""
        return self.path

    def use_stacks(self, path: Path) -> None:
        """Let ``stack_of`` return frames."""
        self._has_stacks = True

    def stack_of(self, key: str) -> tuple[str, ...] | None:
        """Return the frames of a call."""
        return (TRIAL_FRAME,) if self._has_stacks else None


class _ArrayFactory(NamedTuple):
    """Arrays of one side; ``error`` is what the target's results are off by."""

    error: float

    def create_array(self, *shape: int, error: float = 0.0, dtype: str = "float32") -> Array:
        count = int(np.prod(shape))
        values = np.linspace(-1, 1, count, dtype=np.float64) if count else np.empty(0)
        return np.asarray((values + error) * 3, dtype).reshape(shape)

    def create_result(self, *shape: int, dtype: str = "float32") -> Array:
        return self.create_array(*shape, error=self.error, dtype=dtype)


Sides = Mapping[Side, Mapping[str, Any]]


def _iterate_calls(is_target: bool) -> Iterator[tuple[str, Sides]]:
    """Yield the calls of one side, in their order."""
    exact, rounded, wrong = (_ArrayFactory(error if is_target else 0.0) for error in (0.0, 1e-7, 0.5))
    x, w = exact.create_array(2, 3), exact.create_array(3, 4)
    yield "Functional.linear.0.forward", _create_call({"0": x, "1": w, "bias": None}, exact.create_result(2, 4))
    yield "Functional.gelu.0.forward", _create_call({"0": x, "approximate": "none"}, rounded.create_result(2, 4))
    yield (
        "Functional.dropout.0.forward",
        _create_call({"0": x, "p": 0.25 if is_target else 0.5}, wrong.create_result(2, 4)),
    )
    yield (
        "Functional.softmax.0.forward",
        _create_call({"0": wrong.create_result(2, 4), "dim": 1}, wrong.create_result(2, 4)),
    )
    yield "Functional.argmax.0.forward", _create_call({"0": x, "keepdim": True}, wrong.create_result(2, dtype="int64"))
    yield (
        "Tensor.view.0.forward",
        _create_call({"0": x}, exact.create_result(2, 4) if is_target else exact.create_result(8)),
    )
    yield "Tensor.half.0.forward", _create_call({"0": x}, rounded.create_result(2, 3, dtype="float16"))
    yield "Functional.empty.0.forward", _create_call({"0": 0}, exact.create_result(0))
    yield "Tensor.item.0.forward", _create_call({"0": exact.create_array()}, 1.5 if is_target else 1.0)
    lonely = "Functional.exp.0.forward" if is_target else "Functional.log.0.forward"
    yield lonely, _create_call({"0": x}, exact.create_result(2, 3))
    weight = {Side.PARAMETERS: {"weight": w}}
    yield MODULE, {**_create_call({"0": x}, wrong.create_result(2, 4)), **weight}
    yield "Functional.linear.0.backward", _create_call({"0": wrong.create_result(2, 4)}, wrong.create_result(2, 3))
    yield "Module.net.Net.backward.0", _create_call({"0": wrong.create_result(2, 4)}, wrong.create_result(2, 3))
    yield "Module.net.Net.parameters_grad", {Side.PARAMETERS_GRAD: {"weight": wrong.create_result(3, 4)}}


def _create_call(inputs: Mapping[str, Any], output: Any) -> dict[Side, Mapping[str, Any]]:
    return {Side.INPUT: inputs, Side.OUTPUT: {"0": output}}
