"""What every reader must do, as a class of tests to subclass."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from probe_core.errors import UnreadableTensor, UserError
from probe_core.model import Kind, Mode
from probe_core.model.run import Run
from probe_core.plugins.protocols import Reader
from probe_core.plugins.specs import ReaderSpec


class ReaderConformance:
    """Tests that any reader passes; set ``spec``, and ``record_file`` to one of a run that it reads."""

    spec: ClassVar[ReaderSpec]
    record_file: ClassVar[Path]

    def reader(self) -> Reader:
        """A fresh reader from the spec's factory."""
        reader: Reader = self.spec.make()
        return reader

    def run(self) -> Run:
        """The run, opened."""
        return self.reader().open(self.record_file)

    def test_spec_names_its_files(self) -> None:
        """A name, a summary, a framework, and the names of record files, of which the run's is one."""
        assert self.spec.name and self.spec.summary and self.spec.framework
        assert isinstance(self.spec.record_files, tuple) and 1 <= len(self.spec.record_files) <= 2
        assert self.record_file.name.endswith(self.spec.record_files)

    def test_sure_of_its_own_runs_alone(self, tmp_path: Path) -> None:
        """From 1 to 100 for its own run, and 0 for one that names another framework."""
        assert 0 < self.reader().sniff(self.record_file) <= 100
        stranger = tmp_path / "dump.json"
        stranger.write_text('{"task": "tensor", "level": "L1", "framework": "of nobody", "data": {}}')
        assert self.reader().sniff(stranger) == 0

    def test_header_and_mode(self) -> None:
        """The run says where it lies, its framework and what it holds."""
        run = self.run()
        assert run.path == self.record_file
        assert run.header.framework == self.spec.framework
        assert run.mode in Mode
        assert run.shown is run

    def test_records_are_found_by_index_and_name(self) -> None:
        """Names are in the order of the run, each once, and lead to their records."""
        run = self.run()
        names, records = list(run.names()), list(run.records())
        assert len(run) == len(names) == len(records) > 0
        assert len(set(names)) == len(names)
        for index, (name, record) in enumerate(zip(names, records)):
            assert (record.index, record.key) == (index, name)
            assert run.find(name) == index and run.record(index) == record, name
        assert run.find("no such call") is None

    def test_slots_are_counted(self) -> None:
        """``starts`` counts the slots of all records before, and signatures tell their names apart."""
        run = self.run()
        assert len(run.starts) == len(run) + 1 and len(run.signatures) == len(run)
        assert run.starts[0] == 0
        of_names: dict[tuple[str, ...], int] = {}
        for index, record in enumerate(run.records()):
            assert run.starts[index + 1] - run.starts[index] == len(record.slots), record.key
            signature = of_names.setdefault(tuple(slot.name for slot in record.slots), run.signatures[index])
            assert signature == run.signatures[index], record.key
        assert len(set(of_names.values())) == len(of_names)

    def test_values_are_described(self) -> None:
        """A tensor has a dtype and a shape, which its extent spells."""
        for record in self.run().records():
            for slot in record.slots:
                if slot.value.kind is Kind.TENSOR:
                    assert slot.value.shape is not None and slot.value.dtype, slot.name
                    assert slot.value.extent == str(list(slot.value.shape)), slot.name

    def test_tensors_are_as_described(self) -> None:
        """Data have the recorded shape, are the same when asked for again, and outlive the run."""
        run = self.run()
        held = []
        for record in run.records():
            for slot in record.slots:
                if slot.value.data_name is not None:
                    array = run.tensor(slot.value)
                    assert array.shape == slot.value.shape, slot.name
                    assert array.tobytes() == run.tensor(slot.value).tobytes(), slot.name
                    held.append((array, np.array(array)))
        assert held or run.mode is not Mode.TENSOR, "a run of mode tensor has tensors"
        run.close()
        assert all(array.tobytes() == copy.tobytes() for array, copy in held)

    def test_missing_data_are_unreadable(self) -> None:
        """A tensor whose data are not there raises UnreadableTensor, and nothing else."""
        run = self.run()
        for value in (slot.value for record in run.records() for slot in record.slots):
            if value.data_name is not None:
                try:
                    run.tensor(value._replace(data_name="no such file"))
                except UnreadableTensor:
                    return
                raise AssertionError("it was read")

    def test_a_file_cut_off_is_refused(self, tmp_path: Path) -> None:
        """A record file that ends too early raises UserError, which names it."""
        cut = tmp_path / self.record_file.name
        cut.write_bytes(self.record_file.read_bytes()[:-20])
        try:
            self.reader().open(cut)
        except UserError as error:
            assert str(cut) in error.what and error.fix
            return
        raise AssertionError("it was opened")
