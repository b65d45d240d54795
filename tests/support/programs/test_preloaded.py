"""Preloaded processes do what fresh ones do: streams, arguments, paths, exit codes and signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support.programs import preloaded
from support.programs.imported import compared_with
from support.programs.preloaded import PreloadedPopen

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")

SHOWS = """\
import os, sys
print(globals().get("__file__"), __spec__ is None, __package__, globals().get("__loader__").__class__.__name__)
print(sys._getframe().f_code.co_filename, sys.argv, __name__, sys.path[0], os.getcwd(), os.environ.get("MINE"), sorted(os.environ) == {names!r})
print(sys.stdin.read(), file=sys.stderr)
import helper
"""
ENDS = {
    "nothing": "",
    "a code": "sys.exit(7)",
    "no code": "sys.exit()",
    "words": "sys.exit('no more data')",
    "an exception": "def f():\n    raise ValueError('mine')\nf()",
    "its cause": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError(1) from error",
    "an interrupt": "raise KeyboardInterrupt",
    "an unheard thread": "import threading\nthreading.Timer(0.1, lambda: print('late')).start()",
    "a last word": "import atexit\natexit.register(print, 'bye')",
    "a signal": "import os\nos.kill(os.getpid(), 15)",
    "at once": "import os\nos._exit(9)",
    "its own hook": "sys.excepthook = lambda *found: print('hook', found[0].__name__)\nraise ValueError",
}

STARTS_WORKERS = """\
import multiprocessing, os, signal, sys
def work():
    print("torch", "torch" in sys.modules)
    print("worker", sys.argv, os.environ["MINE"], signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, __name__)
    sys.exit(3)
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: None)
    worker = multiprocessing.get_context("forkserver").Process(target=work)
    worker.start()
    worker.join()
    print("exit", worker.exitcode)
