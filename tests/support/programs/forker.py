"""The process behind ``preloaded``: imports torch once, then forks for each job and tells how it ended."""

from __future__ import annotations

import array
import atexit
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import traceback
import types
import warnings
from contextlib import suppress
from importlib.machinery import BuiltinImporter, SourceFileLoader
from multiprocessing import util
from typing import Any, NoReturn

Job = dict[str, Any]
SERVERS = ("from multiprocessing.forkserver import main", "from multiprocessing.resource_tracker import main")
"""Beginnings of the programs of the servers that multiprocessing starts."""
LEFT: list[Any] = []
"""Streams that other ones have replaced; collected, they would write what is in their buffers."""
spawn_fresh = util.spawnv_passfds


def preload(names: list[str]) -> None:
    """Import what most programs of the tests import, and these modules; call functions named ``module:function``."""
    import ml_dtypes  # noqa: F401
    import numpy  # noqa: F401

    with suppress(ImportError):
        import torch._dynamo  # by every optimizer
        import torch.distributed.fsdp
        import torch.distributed.tensor  # noqa: F401
    for name in names:
        with suppress(ImportError):
            module, _, function = name.partition(":")
            found = importlib.import_module(module)
            if function:
                getattr(found, function)()
    gc.collect()
    gc.freeze()


def preload_further(names: str) -> None:
    """Import what the jobs of one test share (the variable ``PROBE_TEST_IMPORTS``), once for all of them."""
    for name in names.split():
        if name not in sys.modules:
            with suppress(ImportError):
                importlib.import_module(name)
                gc.freeze()


def serve(control: socket.socket) -> Job:
    """Fork for each job; return the job in the forked process, and never in this one."""
    told: dict[int, socket.socket] = {}
    waking, awake = socket.socketpair()
    waking.setblocking(False)
    awake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(awake.fileno())
    events = selectors.DefaultSelector()
    events.register(control, selectors.EVENT_READ)
    events.register(waking, selectors.EVENT_READ)
    while True:
        ready = {key.fileobj for key, _ in events.select()}
        if waking in ready:
            with suppress(BlockingIOError):
                waking.recv(4096)
            for number, status in told.items():
                if status not in events.get_map() and tell(number, status):
                    events.register(status, selectors.EVENT_READ)
        for number, status in list(told.items()):
            if status in ready:  # whoever asked has read it, and closed its side
                events.unregister(status)
                status.close()
                del told[number]
                os.waitpid(number, 0)
        if control in ready:
            job, fds = receive(control)
            if not job:
                os._exit(0)
            preload_further(job["env"].get("PROBE_TEST_IMPORTS", ""))
            status = socket.socket(fileno=fds.pop())
            number = os.fork()
            if not number:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for one in (control, waking, awake, events, *told.values(), status):
                    one.close()
                for fd in range(3):
                    os.dup2(fds[fd], fd)
                for fd in fds:
                    os.close(fd)
                return job
            for fd in fds:
                os.close(fd)
            told[number] = status
            with suppress(OSError):
                status.send(str(number).encode())


def tell(number: int, status: socket.socket) -> bool:
    """Tell how a process ended if it has; it stays a zombie, so that its number is given to no other."""
    found = os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return False
    code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
    with suppress(OSError):
        status.send(str(code).encode())
    return True


def receive(control: socket.socket) -> tuple[Job, list[int]]:
    """The next job and its streams; an empty one once nobody asks any more."""
    fds = array.array("i")
    head, ancillary, *_ = control.recvmsg(8, socket.CMSG_SPACE(4 * fds.itemsize))
    if len(head) < 8:
        return {}, []
    for _, _, data in ancillary:
        fds.frombytes(data)
    text = b""
    while len(text) < int.from_bytes(head, "big"):
        text += control.recv(1 << 20)
    return json.loads(text.decode("utf-8", "surrogateescape")), list(fds)


