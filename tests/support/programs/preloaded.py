"""Python processes that start with torch and probe imported: forked from one process that imported them once.

``PreloadedPopen`` is ``subprocess.Popen`` for ``[sys.executable, "-c" | "-m" | FILE, …]``: a process of its own with its
own arguments, variables, directory and standard streams, its own end (threads, atexit, exit code). It costs 0.04 s of
CPU time where a fresh one costs 2.3 s. What it does not have is a fresh interpreter: tests of what is imported
when, of memory, of ``python -X`` or ``-W`` and of another hash seed start ``subprocess.Popen``, and so does every test
with ``PROBE_TEST_FRESH=1``.
"""

from __future__ import annotations

import array
import atexit
import inspect
import json
import os
import socket
import subprocess
import sys
from typing import Any

from support.programs.imported import READ, compared_with
from support.programs.interrupts import let_interrupts_in

FORKER = os.path.join(os.path.dirname(__file__), "forker.py")  # noqa: PTH118, PTH120
IMPORT_TIME = (
    "PYTHON", "OMP_", "KMP_", "MKL_", "GOMP_", "OPENBLAS_", "TORCH", "ATEN_", "ONEDNN_", "LD_", "LC_", "LANG",
)  # fmt: skip
"""Beginnings of the names of variables that are read while Python starts or torch is imported."""
LATER = {
    "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "TORCHINDUCTOR_CACHE_DIR", "TORCH_DEVICE_BACKEND_AUTOLOAD",
}  # fmt: skip
"""Those of them that the forker heeds, or that are read later; without devices of others it was started itself."""


class PreloadedPopen(subprocess.Popen[Any]):
    """A process forked from one that has imported torch; a fresh one where that would not be the same."""

    _status: socket.socket | None = None

    def _execute_child(self, *arguments: Any, **keywords: Any) -> None:
        given = inspect.signature(super()._execute_child).bind(*arguments, **keywords).arguments
        if not can_fork(given):
            super()._execute_child(*arguments, **keywords)
            return
        job = {
            "arguments": [os.fsdecode(one) for one in given["args"][1:]],
            "cwd": os.fspath(given["cwd"] or "."),
            "env": variables(given["env"]),
            "session": bool(given["start_new_session"]),
        }
        if not job["cwd"].startswith("/"):
            job["cwd"] = os.path.abspath(job["cwd"])  # noqa: PTH100
        fds = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        self._status = forker().start(job, [own if fd == -1 else fd for own, fd in enumerate(fds)])
        self.pid = int(self._told(None) or 0)
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[end] for end in ends))  # type: ignore[attr-defined]

    def _told(self, timeout: float | None) -> str | None:
        """The next number that the forker tells of this process; None if none came in time."""
        assert self._status is not None
        self._status.settimeout(timeout)
        try:
            text = self._status.recv(64).decode()
        except (BlockingIOError, TimeoutError):
            return None
        if not text:
            raise RuntimeError("the process that forks for the tests has ended")
        return text

    def _internal_poll(self, *arguments: Any, **keywords: Any) -> int | None:
        if self._status is None:
            return super()._internal_poll(*arguments, **keywords)
        if self.returncode is None:
            self._ended(0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self._status is None:
            return super()._wait(timeout=timeout)
        if self.returncode is None and not self._ended(timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def _ended(self, timeout: float | None) -> bool:
        told = self._told(timeout)
        if told is not None:
            self.returncode = int(told)
            assert self._status is not None
            self._status.close()
        return told is not None


def run(command: Any, **options: Any) -> subprocess.CompletedProcess[Any]:
    """``subprocess.run`` for a preloaded process."""
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    timeout, check = options.pop("timeout", None), options.pop("check", False)
    with PreloadedPopen(command, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def can_fork(given: dict[str, Any]) -> bool:
    """Return True if a forked process is the same as the fresh one that is asked for."""
    arguments = given["args"]
    if sys.platform != "linux" or os.environ.get("PROBE_TEST_FRESH") or given["shell"] or given["pass_fds"]:
        return False
    if given["preexec_fn"] not in (None, let_interrupts_in):  # a forked process lets them in
        return False
    if isinstance(arguments, (str, bytes)) or os.fspath(arguments[0]) != sys.executable or len(arguments) < 2:
        return False
    first = os.fsdecode(arguments[1])
    if first.startswith("-") and first not in ("-c", "-m"):
        return False
    asked, own = variables(given["env"]), dict(os.environ)
    changed = {name for name in asked.keys() | own.keys() if asked.get(name, "") != own.get(name, "")} - LATER
    return not any(name.startswith(IMPORT_TIME) for name in changed)


def variables(env: Any) -> dict[str, str]:
    """The variables of a process as text."""
    found = os.environ if env is None else env
    return {os.fsdecode(name): os.fsdecode(value) for name, value in found.items()}


class Forker:
    """The process that has imported torch, and forks."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, FORKER, str(theirs.fileno()), *compared_with(), *READ],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        atexit.register(self.end)

    def start(self, job: dict[str, Any], fds: list[int]) -> socket.socket:
        """Start a process with these three streams; from the socket come its number and, once, its status."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        text = json.dumps(job).encode("utf-8", "surrogateescape")
        sent = array.array("i", [*fds, theirs.fileno()])
        head = len(text).to_bytes(8, "big")
        self._socket.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)])
        self._socket.sendall(text)
        theirs.close()
        return ours

    def end(self) -> None:
        """End it; processes that it forked run on."""
        self._socket.close()
        self._process.wait()


_forkers: dict[int, Forker] = {}


def forker() -> Forker:
    """The forker of this process, started when first needed."""
    if os.getpid() not in _forkers:
        _forkers[os.getpid()] = Forker()
    return _forkers[os.getpid()]
