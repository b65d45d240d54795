"""The pair of files of the pre-check, wherever its process was ended."""

from __future__ import annotations

import csv
import errno
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest
from probe_precheck import csvfile, results
from probe_precheck.model import Detail, Message, Result, Status
from probe_precheck.results import CheckFiles, get_call_name
from probe_precheck.tables import DETAILS, RESULT
from support.faults.full_disk import ERRORS, full_disk

from probe_core.errors import UserError

STAMP = "20260101120000"
ORDER = [f"Torch.api.{i}" for i in range(4)]


def result_of(name: str, text: str = "说明", outputs: int = 2) -> Result:
    """An API with a forward of some outputs."""
    details = [
        Detail(f"{name}.forward.output.{i}", Status.PASS, "a.float64", "a.float32", "(2, 3)", {"rmse": i / 3})
        for i in range(outputs)
    ]
    return Result(name, Status.PASS, None, (Message(text),), details)


def create(directory: Path, language: str = "zh", precision: int = 14) -> CheckFiles:
    return CheckFiles.create(directory, STAMP, DETAILS, language, precision)


def whole(directory: Path, names: Sequence[str] = ORDER) -> CheckFiles:
    """The files of a run that is over."""
    files = create(directory)
    for name in names:
        files.append(result_of(name))
    files.finish(ORDER)
    return files


def take_up(result: Path) -> CheckFiles:
    return CheckFiles.resume(result, DETAILS, 14)