def become(job: Job, before: list[str]) -> None:
    """Take on the streams, variables, directory and path of a job."""
    if job["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    places = [one for one in job["env"].get("PYTHONPATH", "").split(os.pathsep) if one]
    sys.path[:] = [*map(os.path.abspath, places), *before]
    sys.path_importer_cache.clear()
    open_streams(bool(job["env"].get("PYTHONUNBUFFERED")))
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def open_streams(unbuffered: bool) -> None:
    """Open the standard streams anew, with nothing in their buffers."""
    for name, fd in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        old = getattr(sys, name)
        raw = open(fd, "rb" if fd == 0 else "wb", buffering=0 if unbuffered and fd else -1, closefd=False)  # noqa: SIM115
        text = io.TextIOWrapper(
            raw,  # type: ignore[arg-type]
            encoding=old.encoding,
            errors=old.errors,
            line_buffering=fd == 2 or os.isatty(fd),
            write_through=unbuffered,
        )
        text.mode = "r" if fd == 0 else "w"  # type: ignore[misc]
        LEFT.append(old)
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def serve_forked(path: bytes, arguments: list[str], fds: list[int]) -> int:
    """Start a server of multiprocessing by a fork of the process that asks for it; return its number.

    It takes the place of ``multiprocessing.util.spawnv_passfds``: a fresh interpreter would import torch again, which
    takes 2.3 s of CPU time, and a receiver or a pre-check starts one such server.
    """
    code = arguments[-1]
    if not code.startswith(SERVERS):
        return spawn_fresh(path, arguments, fds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, from Python 3.12 on
        number = os.fork()
    if number:
        return number
    try:
        gc.freeze()  # nothing of the program is collected, and closes what is open here under its number
        signal.set_wakeup_fd(-1)
        for one in signal.valid_signals():
            if callable(signal.getsignal(one)):
                signal.signal(one, signal.default_int_handler if one == signal.SIGINT else signal.SIG_DFL)
        for fd in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
            if fd > 2 and fd not in fds:
                with suppress(OSError):
                    os.close(fd)
        open_streams(bool(os.environ.get("PYTHONUNBUFFERED")))
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(code, main.__dict__)
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def run(arguments: list[str]) -> None:
    """Do what the interpreter does with these arguments."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    kind, *rest = arguments
    if kind == "-c":
        code, *more = rest
        main.__loader__ = BuiltinImporter
        sys.argv[:] = ["-c", *more]
        sys.path.insert(0, "")
        exec(compile(code, "<string>", "exec"), main.__dict__)
    elif kind == "-m":
        name, *more = rest
        sys.argv[:] = ["-m", *more]
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]
    else:
        sys.argv[:] = arguments
        path = os.path.abspath(kind)  # noqa: PTH100
        sys.path.insert(0, os.path.dirname(os.path.realpath(kind)))  # noqa: PTH120
        main.__dict__.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
        with open(path, "rb") as file:  # noqa: PTH123
            code_object = compile(file.read(), path, "exec")
        exec(code_object, main.__dict__)


def end(code: int, stopped: bool = False) -> NoReturn:
    """End as an interpreter does, but for the modules, which are not taken apart: that costs ten times the rest."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            if stream is sys.stdout:
                with suppress(OSError):
                    print(f"Exception ignored in: {stream!r}\n{type(error).__name__}: {error}", file=sys.stderr)
                code = 120
    if stopped:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


def ended(error: BaseException | None) -> NoReturn:
    """End with the code that the program's last exception stands for; show what is none of leaving."""
    if error is None:
        end(0)
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            end((error.code or 0) & 0xFF)
        print(error.code, file=sys.stderr)
        end(1)
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    end(1, isinstance(error, KeyboardInterrupt))


def main() -> None:
    """Serve; in a forked process, do the job and end."""
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = [one for one in sys.path[1:] if one not in own]
    preload(sys.argv[2:])
    util.spawnv_passfds = serve_forked  # type: ignore[assignment]
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        become(asked, path)
        run(asked["arguments"])
    except BaseException as error:
        ended(error)
    ended(None)


if __name__ == "__main__":
    main()
