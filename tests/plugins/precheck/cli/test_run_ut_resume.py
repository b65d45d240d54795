"""Going on with a pre-check that was killed or interrupted: no row twice, none lost (docs/standards.md#resume)."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.runs.precheck_runs import (
    Started,
    Written,
    standin_run,
    until,
    written,
)
from support.standins.standin_precheck import TRACE, install

from probe_core.cli.main import run

pytest_plugins = ["support.standins.precheck_fixtures"]

NAMES = [f"Functional.{deed}.{i}" for i in range(15) for deed in ("slow", "far")]
KILLED = "its process was killed (signal 9)"


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


class Disturbed:
    """A run in a process of its own, with what it has written so far."""

    def __init__(self, site: Path, dump: Path, home: Path, *more: str) -> None:
        self.out, self.trace = home / "out", home / "trace"
        self.trace.touch()
        command: tuple[str | Path, ...] = (
            "multi_run_ut",
            "-n",
            "2",
            "-api_info",
            dump,
            "-o",
            self.out,
            *more,
        )
        self.started = Started(site, *command, **{TRACE: str(self.trace)})

    @property
    def rows(self) -> list[str]:
        """The names of the APIs whose rows are whole."""
        found = sorted(self.out.glob("accuracy_checking_result_*.csv")) if self.out.is_dir() else []
        lines = found[0].read_bytes().splitlines(keepends=True)[1:] if found else []
        return [line.decode().partition(",")[0] for line in lines if line.endswith(b"\n")]

    def until_rows(self, count: int) -> None:
        until(lambda: len(self.rows) >= count, f"{count} rows")

    def workers(self) -> list[int]:
        """The processes that are at calls."""
        lines = [line.split() for line in self.trace.read_text().splitlines()]
        return list(dict.fromkeys(int(process) for process, _ in lines))

    def done(self, since: int = 0) -> list[str]:
        """The names of the calls that were begun, from the one with number ``since`` on."""
        return [line.split()[1] for line in self.trace.read_text().splitlines()[since:]]


@pytest.fixture
def disturbed(standin: Path, dump: Path, tmp_path: Path) -> Iterator[Disturbed]:
    found = Disturbed(standin, dump, tmp_path)
    yield found
    found.started.kill()


def go_on(probe: Any, dump: Path, result: Path, code: int = 0) -> None:
    assert probe("multi_run_ut", "-n", "2", "-api_info", dump, "-csv_path", result) == code, probe.err


# -- killed and interrupted ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_killed_at_any_moment(
    seed: int,
    disturbed: Disturbed,
    dump: Path,
    undisturbed: Written,
    probe: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = random.Random(seed)
    disturbed.until_rows(moments.randrange(len(NAMES) - 4))
    time.sleep(moments.uniform(0, 0.03))
    disturbed.started.kill()
    finished, begun = disturbed.rows, len(disturbed.done())
    until(lambda: not any(alive(process) for process in disturbed.workers()), "no process is left")
    (result,) = disturbed.out.glob("accuracy_checking_result_*.csv")

    monkeypatch.setenv(TRACE, str(disturbed.trace))
    go_on(probe, dump, result)
    assert written(disturbed.out).data == undisturbed.data
    again = disturbed.done(since=begun)
    assert not set(again) & set(finished), "what is finished is not run again"
    assert f"{len(finished)} of them in an earlier run" in probe.out or not finished


def test_a_worker_that_is_killed_costs_one_row(disturbed: Disturbed, undisturbed: Written) -> None:
    until(disturbed.workers, "a call was begun")
    disturbed.until_rows(5)
    os.kill(disturbed.workers()[0], signal.SIGKILL)
    code, _, _ = disturbed.started.wait()
    found = written(disturbed.out)
    lost = [name for name, row in found.rows.items() if KILLED in row[2]]
    assert list(found.rows) == NAMES and len(lost) <= 1
    assert code == (3 if lost else 0), "between two calls there is nothing to lose"
    assert {name: row for name, row in found.rows.items() if name not in lost} == {
        name: row for name, row in undisturbed.rows.items() if name not in lost
    }


def test_a_worker_and_its_parent_killed(disturbed: Disturbed, dump: Path, undisturbed: Written, probe: Any) -> None:
    disturbed.until_rows(3)
    os.kill(disturbed.workers()[-1], signal.SIGKILL)
    disturbed.started.kill()
    (result,) = disturbed.out.glob("accuracy_checking_result_*.csv")
    go_on(probe, dump, result)
    found = written(disturbed.out)
    lost = {name for name, row in found.rows.items() if KILLED in row[2]}
    assert list(found.rows) == NAMES and len(lost) <= 1
    assert all(found.rows[name] == row for name, row in undisturbed.rows.items() if name not in lost)
    ours, theirs = (
        {name: row for name, row in side.outputs.items() if name.split(".forward")[0].split(".backward")[0] not in lost}
        for side in (found, undisturbed)
    )
    assert ours == theirs


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(
    disturbed: Disturbed, dump: Path, undisturbed: Written, probe: Any
) -> None:
    disturbed.until_rows(4)
    workers = disturbed.workers()
    disturbed.started.interrupt()
    code, _, err = disturbed.started.wait()
    assert code == 130 and "Traceback" not in err and "--result-csv-path" in err
    assert not any(alive(process) for process in workers)
    found = written(disturbed.out)
    assert 4 <= len(found.rows) < len(NAMES)
    expected = undisturbed.outputs
    assert all(expected[name] == row for name, row in found.outputs.items())
    assert all(data.endswith(b"\n") for data in found.data)
    go_on(probe, dump, found.result)
    assert written(disturbed.out).data == undisturbed.data


def test_ctrl_c_names_the_file_to_go_on_with(disturbed: Disturbed) -> None:
    disturbed.until_rows(1)
    disturbed.started.interrupt()
    _, _, err = disturbed.started.wait()
    assert str(written(disturbed.out).result) in err


def test_interrupted_twice_and_killed_once(
    disturbed: Disturbed, standin: Path, dump: Path, undisturbed: Written, probe: Any, tmp_path: Path
) -> None:
    disturbed.until_rows(3)
    disturbed.started.interrupt()
    assert disturbed.started.wait()[0] == 130
    for end in ("kill", "interrupt"):
        before = len(disturbed.rows)
        result = written(disturbed.out).result
        more = Disturbed(standin, dump, tmp_path, "-csv_path", str(result))
        more.until_rows(before + 3)
        getattr(more.started, end)()
        more.started.kill()
    go_on(probe, dump, written(disturbed.out).result)
    assert written(disturbed.out).data == undisturbed.data


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# -- two at once -----------------------------------------------------------------------------------


def test_two_at_once_on_one_file(disturbed: Disturbed, dump: Path, undisturbed: Written, probe: Any) -> None:
    disturbed.until_rows(1)
    (result,) = disturbed.out.glob("accuracy_checking_result_*.csv")
    with disturbed.started.stopped():
        assert probe("run_ut", "-api_info", dump, "-csv_path", result) == 2
    assert f"Another pre-check is writing {result.name}." in probe.err
    code, _, err = disturbed.started.wait()
    assert code == 0, err
    assert written(disturbed.out).data == undisturbed.data, "the first is unharmed"


def test_two_new_runs_of_one_second(
    standin: Path, dump: Path, probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("probe_precheck.cli.run_ut.get_time_stamp", lambda: "20251231235959")
    for _ in range(2):
        assert probe("run_ut", "-api_info", dump, "-o", tmp_path / "out", "--only", NAMES[1]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        f"accuracy_checking_{which}_{stamp}.csv"
        for which in ("details", "result")
        for stamp in ("20251231235959", "20260101000000")
    ]