"""


def outcome(run: Any, command: list[str], **options: Any) -> tuple[int, str, str]:
    done = run([sys.executable, *command], capture_output=True, text=True, timeout=60, **options)
    return done.returncode, done.stdout, done.stderr


def is_forked(process: PreloadedPopen) -> bool:
    return process._status is not None


@pytest.mark.parametrize("kind", ["-c", "-m", "file"])
def test_a_program_sees_the_same(kind: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    env = {**os.environ, "MINE": "1", "PYTHONPATH": str(tmp_path)}
    code = SHOWS.format(names=sorted(env))
    (home / "program.py").write_text(code)
    (tmp_path / "helper.py").write_text("print('helper', __file__)")
    command = {"-c": ["-c", code], "-m": ["-m", "program"], "file": ["program.py"]}[kind]
    options = {"cwd": home, "env": env, "input": "given"}
    expected = outcome(subprocess.run, [*command, "-x", "ä"], **options)
    assert expected[0] == 0 and "helper" in expected[1] and "given" in expected[2]
    with PreloadedPopen([sys.executable, *command, "-x", "ä"], cwd=home, env=env, stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # fmt: skip
        assert is_forked(process)
        out, err = process.communicate("given", timeout=60)
    assert (process.returncode, out, err) == expected


def test_a_program_starts_workers_the_same(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(STARTS_WORKERS)
    env = {**os.environ, "MINE": "1"}
    expected = outcome(subprocess.run, ["program.py", "given"], cwd=tmp_path, env=env)
    said = "worker ['program.py', 'given'] 1 True __mp_main__\nexit 3\n"
    assert expected == (0, f"torch False\n{said}", "")
    assert outcome(preloaded.run, ["program.py", "given"], cwd=tmp_path, env=env) == (
        0,
        f"torch True\n{said}",
        "",
    )


@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends_the_same(end: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(f"import sys\nprint('begun')\n{ENDS[end]}\n")
    for unbuffered in ("", "1"):
        env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        assert outcome(preloaded.run, [str(path)], env=env) == outcome(subprocess.run, [str(path)], env=env)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_gone(unbuffered: str) -> None:
    found = []
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    for popen in (subprocess.Popen, PreloadedPopen):
        reading, writing = os.pipe()
        os.close(reading)
        command = [sys.executable, "-c", "print('x')"]
        with popen(command, stdout=writing, stderr=subprocess.PIPE, env=env) as process:
            os.close(writing)
            _, err = process.communicate(timeout=60)
        found.append((process.returncode, b"BrokenPipeError" in err))
    assert found[0] == found[1] == (1 if unbuffered else 120, True)


def test_it_is_a_process_of_its_own() -> None:
    code = "import os, sys, time; print(os.getpid(), os.getsid(0), flush=True); time.sleep(60)"
    with PreloadedPopen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True) as one:
        assert one.stdout is not None and one.stdout.readline().split() == [str(one.pid)] * 2
        assert one.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            one.wait(0.01)
        os.killpg(one.pid, signal.SIGINT)
        assert one.wait(60) == one.poll() == -signal.SIGINT


def test_an_ended_process_can_be_signalled_until_it_is_waited_for() -> None:
    with PreloadedPopen([sys.executable, "-c", "pass"], start_new_session=True) as process:
        stat, end = Path(f"/proc/{process.pid}/stat"), time.monotonic() + 60
        while ") Z " not in stat.read_text() and time.monotonic() < end:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(60) == 0


def test_what_is_preloaded_is_torch_and_what_comparing_imports() -> None:
    pytest.importorskip("torch")
    code = "import sys; print(*(one for one in sys.modules if re.match('torch$|probe|support|click$', one)))"
    found = outcome(preloaded.run, ["-c", f"import re; {code}"])[1].split()
    assert {"torch", "click", *(name for name in compared_with() if name.startswith("probe"))} <= set(found)
    assert not {"probe_metrics.kernel", "probe_reporters.lines", "probe_core.cli.__main__"}.intersection(found)
    assert not [name for name in found if name.startswith("support")]


def test_what_is_preloaded_does_not_ask_for_variables_of_probe() -> None:
    """Forked processes have variables of their own."""
    code = (
        "import importlib, os, sys\n"
        "class Variables(dict):\n"
        "    def __getitem__(self, name):\n"
        "        assert not name.startswith('PROBE_'), name\n"
        "        return super().__getitem__(name)\n"
        "    def get(self, name, default=None):\n"
        "        return self[name] if name in self else default\n"
        "    def __contains__(self, name):\n"
        "        assert not str(name).startswith('PROBE_'), name\n"
        "        return super().__contains__(name)\n"
        "os.environ = Variables(os.environ)\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "try:\n"
        "    import probe_metrics.kernel\n"
        "except AssertionError as error:\n"
        "    print(error)\n"
    )
    assert outcome(subprocess.run, ["-c", code, *compared_with()])[:2] == (0, "PROBE_ENGINE\n")


def test_random_numbers_differ_from_process_to_process() -> None:
    pytest.importorskip("numpy")
    code = "import random, numpy; print(random.random(), numpy.random.rand())"
    first, second = (outcome(preloaded.run, ["-c", code])[1].split() for _ in range(2))
    assert all(one != other for one, other in zip(first, second))


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["-W", "ignore", "-c", "pass"], {}),
        (["-X", "importtime", "-c", "pass"], {}),
        (["-c", "pass"], {"env": {**os.environ, "PYTHONHASHSEED": "1"}}),
        (["-c", "pass"], {"env": {**os.environ, "OMP_NUM_THREADS": "3"}}),
        (["-c", "pass"], {"preexec_fn": lambda: None}),
    ],
)
def test_what_only_a_fresh_interpreter_can_is_given_one(arguments: list[str], options: dict[str, Any]) -> None:
    pipe = subprocess.PIPE
    with PreloadedPopen([sys.executable, *arguments], stdout=pipe, stderr=pipe, **options) as process:
        assert not is_forked(process)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_fresh_interpreters_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE_TEST_FRESH", "1")
    with PreloadedPopen([sys.executable, "-c", "import sys; sys.exit('torch' in sys.modules)"]) as process:
        assert not is_forked(process)
    assert process.returncode == 0


def test_no_streams_are_left_open() -> None:
    pytest.importorskip("torch")
    places = [f"/proc/{number}/fd" for number in (os.getpid(), preloaded.forker()._process.pid)]
    before = [len(list(Path(place).iterdir())) for place in places]
    for _ in range(8):
        outcome(preloaded.run, ["-c", "pass"])
    with PreloadedPopen([sys.executable, "-c", "import os; print(os.listdir('/proc/self/fd'))"],
                        stdout=subprocess.PIPE, text=True) as process:  # fmt: skip
        out, _ = process.communicate()
    assert len(re.findall(r"\d+", out)) == 4, "three streams, and the directory itself"
    assert all(len(list(Path(place).iterdir())) <= had + 2 for place, had in zip(places, before))
