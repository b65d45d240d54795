"""A test kit for authors of recorders: a class of tests to subclass.

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
from probe_recording.debugger import Debugger
from probe_recording.run_directory.directory import DUMP_FILE, SINGLE
from probe_recording.values.arrays import Array, measure

STATISTICS = ("Max", "Min", "Mean", "Norm")


@contextmanager
def record_with(debugger: type[Debugger[Any, Any]], path: Path, **fields: Any) -> Iterator[Debugger[Any, Any]]:
    """Yield a debugger that is the only debugger of the process during the block; complete its run afterwards.

    Args:
        debugger: The class of the debugger.
        path: The directory of the run.
        fields: Further fields of its configuration.
    """
    config = path.with_name(f"{path.name}.config.json")
    config.write_text(json.dumps({"dump_path": str(path), **fields}))
    previous, debugger._instance = debugger._instance, None
    try:
        instance = debugger(config_path=config)
        try:
            yield instance
        finally:
            instance._finish()
    finally:
        debugger._instance = previous


class RecorderConformance(ABC):
    """Tests that every recorder must pass: set the attributes in a subclass, and pytest collects them.

    Attributes:
        debugger: The class that scripts construct.
        reader: The class that opens the recorded runs.
        names: The names of all records of one step at level L1, in order.
        fields: Further fields of the configuration.
    """

    debugger: ClassVar[type[Debugger[Any, Any]]]
    reader: ClassVar[type[Reader]]
    names: ClassVar[Sequence[str]]
    fields: ClassVar[Mapping[str, Any]] = {}

    @abstractmethod
    def program(self) -> Sequence[Array]:
        """Run a small deterministic step of the framework and return its results."""

    def record(self, path: Path, steps: int = 1, **fields: Any) -> list[list[bytes]]:
        """Record the program and return the results of its steps as bytes.

        Args:
            path: The directory of the run.
            steps: Number of steps.
            fields: Fields of the configuration.
        """
        results = []
        fields = {"task": "tensor", "level": "L1", **self.fields, **fields}
        with record_with(self.debugger, path, **fields) as debugger:
            for _ in range(steps):
                debugger.start()
                results.append(self._collect_results())
                debugger.stop()
                self.program()  # not recorded
                debugger.step()
        errors = "".join(log.read_text("utf-8") for log in path.rglob(ERROR_FILE))
        assert not errors, f"the recorder failed:\n{errors}"
        return results

    def open(self, path: Path, step: int = 0) -> Any:
        """Open a step of a run with the reader."""
        return self.reader().open(path / f"step{step}" / SINGLE / DUMP_FILE)

    def test_results_are_unchanged(self, tmp_path: Path) -> None:
        """Check that the results of the program are bit-equal without, during and after a recording."""
        expected = self._collect_results()
        recorded = self.record(tmp_path / "run", steps=2)
        assert recorded == [expected, expected], "results differ while they are recorded"
        assert self._collect_results() == expected, "results differ after the recording"

    def test_the_steps_that_are_asked_for(self, tmp_path: Path) -> None:
        """Check that each step has its own directory and that only the steps in ``step`` are recorded."""
        self.record(tmp_path / "run", steps=4, step=[0, "2-3"])
        steps = sorted(path.name for path in (tmp_path / "run").glob("step*"))
        assert steps == ["step0", "step2", "step3"], f"steps 0, 2 and 3 were selected, but {steps} were recorded"

    def test_the_ranks_that_are_asked_for(self, tmp_path: Path) -> None:
        """Check that the directory of a single process is called ``rank`` and that the process counts as rank 0."""
        for rank, expected in ((0, [SINGLE]), (1, [])):
            self.record(tmp_path / f"run{rank}", rank=[rank])
            labels = [path.name for path in (tmp_path / f"run{rank}").glob("step0/*")]
            assert labels == expected, f"rank {rank} was selected, but {labels} were recorded"

    def test_the_names_of_records(self, tmp_path: Path) -> None:
        """Check the names of the records and their order, and that counts restart with each step."""
        self.record(tmp_path / "run", steps=2)
        for step in (0, 1):
            names = [record.key for record in self.open(tmp_path / "run", step).records()]
            assert names == [*self.names], f"step {step} holds {names}, not {[*self.names]}"

    def test_the_filter_of_names(self, tmp_path: Path) -> None:
        """Check that ``list`` selects the calls whose names contain one of its entries."""
        selected = self.names[-1]
        self.record(tmp_path / "run", tensor={"list": [selected]})
        names = [record.key for record in self.open(tmp_path / "run").records()]
        assert names == [selected], f"{selected} was selected, and the run holds {names}"

    def test_the_run_opens(self, tmp_path: Path) -> None:
        """Check that the reader recognizes the run, and that call stacks contain the program."""
        self.record(tmp_path / "run")
        confidence = self.reader().sniff(tmp_path / "run/step0" / SINGLE / DUMP_FILE)
        assert confidence == 100, f"the reader's sniff returns {confidence} for its own run, not 100"
        run = self.open(tmp_path / "run")
        assert run.mode is Mode.TENSOR, f"a run with tensors opens in mode {run.mode.value}"
        run.use_stacks(run.stack_path)
        for name in (name for name in self.names if name.endswith(".forward")):
            frames = "".join(run.stack_of(name) or ())
            assert ", in program, " in frames, f"the call stack of {name} lacks the program: {frames!r}"

    def test_data_are_what_the_record_says(self, tmp_path: Path) -> None:
        """Check that shapes and statistics of the records are those of their data."""
        self.record(tmp_path / "run")
        run = self.open(tmp_path / "run")
        values = [slot.value for record in run.records() for slot in record.slots]
        tensors = [value for value in values if value.kind is Kind.TENSOR and value.data_name]
        assert tensors, "the run holds no tensor with data"
        for value in tensors:
            array = run.tensor(value)
            assert array.shape == value.shape, f"{value.data_name}: {array.shape} in the data, {value.shape}"
            expected = measure(array)
            largest = max((abs(number) for number in expected[:2] if number is not None), default=0)
            for name, number, recorded in zip(STATISTICS, expected, value.statistics):
                assert number is None or (
                    isinstance(recorded, (int, float))
                    and np.isclose(recorded, number, rtol=1e-6, atol=1e-6 * largest, equal_nan=True)
                ), f"{value.data_name}: {name} of its data is {number}, but the record holds {recorded}"

    def test_statistics_without_data(self, tmp_path: Path) -> None:
        """Check that task statistics records the same statistics as task tensor, and no data."""
        statistics = []
        for task in ("tensor", "statistics"):
            self.record(tmp_path / task, task=task)
            records = self.open(tmp_path / task).records()
            statistics.append([[slot.value.statistics for slot in record.slots] for record in records])
        assert statistics[0] == statistics[1], "task statistics records other statistics than task tensor"
        assert not [*(tmp_path / "statistics").rglob("dump_tensor_data")], "task statistics writes data"

    def _collect_results(self) -> list[bytes]:
        return [array.tobytes() for array in self.program()]
