"""Jobs in other processes: what a job does to its process is its own affair, and no process is left behind."""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from probe_precheck import supervisor
from probe_precheck.supervisor import Job, LostJob, ProcessPool, supervise
from support import TESTS
from support.programs import supervised
from support.programs.supervised import plain

from probe_core.errors import UserError

LONG = 30.0
"""Seconds that no job of these tests takes."""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes as POSIX has them")


def jobs_of(*deeds: tuple[str, Any]) -> list[Job]:
    return [Job(key, deed) for key, deed in enumerate(deeds)]


def results(
    *deeds: tuple[str, Any],
    workers: int = 1,
    timeout: float = LONG,
    setup: Any = plain,
    method: str | None = None,
) -> list[Any]:
    """Return the results of all deeds in their order; each is there once."""
    found = list(supervise(setup, jobs_of(*deeds), workers, timeout, method=method))
    assert sorted(job.key for job, _ in found) == list(range(len(deeds)))
    return [result for _, result in sorted(found, key=lambda item: item[0].key)]


def is_running(pid: int) -> bool:
    """Return True if there is such a process; one that ended and waits for its parent is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return not Path("/proc/self").exists()
    return text.rpartition(")")[2].split()[0] not in "ZX"


def gone(pids: Sequence[int], within: float = 5.0) -> bool:
    """Return True if all of the processes end in time."""
    until = time.monotonic() + within
    while any(map(is_running, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    return not any(map(is_running, pids))


def started(directory: Path) -> list[int]:
    """The processes that ``supervised.noted`` noted."""
    return [int(file.name) for file in directory.iterdir()]


def give(count: int) -> list[tuple[str, Any]]:
    return [("give", number) for number in range(count)]


# -- jobs and their order --------------------------------------------------------------------------


def test_every_job_gives_its_result() -> None:
    assert results(*give(20), workers=3) == list(range(20))


def test_no_jobs_start_nothing(tmp_path: Path) -> None:
    assert results(setup=partial(supervised.noted, str(tmp_path)), workers=4) == []
    assert started(tmp_path) == []


def test_costly_jobs_go_first_and_equals_keep_their_order() -> None:
    costs = [1.0, 5.0, 1.0, 7.5, 5.0, 0.0]
    jobs = [Job(key, ("give", None), cost) for key, cost in enumerate(costs)]
    assert [job.key for job, _ in supervise(plain, jobs, 1, LONG)] == [3, 1, 4, 0, 2, 5]


def test_work_goes_to_whoever_is_free() -> None:
    first, *others = results(("sleep", 0.7), *[("sleep", 0.02)] * 9, workers=2)
    assert first not in others and len(set(others)) == 1


def test_results_come_when_they_are_there() -> None:
    run = supervise(plain, jobs_of(("hang", None), ("give", "quick")), 2, LONG)
    with contextlib.closing(run):
        job, result = next(run)
    assert (job.key, result) == (1, "quick")


def test_slots_are_numbered_from_0() -> None:
    deeds = [("slot", None), ("sleep", 0.3)] * 3
    assert set(results(*deeds, workers=3)[::2]) <= {0, 1, 2}
    assert results(("slot", None), workers=3) == [0]


def test_no_more_processes_than_jobs(tmp_path: Path) -> None:
    results(*give(2), workers=5, setup=partial(supervised.noted, str(tmp_path)))
    assert 1 <= len(started(tmp_path)) <= 2


def test_a_run_without_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="workers"):
        results(*give(1), workers=0)


def test_megabytes_come_and_go() -> None:
    sent = [("size", bytes(5_000_000)), ("big", 7_000_000), ("size", bytes(300_000)), ("big", 0)]
    assert [r if isinstance(r, int) else len(r) for r in results(*sent, workers=2)] == [
        5_000_000,
        7_000_000,
        300_000,
        0,
    ]


def test_a_job_costs_less_than_a_millisecond() -> None:
    with contextlib.closing(supervise(plain, jobs_of(*give(1001)), 1, LONG)) as run:
        next(run)
        start = time.perf_counter()
        assert sum(1 for _ in islice(run, 1000)) == 1000
        assert time.perf_counter() - start < 1.0


# -- jobs that end their process -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        (("segfault", None), "its process ended by signal 11 (segmentation fault)"),
        (("abort", None), "its process ended by signal 6 (aborted)"),
        (("killed", None), "its process was killed (signal 9), often because of a lack of memory"),
        (("exit", 3), "its process ended with exit code 3"),
        (("exit", 0), "its process ended with exit code 0"),
        (("leave", 4), "its process ended with exit code 4"),
        (("hang", None), "no answer within 0.5 s"),
        (("hang with the lock", None), "no answer within 0.5 s"),
        (("stop", None), "no answer within 0.5 s"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_deadly_job_is_lost_alone(deed: tuple[str, Any], reason: str) -> None:
    before, lost, after = results(("give", 1), deed, ("give", 2), timeout=0.5)
    assert (before, lost, after) == (1, LostJob(reason), 2)


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_both_start_methods_survive_a_crash(method: str) -> None:
    found = results(("give", 1), ("segfault", None), ("pid", None), method=method)
    assert found[0] == 1 and "signal 11" in found[1].reason and found[2] != os.getpid()


def test_a_process_is_replaced_only_while_jobs_remain(tmp_path: Path) -> None:
    deeds = [*give(3), ("exit", 1), ("give", 3), ("exit", 1)]
    results(*deeds, setup=partial(supervised.noted, str(tmp_path)))
    assert len(started(tmp_path)) == 2


def test_a_process_about_to_be_ready_needs_no_other(tmp_path: Path) -> None:
    deeds = [("exit", 1), ("give", 2)]
    results(*deeds, workers=2, setup=partial(supervised.slow_in_slot_1, str(tmp_path)))
    assert sorted(file.read_text() for file in tmp_path.iterdir()) == ["0", "1"]


def test_a_long_start_is_no_hang() -> None:
    assert results(("give", 1), timeout=0.2, setup=partial(supervised.slow, 0.6)) == [1]


def test_time_may_have_no_limit() -> None:
    assert results(*give(2), timeout=math.inf) == [0, 1]


def test_time_counts_for_each_job_anew() -> None:
    assert all(isinstance(pid, int) for pid in results(*[("sleep", 0.3)] * 4, timeout=0.6))


def test_a_reader_that_takes_its_time_costs_no_job() -> None:
    deeds = [("give", 0), ("size", bytes(5_000_000)), ("sleep", 0.1), ("big", 5_000_000)]
    run = supervise(plain, jobs_of(*deeds), 1, 0.4)
    found = []
    for _, result in run:
        found.append(result)
        time.sleep(0.6)
    assert not any(isinstance(result, LostJob) for result in found)


def test_a_large_job_for_a_process_that_is_stuck_blocks_nothing() -> None:
    """The first has the process stop a moment after its answer, before the next is on its way."""
    found = results(("stop later", 0.1), ("size", supervised.SlowToSend(0.3, 9_000_000)), ("give", 3), timeout=0.5)
    assert found == [None, LostJob("no answer within 0.5 s"), 3]


def test_what_a_job_started_is_killed_with_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    (lost,) = results(("child", str(file)), timeout=0.5)
    assert lost == LostJob("no answer within 0.5 s") and gone([int(file.read_text())])


# -- jobs that only fail ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        (("raise", "a\nb"), r"raised ValueError: a\nb"),
        (("mute", None), "raised Mute"),
        (("no memory", None), "raised MemoryError"),
        (("unreadable", None), "raised ValueError: unreadable, when its result was read"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_escapes_a_job_costs_no_process(deed: tuple[str, Any], reason: str) -> None:
    before, lost, after = results(("pid", None), deed, ("pid", None))
    assert lost == LostJob(reason) and before == after


def test_a_result_that_cannot_be_sent_costs_no_process() -> None:
    before, lost, after = results(("pid", None), ("unpicklable", None), ("pid", None))
    assert lost.reason.startswith("raised ") and "pickle" in lost.reason and before == after


def test_a_job_that_cannot_be_sent_is_lost() -> None:
    lost, after = results(("give", lambda: None), ("give", 2))
    assert lost.reason.endswith(", when it was sent") and after == 2


def test_a_job_that_cannot_be_read_is_lost() -> None:
    lost, after = results(("give", supervised.Unreadable()), ("give", 2))
    assert (lost, after) == (LostJob("raised ValueError: unreadable"), 2)


# -- what processes print --------------------------------------------------------------------------


def test_the_last_line_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    text = "first\nRuntimeError: no kernel \x1b[31m for it\n  \n\n"
    said, lost = results(("say", "of another job\n"), ("say and exit", text))
    assert said is None
    wrote = r"RuntimeError: no kernel \x1b[31m for it"
    assert lost == LostJob(f"its process ended with exit code 3; it last wrote: {wrote}")
    assert capfd.readouterr() == ("", "")


def test_what_an_earlier_job_printed_is_not_told() -> None:
    assert results(("say", "early\n"), ("exit", 1))[1] == LostJob("its process ended with exit code 1")


def test_a_flood_of_output_is_told_in_short() -> None:
    (lost,) = results(("say and exit", "x" * 3_000_000))
    assert 100 < len(lost.reason) < 500


# -- setting up ------------------------------------------------------------------------------------


def test_a_setup_may_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        results(*give(5), workers=2, setup=supervised.refused)
    error = caught.value
    assert (error.what, error.fix, error.choices) == ("There is no device.", "Plug one in.", ("one", "two"))


@pytest.mark.parametrize(
    ("setup", "told"),
    [
        (
            supervised.broken,
            "its process ended with exit code 1; it last wrote: ImportError: no libdevice.so",
        ),
        (supervised.dead, "its process ended by signal 6 (aborted); it last wrote: the driver is gone"),
    ],
)
def test_processes_that_never_start_end_the_run(setup: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        results(*give(5), setup=partial(setup, str(tmp_path)))
    assert told in caught.value.what and len(started(tmp_path)) == supervisor.MAX_FAILED_STARTS
    assert gone(started(tmp_path), 0)


def test_a_slot_that_never_starts_is_left_empty(tmp_path: Path) -> None:
    deeds = [("sleep", 0.1)] * 8
    found = results(*deeds, workers=2, setup=partial(supervised.dead_in_slot_0, str(tmp_path)))
    assert not any(isinstance(result, LostJob) for result in found)
    slots = Counter(file.read_text() for file in tmp_path.iterdir())
    assert slots["1"] == 1 and 1 <= slots["0"] <= supervisor.MAX_FAILED_STARTS


def test_a_start_that_fails_twice_is_forgiven(tmp_path: Path) -> None:
    assert results(*give(3), setup=partial(supervised.dead_at, (0, 1), str(tmp_path))) == [0, 1, 2]
    assert len(started(tmp_path)) == 3


def test_starts_that_fail_are_counted_in_a_row(tmp_path: Path) -> None:
    setup = partial(supervised.dead_at, (0, 1, 3, 4), str(tmp_path))
    assert results(("give", 1), ("exit", 1), ("give", 3), setup=setup)[::2] == [1, 3]
    assert len(started(tmp_path)) == 6


def test_a_start_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MIN_START_TIMEOUT_SECONDS", 0.3)
    with pytest.raises(UserError, match=r"no answer within 0\.3 s"):
        results(*give(1), timeout=0.01, setup=partial(supervised.slow, 30.0))


def test_our_variables_are_those_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    assert results(("variable", "PROBE_TEST")) == [None]
    monkeypatch.setenv("PROBE_TEST", "now")
    assert results(("variable", "PROBE_TEST")) == ["now"]


@pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="Linux")
def test_where_memory_is_short_a_worker_goes_first() -> None:
    assert results(("read", "/proc/self/oom_score_adj")) == ["1000\n"]


# -- no process is left ----------------------------------------------------------------------------


def test_nothing_is_left_at_the_end(tmp_path: Path) -> None:
    results(*give(10), ("exit", 1), workers=3, setup=partial(supervised.noted, str(tmp_path)))
    assert gone(started(tmp_path), 0)


def test_processes_may_tidy_up_at_the_end(tmp_path: Path) -> None:
    results(("at exit", str(tmp_path / "tidy")))
    assert (tmp_path / "tidy").exists()


def test_a_run_that_is_closed_leaves_nothing(tmp_path: Path) -> None:
    deeds = [("give", 1), ("hang with the lock", None), ("hang", None), ("give", 1)]
    run = supervise(partial(supervised.noted, str(tmp_path)), jobs_of(*deeds), 3, LONG)
    next(run)
    start = time.monotonic()
    run.close()
    assert time.monotonic() - start < 1 and started(tmp_path) and gone(started(tmp_path), 0)


def test_a_process_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(supervisor, "PATIENCE_SECONDS", 0.2)
    assert results(("thread", None), setup=partial(supervised.noted, str(tmp_path))) == [None]
    assert len(started(tmp_path)) == 1 and gone(started(tmp_path), 0)


def test_interrupts_do_not_reach_jobs() -> None:
    assert results(("interrupt", None), ("give", 2)) == [None, 2]


SCRIPT = """
import os, signal, sys, time
from functools import partial
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {tests!r})
from support.programs import supervised
from probe_precheck.supervisor import Job, supervise
print("script", flush=True)
deeds = {deeds!r}
jobs = [Job(key, deed, -key) for key, deed in enumerate(deeds)]
setup = partial(supervised.noted, {directory!r})
for job, result in supervise(setup, jobs, {workers}, 30.0, method={method!r}, preload={preload!r}):
    print(result, flush=True)
