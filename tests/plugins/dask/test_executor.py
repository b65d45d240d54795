"""Comparisons on a dask cluster: the bytes of the built-in executors, and one sentence where the cluster fails."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from probe_dask.hooks import probe_executors
from probe_ranks.spread import open_pool
from probe_ranks.testing import ExecutorConformance
from support.programs.interrupts import let_interrupts_in
from support.programs.preloaded import PreloadedPopen
from support.runs.recorded import forward, tensor, write_run

from probe_core import engine
from probe_core.errors import UserError

distributed = pytest.importorskip("distributed")
executor = pytest.importorskip("probe_dask.executor")

FORMATS = ("--format", "xlsx,csv,jsonl")
GOOD = {f"Torch.exp.{n}.forward": forward(tensor(), output=[tensor()]) for n in range(3)}
OFF = {**GOOD, "Torch.exp.1.forward": forward(tensor(), output=[tensor(value=9.0)])}
HELD, DEADLY = 777, 666
"""Values over which the metric of these tests waits while a file is there, or ends its process."""
PLUGIN = f"""
import os, pathlib, time
from probe_core.plugins.hookspecs import hookimpl
from probe_core.model import Measurement
from probe_core.plugins.specs import MetricSpec, Needs

class Held:
    def measure(self, pair):
        value = pair.pair.target.value.statistics.max
        if value == {DEADLY}:
            os._exit(9)
        if value == {HELD}:
            hold = pathlib.Path(os.environ["PROBE_TEST_HOLD"])
            while hold.exists():
                hold.with_name("reached").touch()
                time.sleep(0.02)
        return [Measurement(1.0)]

@hookimpl
def probe_metrics():
    return [MetricSpec("held", "waits", "probe_held:Held", ("Held",), Needs.STATISTICS)]
"""
CONFIG = {
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s",
}


@pytest.fixture(autouse=True)
def _same_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probe_core.library.get_time_stamp", lambda: "20260101000000")
    monkeypatch.setattr(engine, "_threads", 0)
    monkeypatch.setattr(executor, "SCHEDULER_TIMEOUT_SECONDS", 5)


def record(root: Path, ranks: Iterable[int], off: Iterable[int] = ()) -> Path:
    for rank in ranks:
        write_run(root / f"rank{rank}", OFF if rank in off else GOOD)
    return root


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of five ranks; rank 1 of the target parts from its golden."""
    return record(tmp_path / "target", range(5), off=[1]), record(tmp_path / "golden", range(5))


