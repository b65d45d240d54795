"""Deeds of supervised processes in tests: a payload names one."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NoReturn

from probe_core.errors import UserError

CRASHES = {"segfault": signal.SIGSEGV, "abort": signal.SIGABRT, "killed": signal.SIGKILL}


class Unreadable:
    """Can be pickled, and not be read again."""

    def __reduce__(self) -> tuple[Any, ...]:
        return refuse, ("unreadable",)


class SlowToSend:
    """Bytes whose pickling takes some seconds."""

    def __init__(self, seconds: float, size: int) -> None:
        self.seconds = seconds
        self.size = size

    def __reduce__(self) -> tuple[Any, ...]:
        time.sleep(self.seconds)
        return bytes, (bytes(self.size),)


class Mute(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("mute")


def refuse(text: str) -> NoReturn:
    raise ValueError(text)


def do(slot: int, deed: tuple[str, Any]) -> Any:
    """The job: what ``deed`` says."""
    what, value = deed
    if what in CRASHES:
        os.kill(os.getpid(), CRASHES[what])
        time.sleep(60)
    if what == "hang with the lock":  # no thread of Python's runs meanwhile, and no handler of signals
        ctypes.PyDLL(None).usleep(60_000_000)
    deeds: dict[str, Callable[[Any], Any]] = {
        "give": lambda value: value,
        "size": len,
        "big": bytes,
        "map": lambda size: len(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)),
        "pid": lambda _: os.getpid(),
        "slot": lambda _: slot,
        "loaded": lambda name: name in sys.modules,
        "variable": os.environ.get,
        "sleep": lambda seconds: time.sleep(seconds) or os.getpid(),
        "exit": os._exit,
        "leave": sys.exit,
        "raise": refuse,
        "mute": lambda _: refuse_to_speak(),
        "no memory": lambda _: refuse_memory(),
        "unpicklable": lambda _: threading.Lock(),
        "unreadable": lambda _: Unreadable(),
        "say": say,
        "say and exit": lambda text: (say(text), os._exit(3)),
        "close": lambda _: os.closerange(3, 100),
        "stop": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
        "stop later": lambda seconds: threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGSTOP)).start(),
        "thread": lambda _: threading.Thread(target=time.sleep, args=(60,)).start(),
        "at exit": lambda file: Finalize(None, Path(file).touch, exitpriority=1) and None,
        "read": lambda file: Path(file).read_text(),
        "child": child,
        "interrupt": lambda _: os.kill(os.getpid(), signal.SIGINT),
        "hang": lambda _: time.sleep(60),
    }
    return deeds[what](value)


def refuse_to_speak() -> NoReturn:
    raise Mute


def refuse_memory() -> NoReturn:
    raise MemoryError


def say(text: str) -> None:
    print("on stdout")
    sys.stdout.flush()
    os.write(2, text.encode())


def child(file: str) -> None:
    """Start a process, note its number, and hang."""
    Path(file).write_text(str(subprocess.Popen(["sleep", "60"]).pid))
    time.sleep(60)


# -- setups ----------------------------------------------------------------------------------------


def plain(slot: int) -> Callable[[Any], Any]:
    return partial(do, slot)


def noted(directory: str, slot: int) -> Callable[[Any], Any]:
    """Leaves a file named after the process."""
    Path(directory, str(os.getpid())).write_text(str(slot))
    return partial(do, slot)


def refused(slot: int) -> Callable[[Any], Any]:
    raise UserError("There is no device.", "Plug one in.", ("one", "two"))


def broken(directory: str, slot: int) -> Callable[[Any], Any]:
    noted(directory, slot)
    raise ImportError("no libdevice.so")


def dead(directory: str, slot: int) -> Callable[[Any], Any]:
    noted(directory, slot)
    say("the driver is gone\n\n")
    os.abort()


def dead_in_slot_0(directory: str, slot: int) -> Callable[[Any], Any]:
    return dead(directory, slot) if slot == 0 else noted(directory, slot)


def dead_at(starts: tuple[int, ...], directory: str, slot: int) -> Callable[[Any], Any]:
    return (dead if len(list(Path(directory).iterdir())) in starts else noted)(directory, slot)


def slow_in_slot_1(directory: str, slot: int) -> Callable[[Any], Any]:
    time.sleep(slot * 0.6)
    return noted(directory, slot)


def slow(seconds: float, slot: int) -> Callable[[Any], Any]:
    time.sleep(seconds)
    return partial(do, slot)
