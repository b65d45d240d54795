"""The kit for readers: the installed ones pass, and each check finds the fault that it is for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from probe_mindspore.hooks import probe_readers as mindspore_readers
from probe_pytorch.hooks import probe_readers as pytorch_readers
from support.conformance import X, failing
from support.runs.npz import PLUGIN, SAME, save
from support.runs.recorded import write_tensor_run

from probe_core.errors import UnreadableTensor, UserError
from probe_core.model import Mode, Record, Value
from probe_core.model.run import Header, HeldRun
from probe_core.plugins.specs import (
    ReaderSpec,
)
from probe_core.testing import (
    ArrayRun,
    ReaderConformance,
)

# -- readers ---------------------------------------------------------------------------------------


def test_the_readers_pass(runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (recorded,) = (runs("tensor_L1_datamap") / "npu_dump").rglob("dump.json")
    assert failing(ReaderConformance, tmp_path / "pt", spec=pytorch_readers()[0], record_file=recorded) == set()
    path = write_tensor_run(tmp_path / "run", {"Mint.add.0.forward": ([X, X], [X])})
    assert failing(ReaderConformance, tmp_path / "ms", spec=mindspore_readers()[0], record_file=path) == set()
    monkeypatch.syspath_prepend(str(PLUGIN))
    from probe_npz.hooks import probe_readers as npz_readers

    path = save(tmp_path / "npz", SAME) / "manifest.json"
    assert failing(ReaderConformance, tmp_path / "n", spec=npz_readers()[0], record_file=path) == set()
    for name in [name for name in sys.modules if name.startswith("probe_npz")]:
        monkeypatch.delitem(sys.modules, name)


class GoodReader:
    """Reads ``b"mine"`` and an end mark: one call whose data are in memory."""

    def sniff(self, path: Path) -> int:
        return 100 if path.read_bytes().startswith(b"mine") else 0

    def open(self, path: Path) -> Any:
        if not path.read_bytes().endswith(b"end"):
            raise UserError(f"{path} is cut off.", "Copy it again.")
        return self.made(path, list(ArrayRun({"a.0": ([X], [X]), "b.0": ([X], [])}).records()))

    def made(self, path: Path, records: list[Record]) -> Any:
        return GoodRun(path, Header("tensor", "L1", "mine"), Mode.TENSOR, records)


class GoodRun(HeldRun):
    def tensor(self, value: Value) -> Any:
        if not str(value.data_name).startswith(("a.", "b.")):
            raise UnreadableTensor("there is none")
        return X


class EagerReader(GoodReader):
    def sniff(self, path: Path) -> int:
        return 100


class TrustingReader(GoodReader):
    def open(self, path: Path) -> Any:
        return self.made(path, list(ArrayRun({"a.0": ([X], [X])}).records()))


class ForgetfulReader(GoodReader):
    def made(self, path: Path, records: list[Record]) -> Any:
        return GoodRun(path, Header("tensor", "L1", "other"), Mode.TENSOR, records)


class MiscountingReader(GoodReader):
    def made(self, path: Path, records: list[Record]) -> Any:
        run = super().made(path, records)
        run.starts = [0, 1, 2]
        return run


class UnorderedReader(GoodReader):
    def made(self, path: Path, records: list[Record]) -> Any:
        return super().made(path, records[::-1])


class WrongShapeReader(GoodReader):
    def made(self, path: Path, records: list[Record]) -> Any:
        run = super().made(path, records)
        run.tensor = lambda value: X[:1]
        return run


class ExtentlessReader(GoodReader):
    def made(self, path: Path, records: list[Record]) -> Any:
        slots = tuple(s._replace(value=s.value._replace(extent="?")) for s in records[0].slots)
        return super().made(path, [Record(0, records[0].key, slots)])


@pytest.mark.parametrize(
    "reader, faults",
    [
        (GoodReader, set()),
        (EagerReader, {"recognizes_only_its_runs"}),
        (TrustingReader, {"truncated_file_is_refused"}),
        (ForgetfulReader, {"header_and_mode"}),
        (MiscountingReader, {"slots_are_counted"}),
        (UnorderedReader, {"records_are_found_by_index_and_name"}),
        (WrongShapeReader, {"tensors_are_as_described", "missing_data_are_unreadable"}),
        (ExtentlessReader, {"values_are_described"}),
    ],
)
def test_a_fault_of_a_reader_is_found(reader: Any, faults: set[str], tmp_path: Path) -> None:
    path = tmp_path / "run.mine"
    path.write_bytes(b"mine" * 10 + b"end")
    spec = ReaderSpec("mine", "mine", reader, framework="mine", record_files=("run.mine",))
    assert failing(ReaderConformance, tmp_path / "checks", spec=spec, record_file=path) == faults


def test_record_files_that_name_another_file(tmp_path: Path) -> None:
    (tmp_path / "run.mine").write_bytes(b"mine" * 10 + b"end")
    spec = ReaderSpec("mine", "mine", GoodReader, framework="mine")
    found = failing(ReaderConformance, tmp_path / "c", spec=spec, record_file=tmp_path / "run.mine")
    assert found == {"spec_lists_its_files"}
