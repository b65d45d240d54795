"""Main loop of a worker process: run jobs until the parent closes the channel or ends.

A message is a length followed by a pickle. In messages to the parent, a byte before the pickle is the kind.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from probe_ranks.processes import end_with_parent, replace_variables, unblock_interrupts

from probe_core.errors import UserError, make_printable
from probe_precheck.memory import limit_process

Setup = Callable[[int], Callable[[Any], Any]]
"""Function that receives the slot number of the worker and returns the function that runs a job."""

LENGTH = struct.Struct("!Q")
"""Layout of a message's length."""


class MessageKind(IntEnum):
    """Kind of a message to the parent."""

    READY = 0
    REFUSED = 1
    RESULT = 2
    RAISED = 3


class WorkerMessage(NamedTuple):
    """Message to the parent: its kind, and a pickle."""

    kind: MessageKind
    data: bytes


def serve(channel: socket.socket, log: int, variables: Mapping[str, str]) -> None:
    """Set up the process by the first message, then run a job for each further message.

    Args:
        channel: The socket to the parent.
        log: The file descriptor for the output.
        variables: The environment variables of the process.
    """
    _set_up_process(log, variables)
    with channel, cast(BinaryIO, channel.makefile("rwb")) as stream:
        first_message = _read(stream)
        if first_message is None:
            return
        setup, slot = pickle.loads(first_message)
        try:
            run_job: Callable[[Any], Any] = setup(slot)
        except UserError as error:
            _write(stream, MessageKind.REFUSED, pickle.dumps((error.what, error.fix, error.choices)))
            return
        limit_process()
        _write(stream, MessageKind.READY, b"")
        while (job := _read(stream)) is not None:
            _write(stream, *_run_job(run_job, job))


def _set_up_process(log: int, variables: Mapping[str, str]) -> None:
    """Redirect output, ignore Ctrl-C, end with the parent, and be killed first if there is not enough memory."""
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    unblock_interrupts()
    end_with_parent()
    replace_variables(variables)
    os.setpgid(0, 0)  # child processes of a job are killed with it
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _run_job(run_job: Callable[[Any], Any], job: bytes) -> WorkerMessage:
    try:
        return WorkerMessage(MessageKind.RESULT, pickle.dumps(run_job(pickle.loads(job)), pickle.HIGHEST_PROTOCOL))
    except Exception as error:
        reason = describe_exception(error)
    return WorkerMessage(MessageKind.RAISED, pickle.dumps(reason))


def describe_exception(error: Exception) -> str:
    """Return the text of an exception as the reason why a job failed."""
    try:
        text = f": {error}" if str(error) else ""
    except Exception:
        text = ""
    return make_printable(f"raised {type(error).__name__}{text}")


def _read(stream: BinaryIO) -> bytes | None:
    header = stream.read(LENGTH.size)
    return stream.read(LENGTH.unpack(header)[0]) if len(header) == LENGTH.size else None


def _write(stream: BinaryIO, kind: MessageKind, data: bytes) -> None:
    stream.write(LENGTH.pack(len(data) + 1) + bytes([kind]))
    stream.write(data)
    stream.flush()
