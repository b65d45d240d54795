"""Conformance tests for readers, as a class to subclass."""

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
    """Tests for any reader; set ``spec``, and ``record_file`` to that of a run of its format."""

    spec: ClassVar[ReaderSpec]
    record_file: ClassVar[Path]

    def reader(self) -> Reader:
        """Return a new reader from the spec's factory."""
        reader: Reader = self.spec.make()
        return reader

    def run(self) -> Run:
        """Return the opened run."""
        return self.reader().open(self.record_file)

    def test_spec_lists_its_files(self) -> None:
        """Check for a name, a summary, a framework, and the names of record files."""
        assert self.spec.name and self.spec.summary and self.spec.framework
        assert isinstance(self.spec.record_files, tuple) and 1 <= len(self.spec.record_files) <= 2
        assert self.record_file.name.endswith(self.spec.record_files)

    def test_recognizes_only_its_runs(self, tmp_path: Path) -> None:
        """Check the confidence for a run of the reader's framework and for a run of another framework."""
        assert 0 < self.reader().sniff(self.record_file) <= 100
        stranger = tmp_path / "dump.json"
        stranger.write_text('{"task": "tensor", "level": "L1", "framework": "of nobody", "data": {}}')
        assert self.reader().sniff(stranger) == 0

    def test_header_and_mode(self) -> None:
        """Check the path, the framework and the mode of a run."""
        run = self.run()
        assert run.path == self.record_file
        assert run.header.framework == self.spec.framework
        assert run.mode in Mode
        assert run.shown is run

    def test_records_are_found_by_index_and_name(self) -> None:
        """Check that names are distinct, in order, and lead to their records."""
        run = self.run()
        names, records = list(run.names()), list(run.records())
        assert len(run) == len(names) == len(records) > 0
        assert len(set(names)) == len(names)
        for index, (name, record) in enumerate(zip(names, records)):
            assert (record.index, record.key) == (index, name)
            assert run.find(name) == index and run.record(index) == record, name
        assert run.find("no such call") is None

    def test_slots_are_counted(self) -> None:
        """Check ``starts``, and that signatures distinguish the names of slots."""
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
        """Check that tensors have a dtype and a shape, and that the extent spells the shape."""
        for record in self.run().records():
            for slot in record.slots:
                if slot.value.kind is Kind.TENSOR:
                    assert slot.value.shape is not None and slot.value.dtype, slot.name
                    assert slot.value.extent == str(list(slot.value.shape)), slot.name

    def test_tensors_are_as_described(self) -> None:
        """Check that arrays have the recorded shape, do not change, and outlive the run."""
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
        """Check that a missing tensor raises UnreadableTensor and nothing else."""
        run = self.run()
        for value in (slot.value for record in run.records() for slot in record.slots):
            if value.data_name is not None:
                try:
                    run.tensor(value._replace(data_name="no such file"))
                except UnreadableTensor:
                    return
                raise AssertionError("it was read")

    def test_truncated_file_is_refused(self, tmp_path: Path) -> None:
        """Check that a truncated record file raises a UserError that names it."""
        cut = tmp_path / self.record_file.name
        cut.write_bytes(self.record_file.read_bytes()[:-20])
        try:
            self.reader().open(cut)
        except UserError as error:
            assert str(cut) in error.what and error.fix
            return
        raise AssertionError("it was opened")