"""


@contextlib.contextmanager
def script(directory: Path, *deeds: tuple[str, Any], **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A program without a guard, in a group of its own, that prints its results."""
    values = {"workers": 1, "method": None, "preload": (), "deeds": deeds, "directory": str(directory)}
    file = directory.with_suffix(".py")
    file.write_text(SCRIPT.format(**values | more, tests=str(TESTS)))
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, str(file)], stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    directory = tmp_path / "notes"
    directory.mkdir()
    return directory


def wait_until_started(notes: Path, count: int) -> None:
    """Wait until so many processes have noted that they started, which takes long where others compute."""
    end = time.monotonic() + LONG
    while len(started(notes)) < count and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.2)  # they begin their jobs


def read_lines(process: subprocess.Popen[str], count: int) -> None:
    assert process.stdout is not None
    for _ in range(count):
        assert process.stdout.readline()


HANGING = (("give", 1), ("give", 1), ("hang", None), ("hang with the lock", None))


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_program_needs_no_guard(method: str, notes: Path) -> None:
    with script(notes, ("give", "a"), ("exit", 3), ("loaded", "decimal"), method=method, preload=("decimal",)) as run:
        out, err = run.communicate(timeout=LONG)
    lines = out.splitlines()
    assert lines[:2] == ["script", "a"] and "exit code 3" in lines[2] and err == ""
    assert lines[3:] == [str(method == "forkserver")]


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_ctrl_c_ends_all_at_once(method: str, notes: Path) -> None:
    with script(notes, *HANGING, workers=2, method=method) as run:
        read_lines(run, 3)
        wait_until_started(notes, 2)
        start = time.monotonic()
        os.killpg(run.pid, signal.SIGINT)
        _, err = run.communicate(timeout=LONG)
    assert time.monotonic() - start < 3 and len(started(notes)) == 2 and gone(started(notes))
    assert run.returncode not in (0, 1) and err.count("Traceback") == 1 and err.endswith("KeyboardInterrupt\n")