def files(out: Path) -> dict[str, bytes]:
    """All that lies below ``out``, without the time in its name, nor in the links of pages."""
    return {
        re.sub(r"\d{14}", "T", path.relative_to(out).as_posix()): re.sub(rb"\d{14}", b"T", path.read_bytes())
        if path.suffix == ".html"
        else path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def errors(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("error: ")]


class Cluster:
    """A scheduler of its own and its workers, as processes that can be killed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        home.mkdir()
        self.hold = home / "hold"
        info = home / "site/probe_held-1.0.dist-info"
        info.mkdir(parents=True)
        (home / "site/probe_held.py").write_text(PLUGIN)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: probe-held\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[probe]\nheld = probe_held\n")
        self.environment = {
            **os.environ,
            **CONFIG,
            "PYTHONPATH": str(home / "site"),
            "PROBE_TEST_HOLD": str(self.hold),
        }
        self._processes: list[subprocess.Popen[Any]] = []
        self.scheduler = self._start(
            "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--idle-timeout", "300 seconds",
            "--scheduler-file", str(home / "scheduler.json"),
        )  # fmt: skip
        self.address = str(json.loads(self._written(home / "scheduler.json"))["address"])

    def work(self, count: int, *options: str) -> None:
        """Start workers of one thread each, and wait for them."""
        for number in range(count):
            local = self._home / f"worker{len(self._processes)}"
            self._start(
                "dask_worker", self.address, "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1", "--death-timeout", "20",
                "--local-directory", str(local), "--name", f"worker{number}", *options,
            )  # fmt: skip
        with distributed.Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=30)

    def compare(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """``probe compare`` on this cluster, in a process group of its own."""
        process = PreloadedPopen(
            [sys.executable, "-m", "probe_core.cli", "compare", *map(str, arguments), "--metric", "held"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self.environment, start_new_session=True, preexec_fn=let_interrupts_in,
        )  # fmt: skip
        self._processes.append(process)
        return process

    def close(self) -> None:
        self.hold.unlink(missing_ok=True)
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)

    def _start(self, module: str, *arguments: str) -> subprocess.Popen[Any]:
        process = PreloadedPopen(
            [sys.executable, "-m", f"distributed.cli.{module}", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=self.environment, start_new_session=True, cwd=self._home,
        )  # fmt: skip
        self._processes.append(process)
        return process

    def _written(self, path: Path) -> str:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if path.exists() and path.read_text().rstrip().endswith("}"):
                return path.read_text()
            time.sleep(0.02)
        raise AssertionError("the scheduler did not start")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler and two workers."""
    made = Cluster(tmp_path_factory.mktemp("dask") / "cluster")
    try:
        made.work(2)
        yield made
    finally:
        made.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler that a test may kill, without workers yet."""
    made = Cluster(tmp_path / "cluster")
    yield made
    made.close()


# -- the same as built in --------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["tensor_L1_dist2", "stat_mix_dist2"])
@pytest.mark.parametrize("jobs", [[], ["-j", "1"], ["-j", "9"]])
def test_several_ranks(case: str, jobs: list[str], cluster: Cluster, probe: Any, runs: Any, tmp_path: Path) -> None:
    base = runs(case)
    for out, way in (
        ("a", ["-j", "1"]),
        ("b", ["--executor", "dask", "--scheduler", cluster.address, *jobs]),
    ):
        assert (
            probe("compare", base / "npu_dump", base / "bench_dump", "-o", tmp_path / out, "-hl", *FORMATS, *way) == 0
        )
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert probe.err == ""


@pytest.mark.parametrize("case", ["tensor_L1_edge", "stat_L1_edge", "md5_L1_edge", "debug_tensor"])
def test_one_rank_in_chunks(case: str, cluster: Cluster, probe: Any, runs: Any, tmp_path: Path) -> None:
    base = runs(case)
    for out, way in (("a", []), ("b", ["--scheduler", cluster.address])):
        assert probe("compare", base / "npu_dump", base / "bench_dump", "-o", tmp_path / out, *FORMATS, *way) == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_more_ranks_than_workers(cluster: Cluster, probe: Any, pair: Any, tmp_path: Path) -> None:
    for out, way in (("a", ["-j", "1"]), ("b", ["--scheduler", cluster.address])):
        assert probe("compare", *pair, "-o", tmp_path / out, *FORMATS, *way) == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert "5 of 5 comparisons finished" in probe.out and "differ: rank1\n" in probe.out


def test_the_address_alone_means_dask(probe: Any, pair: Any, tmp_path: Path) -> None:
    assert probe("compare", *pair, "-o", tmp_path, "--scheduler", "tcp://h:1", "--print-plan") == 0
    assert json.loads(probe.out)["executor"] == "dask"


def test_the_cluster_is_left_as_it_was(cluster: Cluster, probe: Any, pair: Any, tmp_path: Path) -> None:
    assert probe("compare", *pair, "-o", tmp_path / "o", "--scheduler", cluster.address) == 0
    with distributed.Client(cluster.address, set_as_default=False) as client:
        assert len(client.scheduler_info(n_workers=-1)["workers"]) == 2
        state = client.run_on_scheduler(lambda dask_scheduler: (len(dask_scheduler.tasks), len(dask_scheduler.clients)))
    assert state[0] == 0 and state[1] <= 2, "no task stays, and no client but this one and the scheduler's own"


def test_ranks_at_fault(cluster: Cluster, probe: Any, pair: Any, tmp_path: Path) -> None:
    path = pair[1] / "rank2/dump.json"
    path.write_bytes(path.read_bytes()[:-50])
    (pair[0] / "rank3/dump.json").unlink()
    assert probe("compare", *pair, "-o", tmp_path / "o", *FORMATS, "--scheduler", cluster.address) == 2
    first, second = errors(probe.err)
    assert "rank3" in first and second.startswith("error: rank2: ") and "is not valid JSON" in second
    assert "Traceback" not in probe.err
    names = {name[:20] for name in files(tmp_path / "o") if name.startswith("compare_result")}
    assert names == {f"compare_result_rank{n}" for n in (0, 1, 4)}


def test_the_executor_is_listed(probe: Any) -> None:
    assert probe("plugins") == 0
    assert re.search(r"^    dask +workers of the dask cluster that --scheduler names$", probe.out, re.M)
    assert probe("plugins", "--json") == 0
    (found,) = [plugin for plugin in json.loads(probe.out) if plugin["name"] == "dask"]
    assert list(found["contributes"]["executors"]) == ["dask"] and found["status"] == "ok"


# -- no cluster ------------------------------------------------------------------------------------


@pytest.fixture
def refused(probe: Any, pair: Any, tmp_path: Path) -> Callable[..., str]:
    """``refused("--scheduler", …)``: one error, exit 2, no result; what was said."""

    def check(*options: str) -> str:
        for number, paths in enumerate((pair, [side / "rank0" for side in pair])):
            out = tmp_path / f"refused{number}"
            assert probe("compare", *paths, "-o", out, *options) == 2, probe.err
            (line,) = errors(probe.err)
            assert "Traceback" not in probe.err and len(probe.err.splitlines()) >= 2
            assert not [name for name in files(out) if "compare_result" in name]
        return line

    return check


def test_no_address(refused: Any, probe: Any) -> None:
    assert "The executor dask needs a scheduler" in refused("--executor", "dask")
    assert "--scheduler tcp://host:8786" in probe.err


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:1", "nonsense", "", "tcp://", "ftp://127.0.0.1:1", "tcp://127.0.0.1:x", "tcp://127.0.0.1:99999", "://", "tcp://[::1", "a b"],
)  # fmt: skip
def test_no_scheduler_there(address: str, refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "SCHEDULER_TIMEOUT_SECONDS", 0.5)
    assert "There is no dask scheduler at" in refused("--executor", "dask", "--scheduler", address)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:x", "://"])
def test_a_client_that_cannot_connect_is_closed(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open client that is garbage closes itself, and waits for the lock of one that is being started."""
    monkeypatch.setattr(executor, "SCHEDULER_TIMEOUT_SECONDS", 0.5)
    loops = [thread for thread in threading.enumerate() if thread.name == "IO loop"]
    gc.disable()
    try:
        with pytest.raises(UserError, match="There is no dask scheduler at"):
            executor.Dask().open(1, address)
        deadline = time.monotonic() + 20
        while any(one.name == "probe-dask" for one in threading.enumerate()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not [t for t in threading.enumerate() if t.name == "IO loop" and t not in loops]
    finally:
        gc.enable()


def test_something_else_listens_there(probe: Any, pair: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """It takes the connection, says nothing, and ends after a while so that the test does."""
    monkeypatch.setattr(executor, "SCHEDULER_TIMEOUT_SECONDS", 0.5)
    server = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def listen() -> None:
        server.settimeout(0.1)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            with suppress(TimeoutError):
                taken.append(server.accept()[0])
        for each in (server, *taken):
            each.close()

    thread = threading.Thread(target=listen)
    thread.start()
    began = time.monotonic()
    address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    assert probe("compare", *pair, "-o", tmp_path / "o", "--scheduler", address) == 2
    took = time.monotonic() - began
    thread.join()
    assert f"There is no dask scheduler at {address}" in probe.err
    assert took < 1.5


def test_without_distributed(refused: Any, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "distributed is not installed" in refused("--scheduler", "tcp://127.0.0.1:8786")
    assert "pip install distributed" in probe.err


def test_a_scheduler_without_workers(own: Cluster, refused: Any, probe: Any) -> None:
    assert "has no workers" in refused("--scheduler", own.address)
    assert f"dask worker {own.address}" in probe.err


# -- what dies -------------------------------------------------------------------------------------


def hold(cluster: Cluster, target: Path, rank: int) -> None:
    """Have the metric wait over this rank, for as long as the test wants it to."""
    write_run(target / f"rank{rank}", {**GOOD, "Torch.exp.2.forward": forward(tensor(value=HELD))})
    cluster.hold.touch()
    cluster.hold.with_name("reached").unlink(missing_ok=True)


def wait_until(out: Path, finished: int, cluster: Cluster) -> None:
    """Until so many ranks are finished, and the held one is reached."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = [path.read_bytes().count(b"\n") - 1 for path in out.glob("compare_progress_*.jsonl")]
        if found and max(found) >= finished and cluster.hold.with_name("reached").exists():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come so far")


def finish(cluster: Cluster, target: Path, golden: Path, out: Path) -> str:
    """Take up without the cluster; what was printed. The files are those of an undisturbed comparison."""
    cluster.hold.unlink(missing_ok=True)
    resumed = cluster.compare(target, golden, "-o", out, "--resume", "-j", "1")
    said, err = resumed.communicate(timeout=60)
    assert resumed.returncode == 0, err
    whole = out.with_name("undisturbed")
    assert cluster.compare(target, golden, "-o", whole, "-j", "1").wait(60) == 0
    visible = {
        name: data for name, data in files(out).items() if not name.startswith(".") and "interrupted" not in name
    }
    assert visible == files(whole)
    return said


def test_a_scheduler_that_dies_midway(own: Cluster, pair: Any, tmp_path: Path) -> None:
    own.work(2)
    hold(own, pair[0], 2)
    process = own.compare(*pair, "-o", tmp_path / "o", "--scheduler", own.address)
    wait_until(tmp_path / "o", 4, own)
    os.killpg(own.scheduler.pid, signal.SIGKILL)
    began = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2, err
    (line,) = errors(err)
    assert "The workers are gone" in line and "--resume" in err, err
    assert "Traceback" not in err and len(err.splitlines()) == 2, err
    assert time.monotonic() - began < 30
    assert "finished, 4 of them in an earlier run" in finish(own, *pair, tmp_path / "o")


@pytest.mark.slow
def test_a_scheduler_that_dies_while_one_rank_is_measured(own: Cluster, tmp_path: Path) -> None:
    own.work(2)
    for side, value in (("t", HELD), ("g", 1.0)):
        write_run(tmp_path / side, {"Torch.exp.0.forward": forward(tensor(value=value))})
    own.hold.touch()
    process = own.compare(tmp_path / "t", tmp_path / "g", "-o", tmp_path / "o", "--scheduler", own.address)
    deadline = time.monotonic() + 30
    while not own.hold.with_name("reached").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(own.scheduler.pid, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2, err
    assert "The workers are gone" in errors(err)[0] and files(tmp_path / "o") == {}


def test_a_scheduler_that_dies_as_a_result_is_fetched(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the result is told."""

    async def closed(*_: Any, **__: Any) -> None:
        raise distributed.CommClosedError("Stream is closed")

    with open_pool(lambda: executor.Dask().open(1, cluster.address)) as pool:
        monkeypatch.setattr(distributed.Client, "_gather_remote", closed)
        future = pool.executor.submit(pow, 2, 3)
        try:
            found: object = future.exception(timeout=1)
        except CancelledError as error:
            found = error
        assert found is not None


def test_a_worker_that_is_killed_loses_only_its_rank(own: Cluster, pair: Any, tmp_path: Path) -> None:
    """Its nanny starts another."""
    own.work(2, "--nanny")
    write_run(pair[0] / "rank1", {**GOOD, "Torch.exp.1.forward": forward(tensor(value=DEADLY))})
    process = own.compare(*pair, "-o", tmp_path / "o", "--format", "csv", "-c", "--scheduler", own.address)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2 and "Traceback" not in err, err
    assert errors(err)[0].startswith("error: rank1: The process that compared it died"), err
    names = {name for name in files(tmp_path / "o") if name.startswith("compare_result")}
    assert names == {f"compare_result_rank{n}_T.csv" for n in (0, 2, 3, 4)}, err


def test_ctrl_c_keeps_what_is_finished(cluster: Cluster, pair: Any, tmp_path: Path) -> None:
    hold(cluster, pair[0], 2)
    process = cluster.compare(*pair, "-o", tmp_path / "o", "--scheduler", cluster.address)
    wait_until(tmp_path / "o", 4, cluster)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.3)
    cluster.hold.unlink(missing_ok=True)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err and not errors(err), err
    finished = {name for name in files(tmp_path / "o") if "compare_result" in name}
    assert {f"compare_result_rank{n}_T.xlsx" for n in (0, 1, 3, 4)} <= finished
    finish(cluster, *pair, tmp_path / "o")


# -- the kit for authors ---------------------------------------------------------------------------


@pytest.mark.parametrize("check", [name for name in dir(ExecutorConformance) if name.startswith("test_")])
def test_it_conforms(check: str, cluster: Cluster) -> None:
    fields = {"spec": probe_executors()[0], "scheduler": cluster.address}
    getattr(type("Conformance", (ExecutorConformance,), fields)(), check)()