def names_in(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [row[0] for row in csv.reader(file)][1:]


# -- both files ------------------------------------------------------------------------------------


def test_rows_are_written_at_once_and_details_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = create(tmp_path)
    seen: list[tuple[list[str], list[str]]] = []
    write = results.append_bytes

    def watched(file: BinaryIO, path: Path, data: bytes) -> None:
        write(file, path, data)
        seen.append((names_in(files.result), names_in(files.details)))

    monkeypatch.setattr(results, "append_bytes", watched)
    files.append(result_of(ORDER[0]))
    details = [f"{ORDER[0]}.forward.output.{i}" for i in range(2)]
    assert seen == [([], details), ([ORDER[0]], details)]
    files.close()


def test_whole_files_have_the_runs_order(tmp_path: Path) -> None:
    first, second = whole(tmp_path / "a"), whole(tmp_path / "b", ORDER[::-1])
    assert names_in(second.result) == ORDER
    assert names_in(second.details) == [f"{name}.forward.output.{i}" for name in ORDER for i in range(2)]
    assert first.result.read_bytes() == second.result.read_bytes()
    assert first.details.read_bytes() == second.details.read_bytes()
    assert second.details.stat().st_mode & 0o777 == second.result.stat().st_mode & 0o777 == 0o640
    assert len(list((tmp_path / "b").iterdir())) == 2


def test_a_time_that_is_taken_goes_up_by_a_second(tmp_path: Path) -> None:
    stamps = ["20231231235958", "20231231235959", "20240101000000"]
    assert [CheckFiles.create(tmp_path, stamps[0], DETAILS, "zh", 14).time_stamp for _ in stamps] == stamps


def test_a_time_is_taken_if_either_file_is_there(tmp_path: Path) -> None:
    (tmp_path / f"accuracy_checking_details_{STAMP}.csv").write_text("mine")
    files = create(tmp_path)
    assert files.time_stamp == "20260101120001"
    assert (tmp_path / f"accuracy_checking_details_{STAMP}.csv").read_text() == "mine"
    assert not (tmp_path / f"accuracy_checking_result_{STAMP}.csv").exists()


def test_only_one_may_write(tmp_path: Path) -> None:
    files = create(tmp_path)
    files.append(result_of(ORDER[0]))
    with pytest.raises(UserError, match="Another pre-check is writing"):
        take_up(files.result)
    files.close()
    take_up(files.result).close()


def test_two_rows_of_one_api_are_not_taken_up(tmp_path: Path) -> None:
    files = whole(tmp_path)
    rows = files.result.read_text("utf-8").splitlines(keepends=True)
    files.result.write_text("".join([*rows, rows[1]]), "utf-8")
    with pytest.raises(UserError, match=f"two rows for {ORDER[0]}"):
        take_up(files.result)


def finished(result: Path) -> tuple[bytes, bytes]:
    """Go on with files, do what is left, and give what is in them."""
    files = take_up(result)
    for name in ORDER:
        if name not in files.done:
            files.append(result_of(name))
    files.finish(ORDER)
    return files.result.read_bytes(), files.details.read_bytes()


def cuts(data: bytes) -> list[int]:
    """Lengths that a file may have been cut off at: from within its second row on, at whole characters."""
    start = data.index(b"\n") + 1
    return [end for end in range(start, len(data) + 1) if end == len(data) or data[end] & 0xC0 != 0x80]


def test_a_result_cut_off_anywhere_is_repaired(tmp_path: Path) -> None:
    files = whole(tmp_path)
    result, details = files.result.read_bytes(), files.details.read_bytes()
    for end in cuts(result):
        files.result.write_bytes(result[:end])
        files.details.write_bytes(details)
        assert finished(files.result) == (result, details), end


def test_what_a_killed_process_leaves_is_repaired_wherever_it_ended(tmp_path: Path) -> None:
    """Details are written first: of the last API they are cut off, or all there without its result."""
    files = whole(tmp_path)
    result, details = files.result.read_bytes(), files.details.read_bytes()
    last = result.rindex(b"\n", 0, -1) + 1
    for end in [end for end in cuts(details) if end >= details.index(f"{ORDER[3]}.".encode())]:
        files.result.write_bytes(result[:last])
        files.details.write_bytes(details[:end])
        assert finished(files.result) == (result, details), end


def test_a_file_that_ends_within_a_character_is_repaired(tmp_path: Path) -> None:
    files = whole(tmp_path)
    result, details = files.result.read_bytes(), files.details.read_bytes()
    files.result.write_bytes(result[: result.rindex("明".encode()) + 1])
    assert finished(files.result) == (result, details)


def test_details_that_are_cut_off_behind_a_result_are_repaired(tmp_path: Path) -> None:
    files = whole(tmp_path)
    result, details = files.result.read_bytes(), files.details.read_bytes()
    files.details.write_bytes(details[:-5])
    assert finished(files.result) == (result, details)


@pytest.mark.parametrize(
    "name, api",
    [
        ("Torch.add.0.forward.output.0", "Torch.add.0"),
        ("Torch.linalg.inv.0.backward.output.12", "Torch.linalg.inv.0"),
        ("Torch.add.0", "Torch.add.0"),
        ("Torch.add.0.forward.output.x", "Torch.add.0.forward.output.x"),
        ("Torch.forward.output.0.0.forward.output.1", "Torch.forward.output.0.0"),
    ],
)
def test_which_api_a_row_is_about(name: str, api: str) -> None:
    assert get_call_name(name) == api


def test_a_full_disk_takes_back_half_rows(tmp_path: Path) -> None:
    """The kernel took a part of the row, and then no more."""

    class Full:
        def __init__(self, files: CheckFiles) -> None:
            self._file = files._files[1]
            self.taken = 0

        def write(self, data: memoryview) -> int:
            if self.taken:
                raise OSError(28, "No space left on device")
            self.taken = self._file.write(data[:7])
            return self.taken

        def tell(self) -> int:
            return self._file.tell()

        def truncate(self, size: int) -> int:
            return self._file.truncate(size)

        def close(self) -> None:
            self._file.close()

    files = create(tmp_path)
    files.append(result_of(ORDER[0]))
    before = files.result.read_bytes(), files.details.read_bytes()
    files._files[1] = Full(files)  # type: ignore[call-overload]
    with pytest.raises(UserError, match="No space left on device"):
        files.append(result_of(ORDER[1]))
    assert (files.result.read_bytes(), files.details.read_bytes()) == before
    files.close()


def test_the_result_has_the_columns_of_the_guide() -> None:
    assert csvfile.format_header(RESULT, "zh").decode("utf-8-sig") == (
        "API name,Forward Test Success,Backward Test Success,Message\n"
    )


# -- full disks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_disk_that_fills_up_anywhere(tmp_path: Path, every: bool) -> None:
    """A mistake explained; and once there is room again, the run goes on to what it would have been."""
    expected = [path.read_bytes() for path in sorted(whole(tmp_path / "whole").result.parent.iterdir())]
    out = tmp_path / "out"
    with full_disk(out) as disk:
        whole(out, ORDER[::-1])
    faults = [(n, error, once) for n in range(len(disk.calls)) for error in ERRORS for once in (False, True)]
    for fails, error, once in faults if every else random.Random(0).sample(faults, 40):
        shutil.rmtree(out, ignore_errors=True)
        what = f"{disk.calls[fails]}, {errno.errorcode[error]}{' once' if once else ''}"
        files = None
        with full_disk(out) as full:
            full.fails, full.error, full.once = fails, error, once
            try:
                files = create(out)
                for name in ORDER[::-1]:
                    files.append(result_of(name))
                files.finish(ORDER)
            except UserError as mistake:
                assert str(out) in mistake.what, what
        if files is None:
            assert not out.exists() or not list(out.iterdir()) or not once, what
            continue
        files.close()
        assert len(list(out.iterdir())) == 2, what
        files = take_up(files.result)
        for name in ORDER:
            if not files.has(name):
                files.append(result_of(name))
        files.finish(ORDER)
        assert [path.read_bytes() for path in sorted(out.iterdir())] == expected, what