def test_ctrl_c_while_processes_start_is_told_once(notes: Path) -> None:
    with script(notes, *HANGING, workers=2, preload=("asyncio",)) as run:
        read_lines(run, 1)
        time.sleep(0.06)
        os.killpg(run.pid, signal.SIGINT)
        _, err = run.communicate(timeout=LONG)
    assert err.count("Traceback") == 1 and gone(started(notes))


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_parent_that_is_killed_leaves_nothing(method: str, notes: Path) -> None:
    with script(notes, *HANGING, workers=2, method=method) as run:
        read_lines(run, 3)
        wait_until_started(notes, 2)
        run.kill()
        pids = started(notes)
        assert len(pids) == 2 and gone(pids)


# -- all at once -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_whatever_jobs_do_each_is_told_once(seed: int) -> None:
    chance = random.Random(seed)
    harmless = [
        ("give", 1),
        ("give", bytes(400_000)),
        ("raise", "no"),
        ("unpicklable", None),
        ("sleep", 0.01),
    ]
    deadly = [
        ("segfault", None),
        ("exit", 3),
        ("killed", None),
        ("hang", None),
        ("close", None),
        ("say and exit", "x"),
    ]
    deeds = [chance.choice(harmless if chance.random() < 0.85 else deadly) for _ in range(60)]
    found = results(*deeds, workers=chance.randint(1, 4), timeout=2)
    for deed, result in zip(deeds, found):
        if deed[0] in ("give", "sleep"):
            assert result == deed[1] or isinstance(result, int), deed
        else:
            assert isinstance(result, LostJob), deed


