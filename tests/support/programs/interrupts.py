"""Processes that a test interrupts."""

from __future__ import annotations

import signal


def let_interrupts_in() -> None:
    """Let Ctrl-C reach a process that is being started: ``Popen(..., preexec_fn=let_interrupts_in)``.

    What a shell runs in the background, or nohup, ignores it, and so would all that is started there.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
