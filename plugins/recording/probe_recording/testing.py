"""The kit for authors of recorders: a class of tests to subclass.

::

    from probe_recording.testing import RecorderConformance

    class TestRecorder(RecorderConformance):
        debugger = PrecisionDebugger
        reader = NumpyReader
        names = ("Numpy.matmul.0.forward", "Numpy.tanh.0.forward")

        def program(self):
            return [np.tanh(np.matmul(X, W))]
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from probe_core.model import Kind, Mode
from probe_core.plugins.protocols import Reader
from probe_core.store.files import ERROR_FILE
from probe_recording.arrays import Array, measure
from probe_recording.debugger import Debugger
from probe_recording.directory import DUMP_FILE
from probe_recording.recorder import SINGLE

STATISTICS = ("Max", "Min", "Mean", "Norm")


@contextmanager
def recording(debugger: type[Debugger[Any, Any]], path: Path, **fields: Any) -> Iterator[Debugger[Any, Any]]:
    """Give a debugger that is the only one of the process while the block runs, and complete its run.

    Args:
        debugger: The class of the debugger.
        path: The directory of the run.
        fields: Other fields of its configuration.
    """
    config = path.with_name(f"{path.name}.config.json")
    config.write_text(json.dumps({"dump_path": str(path), **fields}))
    before, debugger._instance = debugger._instance, None
    try:
        made = debugger(config_path=config)
        try:
            yield made
        finally:
            made._recorder.finish()
    finally:
        debugger._instance = before


class RecorderConformance(ABC):
    """Tests that any recorder passes; set the attributes in your subclass and pytest collects them.

    Attributes:
        debugger: The class that a script makes.
        reader: The class that opens the runs.
        names: The names of all records of one step at level L1, in their order.
        fields: Further fields of the configuration.
    """

    debugger: ClassVar[type[Debugger[Any, Any]]]
    reader: ClassVar[type[Reader]]
    names: ClassVar[Sequence[str]]
    fields: ClassVar[Mapping[str, Any]] = {}

    @abstractmethod
    def program(self) -> Sequence[Array]:
        """Run a small step of the framework, the same each time, and return its results."""

    def record(self, path: Path, steps: int = 1, **fields: Any) -> list[list[bytes]]:
        """Record ``steps`` steps of the program into ``path``; the bytes of the results of each."""
        results = []
        fields = {"task": "tensor", "level": "L1", **self.fields, **fields}
        with recording(self.debugger, path, **fields) as debugger:
            for _ in range(steps):
                debugger.start()
                results.append(self._results())
                debugger.stop()
                self.program()  # not recorded
                debugger.step()
        errors = "".join(log.read_text("utf-8") for log in path.rglob(ERROR_FILE))
        assert not errors, f"the recorder failed:\n{errors}"
        return results

    def open(self, path: Path, step: int = 0) -> Any:
        """Open a step of a run by the reader."""
        return self.reader().open(path / f"step{step}" / SINGLE / DUMP_FILE)

    def test_results_are_unchanged(self, tmp_path: Path) -> None:
        """Recording changes no bit of what the program computes, then or afterwards."""
        before = self._results()
        recorded = self.record(tmp_path / "run", steps=2)
        assert recorded == [before, before], "results differ while they are recorded"
        assert self._results() == before, "results differ after the recording"

    def test_the_steps_that_are_asked_for(self, tmp_path: Path) -> None:
        """Each step has a directory of its own, and only those in ``step`` are recorded."""
        self.record(tmp_path / "run", steps=4, step=[0, "2-3"])
        found = sorted(path.name for path in (tmp_path / "run").glob("step*"))
        assert found == ["step0", "step2", "step3"], f"steps 0, 2 and 3 were asked for, and there are {found}"

    def test_the_ranks_that_are_asked_for(self, tmp_path: Path) -> None:
        """A process that is alone is ``rank``, and counts as rank 0."""
        for rank, expected in ((0, [SINGLE]), (1, [])):
            self.record(tmp_path / f"run{rank}", rank=[rank])
            found = [path.name for path in (tmp_path / f"run{rank}").glob("step0/*")]
            assert found == expected, f"rank {rank} was asked for, and there are {found}"

    def test_the_names_of_records(self, tmp_path: Path) -> None:
        """Records have the names, in this order; counts begin anew with each step."""
        self.record(tmp_path / "run", steps=2)
        for step in (0, 1):
            found = [record.key for record in self.open(tmp_path / "run", step).records()]
            assert found == [*self.names], f"step {step} holds {found}, not {[*self.names]}"

    def test_the_filter_of_names(self, tmp_path: Path) -> None:
        """``list`` records the calls whose names hold one of its entries."""
        wanted = self.names[-1]
        self.record(tmp_path / "run", tensor={"list": [wanted]})
        found = [record.key for record in self.open(tmp_path / "run").records()]
        assert found == [wanted], f"{wanted} was asked for, and the run holds {found}"

    def test_the_run_opens(self, tmp_path: Path) -> None:
        """The reader knows the run as its own, and each call leads to the line of the program."""
        self.record(tmp_path / "run")
        sure = self.reader().sniff(tmp_path / "run/step0" / SINGLE / DUMP_FILE)
        assert sure == 100, f"the reader takes the run for its own by {sure}, not by 100"
        run = self.open(tmp_path / "run")
        assert run.mode is Mode.TENSOR, f"a run with tensors is taken for one of {run.mode.value}"
        run.use_stacks(run.stack_path)
        for name in (name for name in self.names if name.endswith(".forward")):
            frames = "".join(run.stack_of(name) or ())
            assert ", in program, " in frames, f"the call stack of {name} lacks the program: {frames!r}"

    def test_data_are_what_the_record_says(self, tmp_path: Path) -> None:
        """Shapes and statistics in a record are those of its data."""
        self.record(tmp_path / "run")
        run = self.open(tmp_path / "run")
        values = [slot.value for record in run.records() for slot in record.slots]
        found = [value for value in values if value.kind is Kind.TENSOR and value.data_name]
        assert found, "the run holds no tensor with data"
        for value in found:
            array = run.tensor(value)
            assert array.shape == value.shape, f"{value.data_name}: {array.shape} in the data, {value.shape}"
            expected = measure(array)
            largest = max((abs(number) for number in expected[:2] if number is not None), default=0)
            for name, number, recorded in zip(STATISTICS, expected, value.statistics):
                assert number is None or (
                    isinstance(recorded, (int, float))
                    and np.isclose(recorded, number, rtol=1e-6, atol=1e-6 * largest, equal_nan=True)
                ), f"{value.data_name}: {name} of its data is {number}, and the record says {recorded}"

    def test_statistics_without_data(self, tmp_path: Path) -> None:
        """Task statistics records the same statistics as task tensor, and no data."""
        found = []
        for task in ("tensor", "statistics"):
            self.record(tmp_path / task, task=task)
            records = self.open(tmp_path / task).records()
            found.append([[slot.value.statistics for slot in record.slots] for record in records])
        assert found[0] == found[1], "task statistics records other statistics than task tensor"
        assert not [*(tmp_path / "statistics").rglob("dump_tensor_data")], "task statistics writes data"

    def _results(self) -> list[bytes]:
        return [array.tobytes() for array in self.program()]