# -- jobs that arrive while it runs ----------------------------------------------------------------


def test_jobs_may_arrive_while_others_run_and_no_more_than_the_limit_wait() -> None:
    refused = threading.Event()

    def feed(run: ProcessPool) -> None:
        for number in range(3):
            run.put(Job(number, ("give", number)))
        assert not run.put(Job(9, ("give", 9)), wait=0.05)  # three are unfinished
        refused.set()
        for number in range(3, 20):
            assert run.put(Job(number, ("give", number)))
        time.sleep(0.1)  # so that all processes are idle once
        run.put(Job(20, ("killed", None)))
        run.put(Job(21, ("give", 21)))
        run.close()
        assert not run.put(Job(22, ("give", 22)))

    found: dict[int, Any] = {}
    with ProcessPool(plain, 2, LONG, most=3) as run:
        feeder = threading.Thread(target=feed, args=(run,))
        feeder.start()
        assert refused.wait(LONG)
        while not run.is_done:
            for job, result in run.collect_finished(LONG):
                assert job.key not in found
                found[job.key] = result
        feeder.join()
    lost = found.pop(20)
    assert isinstance(lost, LostJob) and "signal 9" in lost.reason
    assert found == {number: number for number in [*range(20), 21]}


def test_waiting_for_jobs_ends_in_time_and_when_woken() -> None:
    with ProcessPool(plain, 1, LONG, most=1) as run:
        started = time.monotonic()
        assert run.collect_finished(0.1) == []
        assert 0.05 < time.monotonic() - started < LONG
        threading.Timer(0.1, run.wake).start()
        assert run.collect_finished() == []
