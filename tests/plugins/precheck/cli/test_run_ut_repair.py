"""Going on with files that are cut off, or hold what they should not: no row twice, none lost (docs/standards.md#resume)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.runs.precheck_runs import (
    Written,
    standin_run,
    table,
    written,
)
from support.standins.standin_precheck import install

from probe_core.cli.main import run

pytest_plugins = ["support.standins.precheck_fixtures"]

NAMES = [f"Functional.{deed}.{i}" for i in range(15) for deed in ("slow", "far")]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """Return the files of a run that nothing befalls."""
    home = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(install(home / "site")))
        dump = standin_run(home / "run", *NAMES, with_backward=True)
        assert run(["multi_run_ut", "-n", "2", "-api_info", str(dump), "-o", str(home / "out")]) == 0
        yield written(home / "out")


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return standin_run(tmp_path / "run", *NAMES, with_backward=True)


def go_on(probe: Any, dump: Path, result: Path, code: int = 0) -> None:
    assert probe("multi_run_ut", "-n", "2", "-api_info", dump, "-csv_path", result) == code, probe.err


# -- what stands in the files ----------------------------------------------------------------------


@pytest.fixture
def files(undisturbed: Written, standin: Path, tmp_path: Path) -> Written:
    """A copy of the files of a whole run, to be spoiled."""
    (tmp_path / "out").mkdir()
    for path in (undisturbed.result, undisturbed.details):
        shutil.copy(path, tmp_path / "out")
    return written(tmp_path / "out")


def cut(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


def add(path: Path, text: str) -> None:
    path.write_bytes(path.read_bytes() + text.encode("utf-8"))


def keep(path: Path, wanted: Callable[[int, str], bool]) -> None:
    """Keep the header and those rows whose number and text are ``wanted``."""
    head, *rows = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text(head + "".join(row for i, row in enumerate(rows) if wanted(i, row)), "utf-8")


def cut_both(files: Written) -> None:
    keep(files.result, lambda i, _: i < 20)
    add(files.result, "Functional.slow.10,pass")
    keep(files.details, lambda i, _: i < 41)
    add(files.details, "Functional.slow.10.forward.out")


def empty_both(files: Written) -> None:
    keep(files.result, lambda i, _: False)
    keep(files.details, lambda i, _: False)


def put_blank_lines(files: Written) -> None:
    text = files.result.read_bytes()
    files.result.write_bytes(text.replace(b"\nFunctional.far.3,", b"\n , , , \nFunctional.far.3,"))


SPOILS: dict[str, Callable[[Written], object]] = {
    "nothing": lambda files: None,
    "the result ends within its last row": lambda files: cut(files.result, 9),
    "the result lacks its last line break": lambda files: cut(files.result, 1),
    "the result lacks three rows": lambda files: keep(files.result, lambda i, _: i < 27),
    "the result lacks a row in between": lambda files: keep(files.result, lambda i, _: i != 7),
    "the result has a header alone": lambda files: keep(files.result, lambda i, _: False),
    "both end within a row": cut_both,
    "both have headers alone": empty_both,
    "the result has blank lines": put_blank_lines,
}


@pytest.mark.parametrize("spoil", SPOILS)
def test_files_are_repaired(spoil: str, files: Written, dump: Path, undisturbed: Written, probe: Any) -> None:
    SPOILS[spoil](files)
    go_on(probe, dump, files.result)
    _, *rows = table(files.result)
    assert [row[0] for row in rows if row[0].strip()] == NAMES
    if spoil != "the result has blank lines":
        assert files.data == undisturbed.data
    assert files.details.read_bytes() == undisturbed.data[1]


@pytest.mark.parametrize("count", [1, 9, 60])
def test_details_that_end_within_their_last_row_are_repaired(
    count: int, files: Written, dump: Path, undisturbed: Written, probe: Any
) -> None:
    cut(files.details, count)
    go_on(probe, dump, files.result)
    assert files.data == undisturbed.data


def test_a_file_goes_on_in_its_own_language(standin: Path, dump: Path, probe: Any, tmp_path: Path) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    command = ("run_ut", "-api_info", dump, "-f")
    assert probe(*command, "-o", whole, "--lang", "en") == 0
    assert probe(*command, "-o", out, "--lang", "en", "--only", "Functional.far") == 0
    assert probe(*command, "-csv_path", written(out).result) == 0, probe.err
    assert written(out).data == written(whole).data


def test_a_column_that_the_earlier_part_had_no_use_for(standin: Path, dump: Path, probe: Any, tmp_path: Path) -> None:
    """A third party's standard brings it; the rows of the earlier part are blank there."""
    lists = tmp_path / "lists.yaml"
    lists.write_text("same_signs: [slow]\n")
    command = ("run_ut", "-api_info", dump, "-f", "--assign", lists)
    assert probe(*command, "-o", tmp_path / "whole") == 0
    assert probe(*command, "-o", tmp_path / "out", "--only", "Functional.far") == 0
    assert probe(*command, "-csv_path", written(tmp_path / "out").result) == 0, probe.err
    assert written(tmp_path / "out").data == written(tmp_path / "whole").data


def test_error_data_go_to_the_directory_of_the_first_run(
    files: Written, dump: Path, probe: Any, tmp_path: Path
) -> None:
    settings = tmp_path / "config.json"
    settings.write_text(f'{{"run_ut": {{"error_data_path": "{tmp_path}/data"}}}}')
    keep(files.result, lambda i, _: i < 28)
    command = ("run_ut", "-api_info", dump, "-config", settings, "-save_error_data")
    assert probe(*command, "-csv_path", files.result) == 0, probe.err
    (directory,) = (tmp_path / "data").iterdir()
    assert directory.name == f"ut_error_data{files.result.stem[-14:]}"
    assert [path.name for path in directory.iterdir()] == ["Functional.far.14.py"], "of what was left to do"


@pytest.mark.parametrize(
    "names",
    [
        ['Torch.e"x"p,.0', "Torch.=exp.0", "Torch.exp .0", "Torch.\u2028.0", "\u200bTorch.exp.0"],
        ["Torch.exp\n.0"],
        ["=Torch.exp.0"],
        ["Torch.\ud800.0"],
        [" Torch.exp.0"],
        ["Torch.exp\r.0"],
    ],
    ids=ascii,
)
def test_names_that_no_program_has(names: list[str], standin: Path, probe: Any, tmp_path: Path) -> None:
    """Each has its row, once, whatever is in it."""
    path = standin_run(tmp_path / "odd", "Functional.good.0", *names)
    assert probe("run_ut", "-api_info", path, "-o", tmp_path / "out") == 0, probe.err
    before = written(tmp_path / "out")
    assert len(before.rows) == len(before.outputs) == len(names) + 1
    data = before.data
    go_on(probe, path, before.result)
    assert before.data == data, "there was nothing left to do"


def test_going_on_writes_where_the_files_are(
    files: Written, dump: Path, probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    keep(files.result, lambda i, _: i < 29)
    go_on(probe, dump, files.result)
    assert len(files.rows) == len(NAMES)
    assert not list((tmp_path / "elsewhere").iterdir())
    assert files.result.stat().st_mode & 0o777 == files.details.stat().st_mode & 0o777 == 0o640
